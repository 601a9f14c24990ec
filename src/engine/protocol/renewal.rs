//! A renewal: one command for many holds of one kind.

use bytes::Bytes;

use crate::names::LockName;
use crate::owner::Owner;
use crate::transport::script::Script;
use crate::transport::{Arg, Call};

/// One hold, for a renewal.
pub(crate) struct Renewed<'a> {
    pub(crate) name: &'a LockName,
    pub(crate) owner: &'a Owner,
    /// The holds that are relied on, one `,id` each; empty where it is the only one.
    pub(crate) holds: Bytes,
    /// False: its own lease is not to be touched, only kept up against what others do.
    pub(crate) extend: bool,
}

/// What a flavour's holds are renewed by: one script for many locks, whatever their names.
#[derive(Debug)]
pub(crate) struct Renewal {
    /// Keys: each lock with the keys that `about` names. Arguments: the lease (negative: set even if it is longer now; 0: left as it is),
    /// the last moment, then what `about` says of each lock. Replies as `lua/common/renew.lua`.
    pub(crate) script: &'static Script,
    pub(crate) about: fn(&Renewed<'_>, About<'_>),
    /// True when the server notes the number of a command that makes a lease shorter, so that a copy of it does nothing.
    pub(crate) notes_cuts: bool,
}

/// What a flavour says in a renewal about one of the holds, behind the name of its lock.
pub(crate) struct About<'a> {
    /// True when the lease is to be set even if it is longer now.
    pub(crate) exactly: bool,
    pub(crate) keys: &'a mut Vec<Arg>,
    pub(crate) words: &'a mut Vec<Arg>,
}

impl About<'_> {
    /// Tells the hold by its owner, and by the list of those that are relied on.
    pub(crate) fn by_owner(&mut self, hold: &Renewed<'_>) {
        self.words.extend([Arg::Text(hold.owner.bytes()), Arg::Text(hold.holds.clone())]);
    }
}

impl Renewal {
    /// One command for many holds.
    pub(crate) fn call<'a>(
        &self,
        lease_ms: i64,
        last_ms: i64,
        holds: impl ExactSizeIterator<Item = Renewed<'a>>,
    ) -> Call {
        let mut words = Vec::with_capacity(3 * holds.len() + 2);
        let mut about = Vec::with_capacity(2 * holds.len());
        for hold in holds {
            words.push(Arg::Text(hold.name.key.clone()));
            (self.about)(&hold, About { exactly: lease_ms < 0, keys: &mut words, words: &mut about });
        }
        let keys = words.len();
        words.extend([Arg::Int(lease_ms), Arg::Int(last_ms)]);
        words.append(&mut about);
        Call { script: self.script, keys, words }
    }
}
