//! Scripts: the Lua texts of `lua/`. Servers know them by their SHA-1.

use std::fmt;
use std::sync::OnceLock;

use bytes::Bytes;
use sha1::{Digest, Sha1};

use super::Reply;

/// One Lua script.
///
/// It is sent as `EVALSHA`. If the server does not know it, it is sent once more, as `EVAL`, to the same server. It is
/// sent as `EVAL` at once without a script cache, and by `Transport::run_acknowledged` on a connection where it has not
/// run before.
///
/// A script that is equivalent to one command (its field `command`) may be sent as that command instead, once.
pub struct Script {
    /// Name for logs: its file below `lua/`, `<folder>/many` for a script that combines several, or a name of its own
    /// for a bare command.
    pub name: &'static str,
    /// Lua text. Empty for a bare command.
    pub source: &'static str,
    /// The one command with the same effect, given the script's keys and arguments. A transport that supports only
    /// scripts may ignore it, unless `source` is empty.
    pub command: Option<&'static str>,
    /// The script that runs many calls of this script and similar ones at once, and the number of this script in it.
    pub(crate) many: Option<(&'static Script, i64)>,
    /// Work of one call for the server. A call of the reentrant lock is 1.
    pub(crate) work: usize,
    /// True if the script touches undeclared keys in the slot of its name.
    pub(crate) reaches_beyond: bool,
    /// True if the script may publish a message that the lock is free.
    pub(crate) announces: bool,
    /// True if the script changes nothing, so it may be retried even if its outcome is unknown.
    pub(crate) reads_only: bool,
    /// Set for a script that may acquire or prolong a hold: returns true if this reply says so. The script has then
    /// written, even if nothing changed, and replicas must have that write.
    pub(crate) gains: Option<fn(&Reply) -> bool>,
    /// For a script about several holds: extracts the part of its reply that is returned at once, without waiting for
    /// replicas. Returns `None` if the whole reply must wait.
    pub(crate) at_once: Option<fn(&Reply) -> Option<Reply>>,
    sha: OnceLock<Bytes>,
}

impl Script {
    /// Creates a script with this name and text.
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

    pub(crate) const fn step(name: &'static str, source: &'static str, many: &'static Self, number: i64) -> Self {
        let mut script = Self::new(name, source);
        script.many = Some((many, number));
        script
    }

    /// Creates a step that is equivalent to `command` with the same keys and arguments.
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

    /// Creates a bare command without a script. The transport has to support commands.
    pub(crate) const fn bare(name: &'static str, command: &'static str) -> Self {
        let mut script = Self::new(name, "");
        script.command = Some(command);
        script
    }

    pub(crate) const fn reaching_beyond(mut self) -> Self {
        self.reaches_beyond = true;
        self
    }

    pub(crate) const fn announcing(mut self) -> Self {
        self.announces = true;
        self
    }

    pub(crate) const fn reading(mut self) -> Self {
        self.reads_only = true;
        self
    }

    /// Marks a script that acquires or prolongs a hold if `gains` returns true for its reply.
    pub(crate) const fn gaining(mut self, gains: fn(&Reply) -> bool) -> Self {
        self.gains = Some(gains);
        self
    }

    /// Has the part of the reply that `at_once` extracts returned alone, without waiting for replicas.
    pub(crate) const fn telling(mut self, at_once: fn(&Reply) -> Option<Reply>) -> Self {
        self.at_once = Some(at_once);
        self
    }

    pub(crate) const fn working(mut self, work: usize) -> Self {
        self.work = work;
        self
    }

    /// Returns the SHA-1 of the text in lower-case hex, as `EVALSHA` needs it.
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
