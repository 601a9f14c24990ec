//! Places in queues that stand in Redis: kept for as long as their waiters live, and served when nobody else does it.
//!
//! A waiter of ours keeps its place only while its client says so, once every beat and in one command for many. So a
//! waiter whose process died is out of the way within seconds, and one that lives keeps its place however long it takes.
//! The same command serves the head of a queue whose lock is free: that finds the locks whose holders died, and those
//! that were passed on to somebody who did not take them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::Engine;
use super::hold::{Key, Target};
use super::protocol::{Protocol, Queue};
use super::registry::Passed;
use super::renewal::{self, Which};
use crate::error::Error;
use crate::hash::ReadyHash;
use crate::names::LockName;
use crate::transport::{Arg, Call, Reply};
use crate::world::Moment;

/// The most waiters that one command refreshes: a script blocks the server for as long as it runs.
const MOST: usize = 500;

/// One waiter's place.
#[derive(Debug)]
pub(crate) struct QueueEntry {
    target: Arc<Target>,
    inbox: Arc<LockName>,
    /// When the last command was sent that was answered: it stands in the queue.
    confirmed: AtomicU64,
    /// The server's time of that answer, in ms.
    at: AtomicI64,
}

impl QueueEntry {
    /// When the last command was sent that was answered: it stands in the queue.
    pub(crate) fn confirmed(&self) -> Moment {
        Moment::from_nanos(self.confirmed.load(Ordering::Relaxed))
    }

    /// Where the waiter is told that its turn has come.
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

/// A place that is kept until this is dropped.
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

/// A lock, and when to look at it.
type Due = (Arc<dyn Protocol>, Moment);

/// A client's places in queues, and what it has to look after in them.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    entries: Mutex<HashMap<Key, Arc<QueueEntry>, ReadyHash>>,
    /// Waiters that left a mark in Redis without a place in a queue.
    marked: Mutex<HashMap<Key, Arc<Target>, ReadyHash>>,
    /// Locks that this client passed on or told somebody of, and when to look whether they were taken.
    after: Mutex<HashMap<Arc<LockName>, Due, ReadyHash>>,
    /// True when locks were passed on to this client since the last beat.
    passed: AtomicBool,
    kick: Notify,
}

impl Queues {
    /// Keeps a place that an answer to a command sent at `sent` has confirmed.
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

    /// A waiter has left a mark.
    pub(crate) fn mark(&self, target: &Arc<Target>) {
        self.marked.lock().insert(target.hold.key(), Arc::clone(target));
    }

    /// Its mark is gone, or is being taken back.
    pub(crate) fn unmark(&self, target: &Arc<Target>) {
        let mut marked = self.marked.lock();
        let key = target.hold.key();
        if marked.get(&key).is_some_and(|found| Arc::ptr_eq(found, target)) {
            marked.remove(&key);
        }
    }

    /// True when the mark of an owner is that of another waiter than this one.
    pub(crate) fn is_marked_by_another(&self, target: &Arc<Target>) -> bool {
        self.marked.lock().get(&target.hold.key()).is_some_and(|found| !Arc::ptr_eq(found, target))
    }

    /// Everybody who has left something in Redis by waiting.
    pub(crate) fn targets(&self) -> Vec<Arc<Target>> {
        let entries = self.entries.lock();
        let marked = self.marked.lock();
        entries.values().map(|entry| &entry.target).chain(marked.values()).map(Arc::clone).collect()
    }

    /// This client passed a lock on, or told somebody to take it: looks after its first lease whether that was done.
    pub(crate) fn check_after_first_lease(&self, protocol: &Arc<dyn Protocol>, now: Moment) {
        if let Some(queue) = protocol.queue() {
            self.check_in(protocol, now, queue.first_lease_ms.unsigned_abs());
        }
    }

    /// Looks at a lock when its lease is over, in so many ms.
    pub(crate) fn check_in(&self, protocol: &Arc<dyn Protocol>, now: Moment, ms: u64) {
        let due = now + Duration::from_millis(ms + 2);
        let before = self.after.lock().insert(Arc::clone(protocol.name()), (Arc::clone(protocol), due));
        if before.is_none() {
            self.kick.notify_one();
        }
    }

    /// A lock was passed on to this client, for a short first lease.
    pub(crate) fn note_passed(&self) {
        if !self.passed.swap(true, Ordering::Relaxed) {
            self.kick.notify_one();
        }
    }

    /// How long there is nothing to do; None: until the next kick.
    fn idle_for(&self, now: Moment, beat: Duration) -> Option<Duration> {
        let next = self.after.lock().values().map(|(_, due)| due.since(now)).min();
        if self.passed.load(Ordering::Relaxed) || !self.entries.lock().is_empty() {
            return Some(next.map_or(beat, |next| next.min(beat)));
        }
        next
    }

    /// The locks to look after that are due.
    fn due(&self, now: Moment) -> Vec<Arc<dyn Protocol>> {
        let mut after = self.after.lock();
        let mut due = Vec::new();
        after.retain(|_, (protocol, at)| {
            let keep = *at > now;
            if !keep {
                due.push(Arc::clone(protocol));
            }
            keep
        });
        due
    }
}

/// Keeps places and looks after locks until the client closes. Holds the engine only while a beat is under way.
pub(crate) async fn run(engine: Weak<Engine>, queues: Arc<Queues>, mut closing: watch::Receiver<bool>) {
    let mut last = None;
    loop {
        let pause = {
            let Some(engine) = engine.upgrade() else { return };
            let (now, beat) = (engine.now(), engine.options.beat());
            let left = last.map_or(beat, |last: Moment| (last + beat).since(now));
            queues.idle_for(now, left)
        };
        let kicked = tokio::select! {
            biased;
            _ = closing.wait_for(|closing| *closing) => return,
            () = queues.kick.notified() => true,
            () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => false,
        };
        if kicked {
            // A beat after the first of a series.
            if pause.is_none() {
                last = None;
            }
            if last.is_none() {
                let Some(engine) = engine.upgrade() else { return };
                last = Some(engine.now());
            }
            continue;
        }
        let Some(engine) = engine.upgrade() else { return };
        let now = engine.now();
        let whole = last.is_none_or(|last| now >= last + engine.options.beat());
        if whole {
            last = Some(now);
        }
        beat(&engine, now, whole).await;
    }
}

/// What one command is about: locks, each with the waiters to be refreshed in its queue.
type Batch = Vec<(Arc<dyn Protocol>, Vec<Arc<QueueEntry>>)>;

/// Refreshes every place if it is time, and looks after the locks that are due.
async fn beat(engine: &Arc<Engine>, now: Moment, whole: bool) {
    let mut locks: Batch = engine.queues.due(now).into_iter().map(|protocol| (protocol, Vec::new())).collect();
    if whole {
        let mut entries: Vec<_> = engine.queues.entries.lock().values().cloned().collect();
        entries.sort_by(|a, b| a.protocol().name().key.cmp(&b.protocol().name().key));
        for same in entries.chunk_by(|a, b| a.protocol().name() == b.protocol().name()) {
            for part in same.chunks(MOST) {
                locks.extend(part.first().map(|first| (Arc::clone(first.protocol()), part.to_vec())));
            }
        }
    }
    let renewal = async {
        if whole && engine.queues.passed.swap(false, Ordering::Relaxed) {
            let round = renewal::round(engine, Which::Short).await;
            if round.failed > 0 {
                engine.queues.note_passed();
            }
        }
    };
    let refresh = async {
        let mut under_way: FuturesUnordered<_> =
            batches(engine, locks).into_iter().map(|batch| refresh(engine, batch)).collect();
        while under_way.next().await.is_some() {}
    };
    futures::future::join(renewal, refresh).await;
}

/// Some locks a command, of one kind and at one server, and not too many waiters.
fn batches(engine: &Engine, mut locks: Batch) -> Vec<Batch> {
    let placement = |protocol: &Arc<dyn Protocol>| engine.topology.placement(protocol.name());
    locks.sort_by_key(|(protocol, _)| placement(protocol));
    let mut batches: Vec<Batch> = Vec::new();
    let mut waiters = 0;
    for (protocol, entries) in locks {
        let fits = batches.last().is_some_and(|batch| {
            batch.len() < engine.options.watchdog_batch
                && waiters + entries.len() <= MOST
                && batch.first().is_some_and(|(first, _)| {
                    first.flavour() == protocol.flavour() && placement(first) == placement(&protocol)
                })
        });
        if !fits {
            batches.push(Vec::new());
            waiters = 0;
        }
        waiters += entries.len();
        if let Some(batch) = batches.last_mut() {
            batch.push((protocol, entries));
        }
    }
    batches
}

async fn refresh(engine: &Arc<Engine>, batch: Batch) {
    let queues = |(protocol, _): &(Arc<dyn Protocol>, Vec<_>)| protocol.queue().map(|queue| queue.keys.clone());
    let Some(((first, _), queue)) = batch.first().and_then(|first| Some((first, first.0.queue()?))) else { return };
    let mut words: Vec<Arg> = batch.iter().filter_map(queues).flatten().map(Arg::Text).collect();
    let keys = words.len();
    words.extend(queue.args(engine.topology.publish(first.name())));
    for (protocol, entries) in &batch {
        words.extend(protocol.queue().map(|queue| Arg::Text(queue.channels.clone())));
        words.push(Arg::Int(i64::try_from(entries.len()).unwrap_or(i64::MAX)));
        for one in entries {
            words.extend([
                Arg::Text(one.target.hold.owner.bytes()),
                Arg::Int(one.at.load(Ordering::Relaxed)),
                Arg::Text(one.target.nonce.clone()),
            ]);
        }
    }
    let sent = engine.now();
    let reply = engine.run(first.name(), Call { script: queue.refresh, keys, words }).await;
    let outcome = reply.and_then(|reply| answered(engine, &batch, queue, sent, &reply));
    if let Err(error) = outcome {
        tracing::debug!(locks = batch.len(), %error, "places in queues could not be refreshed");
        for entry in batch.iter().flat_map(|(_, entries)| entries) {
            // Whoever has not heard anything for so long finds out what is wrong by itself.
            if engine.now().since(entry.confirmed()) > engine.options.poll_cap {
                engine.registry.wake(&entry.inbox);
            }
        }
    }
}

/// Reads the answer to a refresh.
fn answered(engine: &Engine, batch: &Batch, queue: &Queue, sent: Moment, reply: &Reply) -> Result<(), Error> {
    let odd = || Error::odd_reply(queue.refresh.name, reply);
    let Reply::List(answers) = reply else { return Err(odd()) };
    let mut answers = answers.iter();
    let Some(Reply::Int(at)) = answers.next() else { return Err(odd()) };
    for (protocol, entries) in batch {
        let now = engine.now();
        match (answers.next(), answers.next()) {
            (Some(Reply::Int(1)), _) => engine.queues.check_after_first_lease(protocol, now),
            (Some(Reply::Int(0)), Some(Reply::Int(left))) => {
                // Nobody says so when a lease runs out. One that lasts beyond the next beat is looked at then.
                let left =
                    u64::try_from(*left).ok().filter(|left| Duration::from_millis(*left) < engine.options.beat());
                if let Some(left) = left {
                    engine.queues.check_in(protocol, now, left);
                }
            }
            (Some(Reply::Text(reason)), _) => {
                let reason = String::from_utf8_lossy(reason);
                tracing::warn!(lock.name = %protocol.name().plain, %reason, "the server refused to keep a queue");
                for one in entries {
                    answers.next();
                    engine.registry.wake(&one.inbox);
                }
                continue;
            }
            _ => return Err(odd()),
        }
        for one in entries {
            match answers.next() {
                Some(Reply::Int(1)) => one.confirm(sent, *at),
                // Not there: its attempt to stay will tell, in order with its other commands.
                Some(Reply::Int(0)) => engine.registry.wake(&one.inbox),
                Some(Reply::Int(left)) => {
                    let lease = Duration::from_millis(left.unsigned_abs());
                    let mut wakes = None;
                    let entries = engine.queues.entries.lock();
                    // Under the lock, and only for the very place that was asked about: its owner may have been in since,
                    // and wait anew.
                    if entries.get(&one.target.hold.key()).is_some_and(|found| Arc::ptr_eq(found, one)) {
                        wakes = Some(engine.registry.passed_on(&one.inbox, Passed { lease, since: Some(sent) }));
                    }
                    drop(entries);
                    // A waker may come back for the entries.
                    drop(wakes);
                }
                _ => return Err(odd()),
            }
        }
    }
    Ok(())
}
