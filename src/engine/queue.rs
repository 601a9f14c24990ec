//! Queue entries in Redis, which are refreshed while their waiters live.
//!
//! 1. At every *beat* (`Options::beat`: at most 1 s), one command refreshes the entries of many waiters. The entry of a
//!    dead process expires within seconds. A live waiter keeps its entry for its whole wait.
//! 2. If a lock is free, the same command *serves* its queue: it passes the lock on to the head, or notifies the head.
//!    This covers locks whose holders died, and locks that were passed on to a waiter that did not take them.
//!
//! ```text
//! joined ─► confirmed every beat ─► passed on (by a message with its nonce, or a refresh says so) ─► held
//!             ├─ lost: not confirmed for its lifetime. The waiter queues again, if fresh as another owner
//!             ╰─ given up: removed by the undo, which is retried
//! ```
//!
//! *Fresh*: the client chose the owner. `tests/fair_model` compares each step with a model.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

mod beat;

pub(crate) use beat::run;

use super::hold::{Key, Target};
use super::protocol::Protocol;
use crate::hash::ReadyHash;
use crate::names::LockName;
use crate::world::Moment;

/// A waiter's place in a queue in Redis.
#[derive(Debug)]
pub(crate) struct QueueEntry {
    target: Arc<Target>,
    inbox: Arc<LockName>,
    /// When the last command was sent whose reply confirmed the entry.
    confirmed: AtomicU64,
    /// The server's time in that reply, in ms.
    at: AtomicI64,
}

impl QueueEntry {
    pub(crate) fn confirmed(&self) -> Moment {
        Moment::from_nanos(self.confirmed.load(Ordering::Relaxed))
    }

    /// The channel for the message that passes the lock on to this waiter.
    pub(crate) fn inbox(&self) -> &Arc<LockName> {
        &self.inbox
    }

    fn protocol(&self) -> &Arc<dyn Protocol> {
        &self.target.hold.protocol
    }

    fn confirm(&self, sent: Moment, at: i64) {
        self.confirmed.fetch_max(sent.as_nanos(), Ordering::Relaxed);
        self.at.store(at, Ordering::Relaxed);
    }
}

/// Keeps a queue entry until dropped.
#[derive(Debug)]
pub(crate) struct EntryHandle {
    queues: Arc<Queues>,
    entry: Arc<QueueEntry>,
}

impl EntryHandle {
    pub(crate) fn entry(&self) -> &QueueEntry {
        &self.entry
    }
}

impl Drop for EntryHandle {
    fn drop(&mut self) {
        let key = self.entry.target.hold.key();
        let mut entries = self.queues.entries.lock();
        if entries.get(&key).is_some_and(|found| Arc::ptr_eq(found, &self.entry)) {
            entries.remove(&key);
        }
    }
}

/// A lock to check at `at`, and again at `last` if `last` is later. At `last`, a dead head's entry has expired.
#[derive(Debug)]
struct Due {
    protocol: Arc<dyn Protocol>,
    at: Moment,
    last: Moment,
}

/// The queue entries of a client, and the locks that it checks.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    entries: Mutex<HashMap<Key, Arc<QueueEntry>, ReadyHash>>,
    /// Waiters that set a mark in Redis (`Nature::marks`) and have no queue entry.
    marked: Mutex<HashMap<Key, Arc<Target>, ReadyHash>>,
    /// Locks to check: either this client served the lock's queue and checks that the head took the lock, or the lock's
    /// lease ends soon.
    after: Mutex<HashMap<Arc<LockName>, Due, ReadyHash>>,
    /// True if locks were passed on to this client since the last beat.
    passed: AtomicBool,
    kick: Notify,
}

impl Queues {
    /// Adds a queue entry that the reply to a command sent at `sent` has confirmed.
    pub(crate) fn keep_entry(
        self: &Arc<Self>,
        target: &Arc<Target>,
        inbox: Arc<LockName>,
        sent: Moment,
        at: i64,
    ) -> EntryHandle {
        let entry = Arc::new(QueueEntry {
            target: Arc::clone(target),
            inbox,
            confirmed: AtomicU64::new(sent.as_nanos()),
            at: AtomicI64::new(at),
        });
        self.entries.lock().insert(target.hold.key(), Arc::clone(&entry));
        self.kick.notify_one();
        EntryHandle { queues: Arc::clone(self), entry }
    }

    /// The waiter's channel, if the waiter has a queue entry.
    pub(crate) fn inbox_of(&self, target: &Arc<Target>) -> Option<Arc<LockName>> {
        let entries = self.entries.lock();
        let entry = entries.get(&target.hold.key()).filter(|entry| Arc::ptr_eq(&entry.target, target))?;
        Some(Arc::clone(&entry.inbox))
    }

    pub(crate) fn mark(&self, target: &Arc<Target>) {
        self.marked.lock().insert(target.hold.key(), Arc::clone(target));
    }

    /// Notes that a waiter's mark is gone, or is being removed.
    pub(crate) fn unmark(&self, target: &Arc<Target>) {
        let mut marked = self.marked.lock();
        let key = target.hold.key();
        if marked.get(&key).is_some_and(|found| Arc::ptr_eq(found, target)) {
            marked.remove(&key);
        }
    }

    /// True if the owner's mark belongs to another waiter.
    pub(crate) fn is_awaited_by_another(&self, target: &Arc<Target>) -> bool {
        self.marked.lock().get(&target.hold.key()).is_some_and(|found| !Arc::ptr_eq(found, target))
    }

    pub(crate) fn targets(&self) -> Vec<Arc<Target>> {
        let entries = self.entries.lock();
        let marked = self.marked.lock();
        entries.values().map(|entry| &entry.target).chain(marked.values()).map(Arc::clone).collect()
    }

    /// Schedules a check after a script has served the head of a queue. `passed`: the script's answer.
    pub(crate) fn check_passed(&self, protocol: &Arc<dyn Protocol>, passed: i64, now: Moment) {
        if let Some(queue) = protocol.queue() {
            let last = queue.first_lease_ms.unsigned_abs();
            self.check_at(protocol, now, queue.lease_of(passed), last);
        }
    }

    /// Schedules a check of a lock whose lease ends in `ms`.
    pub(crate) fn check_in(&self, protocol: &Arc<dyn Protocol>, now: Moment, ms: u64) {
        self.check_at(protocol, now, ms, ms);
    }

    fn check_at(&self, protocol: &Arc<dyn Protocol>, now: Moment, ms: u64, last_ms: u64) {
        let [at, last] = [ms, last_ms].map(|ms| now + Duration::from_millis(ms + 2));
        // The latest information wins, even if it postpones the check.
        let due = Due { protocol: Arc::clone(protocol), at, last };
        let before = self.after.lock().insert(Arc::clone(protocol.name()), due);
        if before.is_none_or(|before| at < before.at) {
            self.kick.notify_one();
        }
    }

    /// Notes that a lock was passed on to this client with a short first lease.
    pub(crate) fn note_passed(&self) {
        if !self.passed.swap(true, Ordering::Relaxed) {
            self.kick.notify_one();
        }
    }

    /// Time until the next check or refresh; None: nothing to do before the next kick.
    fn idle_for(&self, now: Moment, beat: Duration) -> Option<Duration> {
        let next = self.after.lock().values().map(|due| due.at.since(now)).min();
        if self.passed.load(Ordering::Relaxed) || !self.entries.lock().is_empty() {
            return Some(next.map_or(beat, |next| next.min(beat)));
        }
        next
    }

    fn due(&self, now: Moment) -> Vec<Arc<dyn Protocol>> {
        let mut after = self.after.lock();
        let mut due = Vec::new();
        after.retain(|_, one| {
            if one.at <= now {
                due.push(Arc::clone(&one.protocol));
                one.at = one.last;
            }
            one.at > now
        });
        due
    }
}
