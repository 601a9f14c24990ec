//! Replies of the simulated server.

use bytes::Bytes;

use distlock::transport::{Fault, FaultKind, Reply};

/// What a command or script answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SimReply {
    /// Nothing.
    Nil,
    /// An integer.
    Int(i64),
    /// A status such as `OK`.
    Status(String),
    /// A string of bytes.
    Text(Bytes),
    /// A list.
    List(Vec<SimReply>),
    /// An error, its code first.
    Error(String),
}

impl SimReply {
    /// The status `OK`.
    pub(super) fn ok() -> Self {
        Self::Status("OK".into())
    }

    /// The integer, if it is one.
    pub fn int(&self) -> Option<i64> {
        if let Self::Int(n) = self { Some(*n) } else { None }
    }

    /// The text of an error, if it is one.
    pub fn error(&self) -> Option<&str> {
        if let Self::Error(text) = self { Some(text) } else { None }
    }

    /// As the engine sees it: a status is text, an error is a fault.
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

/// What an error of the server's means for the command.
pub(super) fn refused(text: String) -> Fault {
    let is_elsewhere = ["MOVED ", "ASK ", "TRYAGAIN "].iter().any(|code| text.starts_with(code));
    Fault::new(if is_elsewhere { FaultKind::Elsewhere } else { FaultKind::Refused }, text)
}
