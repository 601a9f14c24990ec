//! A release: what is given back and what is left, and what the answer is.

use std::time::Duration;

use bytes::Bytes;

use super::HoldId;
use crate::owner::Owner;
use crate::transport::Arg;

/// What is given back.
#[derive(Debug)]
pub(crate) struct Giving<'a> {
    pub(crate) owner: &'a Owner,
    pub(crate) hold: &'a HoldId,
    pub(crate) lease_left: LeaseLeft,
    /// The holds that this client has left, as a list. Where the owner has others, their leases are not to be cut. Empty:
    /// unknown.
    pub(crate) mine: Bytes,
    /// The moment of the server's time after which the command makes no lease shorter, and, for [`HoldId::Any`], takes no hold
    /// away. 0: none.
    pub(crate) last_ms: i64,
    /// To undo an acquire, whatever it has come to: what the waiter is registered by, whose queue entry or mark goes too.
    pub(crate) waiter: Option<&'a Bytes>,
    /// The command by which messages are sent.
    pub(crate) publish: Bytes,
}

impl Giving<'_> {
    /// The arguments that every script begins with that releases.
    pub(crate) fn words(&self) -> [Arg; 5] {
        [
            Arg::Text(self.owner.bytes()),
            self.hold.arg(),
            Arg::Int(self.lease_left.lease),
            Arg::Text(self.mine.clone()),
            Arg::Int(self.last_ms),
        ]
    }
}

/// What a release is to leave to the holds of the owner that stay, in ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseLeft {
    /// The lease that guards were promised. Above 0 only where every hold has a lease of its own.
    pub(crate) least: i64,
    /// The lease, in full.
    pub(crate) lease: i64,
}

impl LeaseLeft {
    /// The lease, in full.
    pub(crate) const fn span(self) -> Duration {
        Duration::from_millis(self.lease.unsigned_abs())
    }
}

/// What a release brought.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Release {
    /// So many holds are left.
    Left(u32),
    /// The owner holds nothing any more, but the lock is not free: it is shared.
    Others,
    /// Free, and so many clients received the message.
    Free(u32),
    /// Free, but the server refused to publish that: its reason.
    Unannounced(String),
    /// The hold was not there; `Some`: who holds it.
    NotHeld(Option<String>),
    /// The hold was not there, but so many others of its owner are.
    NotThere(u32),
    /// For [`HoldId::Any`]: nothing was done, and this hold is to be named.
    Which(Bytes),
    /// The last moment of the command had passed: nothing was done. The server's time, in ms.
    TooLate(i64),
}

/// What freeing a lock by force came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Forced {
    /// The lock was held.
    Freed,
    /// The lock was held, but the server refused to publish that: its reason.
    Unannounced(String),
    /// The lock was free.
    Free,
    /// The other half of the lock is held, and was left alone.
    Other,
    /// The last moment of the command had passed: nothing was done. The server's time, in ms.
    TooLate(i64),
}
