//! A renewal: one command for many holds of one kind.

use bytes::Bytes;

use crate::names::LockName;
use crate::owner::Owner;
use crate::transport::script::Script;
use crate::transport::{Arg, Call};

/// One hold of a renewal.
pub(crate) struct Renewed<'a> {
    pub(crate) name: &'a LockName,
    pub(crate) owner: &'a Owner,
    /// Number of permits of the hold ([`Protocol::permits`](super::Protocol::permits)).
    pub(crate) permits: u32,
    /// The holds that guards rely on, one `,id` each. Empty if the owner never has more than one hold.
    pub(crate) holds: Bytes,
    /// True to extend the hold's own lease. False leaves that lease unchanged, and only protects it from changes by
    /// other clients.
    pub(crate) extend: bool,
}

/// A flavour's renewal: one script for many locks of any name.
#[derive(Debug)]
pub(crate) struct Renewal {
    /// - Keys: each lock, with the keys that `about` adds.
    /// - Arguments: the lease (negative: set even if it is longer now; 0: unchanged), the last moment, then the
    ///   arguments that `about` adds for each lock.
    /// - Reply: as `lua/common/renew.lua`.
    pub(crate) script: &'static Script,
    pub(crate) about: fn(&Renewed<'_>, About<'_>),
    /// True if Redis stores the number of a command that shortens a lease, so that a late copy of the command does
    /// nothing.
    pub(crate) notes_cuts: bool,
}

/// Collects a flavour's keys and arguments for one hold of a renewal, after the name of its lock.
pub(crate) struct About<'a> {
    /// True if the lease is set even if the current lease is longer.
    pub(crate) exactly: bool,
    pub(crate) keys: &'a mut Vec<Arg>,
    pub(crate) words: &'a mut Vec<Arg>,
}

impl About<'_> {
    /// Adds the owner, and the list of holds that guards rely on.
    pub(crate) fn by_owner(&mut self, hold: &Renewed<'_>) {
        self.words.extend([Arg::Text(hold.owner.bytes()), Arg::Text(hold.holds.clone())]);
    }
}

impl Renewal {
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
