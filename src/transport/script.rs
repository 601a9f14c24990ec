//! Scripts: Lua text from `lua/`, known to servers by its SHA-1.

use std::fmt;
use std::sync::OnceLock;

use bytes::Bytes;
use sha1::{Digest, Sha1};

use super::Reply;

/// One Lua script. Sent as `EVALSHA`; only when the server does not know it, once more as `EVAL` to the same server.
///
/// A script that does no more than one command (its field `command`) may be sent as that instead, once: whether the
/// server runs the command or its script comes to the same.
pub struct Script {
    /// Its name, for logs: its file below `lua/`, or `<folder>/many` where it is put together of several.
    pub name: &'static str,
    /// Its text.
    pub source: &'static str,
    /// The one command that does the same, with the script's keys and arguments behind its name. A transport that knows
    /// nothing but scripts need not heed it.
    pub command: Option<&'static str>,
    /// The script that runs many calls of this one and its like at once, and this one's number in it.
    pub(crate) many: Option<(&'static Script, i64)>,
    /// How much work a call of it is to the server, where a call of the reentrant lock is 1.
    pub(crate) work: usize,
    /// True where it touches keys of its name's slot that it does not declare.
    pub(crate) reaches_beyond: bool,
    /// True where it may end with a message that the lock is free.
    pub(crate) announces: bool,
    /// True if it changes nothing, so that it may be retried even if its outcome is unknown.
    pub(crate) reads_only: bool,
    /// Where it may make somebody a holder, or a holder for longer: whether it has, by its reply. It has written then, whatever was
    /// there before, and replicas are to have that.
    pub(crate) gains: Option<fn(&Reply) -> bool>,
    /// Of a reply about several, what does not have to wait for replicas; None where all of it has to.
    pub(crate) at_once: Option<fn(&Reply) -> Option<Reply>>,
    sha: OnceLock<Bytes>,
}

impl Script {
    /// A script of this name and text.
    pub const fn new(name: &'static str, source: &'static str) -> Self {
        Self {
            name,
            source,
            command: None,
            many: None,
            work: 1,
            reaches_beyond: false,
            announces: false,
            reads_only: false,
            gains: None,
            at_once: None,
            sha: OnceLock::new(),
        }
    }

    /// As `new`, for a script that is step `number` of `many`.
    pub(crate) const fn step(name: &'static str, source: &'static str, many: &'static Self, number: i64) -> Self {
        let mut script = Self::new(name, source);
        script.many = Some((many, number));
        script
    }

    /// As `step`, for a script that does what `command` does with its keys and arguments.
    pub(crate) const fn command(
        name: &'static str,
        source: &'static str,
        command: &'static str,
        many: &'static Self,
        number: i64,
    ) -> Self {
        let mut script = Self::step(name, source, many, number);
        script.command = Some(command);
        script
    }

    /// No script, but a command alone, for which a transport has to know commands.
    pub(crate) const fn bare(name: &'static str, command: &'static str) -> Self {
        let mut script = Self::new(name, "");
        script.command = Some(command);
        script
    }

    /// The same script, which touches keys that it does not declare.
    pub(crate) const fn reaching_beyond(mut self) -> Self {
        self.reaches_beyond = true;
        self
    }

    /// The same script, which may end with a message that the lock is free.
    pub(crate) const fn announcing(mut self) -> Self {
        self.announces = true;
        self
    }

    /// The same script, which changes nothing.
    pub(crate) const fn reading(mut self) -> Self {
        self.reads_only = true;
        self
    }

    /// The same script, which makes somebody a holder, or a holder for longer, where `gains` says so of its reply.
    pub(crate) const fn gaining(mut self, gains: fn(&Reply) -> bool) -> Self {
        self.gains = Some(gains);
        self
    }

    /// The same script, of whose reply that is answered alone, and before replicas are waited for, which `at_once` takes out of it.
    pub(crate) const fn telling(mut self, at_once: fn(&Reply) -> Option<Reply>) -> Self {
        self.at_once = Some(at_once);
        self
    }

    /// The same script, a call of which is so much work.
    pub(crate) const fn working(mut self, work: usize) -> Self {
        self.work = work;
        self
    }

    /// The SHA-1 of the text in lower-case hex, as `EVALSHA` wants it.
    pub fn sha(&self) -> Bytes {
        self.sha.get_or_init(|| Bytes::from(format!("{:x}", Sha1::digest(self.source)))).clone()
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Script").field(&self.name).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sha_is_that_of_the_text() {
        let script = Script::new("x", "return 1");
        assert_eq!(script.sha(), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
    }
}
