//! Why there is no connection, and whether a retry may help.

use std::error::Error;
use std::io;
use std::sync::Arc;

use crate::bounds::Garbage;
use crate::passing::without_arguments;
use crate::{ConnectError, ConnectFault, Fault, FaultKind, tls};

#[derive(Clone, Debug)]
pub(crate) struct Trouble {
    pub(crate) message: String,
    pub(crate) source: Option<Arc<dyn Error + Send + Sync>>,
    pub(crate) hope: Hope,
    /// True if the server has closed the connection.
    pub(super) is_broken_off: bool,
}

/// Whether a retry may help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hope {
    Some,
    /// A retry may help. The server has not answered in time.
    Late,
    /// A retry does not help: the certificates, the TLS settings or the port have to be fixed.
    None,
    /// The server has refused the login or the database.
    Refused,
}

impl Trouble {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), source: None, hope: Hope::Some, is_broken_off: false }
    }

    pub(crate) fn at(mut self, server: &str) -> Self {
        if !self.message.starts_with(server) {
            self.message = format!("{server}: {}", self.message);
        }
        self
    }

    /// The fault of a command that needed this connection.
    pub(crate) fn fault(&self, kind: FaultKind) -> Fault {
        Fault { source: self.source.clone(), ..Fault::new(kind, &*self.message) }
    }

    pub(crate) fn into_error(self, server: &str) -> ConnectError {
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

impl From<Garbage> for Trouble {
    fn from(garbage: Garbage) -> Self {
        Self::new(garbage.to_string())
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
pub(super) fn refused(mut message: String) -> Trouble {
    message.truncate(without_arguments(&message).len());
    let is_final = FINAL.iter().any(|text| message.starts_with(text));
    let hope = if is_final { Hope::Refused } else { Hope::Some };
    Trouble { hope, ..Trouble::new(message) }
}
