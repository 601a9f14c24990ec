//! The queue that a flavour keeps in Redis.

use bytes::Bytes;

use crate::transport::Arg;
use crate::transport::script::Script;

/// The queue that a flavour keeps in Redis: how waiters are kept in it.
#[derive(Debug)]
pub(crate) struct Queue {
    /// Keys: `keys` of every lock. Arguments: those of [`Queue::args`]; for every lock its `channels`, the number of waiters,
    /// 1 where others may come in as the owner of one; each waiter's owner behind the server's time of its last answer; and
    /// what each is registered by. Replies the server's time; for every lock four: 1 when somebody was served (else 0, or an
    /// error text), its `PTTL`, for how many ms no deadline ends, and 1 where all its waiters wait, else a list: 1 it waits,
    /// 0 it does not, above that: it holds the lock for so many ms.
    pub(crate) refresh: &'static Script,
    pub(crate) keys: [Bytes; 4],
    /// What the names of its waiters' channels begin with.
    pub(crate) channels: Bytes,
    /// How long an entry lasts that is not refreshed.
    pub(crate) entry_life_ms: i64,
    /// The first lease of a lock that is passed on, until its owner renews it.
    pub(crate) first_lease_ms: i64,
    /// Redisson's `fairLockWaitTimeout`.
    pub(crate) java_wait_ms: i64,
    pub(crate) watchdog_ms: i64,
}

impl Queue {
    /// The arguments that every script of the queue takes. `publish`: the command by which messages are sent.
    pub(crate) fn args(&self, publish: Bytes) -> [Arg; 5] {
        let [entry_life, first_lease] = [self.entry_life_ms, self.first_lease_ms].map(Arg::Int);
        let [java_wait, watchdog] = [self.java_wait_ms, self.watchdog_ms].map(Arg::Int);
        [entry_life, first_lease, Arg::Text(publish), java_wait, watchdog]
    }
}
