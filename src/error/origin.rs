//! Which lock and which server an error is about.

use std::error::Error as StdError;
use std::sync::Arc;

use super::details::after;
use super::{Error, Step};

/// The lock and the server that an error is about. Each is `None` if unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin(Option<Box<Named>>);

/// Boxed, so that `Result` stays small.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Named {
    lock: Option<Arc<str>>,
    server: Option<Arc<str>>,
}

impl Origin {
    /// Returns the lock's name.
    #[must_use]
    pub fn lock(&self) -> Option<&str> {
        self.0.as_ref()?.lock.as_deref()
    }

    /// Returns the server as `host:port`, or `unix:/path`.
    #[must_use]
    pub fn server(&self) -> Option<&str> {
        self.0.as_ref()?.server.as_deref()
    }

    fn named(&mut self) -> &mut Named {
        self.0.get_or_insert_default()
    }

    /// `word` followed by the server; empty if the server is unknown.
    fn after(&self, word: &str) -> String {
        self.server().map(|server| format!("{word}{server}")).unwrap_or_default()
    }
}

/// The origin of an error, as a shared or mutable reference like the argument.
macro_rules! origin_of {
    ($error:expr) => {
        match $error {
            Error::Connection { origin, .. }
            | Error::Server { origin, .. }
            | Error::Timeout { origin, .. }
            | Error::Replicas { origin, .. } => Some(origin),
            _ => None,
        }
    };
}

impl Error {
    pub(crate) fn timeout(step: Step) -> Self {
        Self::Timeout { step, origin: Origin::default() }
    }

    /// `message`: the server's text.
    pub(crate) fn server(message: impl Into<String>) -> Self {
        Self::Server { message: message.into(), origin: Origin::default() }
    }

    pub(crate) fn replicas(got: usize, wanted: usize) -> Self {
        Self::Replicas { got, wanted, origin: Origin::default() }
    }

    pub(crate) fn connection(
        message: impl Into<String>,
        outcome_unknown: bool,
        source: Option<Arc<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self::Connection { message: message.into(), outcome_unknown, source, origin: Origin::default() }
    }

    /// Returns the lock and the server that the error is about. None for kinds of errors without an origin; some of
    /// these have a `name` field instead.
    #[must_use]
    pub const fn origin(&self) -> Option<&Origin> {
        origin_of!(self)
    }

    const fn origin_mut(&mut self) -> Option<&mut Origin> {
        origin_of!(self)
    }

    /// The same error, with this lock as its origin unless it names a lock already.
    pub(crate) fn about(mut self, lock: &Arc<str>) -> Self {
        if let Some(origin) = self.origin_mut().filter(|origin| origin.lock().is_none()) {
            origin.named().lock = Some(Arc::clone(lock));
        }
        self
    }

    /// The same error, with this server as its origin unless it names a server already.
    pub(crate) fn at(mut self, server: Option<&Arc<str>>) -> Self {
        if let (Some(server), Some(origin)) = (server, self.origin_mut())
            && origin.server().is_none()
        {
            origin.named().server = Some(Arc::clone(server));
        }
        self
    }

    /// The text of an error with an origin.
    pub(super) fn text(&self) -> String {
        let lock = self.origin().and_then(Origin::lock).map(|lock| format!("the lock {lock:?}: ")).unwrap_or_default();
        let tail = match self {
            Self::Connection { outcome_unknown: true, .. } => {
                " (the command may have been carried out; in the background an acquire is undone, and a release is retried)"
            }
            Self::Timeout { step, .. } => after(*step),
            _ => "",
        };
        format!("{lock}{}{tail}", self.brief())
    }

    /// The error's text without the lock, and without what happens in the background.
    pub(crate) fn brief(&self) -> String {
        match self {
            Self::Connection { message, origin, .. } => {
                // Most messages begin with the server's name.
                let is_named = origin.server().is_some_and(|server| message.contains(server));
                let server = if is_named { String::new() } else { origin.after(" ") };
                format!("no answer from the server{server}: {message}")
            }
            Self::Server { message, origin } => format!("the server{} refused: {message}", origin.after(" ")),
            Self::Timeout { step, origin } => {
                format!("no answer in time{} while waiting for the {step}", origin.after(" from "))
            }
            Self::Replicas { got, wanted, origin } => format!(
                "{got} replicas{} have it in time, and {wanted} have to: it does not count, and may be tried again; see whether the \
                 replicas are connected and keep up, or ask for fewer (Options::acks) or wait longer (Options::ack_timeout)",
                origin.after(" of ")
            ),
            error => error.to_string(),
        }
    }
}
