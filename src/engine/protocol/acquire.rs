//! An attempt to acquire, and its answer.

use bytes::Bytes;

use super::HoldId;
use crate::owner::Owner;
use crate::transport::Arg;

/// The request of one attempt.
#[derive(Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) owner: &'a Owner,
    pub(crate) lease_ms: i64,
    pub(crate) hold: &'a HoldId,
    /// For a re-entry: an earlier hold that the owner must still have.
    pub(crate) earlier: Option<HoldId>,
    /// The server's time, in ms, after which the command has no effect; 0 = no limit.
    pub(crate) last_ms: i64,
    /// True if the attempt must fail while the owner has another hold.
    pub(crate) alone: bool,
    /// True if a busy reply must say when the lease ends, even if that costs the server extra work.
    pub(crate) looks: bool,
    pub(crate) queueing: Queueing,
    /// True if an attempt to read yields to waiting writers. False once the reader has yielded for long enough.
    pub(crate) gives_way: bool,
    /// Text that registers the waiter in the flavour's queue in Redis (forms: `lua/fair/queue.lua`).
    pub(crate) nonce: &'a Bytes,
    /// The command that sends messages.
    pub(crate) publish: Bytes,
}

impl Ask<'_> {
    /// The first arguments of every acquire script.
    pub(crate) fn words(&self) -> [Arg; 6] {
        // `Unlisted` is the first hold of a fresh owner. Its acquire lists no id, even if the owner became known since.
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

/// How an attempt treats the flavour's queue in Redis. No effect without a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queueing {
    /// Does not join the queue.
    Ask,
    /// Joins the queue if the lock is busy.
    Join,
    /// Keeps the owner's place in the queue.
    Stay,
}

/// The answer to one attempt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The owner holds the lock.
    Held,
    /// The owner holds the lock, because the server had passed it on before this attempt.
    Passed,
    /// The owner holds the lock, with this fencing token for its section.
    Fenced(u64),
    Busy(Busy),
    /// For a re-entry: the owner's earlier hold is gone.
    Gone,
    /// The owner lost its place in the queue.
    Displaced,
    /// The other half of a read-write lock is not held, but its waiters come first.
    HeldBack,
    /// The owner would wait for itself, because it holds the lock or the other half.
    Deadlock,
    /// The command arrived after its last moment and did nothing. The value is the server's time, in ms.
    TooLate(i64),
}

/// Another owner holds the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Busy {
    /// Time until the lease ends, in ms. None if the lease has no end, or if the time was not requested.
    pub(crate) ttl: Option<u64>,
    /// The server's time in ms, for a lock with a queue.
    pub(crate) at: i64,
    /// True if the release will be announced by a message.
    pub(crate) announced: bool,
    /// True if the reply shows that a Java client (Redisson) holds the lock.
    pub(crate) by_java: bool,
}
