//! A socket with TLS by rustls. One task reads it, and any task writes to it. Bytes that rustls has accepted are
//! encrypted in a buffer of rustls, and count as sent.

use std::io::{self, Read, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use parking_lot::Mutex;
use rustls::ClientConnection;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;

use crate::tls::{PLAIN, SILENT, Secured, accepts_without_tls, quoted};

/// Maximum number of bytes passed to rustls at a time: one record. So at most one record counts as sent without being
/// in the socket.
const RECORD: usize = 16 << 10;

#[derive(Debug)]
pub(super) struct Secure {
    socket: TcpStream,
    session: Mutex<ClientConnection>,
}

/// The socket, as rustls reads and writes it. It returns `WouldBlock` instead of waiting.
struct Socket<'a>(&'a TcpStream);

impl Read for Socket<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(bytes)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Secure {
    /// Performs the handshake. `place`: the address of the server. `within`: time limit for all of connecting. The
    /// handshake gets half of that time. The rest is for finding out why the server did not answer.
    pub(super) async fn over(
        socket: TcpStream,
        tls: &Secured,
        place: (&str, u16),
        within: Duration,
    ) -> io::Result<Arc<Self>> {
        let session = ClientConnection::new(Arc::clone(&tls.config), tls.name.clone()).map_err(io::Error::other)?;
        let secure = Arc::new(Self { socket, session: Mutex::new(session) });
        match tokio::time::timeout(within / 2, secure.shake_hands()).await {
            Ok(outcome) => outcome.map(|()| secure),
            Err(_) => {
                let is_plain = accepts_without_tls(place.0, place.1, within / 4).await;
                let (kind, what) =
                    if is_plain { (io::ErrorKind::InvalidData, PLAIN) } else { (io::ErrorKind::TimedOut, SILENT) };
                Err(io::Error::new(kind, quoted(what)))
            }
        }
    }

    async fn shake_hands(&self) -> io::Result<()> {
        loop {
            std::future::poll_fn(|context| self.poll_room(context)).await?;
            if !self.session.lock().is_handshaking() {
                return Ok(());
            }
            if std::future::poll_fn(|context| self.poll_take_in(context)).await? == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "tls handshake eof"));
            }
        }
    }

    /// Passes at most one record to rustls. Returns how many bytes were taken, or `WouldBlock` if there is no room.
    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut session = self.session.lock();
        self.flush(&mut session)?;
        let taken = session.writer().write(&bytes[..bytes.len().min(RECORD)])?;
        // The bytes may have left by now, so an error here does not count. The next write or read finds an error that
        // lasts.
        let _ = self.flush(&mut session);
        Ok(taken)
    }

    /// True if rustls holds bytes that the socket had no room for.
    pub(super) fn is_behind(&self) -> bool {
        self.session.lock().wants_write()
    }

    /// Sends the bytes that rustls holds. Ready when the socket has taken all of them, and may have room for more. Only
    /// the task that reads calls this.
    pub(super) fn poll_room(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.socket.poll_write_ready(context))?;
            match self.flush(&mut self.session.lock()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => return Poll::Ready(outcome),
            }
        }
    }

    fn flush(&self, session: &mut ClientConnection) -> io::Result<()> {
        while session.wants_write() {
            match session.write_tls(&mut Socket(&self.socket)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads from the socket once, and lets rustls process the bytes. Returns their number, 0 at the end of the stream.
    fn poll_take_in(&self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.socket.poll_read_ready(context))?;
            let mut session = self.session.lock();
            let bytes = match session.read_tls(&mut Socket(&self.socket)) {
                Ok(bytes) => bytes,
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                    continue;
                }
                Err(error) => return Poll::Ready(Err(error)),
            };
            let outcome = session.process_new_packets();
            // Sends rustls' own answers, and the alert after an error.
            let _ = self.flush(&mut session);
            return Poll::Ready(match outcome {
                Ok(_) => Ok(bytes),
                Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error)),
            });
        }
    }
}

/// The decrypted bytes.
pub(super) struct Reader(pub(super) Arc<Secure>);

impl AsyncRead for Reader {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let secure = &*self.0;
        loop {
            let read = secure.session.lock().reader().read(into.initialize_unfilled());
            match read {
                Ok(bytes) => {
                    into.advance(bytes);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
            // An error is ignored, because the server's last message, which is read next, tells why.
            if secure.is_behind() {
                let _ = secure.poll_room(context);
            }
            ready!(secure.poll_take_in(context))?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::path::Path;
    use std::process::Command;

    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::{ServerConfig, ServerConnection, StreamOwned};
    use tokio::io::AsyncReadExt as _;

    use super::*;
    use crate::Tls;

    /// Creates a certificate and its authority.
    fn certify(at: &Path) {
        let openssl = |args: &str| {
            let made = Command::new("openssl").args(args.split(' ')).current_dir(at).output();
            assert!(made.expect("openssl is needed (./x test gets it)").status.success(), "openssl {args}");
        };
        std::fs::write(at.join("names"), "subjectAltName=IP:127.0.0.1\n").unwrap();
        let make = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj";
        openssl(&format!("req -x509 {make} /CN=ca -keyout ca.key -out ca.pem"));
        openssl(&format!("req {make} /CN=server -keyout key.pem -out request"));
        openssl("x509 -req -in request -CA ca.pem -CAkey ca.key -CAcreateserial -extfile names -out cert.pem");
    }

    /// Accepted bytes that the socket has no room for are reported, leave when there is room, and arrive. Bytes of the
    /// other direction arrive too.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn accepted_bytes_leave_when_the_socket_has_room() {
        let dir = tempfile::tempdir().unwrap();
        certify(dir.path());
        let tls = Secured::new(&Tls::new().ca_file(dir.path().join("ca.pem")), "127.0.0.1").unwrap();
        let chain = CertificateDer::pem_file_iter(dir.path().join("cert.pem")).unwrap().map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_file(dir.path().join("key.pem")).unwrap();
        let server = ServerConfig::builder_with_provider(Arc::clone(tls.config.crypto_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (go, may_read) = std::sync::mpsc::channel::<usize>();
        let peer = std::thread::spawn(move || {
            let socket = listener.accept().unwrap().0;
            let session = ServerConnection::new(Arc::new(server)).unwrap();
            let mut stream = StreamOwned::new(session, socket);
            stream.conn.complete_io(&mut stream.sock).unwrap();
            let mut bytes = vec![0; may_read.recv().unwrap()];
            stream.read_exact(&mut bytes).unwrap();
            stream.write_all(&bytes).unwrap();
            stream.flush().unwrap();
        });
        let socket = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let place = ("127.0.0.1", port);
        let secure = Secure::over(socket, &tls, place, Duration::from_secs(60)).await.unwrap();
        let mut sent = Vec::new();
        // Pieces that do not fit into a record evenly.
        let piece: Vec<u8> = (0..40_000_u32).map(|n| (n % 251) as u8).collect();
        loop {
            match secure.try_write(&piece) {
                Ok(taken) => {
                    assert!(taken > 0 && taken <= RECORD, "{taken}");
                    sent.extend_from_slice(&piece[..taken]);
                }
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                    break;
                }
            }
            if secure.is_behind() {
                assert_eq!(secure.try_write(&piece).unwrap_err().kind(), io::ErrorKind::WouldBlock);
                break;
            }
        }
        assert!(secure.is_behind(), "all {} bytes had room", sent.len());
        go.send(sent.len()).unwrap();
        std::future::poll_fn(|context| secure.poll_room(context)).await.unwrap();
        assert!(!secure.is_behind());
        let (mut reader, mut back) = (Reader(Arc::clone(&secure)), vec![0; sent.len()]);
        reader.read_exact(&mut back).await.unwrap();
        assert!(back == sent, "what came back is not what was sent");
        peer.join().unwrap();
    }
}
