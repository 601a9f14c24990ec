//! The contract between the engine and a flavour. A flavour only builds calls and reads replies: no I/O, no clock, no
//! task.
//!
//! Requests and answers are plain data: [`acquire`], [`release`], [`renewal`], [`queue`]. All flavours share the code
//! that reads replies ([`super::replies`]).

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;

mod acquire;
mod queue;
mod release;
mod renewal;

pub(crate) use acquire::{Answer, Ask, Busy, Queueing};
pub(crate) use queue::{MUST_CONFIRM, PASSED, Queue};
pub(crate) use release::{Forced, Giving, LeaseLeft, Release};
pub(crate) use renewal::{About, Renewal, Renewed};

use crate::config::Backoff;
use crate::names::LockName;
use crate::owner::Owner;
use crate::transport::{Arg, Call};

/// Names the hold that a command is about. A release removes only the hold that it names, so a repeat or a late copy of
/// the release changes nothing. The scripts' side is in `lua/common/holds.lua`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HoldId {
    /// The only hold that this owner will ever have. No other task or client can act as this owner.
    Only,
    /// The hold that is not listed in Redis: the first hold of an owner that became known after its acquire
    /// (`Owner::is_known`).
    Unlisted,
    /// Any hold: first a hold without a guard, else the unlisted hold, else the newest hold. For a listed hold, the
    /// script only returns the id. A second command releases the hold by id, so a late copy releases no other hold.
    Any,
    /// The hold that its acquire listed under this id.
    Listed(Bytes),
}

impl HoldId {
    fn arg(&self) -> Arg {
        Arg::Text(match self {
            Self::Only => Bytes::new(),
            Self::Unlisted => Bytes::from_static(b"-"),
            Self::Any => Bytes::from_static(b"*"),
            Self::Listed(id) => id.clone(),
        })
    }
}

/// Number of owners that may hold a lock at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// One.
    Alone,
    /// Any number: the read half of a read-write lock.
    Shared,
    /// Any number, until all permits are taken. A hold takes [`Protocol::permits`]. Every acquire has an owner of its own.
    Counted,
}

/// Fixed properties of a flavour's locks.
#[derive(Debug)]
pub(crate) struct Nature {
    /// The flavour's name, for metrics and logs.
    pub(crate) flavour: &'static str,
    pub(crate) sharing: Sharing,
    /// True if a waiter leaves a mark in Redis, which shows that it waits. Its acquire or its undo removes the mark.
    pub(crate) marks: bool,
    /// True if the owner may re-enter. If so, holds of known owners are listed in Redis.
    pub(crate) reentrant: bool,
    /// True if `SET` acquires the lock. The reply nil then means busy; from a script, nil means held.
    pub(crate) by_set: bool,
    /// True if every section (time from acquire to release) has a fencing token: a number that grows.
    pub(crate) fenced: bool,
    /// True if one script may acquire many such locks ([`super::acquire::batch`]).
    pub(crate) in_batch: bool,
    /// True if every hold of an owner has its own lease, which the release of another hold does not restart. The lock's
    /// lease is derived from the leases of its holds. Other clients may cut the lock's lease short, so long explicit
    /// leases are renewed too.
    pub(crate) leases_apart: bool,
    /// Converts the text that Redis stores for a holder into the owner's text.
    pub(crate) holder: fn(&[u8]) -> String,
    pub(crate) renewal: &'static Renewal,
}

impl Nature {
    /// True if any number of owners may hold the lock at once.
    pub(crate) const fn is_shared(&self) -> bool {
        matches!(self.sharing, Sharing::Shared)
    }

    /// True if at most one owner holds the lock.
    pub(crate) const fn is_exclusive(&self) -> bool {
        matches!(self.sharing, Sharing::Alone)
    }

    /// True if the holder can be asked to finish. A string has no room for the request.
    pub(crate) const fn is_revocable(&self) -> bool {
        self.is_exclusive() && !self.by_set
    }

    pub(crate) const fn is_counted(&self) -> bool {
        matches!(self.sharing, Sharing::Counted)
    }

    /// The type of the lock's key.
    pub(crate) const fn key_type(&self) -> &'static str {
        if self.by_set || self.is_counted() { "string" } else { "hash" }
    }

    /// An exclusive, re-entrant lock without extras.
    pub(crate) const fn simple(flavour: &'static str, renewal: &'static Renewal) -> Self {
        Self {
            flavour,
            sharing: Sharing::Alone,
            marks: false,
            reentrant: true,
            by_set: false,
            fenced: false,
            in_batch: false,
            leases_apart: false,
            holder: |text| String::from_utf8_lossy(text).into_owned(),
            renewal,
        }
    }
}

/// The part of a protocol that only read-write locks have. Their two halves are the read lock and the write lock.
pub(crate) trait Halves {
    /// The name of the other half. A release of this half wakes the waiters of the other half too.
    fn other(&self) -> &Arc<LockName>;

    /// The weaker half that a holder of this half may downgrade to.
    fn weaker(&self) -> Option<Arc<dyn Protocol>>;

    /// The field of an owner's count in the lock's hash.
    fn field(&self, owner: &Owner) -> Bytes;
}

/// One flavour's commands for one lock.
pub(crate) trait Protocol: Any + Debug + Send + Sync {
    fn name(&self) -> &Arc<LockName>;

    fn nature(&self) -> &'static Nature;

    fn acquire(&self, ask: &Ask<'_>) -> Call;

    /// Releases one hold. If [`Giving::waiter`] is set, also removes the waiter's queue entry or mark.
    fn release(&self, giving: &Giving<'_>) -> Call;

    /// Frees the lock, whichever owner holds it. No effect after `last_ms` of the server's time. `publish`: the command
    /// that sends messages.
    fn force(&self, last_ms: i64, publish: Bytes) -> Call;

    fn state(&self) -> Call;

    /// The queue in Redis, if the flavour keeps one.
    fn queue(&self) -> Option<&Queue> {
        None
    }

    fn halves(&self) -> Option<&dyn Halves> {
        None
    }

    /// Number of permits of a hold. 0 for a lock.
    fn permits(&self) -> u32 {
        0
    }

    /// Pauses between a waiter's attempts, for a lock whose releases may not be announced ([`Busy::announced`]).
    fn backoff(&self) -> Option<Backoff> {
        None
    }
}

impl dyn Protocol {
    pub(crate) fn flavour(&self) -> &'static str {
        self.nature().flavour
    }

    /// Flavour and number of permits. A hold is handed over only to a waiter with an equal pair.
    pub(crate) fn takes(&self) -> (&'static str, u32) {
        (self.flavour(), self.permits())
    }

    pub(crate) fn other(&self) -> Option<&Arc<LockName>> {
        self.halves().map(Halves::other)
    }

    pub(crate) fn field(&self, owner: &Owner) -> Bytes {
        self.halves().map_or_else(|| owner.bytes(), |halves| halves.field(owner))
    }
}
