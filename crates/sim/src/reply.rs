//! Replies of the simulated server.

use bytes::Bytes;

use distlock::transport::{Fault, FaultKind, Reply};

/// The reply of a command or script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SimReply {
    /// No value.
    Nil,
    /// An integer.
    Int(i64),
    /// A status such as `OK`.
    Status(String),
    /// A byte string.
    Text(Bytes),
    /// A list.
    List(Vec<SimReply>),
    /// An error. Its text begins with the error code.
    Error(String),
}

impl SimReply {
    pub(super) fn ok() -> Self {
        Self::Status("OK".into())
    }

    /// Returns the value of an integer reply.
    pub fn int(&self) -> Option<i64> {
        if let Self::Int(n) = self { Some(*n) } else { None }
    }

    /// Returns the text of an error reply.
    pub fn error(&self) -> Option<&str> {
        if let Self::Error(text) = self { Some(text) } else { None }
    }

    /// Converts to the reply of a `Transport`: a status becomes text, an error becomes a fault.
    pub(super) fn into_engine(self) -> Result<Reply, Fault> {
        match self {
            Self::Error(text) => Err(refused(text)),
            other => Ok(other.into_plain()),
        }
    }

    fn into_plain(self) -> Reply {
        match self {
            Self::Nil => Reply::Nil,
            Self::Int(n) => Reply::Int(n),
            Self::Status(text) | Self::Error(text) => Reply::Text(Bytes::from(text)),
            Self::Text(text) => Reply::Text(text),
            Self::List(items) => Reply::List(items.into_iter().map(Self::into_plain).collect()),
        }
    }
}

/// Converts an error of the server to a fault.
pub(super) fn refused(text: String) -> Fault {
    let is_elsewhere = ["MOVED ", "ASK ", "TRYAGAIN "].iter().any(|code| text.starts_with(code));
    Fault::new(if is_elsewhere { FaultKind::Elsewhere } else { FaultKind::Refused }, text)
}
