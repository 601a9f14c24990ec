//! An attempt to acquire: what is asked for, and what the answer is.

use bytes::Bytes;

use super::HoldId;
use crate::owner::Owner;
use crate::transport::Arg;

/// What an attempt to acquire asks for.
#[derive(Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) owner: &'a Owner,
    pub(crate) lease_ms: i64,
    pub(crate) hold: &'a HoldId,
    /// A hold that the owner must have still: it comes in again.
    pub(crate) earlier: Option<HoldId>,
    /// The moment of the server's time after which the command has no effect; 0: none.
    pub(crate) last_ms: i64,
    /// True when the owner must have no other hold.
    pub(crate) alone: bool,
    /// True when a refusal is to say for how long the lock is held, where that costs the server something.
    pub(crate) looks: bool,
    pub(crate) queueing: Queueing,
    /// False when those whom the flavour would let go first do not any more: it has waited for them for long enough.
    pub(crate) gives_way: bool,
    /// What a waiter is registered by, where the flavour keeps a queue in Redis.
    pub(crate) nonce: &'a Bytes,
    /// The command by which messages are sent.
    pub(crate) publish: Bytes,
}

impl Ask<'_> {
    /// The arguments that every script begins with that acquires.
    pub(crate) fn words(&self) -> [Arg; 6] {
        // The first of a fresh owner is never listed, although its owner may have become known since.
        let hold = if *self.hold == HoldId::Unlisted { &HoldId::Only } else { self.hold };
        [
            Arg::Text(self.owner.bytes()),
            Arg::Int(self.lease_ms),
            hold.arg(),
            self.earlier.as_ref().map_or_else(|| Arg::Text(Bytes::new()), HoldId::arg),
            Arg::Int(self.last_ms),
            Arg::Int(i64::from(self.alone)),
        ]
    }
}

/// What an attempt does about the queue that a flavour keeps in Redis. Without a queue it makes no difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queueing {
    /// Asks, and does not join.
    Ask,
    /// Joins the queue if the lock is not to be had.
    Join,
    /// Stands in the queue already.
    Stay,
}

/// What one attempt to acquire brought.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The owner holds the lock.
    Held,
    /// The owner holds the lock: it was passed on to the owner before it asked.
    Passed,
    /// The owner holds the lock, and this is its section's fencing token.
    Fenced(u64),
    /// Somebody else holds the lock.
    Busy(Busy),
    /// The owner was to come in again, but holds nothing any more.
    Gone,
    /// The owner stands in the queue no more.
    Displaced,
    /// The lock could be had, but the waiters of its other half are to come first.
    HeldBack,
    /// The owner holds the lock, or the other half of it, and would wait for itself.
    Deadlock,
    /// The last moment of the command had passed: nothing was done. The server's time, in ms.
    TooLate(i64),
}

/// Somebody else holds the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Busy {
    /// The lease ends in so many ms at the latest; None: it has no end, or that was not asked.
    pub(crate) ttl: Option<u64>,
    /// With a queue: the server's time, in ms.
    pub(crate) at: i64,
    /// True when its release will be announced.
    pub(crate) announced: bool,
}
