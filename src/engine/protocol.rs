//! What differs between flavours. Pure: builds calls and reads replies; no I/O, no clock, no task.

use std::fmt::Debug;
use std::sync::Arc;

use super::names::LockName;
use super::script::Script;
use super::transport::{Arg, Call, Reply};
use crate::error::Result;
use crate::owner::Owner;

/// What a script is told of an owner's hold count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    /// It shall be this afterwards: a repeat changes nothing.
    Exactly(u32),
    /// Somebody else may have changed it: move it by one. Never sent twice.
    ByOne,
}

/// What one attempt to acquire brought.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// The owner holds the lock.
    Held,
    /// Somebody else does. `Some`: the lease ends in so many ms at the latest; `None`: it has no end.
    Busy(Option<u64>),
    /// The owner was to come in again, but holds nothing any more.
    Gone,
}

/// What a release brought.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Release {
    /// So many holds are left.
    Left(u32),
    /// Free, and so many clients were told.
    Free(u32),
    /// Free, but the server refused to tell anybody.
    Untold(String),
    /// The owner held nothing; `Some`: who holds it.
    NotHeld(Option<String>),
}

/// What a flavour's holds are renewed by: one script for many locks, whatever their names.
pub(crate) struct Renewal {
    /// Keys: the locks. Arguments: the lease (negative: even if it is longer now), then an owner a key. Replies a list: 1,
    /// 0 or an error text a key.
    pub(crate) script: &'static Script,
}

impl Renewal {
    /// One command for many holds.
    pub(crate) fn call<'a>(
        &self,
        lease_ms: i64,
        holds: impl ExactSizeIterator<Item = (&'a LockName, &'a Owner)>,
    ) -> Call {
        let keys = holds.len();
        let mut words = Vec::with_capacity(2 * keys + 1);
        let mut owners = Vec::with_capacity(keys);
        for (name, owner) in holds {
            words.push(Arg::Text(name.key.clone()));
            owners.push(Arg::Text(owner.bytes()));
        }
        words.push(Arg::Int(lease_ms));
        words.append(&mut owners);
        Call { script: self.script, keys, words }
    }
}

/// One flavour's way of speaking to Redis about one lock.
pub(crate) trait Protocol: Debug + Send + Sync + 'static {
    /// The flavour's name, for metrics and logs.
    fn flavour(&self) -> &'static str;

    /// The lock's name.
    fn name(&self) -> &Arc<LockName>;

    /// Takes the lock.
    fn acquire(&self, owner: &Owner, lease_ms: i64, count: Count) -> Call;

    /// Reads what came of it.
    fn acquired(&self, reply: Reply) -> Result<Attempt>;

    /// Gives one hold back. `lease_ms` is for what is left.
    fn release(&self, owner: &Owner, lease_ms: i64, count: Count) -> Call;

    /// Reads what came of it.
    fn released(&self, reply: Reply) -> Result<Release>;

    /// How its holds are renewed.
    fn renewal(&self) -> &'static Renewal;

    /// Frees the lock whoever holds it.
    fn force(&self) -> Call;

    /// True when somebody held it.
    fn forced(&self, reply: Reply) -> Result<bool>;

    /// Asks who holds it.
    fn state(&self) -> Call;

    /// Reads who holds it: milliseconds left as `PTTL` gives them, and the holders with their counts.
    fn stated(&self, reply: Reply) -> Result<(i64, Vec<(String, u64)>)>;
}
