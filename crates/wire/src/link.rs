//! Sockets over TCP or a Unix path. The reading half belongs to one task. Any task may use the writing half.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::path::{Path, PathBuf};
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::AsyncRead;
use tokio::net::{TcpStream, tcp};

use super::dial::Target;

/// Where a server listens.
#[derive(Clone, Debug)]
pub enum Place {
    /// A host or address, and a port.
    Tcp(String, u16),
    /// The path of a socket.
    Unix(PathBuf),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') && !host.starts_with('[') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// TCP keepalive: idle time before the first probe, and interval between probes.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));

pub(super) type Reader = Box<dyn AsyncRead + Send + Sync + Unpin>;

/// The writing half of a socket, for any task.
#[derive(Debug)]
pub(super) enum Writer {
    Tcp(tcp::OwnedWriteHalf),
    #[cfg(any(feature = "rustls", feature = "rustls-ring"))]
    Tls(std::sync::Arc<super::secure::Secure>),
    #[cfg(unix)]
    Unix(tokio::net::unix::OwnedWriteHalf),
}

impl Writer {
    /// Writes some of the bytes. Returns how many, or `None` if the socket has no room. Over TLS, rustls may hold
    /// accepted bytes for a while ([`Writer::is_behind`]).
    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<Option<usize>> {
        loop {
            match self.write_once(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => return Ok(Some(written)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes all bytes. Returns when the socket has taken them.
    pub(super) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.try_write(bytes)? {
                Some(written) => bytes = &bytes[written..],
                None => self.room().await?,
            }
        }
        while self.is_behind() {
            self.room().await?;
        }
        Ok(())
    }

    pub(super) async fn room(&self) -> io::Result<()> {
        poll_fn(|context| self.poll_room(context)).await
    }

    fn write_once(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(half) => half.try_write(bytes),
            #[cfg(any(feature = "rustls", feature = "rustls-ring"))]
            Self::Tls(secure) => secure.try_write(bytes),
            #[cfg(unix)]
            Self::Unix(half) => half.try_write(bytes),
        }
    }

    /// True if rustls holds bytes that the socket has no room for yet. [`Writer::poll_room`] sends them.
    pub(super) fn is_behind(&self) -> bool {
        match self {
            #[cfg(any(feature = "rustls", feature = "rustls-ring"))]
            Self::Tls(secure) => secure.is_behind(),
            _ => false,
        }
    }

    /// Sends the bytes that rustls holds. Ready when the socket has taken all of them, and may have room for more.
    pub(super) fn poll_room(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            #[cfg(any(feature = "rustls", feature = "rustls-ring"))]
            Self::Tls(secure) => secure.poll_room(context),
            Self::Tcp(half) => half.as_ref().poll_write_ready(context),
            #[cfg(unix)]
            Self::Unix(half) => half.as_ref().poll_write_ready(context),
        }
    }
}

/// Connects. `user_timeout`: how long sent bytes may stay unacknowledged by the server's kernel (`TCP_USER_TIMEOUT`).
/// `within`: time limit of the whole attempt. A TLS handshake gets half of it.
pub(super) async fn connect(target: &Target, user_timeout: Duration, within: Duration) -> io::Result<(Reader, Writer)> {
    match (&target.place, &target.tls) {
        (Place::Tcp(host, port), None) => {
            let (read, write) = connect_tcp(host, *port, user_timeout).await?.into_split();
            Ok((Box::new(read), Writer::Tcp(write)))
        }
        #[cfg(any(feature = "rustls", feature = "rustls-ring"))]
        (Place::Tcp(host, port), Some(tls)) => {
            let stream = connect_tcp(host, *port, user_timeout).await?;
            let secure = super::secure::Secure::over(stream, tls, (host, *port), within).await?;
            Ok((Box::new(super::secure::Reader(std::sync::Arc::clone(&secure))), Writer::Tls(secure)))
        }
        #[cfg(not(any(feature = "rustls", feature = "rustls-ring")))]
        (Place::Tcp(..), Some(none)) => {
            let _ = within;
            match *none {}
        }
        (Place::Unix(path), _) => connect_unix(path).await,
    }
}

async fn connect_tcp(host: &str, port: u16, user_timeout: Duration) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE.0).with_interval(KEEPALIVE.1))?;
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    socket.set_tcp_user_timeout(Some(user_timeout))?;
    #[cfg(not(any(target_os = "android", target_os = "fuchsia", target_os = "linux")))]
    let _ = user_timeout;
    Ok(stream)
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
