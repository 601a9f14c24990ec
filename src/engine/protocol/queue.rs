//! The queue that a flavour keeps in Redis.

use bytes::Bytes;

use crate::transport::Arg;
use crate::transport::script::Script;

/// The queue that a flavour keeps in Redis, and its timings.
#[derive(Debug)]
pub(crate) struct Queue {
    /// Refreshes the entries of waiters, and serves each queue whose lock is free.
    ///
    /// - Keys: `keys` of every lock.
    /// - Arguments: [`Queue::args`]. Then for every lock: `channels`; the number of waiters; 1 if others may acquire
    ///   as the owner of one, else 0; for each waiter the server's time of its last answer, and its owner; for each
    ///   its nonce.
    /// - Reply: the server's time, then four entries per lock:
    ///   1. 1 = a waiter was served; 0 = none was; text = the server's error.
    ///   2. The lock's `PTTL`.
    ///   3. Time in ms in which no deadline ends; 0 = unknown.
    ///   4. 1 = all named waiters are queued. Otherwise a list with one entry per waiter: 1 = queued; 0 = not queued;
    ///      more = it holds the lock for this many ms.
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
}

impl Queue {
    /// The arguments that every script of the queue takes. `publish`: the command that sends messages.
    pub(crate) fn args(&self, publish: Bytes) -> [Arg; 5] {
        let [entry_life, first_lease] = [self.entry_life_ms, self.first_lease_ms].map(Arg::Int);
        let [java_wait, watchdog] = [self.java_wait_ms, self.watchdog_ms].map(Arg::Int);
        [entry_life, first_lease, Arg::Text(publish), java_wait, watchdog]
    }
}
