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
    /// The holds that this client has left, as a list. If the owner has other holds, their leases must not be cut.
    /// Empty = unknown.
    pub(crate) mine: Bytes,
    /// The server's time, in ms, after which the command shortens no lease and, for [`HoldId::Any`], releases nothing.
    /// 0 = no limit.
    pub(crate) last_ms: i64,
    /// For an undo: the waiter's registration. Its queue entry or mark is removed too, whatever the acquire's outcome.
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
    /// The lease that guards were promised. Above 0 only if every hold has its own lease.
    pub(crate) least: i64,
    /// The full lease.
    pub(crate) lease: i64,
}

impl LeaseLeft {
    pub(crate) const fn span(self) -> Duration {
        Duration::from_millis(self.lease.unsigned_abs())
    }
}

/// The answer to a release.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Release {
    /// The owner has this many holds left.
    Left(u32),
    /// The owner has no hold left. Others share the lock, so it is not free.
    Others,
    /// The lock is free. Contains the number of clients that received the message.
    Free(u32),
    /// The lock is free, but the server refused to publish the message, for this reason.
    Unannounced(String),
    /// The hold does not exist. Contains the current holder, if there is one.
    NotHeld(Option<String>),
    /// The hold does not exist, but the owner has this many others.
    NotThere(u32),
    /// For [`HoldId::Any`]: nothing was done. The next command must name this hold.
    Which(Bytes),
    /// The command arrived after its last moment and did nothing. Contains the server's time, in ms.
    TooLate(i64),
}

/// The outcome of a forced release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Forced {
    /// The lock was held. Contains how it was passed on; 0 = it was not.
    Freed(i64),
    /// The lock was held, but the server refused to publish the message, for this reason.
    Unannounced(String),
    /// The lock was free before. Contains how it was passed on; 0 = it was not.
    Free(i64),
    /// The lock's other half is held, and was left alone.
    Other,
    /// The command arrived after its last moment and did nothing. Contains the server's time, in ms.
    TooLate(i64),
}
