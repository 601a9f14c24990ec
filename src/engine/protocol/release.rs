//! A release, and its answer.

use std::time::Duration;

use bytes::Bytes;

use super::HoldId;
use crate::owner::Owner;
use crate::transport::Arg;

/// The request of one release.
#[derive(Debug)]
pub(crate) struct Giving<'a> {
    pub(crate) owner: &'a Owner,
    pub(crate) hold: &'a HoldId,
    pub(crate) lease_left: LeaseLeft,
    /// List of this client's remaining holds. The script does not shorten the lease if the owner has further holds.
    /// Empty = unknown.
    pub(crate) mine: Bytes,
    /// The server's time, in ms, after which the command shortens no lease and, for [`HoldId::Any`], releases nothing.
    /// 0 = no limit.
    pub(crate) last_ms: i64,
    /// For an undo: the text that registered the waiter ([`Ask::nonce`](super::Ask)). The script also removes the
    /// waiter's queue entry or mark.
    pub(crate) waiter: Option<&'a Bytes>,
    /// The command that sends messages.
    pub(crate) publish: Bytes,
}

impl Giving<'_> {
    /// The first arguments of every release script.
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

/// The lease that a release leaves to the owner's remaining holds, in ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseLeft {
    /// The lease that guards rely on now. Above 0 only if every hold has its own lease.
    pub(crate) least: i64,
    /// The lease to set, which also covers a renewal in flight.
    pub(crate) lease: i64,
}

impl LeaseLeft {
    pub(crate) const fn span(self) -> Duration {
        Duration::from_millis(self.lease.unsigned_abs())
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Release {
    /// The owner has this many holds left.
    Left(u32),
    /// The owner has no hold left. Other owners share the lock, so it is not free.
    Others,
    /// The lock is free. The value is the number of clients that received the message.
    Free(u32),
    /// The lock is free, but the server refused to publish the message. The value is the reason.
    Unannounced(String),
    /// The hold does not exist. The value is the current holder, if the lock is held.
    NotHeld(Option<String>),
    /// The hold does not exist, but the owner has this many other holds.
    NotThere(u32),
    /// For [`HoldId::Any`]: nothing was released. The next command must name this hold.
    Which(Bytes),
    /// The command arrived after its last moment and did nothing. The value is the server's time, in ms.
    TooLate(i64),
}

/// The outcome of a forced release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Forced {
    /// The lock was held. The value is [`PASSED`](super::PASSED), [`MUST_CONFIRM`](super::MUST_CONFIRM), or 0: not
    /// passed on.
    Freed(i64),
    /// The lock was held, but the server refused to publish the message. The value is the reason.
    Unannounced(String),
    /// The lock was free before. The value is as for [`Self::Freed`].
    Free(i64),
    /// The other half is held, and stays held.
    Other,
    /// The command arrived after its last moment and did nothing. The value is the server's time, in ms.
    TooLate(i64),
}
