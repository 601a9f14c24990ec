//! What differs between flavours. Pure: builds calls and reads replies; no I/O, no clock, no task.
//!
//! What a flavour is asked for, and what its answers mean, is plain data: [`acquire`], [`release`], [`renewal`], [`queue`]. How
//! answers are read is the same for all of them ([`super::replies`]).

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;

mod acquire;
mod queue;
mod release;
mod renewal;

pub(crate) use acquire::{Answer, Ask, Busy, Queueing};
pub(crate) use queue::Queue;
pub(crate) use release::{Forced, Giving, LeaseLeft, Release};
pub(crate) use renewal::{About, Renewal, Renewed};

use crate::config::Backoff;
use crate::names::LockName;
use crate::owner::Owner;
use crate::transport::{Arg, Call};

/// Which hold of an owner a command is about. What a release gives back is bound to what an acquire took by it: a repeat,
/// or a copy that comes late, changes nothing. `lua/common/holds.lua` has what scripts make of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HoldId {
    /// The only one this owner will ever have: nobody else knows it.
    Only,
    /// The one that is not listed in Redis: the first of an owner that became known afterwards.
    Unlisted,
    /// Whichever there is: one that lost its guard, else the one that is not listed, else the newest. A hold that is listed is
    /// only named in the answer: the command that takes it away has to name it, so that a copy takes no other.
    Any,
    /// The one that its acquire listed by this id.
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

/// What there is to know of a flavour's locks without asking them: plain data.
#[derive(Debug)]
pub(crate) struct Nature {
    /// The flavour's name, for metrics and logs.
    pub(crate) flavour: &'static str,
    /// True when many owners may hold it side by side.
    pub(crate) shared: bool,
    /// True when a waiter leaves a mark in Redis, which its release takes back.
    pub(crate) marks: bool,
    /// True when its owner may come in again, so that holds of known owners are listed in Redis.
    pub(crate) reentrant: bool,
    /// True when it is taken by `SET`, whose answers to an acquire mean the opposite of a script's: nil, that somebody has it.
    pub(crate) by_set: bool,
    /// True when every section of it has a fencing token: a number that grows.
    pub(crate) fenced: bool,
    /// True when many of it may be taken by one script ([`super::acquire::batch`]).
    pub(crate) in_batch: bool,
    /// True when every hold of an owner has a lease of its own, which another's release does not start anew; the lock's own
    /// is made of them, and others may cut it short, so that long explicit ones are kept up too.
    pub(crate) leases_apart: bool,
    /// Who a holder is, by what stands in Redis.
    pub(crate) holder: fn(&[u8]) -> String,
    /// How its holds are renewed.
    pub(crate) renewal: &'static Renewal,
}

impl Nature {
    /// One holder at a time, who may come in again, as simple as can be.
    pub(crate) const fn simple(flavour: &'static str, renewal: &'static Renewal) -> Self {
        Self {
            flavour,
            shared: false,
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

/// What only the halves of a lock have.
pub(crate) trait Halves {
    /// The name of the other half, whose waiters a release concerns as well.
    fn other(&self) -> &Arc<LockName>;

    /// The weaker half that one who holds this one may change to.
    fn weaker(&self) -> Option<Arc<dyn Protocol>>;

    /// The field of an owner's count in the lock's hash.
    fn field(&self, owner: &Owner) -> Bytes;
}

/// One flavour's way of speaking to Redis about one lock: the calls. What scripts answer is the same for all
/// ([`super::replies`]).
pub(crate) trait Protocol: Any + Debug + Send + Sync {
    /// The lock's name.
    fn name(&self) -> &Arc<LockName>;

    /// What kind of lock it is.
    fn nature(&self) -> &'static Nature;

    /// Asks for the lock.
    fn acquire(&self, ask: &Ask<'_>) -> Call;

    /// Gives one hold back, and with it what a waiter has left in Redis ([`Giving::waiter`]).
    fn release(&self, giving: &Giving<'_>) -> Call;

    /// Frees the lock whoever holds it, until this moment of the server's time, and publishes by this command.
    fn force(&self, last_ms: i64, publish: Bytes) -> Call;

    /// Asks who holds it.
    fn state(&self) -> Call;

    /// The queue in Redis, for a flavour that keeps one.
    fn queue(&self) -> Option<&Queue> {
        None
    }

    /// The other half, for a lock of halves.
    fn halves(&self) -> Option<&dyn Halves> {
        None
    }

    /// For a lock whose releases may not be announced ([`Busy::announced`]): how a waiter sleeps between two looks then.
    fn backoff(&self) -> Option<Backoff> {
        None
    }
}

impl dyn Protocol {
    /// The flavour's name.
    pub(crate) fn flavour(&self) -> &'static str {
        self.nature().flavour
    }

    /// The name of the other half.
    pub(crate) fn other(&self) -> Option<&Arc<LockName>> {
        self.halves().map(Halves::other)
    }

    /// The field of an owner's count in the lock's hash.
    pub(crate) fn field(&self, owner: &Owner) -> Bytes {
        self.halves().map_or_else(|| owner.bytes(), |halves| halves.field(owner))
    }
}
