//! Scripts: the Lua texts of `lua/`. Servers know them by their SHA-1.

use std::fmt;
use std::ops::Deref;

use super::Reply;

/// One Lua script.
///
/// The script is sent as `EVALSHA`. If the server does not know the script, it is sent once more, as `EVAL`, to the
/// same server. `EVAL` is sent at once if the script cache is off. `Transport::run_acknowledged` also sends `EVAL` at
/// once on a connection where the script has not run before.
///
/// A script that is equivalent to one command (its field `command`) may be sent as that command instead, once.
pub struct Script {
    /// Its name, text and command.
    pub(crate) wire: distlock_wire::Script,
    /// The script that runs many calls of this script and similar scripts at once, and the number of this script there.
    pub(crate) many: Option<(&'static Script, i64)>,
    /// Work of one call for the server. A call of the reentrant lock is 1.
    pub(crate) work: usize,
    /// True if the script touches undeclared keys in the slot of its name.
    pub(crate) reaches_beyond: bool,
    /// True if the script may publish a message that the lock is free.
    pub(crate) announces: bool,
    /// True if the script changes nothing, so it may be retried even if its outcome is unknown.
    pub(crate) reads_only: bool,
    /// For a script about several holds: extracts the part of its reply that is returned at once, without waiting for
    /// replicas. Returns `None` if the whole reply must wait.
    pub(crate) at_once: Option<fn(&Reply) -> Option<Reply>>,
}

impl Script {
    /// Creates a script with this name and text.
    pub const fn new(name: &'static str, source: &'static str) -> Self {
        Self {
            wire: distlock_wire::Script::new(name, source),
            many: None,
            work: 1,
            reaches_beyond: false,
            announces: false,
            reads_only: false,
            at_once: None,
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
        script.wire.command = Some(command);
        script
    }

    /// Creates a bare command without a script. The transport has to support commands.
    pub(crate) const fn bare(name: &'static str, command: &'static str) -> Self {
        let mut script = Self::new(name, "");
        script.wire.command = Some(command);
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
        self.wire.gains = Some(gains);
        self
    }

    /// Sets `at_once`.
    pub(crate) const fn telling(mut self, at_once: fn(&Reply) -> Option<Reply>) -> Self {
        self.at_once = Some(at_once);
        self
    }

    pub(crate) const fn working(mut self, work: usize) -> Self {
        self.work = work;
        self
    }
}

impl Deref for Script {
    type Target = distlock_wire::Script;

    fn deref(&self) -> &Self::Target {
        &self.wire
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Script").field(&self.name).finish()
    }
}
