//! The queue that a flavour keeps in Redis.

use bytes::Bytes;

use crate::transport::Arg;
use crate::transport::script::Script;

/// A script's answer: it passed the lock on, and the grace time does not limit the first lease.
pub(crate) const PASSED: i64 = 1;
/// A script's answer: it served the head of the queue, which must make an attempt within the grace time.
pub(crate) const MUST_CONFIRM: i64 = 2;

#[derive(Debug)]
pub(crate) struct Queue {
    /// Refreshes the entries of waiters, and serves each queue whose lock is free.
    ///
    /// - Keys: `keys` of every lock.
    /// - Arguments: [`Queue::args`]. Then for every lock: `channels`; the number of waiters; 1 if others may act as the
    ///   owner of any of these waiters, else 0; for each waiter, the server's time of its last answer and its owner;
    ///   for each waiter, its nonce.
    /// - Reply: the server's time, then four entries per lock:
    ///   1. 0 = the head was not served; otherwise [`PASSED`] or [`MUST_CONFIRM`]; text = the server's error.
    ///   2. The lock's `PTTL`.
    ///   3. Time in ms in which no deadline ends; 0 = unknown.
    ///   4. 1 = all named waiters are queued. Otherwise a list with one entry per waiter: 1 = queued; 0 = not queued;
    ///      more = the lock was passed on to this waiter, with this many ms left of its lease.
    pub(crate) refresh: &'static Script,
    pub(crate) keys: [Bytes; 4],
    /// Prefix of the waiters' channels.
    pub(crate) channels: Bytes,
    /// Lifetime of an entry that is not refreshed.
    pub(crate) entry_life_ms: i64,
    /// Lease of a lock that is passed on, until its new owner renews it.
    pub(crate) first_lease_ms: i64,
    /// Redisson's `fairLockWaitTimeout`.
    pub(crate) java_wait_ms: i64,
    pub(crate) watchdog_ms: i64,
    /// Time within which the head must make an attempt, if Java waits in the queue or the head's client is not
    /// subscribed. If the head's client uses this crate, this time also limits the first lease.
    pub(crate) grace_ms: i64,
}

impl Queue {
    /// The arguments that all scripts of the queue share. `publish`: the command that sends messages.
    pub(crate) fn args(&self, publish: Bytes) -> [Arg; 6] {
        let [entry_life, first_lease] = [self.entry_life_ms, self.first_lease_ms].map(Arg::Int);
        let [java_wait, watchdog, grace] = [self.java_wait_ms, self.watchdog_ms, self.grace_ms].map(Arg::Int);
        [entry_life, first_lease, Arg::Text(publish), java_wait, watchdog, grace]
    }

    /// The lease in ms of a lock that a script has passed on. `passed`: the script's answer.
    pub(crate) fn lease_of(&self, passed: i64) -> u64 {
        let lease = if passed == PASSED { self.first_lease_ms } else { self.first_lease_ms.min(self.grace_ms) };
        lease.unsigned_abs()
    }
}
