//! Sockets: over TCP or a file, the half that one task reads from and the half that whoever has something to say writes to.

use std::io;
use std::path::{Path, PathBuf};
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::AsyncRead;
use tokio::net::{TcpStream, tcp};

/// Where a server listens.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    Tcp(String, u16),
    Unix(PathBuf),
}

/// After so long without a word the other side is asked whether it is there, and how often.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));

pub(super) type Reader = Box<dyn AsyncRead + Send + Sync + Unpin>;

/// Written to from any task.
#[derive(Debug)]
pub(super) enum Writer {
    Tcp(tcp::OwnedWriteHalf),
    #[cfg(unix)]
    Unix(tokio::net::unix::OwnedWriteHalf),
}

impl Writer {
    /// Writes what the socket has room for.
    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(half) => half.try_write(bytes),
            #[cfg(unix)]
            Self::Unix(half) => half.try_write(bytes),
        }
    }

    /// Ready when there may be room again.
    pub(super) fn poll_room(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(half) => half.as_ref().poll_write_ready(context),
            #[cfg(unix)]
            Self::Unix(half) => half.as_ref().poll_write_ready(context),
        }
    }
}

/// Connects. `user_timeout`: for how long what was sent may go without the kernel's acknowledgement.
pub(super) async fn connect(place: &Place, user_timeout: Duration) -> io::Result<(Reader, Writer)> {
    match place {
        Place::Tcp(host, port) => {
            let stream = TcpStream::connect((host.as_str(), *port)).await?;
            stream.set_nodelay(true)?;
            let socket = SockRef::from(&stream);
            socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE.0).with_interval(KEEPALIVE.1))?;
            #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
            socket.set_tcp_user_timeout(Some(user_timeout))?;
            #[cfg(not(any(target_os = "android", target_os = "fuchsia", target_os = "linux")))]
            let _ = user_timeout;
            let (read, write) = stream.into_split();
            Ok((Box::new(read), Writer::Tcp(write)))
        }
        Place::Unix(path) => connect_unix(path).await,
    }
}

#[cfg(unix)]
async fn connect_unix(path: &Path) -> io::Result<(Reader, Writer)> {
    let (read, write) = tokio::net::UnixStream::connect(path).await?.into_split();
    Ok((Box::new(read), Writer::Unix(write)))
}

#[cfg(not(unix))]
async fn connect_unix(_path: &Path) -> io::Result<(Reader, Writer)> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "there are no unix sockets here"))
}
