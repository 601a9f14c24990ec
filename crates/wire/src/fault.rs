//! Why a command has no reply, and why there is no connection.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// Why a command has no reply, and whether it may have run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The command never left this process. It has not run and will not run.
    NotSent,
    /// The connection was lost. The command may have run, or may run yet.
    Lost,
    /// There was no answer in time. The command may have run, or may run yet.
    TimedOut,
    /// The server answered with an error. `message` is the server's text.
    Refused,
    /// Another server has the key, or the key is being moved. The command has not run and will not run. `message` is
    /// the server's text.
    Elsewhere,
    /// The command has run, but too few replicas have its write. The write may be lost with its server.
    Unacknowledged {
        /// Number of replicas that have the write.
        got: usize,
        /// Number of replicas that must have it.
        wanted: usize,
    },
    /// The transport is closed for good.
    Closed,
    /// The client's runtime has ended, and with it the task that carried the command. The command may have run.
    RuntimeGone,
}

/// A command that failed.
#[derive(Clone)]
pub struct Fault {
    /// Whether the command may have run.
    pub kind: FaultKind,
    /// Text for errors and logs.
    pub message: String,
    /// The underlying error.
    pub source: Option<Arc<dyn StdError + Send + Sync>>,
    /// Name of the server that the command was for, as shown in errors. The client fills in a missing name.
    pub server: Option<Arc<str>>,
}

impl Fault {
    /// Creates a fault without an underlying error.
    pub fn new(kind: FaultKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None, server: None }
    }

    /// Creates the fault of a command after the client was shut down.
    pub fn closed() -> Self {
        Self::new(FaultKind::Closed, "the client is shut down")
    }

    /// Creates the fault of a command after the client's runtime has ended.
    pub fn runtime_gone() -> Self {
        Self::new(FaultKind::RuntimeGone, "the client's runtime has ended")
    }

    /// Creates the fault of a command that was sent and not answered in time.
    pub fn no_answer() -> Self {
        Self::new(FaultKind::TimedOut, "no answer in time")
    }

    /// Creates the fault for an error of the server.
    pub(crate) fn refused(message: String) -> Self {
        let is_elsewhere = matches!(message.split(' ').next(), Some("MOVED" | "ASK" | "TRYAGAIN"));
        Self::new(if is_elsewhere { FaultKind::Elsewhere } else { FaultKind::Refused }, message)
    }

    /// Returns true if the command may have run, or has run without enough acknowledgements. Returns false for
    /// [`FaultKind::RuntimeGone`]: after its runtime has ended, the client cannot act on the doubt.
    pub const fn in_doubt(&self) -> bool {
        matches!(self.kind, FaultKind::Lost | FaultKind::TimedOut | FaultKind::Unacknowledged { .. })
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({:?})", self.kind, self.message)
    }
}

/// Why no connection could be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectFault {
    /// The server answered with an error, such as a refused login. `message` is its text.
    Refused,
    /// The server could not be reached, or does not speak the protocol.
    Unreachable,
    /// The time was up.
    TimedOut,
}

/// A failed attempt to connect.
#[derive(Clone, Debug)]
pub struct ConnectError {
    /// What happened.
    pub kind: ConnectFault,
    /// Text for errors and logs.
    pub message: String,
    /// The underlying error.
    pub source: Option<Arc<dyn StdError + Send + Sync>>,
    /// The server, as errors name it.
    pub server: Arc<str>,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for ConnectError {}
