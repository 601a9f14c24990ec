//! Opens a connection: the socket, the login, the database.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;

use super::link::{Place, Reader, Writer, connect};
use super::resp::{Answer, Incoming, Input, write_words};
use crate::call::FOREIGN;
use crate::passing::without_arguments;
use crate::tls::{self, Secured};
use crate::{ConnectError, ConnectFault, Credentials, Provider, Secret, Settings};

/// A server, and how to log in to it.
#[derive(Clone, Debug)]
pub struct Target {
    /// Where it listens.
    pub place: Place,
    /// TLS settings; `None` for a connection without TLS.
    pub tls: Option<Secured>,
    /// User name; `None` for the default user.
    pub username: Option<Secret>,
    /// Password; `None` for no login.
    pub password: Option<Secret>,
    /// Queried before each login. Its answer replaces both user and password.
    pub credentials: Option<Provider>,
    /// Number of the database.
    pub database: u8,
}

/// Opens connections to one server.
#[derive(Debug)]
pub(super) struct Dialer {
    pub(super) target: Target,
    pub(super) within: Duration,
    pub(super) user_timeout: Duration,
    /// Name under which the server lists the connection; empty for none.
    pub(super) name: String,
    /// The server, as errors name it.
    pub(super) server: String,
    /// True once a connection was up.
    has_stood: AtomicBool,
}

impl Dialer {
    pub(super) fn new(target: Target, settings: &Settings) -> Self {
        let user_timeout = settings.user_timeout;
        let (within, name, has_stood) =
            (settings.connect_timeout, settings.client_name.clone(), AtomicBool::new(false));
        let server = target.place.to_string();
        Self { target, within, user_timeout, name, server, has_stood }
    }
}

pub(super) struct Opened {
    pub(super) reader: Reader,
    pub(super) writer: Writer,
    pub(super) input: Input,
}

/// Reason why there is no connection.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    pub(super) message: String,
    pub(super) source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    pub(super) hope: Hope,
    /// True if the server has closed the connection.
    is_broken_off: bool,
}

/// Whether a retry may help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hope {
    Some,
    /// A problem with certificates or TLS, or a port that is not Redis'. The setup has to be fixed.
    None,
    /// The server has refused the login or the database.
    Refused,
}

impl Trouble {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), source: None, hope: Hope::Some, is_broken_off: false }
    }

    /// Puts the server's name in front of the message.
    pub(super) fn at(mut self, server: &str) -> Self {
        if !self.message.starts_with(server) {
            self.message = format!("{server}: {}", self.message);
        }
        self
    }

    pub(super) fn into_error(self, server: &str) -> ConnectError {
        let kind = if self.hope == Hope::Refused { ConnectFault::Refused } else { ConnectFault::Unreachable };
        ConnectError { kind, message: self.message, source: self.source, server: Arc::from(server) }
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        if let Some(meaning) = tls::explain(&format!("{error:?}")) {
            let hope = if meaning.lasts { Hope::None } else { Hope::Some };
            return Self { message: meaning.text, source: Some(Arc::new(error)), hope, is_broken_off: false };
        }
        let message = match error.kind() {
            io::ErrorKind::UnexpectedEof => "the server has closed the connection".to_owned(),
            _ => error.to_string(),
        };
        let is_broken_off = matches!(
            error.kind(),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
        );
        Self { message, source: Some(Arc::new(error)), hope: Hope::Some, is_broken_off }
    }
}

/// Starts of the errors by which a server refuses a login or a database for good.
const FINAL: [&str; 8] = [
    "NOAUTH",
    "WRONGPASS",
    "NOPERM",
    "ERR invalid password",
    "ERR AUTH",
    "ERR Client sent AUTH",
    "ERR DB index",
    "ERR invalid DB index",
];

/// Handles a refusal during the login. The arguments that the server repeats are removed: they may contain the
/// password.
fn refused(mut message: String) -> Trouble {
    message.truncate(without_arguments(&message).len());
    let is_final = FINAL.iter().any(|text| message.starts_with(text));
    let hope = if is_final { Hope::Refused } else { Hope::Some };
    Trouble { hope, ..Trouble::new(message) }
}

impl Dialer {
    /// Tries to connect once. Returns `None` after a timeout.
    pub(super) async fn open(&self) -> Option<Result<Opened, Trouble>> {
        let opened = tokio::time::timeout(self.within, self.open_unbounded()).await.ok()?;
        // A refusal begins with the server's error code, so no name is put in front of it.
        Some(opened.map_err(|trouble| if trouble.hope == Hope::Refused { trouble } else { trouble.at(&self.server) }))
    }

    async fn open_unbounded(&self) -> Result<Opened, Trouble> {
        let Target { username, password, credentials, database, .. } = &self.target;
        let (username, password) = match credentials {
            // Queried before the socket exists, which would idle meanwhile.
            Some(provider) => {
                let Credentials { username, password } = provider.ask(self.within).await.map_err(Trouble::new)?;
                (username, Some(password))
            }
            None => (username.clone(), password.clone()),
        };
        let (reader, writer) = connect(&self.target, self.user_timeout, self.within).await?;
        let mut opened = Opened { reader, writer, input: Input::default() };
        let login = (username.as_ref(), password.as_ref());
        match opened.log_in(login, *database, &self.name).await {
            Ok(()) => {
                self.has_stood.store(true, Ordering::Relaxed);
                Ok(opened)
            }
            Err(trouble) => Err(self.with_hint(trouble)),
        }
    }

    /// Adds a hint: a server that closes connections at the login, and never accepted one, may want TLS.
    fn with_hint(&self, mut trouble: Trouble) -> Trouble {
        let has_stood = self.has_stood.load(Ordering::Relaxed);
        if trouble.is_broken_off
            && !has_stood
            && self.target.tls.is_none()
            && matches!(self.target.place, Place::Tcp(..))
        {
            trouble.message = format!("{}: {}", trouble.message, tls::IS_TLS);
        }
        trouble
    }
}

impl Opened {
    async fn log_in(
        &mut self,
        (user, password): (Option<&Secret>, Option<&Secret>),
        database: u8,
        name: &str,
    ) -> Result<(), Trouble> {
        let login: Option<(&[u8], &[u8])> = match (user, password) {
            (user, Some(password)) => Some((user.map_or(b"default", |user| user.0.as_bytes()), password.0.as_bytes())),
            (Some(user), None) => Some((user.0.as_bytes(), b"")),
            (None, None) => None,
        };
        let mut hello: Vec<&[u8]> = vec![b"HELLO", b"3"];
        if let Some((user, password)) = login {
            hello.extend([b"AUTH", user, password]);
        }
        if !name.is_empty() {
            hello.extend([b"SETNAME", name.as_bytes()]);
        }
        match self.ask(&hello).await? {
            Ok(_) => {}
            Err(error) if is_unknown(&error) => {
                // A server before Redis 6, or a proxy. Continues with RESP2.
                if let Some((_, password)) = login {
                    let mut auth: Vec<&[u8]> = vec![b"AUTH"];
                    auth.extend(user.map(|user| user.0.as_bytes()));
                    auth.push(password);
                    self.ask(&auth).await?.map_err(refused)?;
                }
                if !name.is_empty() {
                    // The name is only for operators, so a refusal is ignored.
                    let _ = self.ask(&[b"CLIENT", b"SETNAME", name.as_bytes()]).await?;
                }
                // Checks that the server accepts commands: it may require a login.
                self.ask(&[b"PING"]).await?.map_err(refused)?;
            }
            Err(error) => return Err(refused(error)),
        }
        if database != 0 {
            self.ask(&[b"SELECT", database.to_string().as_bytes()]).await?.map_err(refused)?;
        }
        Ok(())
    }

    /// Sends a command and waits for its reply. No other command is in flight.
    async fn ask(&mut self, words: &[&[u8]]) -> Result<Answer, Trouble> {
        let mut out = Vec::new();
        write_words(&mut out, words);
        let written = self.write(&out).await;
        // A failed write is reported only if there is no reply: the server may have said why it closed the connection.
        loop {
            if self.input.is_foreign() {
                return Err(Trouble { hope: Hope::None, ..Trouble::new(FOREIGN) });
            }
            match self.input.next().map_err(|garbage| Trouble::new(garbage.to_string()))? {
                Some(Incoming::Reply(answer)) => return Ok(answer),
                Some(Incoming::Push(_)) => continue,
                None => {}
            }
            match self.reader.read_buf(self.input.room()).await {
                Ok(0) => {
                    written?;
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
                }
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn write(&self, mut out: &[u8]) -> io::Result<()> {
        while !out.is_empty() {
            match self.writer.try_write(out) {
                Ok(n) => out = &out[n..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::future::poll_fn(|context| self.writer.poll_room(context)).await?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        while self.writer.is_behind() {
            std::future::poll_fn(|context| self.writer.poll_room(context)).await?;
        }
        Ok(())
    }
}

fn is_unknown(error: &str) -> bool {
    ["ERR unknown", "NOPROTO", "ERR unsupported", "unsupported", "ERR Protocol version"]
        .iter()
        .any(|text| error.starts_with(text))
}

/// Back-off between attempts to connect: no pause at first, then 20 ms, doubled each time up to 2 s. Each pause is
/// shortened at random by up to a quarter.
#[derive(Debug, Default)]
pub(super) struct Pauses(u32);

/// After a connection that was up for this long, the next attempt follows at once.
const GOOD: Duration = Duration::from_secs(1);

impl Pauses {
    /// Sets the next pause after a connection that was up for `long`. If it was of no use, the pauses keep growing, but
    /// only up to 320 ms. So a server that accepts connections and does nothing else is not dialled fifty times a
    /// second, and its recovery is noticed soon.
    pub(super) fn stood(&mut self, long: Duration, was_of_use: bool) {
        self.0 = match (long >= GOOD, was_of_use) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => self.0.clamp(1, 5),
        };
    }

    pub(super) async fn pause(&mut self) {
        if self.0 > 0 {
            let full = Duration::from_millis(20 << (self.0 - 1).min(7)).min(Duration::from_secs(2));
            tokio::time::sleep(full.mul_f64(1.0 - rand::random::<f64>() / 4.0)).await;
        }
        self.0 += 1;
    }
}

/// Opens `count` connections. Returns once all are up. Retries until the time is up, unless the error is final.
pub(super) async fn open_all(dialer: &Dialer, count: usize) -> Result<Vec<Opened>, ConnectError> {
    let latest = parking_lot::Mutex::new(None);
    let one = async || {
        let mut pauses = Pauses::default();
        loop {
            pauses.pause().await;
            match dialer.open().await {
                Some(Ok(opened)) => return Ok(opened),
                Some(Err(trouble)) if trouble.hope != Hope::Some => return Err(trouble),
                Some(Err(trouble)) => *latest.lock() = Some(trouble),
                None => {}
            }
        }
    };
    let all = futures::future::try_join_all((0..count).map(|_| one()));
    let failed = match tokio::time::timeout(dialer.within, all).await {
        Ok(Ok(opened)) => return Ok(opened),
        Ok(Err(trouble)) => Some(trouble),
        Err(_) => latest.lock().take(),
    };
    Err(failed.map_or_else(|| timed_out(&dialer.server), |trouble| trouble.into_error(&dialer.server)))
}

fn timed_out(server: &str) -> ConnectError {
    let message = format!("{server}: no connection in time");
    ConnectError { kind: ConnectFault::TimedOut, message, source: None, server: Arc::from(server) }
}
