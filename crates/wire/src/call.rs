//! Calls and replies.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use sha1::{Digest, Sha1};

use crate::Fault;

/// Message for a reply that is not RESP. The server's name is put in front of it.
pub const FOREIGN: &str = "what answers there does not speak Redis's protocol: check the host and the port, and whether it speaks TLS (rediss://)";

/// One key or argument of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arg {
    /// Bytes, sent as they are.
    Text(Bytes),
    /// An integer, sent in decimal digits.
    Int(i64),
}

impl Arg {
    /// Returns true for the empty text and for 0. A script assumes these values for an argument that is left out.
    pub fn is_default(&self) -> bool {
        match self {
            Self::Text(text) => text.is_empty(),
            Self::Int(int) => *int == 0,
        }
    }
}

/// A script, or a plain command.
pub struct Script {
    /// Name for errors and logs.
    pub name: &'static str,
    /// The Lua text. Empty for a plain command.
    pub source: &'static str,
    /// Name of the command that is sent instead of a script.
    pub command: Option<&'static str>,
    /// Decides by the reply whether the call has written something that replicas must acknowledge. `None`: never.
    pub gains: Option<fn(&Reply) -> bool>,
    sha: OnceLock<Bytes>,
}

impl Script {
    /// Creates a script.
    pub const fn new(name: &'static str, source: &'static str) -> Self {
        Self { name, source, command: None, gains: None, sha: OnceLock::new() }
    }

    /// Creates a plain command.
    pub const fn bare(name: &'static str, command: &'static str) -> Self {
        let mut script = Self::new(name, "");
        script.command = Some(command);
        script
    }

    /// Returns the SHA-1 of the source in hex digits, by which `EVALSHA` names the script.
    pub fn sha(&self) -> Bytes {
        self.sha.get_or_init(|| Bytes::from(format!("{:x}", Sha1::digest(self.source)))).clone()
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Script").field(&self.name).finish()
    }
}

/// One call of a script or command, ready to be sent.
#[derive(Clone, Debug)]
pub struct Call {
    /// The script.
    pub script: &'static Script,
    /// Number of keys. They are the first `words`.
    pub keys: usize,
    /// The keys, followed by the arguments.
    pub words: Vec<Arg>,
}

impl Call {
    /// Returns the approximate size on the wire, in bytes.
    pub fn size(&self) -> usize {
        self.words.iter().map(|word| if let Arg::Text(text) = word { text.len() + 8 } else { 16 }).sum()
    }
}

/// Reply of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// No value. Lua's `false` becomes this too.
    Nil,
    /// An integer.
    Int(i64),
    /// A byte string, or the text of a status such as `OK`.
    Text(Bytes),
    /// A list.
    List(Vec<Reply>),
}

/// Acknowledgements of a call's write that are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledge {
    /// Number of replicas.
    pub replicas: usize,
    /// Time limit of the `WAIT` behind the call.
    pub within: Duration,
    /// True if the call is about a slot that is being moved to this server. An `ASKING` is then sent before the call.
    pub asking: bool,
}

/// Reply of a call, before replicas have acknowledged the call's write.
pub struct Replied {
    /// The reply.
    pub reply: Reply,
    /// Resolves to the number of replicas that have acknowledged, as soon as there are enough, or when the time limit
    /// has passed. `None` if the call has written nothing that must be acknowledged ([`Script::gains`]). The future may
    /// be dropped.
    pub acknowledged: Option<BoxFuture<'static, Result<usize, Fault>>>,
}

impl fmt::Debug for Replied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replied").field("reply", &self.reply).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sha_is_the_hash_of_the_source() {
        let script = Script::new("x", "return 1");
        assert_eq!(script.sha(), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
    }
}
