//! The beat: commands that each refresh many queue entries, and serve queues whose locks are free.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::sync::{oneshot, watch};

use super::{QueueEntry, Queues};
use crate::engine::Engine;
use crate::engine::protocol::{Protocol, Queue};
use crate::engine::registry::Passed;
use crate::engine::renewal::{self, Which};
use crate::error::Error;
use crate::transport::{Arg, Call, Reply};
use crate::world::Moment;

/// Most waiters per command, because a script blocks the server while it runs.
const MOST: usize = 500;

/// Refreshes queue entries and checks locks until the client closes. Keeps the engine alive only during a beat.
pub(crate) async fn run(engine: Weak<Engine>, queues: Arc<Queues>, mut closing: watch::Receiver<bool>) {
    // Time of the next refresh; None before the first kick.
    let mut next = None;
    loop {
        let pause = {
            let Some(engine) = engine.upgrade() else { return };
            let now = engine.now();
            queues.idle_for(now, next.map_or(engine.options.beat(), |next: Moment| next.since(now)))
        };
        let kicked = tokio::select! {
            biased;
            _ = closing.wait_for(|closing| *closing) => return,
            () = queues.kick.notified() => true,
            () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => false,
        };
        let Some(engine) = engine.upgrade() else { return };
        let now = engine.now();
        if kicked {
            // A new entry is refreshed within a beat, even if the last reply postponed the next refresh. After an idle
            // period, the next refresh is one beat away.
            let soon = now + engine.options.beat();
            let due = next.filter(|_| pause.is_some()).map_or(soon, |next: Moment| next.min(soon));
            next = Some(due);
            // Frequent kicks must not postpone overdue work.
            if engine.queues.idle_for(now, due.since(now)).is_none_or(|idle| !idle.is_zero()) {
                continue;
            }
        }
        let whole = next.is_none_or(|next| now >= next);
        let quiet = beat(&engine, now, whole).await;
        if whole {
            next = Some(now + pause_after(&engine, quiet));
        }
    }
}

/// The pause until the next refresh. `quiet`: time in which no waiter's deadline ends in any queue.
///
/// A dead waiter must be found within a beat of its deadline. While all waiters live, no deadline is near, and the next
/// refresh may come later.
fn pause_after(engine: &Engine, quiet: Duration) -> Duration {
    let (beat, longest) = (engine.options.beat(), engine.options.longest_beat());
    // Jitter, so that clients that saw the same dead waiter do not all check at the same moment.
    let apart = engine.topology.world().jitter(beat / 16);
    if quiet < longest { (quiet + apart).max(beat) } else { longest - apart }
}

/// The locks of one command, each with the waiters to refresh.
type Batch = Vec<(Arc<dyn Protocol>, Vec<Arc<QueueEntry>>)>;

/// Checks the locks of [`Queues::due`] and, if `whole`, refreshes every queue entry. Returns the time in which no
/// deadline ends in any queue.
async fn beat(engine: &Arc<Engine>, now: Moment, whole: bool) -> Duration {
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
    let renews = whole && engine.queues.passed.swap(false, Ordering::Relaxed);
    let batches = batches(engine, locks);
    if engine.topology.homes().len() > 1 {
        return beat_at_each(engine, renews, batches).await;
    }
    let refresh = async {
        let mut under_way: FuturesUnordered<_> = batches.into_iter().map(|batch| refresh(engine, batch)).collect();
        let mut quiet = Duration::MAX;
        while let Some(of_batch) = under_way.next().await {
            quiet = quiet.min(of_batch);
        }
        quiet
    };
    futures::future::join(renew_short(engine, renews), refresh).await.1
}

async fn renew_short(engine: &Arc<Engine>, renews: bool) {
    if renews && renewal::round(engine, Which::Short).await.failed > 0 {
        engine.queues.note_passed();
    }
}

/// A beat over several servers. A server that is down does not delay the others: its commands continue during the next
/// beats.
async fn beat_at_each(engine: &Arc<Engine>, renews: bool, batches: Vec<Batch>) -> Duration {
    if renews {
        let engine = Arc::clone(engine);
        engine.reaper.clone().finish_uncounted(Box::pin(async move { renew_short(&engine, true).await }));
    }
    let mut under_way: FuturesUnordered<_> = batches
        .into_iter()
        .map(|batch| {
            let (done, quiet) = oneshot::channel();
            let of_batch = Arc::clone(engine);
            engine.reaper.finish_uncounted(Box::pin(async move {
                // Fails if `beat_at_each` no longer waits for the reply.
                let _ = done.send(refresh(&of_batch, batch).await);
            }));
            quiet
        })
        .collect();
    let mut quiet = Duration::MAX;
    let answered = async {
        while let Some(of_batch) = under_way.next().await {
            // Fails if the client ends.
            quiet = quiet.min(of_batch.unwrap_or_default());
        }
    };
    let are_all = tokio::time::timeout(engine.options.beat(), answered).await.is_ok();
    if are_all { quiet } else { Duration::ZERO }
}

/// Splits locks into commands, each for one flavour, one server and a limited number of waiters.
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

/// Refreshes the places of a batch. Returns the time in which no deadline ends in its queues; zero if unknown.
async fn refresh(engine: &Arc<Engine>, batch: Batch) -> Duration {
    let error = match send(engine, &batch).await {
        Ok(quiet) => return quiet,
        Err(error) => error,
    };
    if batch.len() > 1 && error.may_concern_one_name() {
        // The other locks keep their places.
        let each = batch.into_iter().map(async |lock| {
            let alone = vec![lock];
            send(engine, &alone).await.unwrap_or_else(|error| not_refreshed(engine, &alone, &error))
        });
        return futures::future::join_all(each).await.into_iter().min().unwrap_or_default();
    }
    not_refreshed(engine, &batch, &error)
}

/// A refresh has failed. Returns the time for [`refresh`].
fn not_refreshed(engine: &Engine, batch: &Batch, error: &Error) -> Duration {
    tracing::debug!(locks = batch.len(), %error, "places in queues could not be refreshed");
    for entry in batch.iter().flat_map(|(_, entries)| entries) {
        // After `poll_cap` without a confirmation, the waiter makes its own attempt, whose error it can report.
        if engine.now().since(entry.confirmed()) > engine.options.poll_cap {
            engine.registry.wake(&entry.inbox);
        }
    }
    Duration::ZERO
}

/// Sends one command, and records the reply.
async fn send(engine: &Arc<Engine>, batch: &Batch) -> Result<Duration, Error> {
    let queues = |(protocol, _): &(Arc<dyn Protocol>, Vec<_>)| protocol.queue().map(|queue| queue.keys.clone());
    let Some(((first, _), queue)) = batch.first().and_then(|first| Some((first, first.0.queue()?))) else {
        return Ok(Duration::ZERO);
    };
    let mut words: Vec<Arg> = batch.iter().filter_map(queues).flatten().map(Arg::Text).collect();
    let keys = words.len();
    words.extend(queue.args(engine.topology.publish()));
    for (protocol, entries) in batch {
        words.extend(protocol.queue().map(|queue| Arg::Text(queue.channels.clone())));
        words.push(Arg::Int(i64::try_from(entries.len()).unwrap_or(i64::MAX)));
        words.push(Arg::Int(entries.iter().any(|one| !one.target.has_its_own_owner()).into()));
        for one in entries {
            words.extend([Arg::Int(one.at.load(Ordering::Relaxed)), Arg::Text(one.target.hold.owner.bytes())]);
        }
        words.extend(entries.iter().map(|one| Arg::Text(one.target.nonce.clone())));
    }
    let sent = engine.now();
    let reply = engine.run(first.name(), Call { script: queue.refresh, keys, words }).await?;
    answered(engine, batch, queue, sent, &reply)
}

/// Notifies a waiter that the lock was passed on to it with this first lease. `sent`: when the refresh that reported
/// this was sent.
fn was_passed_on(engine: &Engine, one: &Arc<QueueEntry>, sent: Moment, lease: Duration) {
    let mut wakes = None;
    let entries = engine.queues.entries.lock();
    // Only if the entry is still the same: the owner may have held the lock and joined the queue again since. The
    // entries stay locked, so that this cannot happen before the notification.
    if entries.get(&one.target.hold.key()).is_some_and(|found| Arc::ptr_eq(found, one)) {
        wakes = Some(engine.registry.passed_on(&one.inbox, Passed { lease, since: Some(sent) }));
    }
    drop(entries);
    // Dropped after the entries are unlocked, because a waker may lock the entries.
    drop(wakes);
}

/// Records the reply to a refresh. Returns the time in which no deadline ends in the batch's queues.
fn answered(engine: &Engine, batch: &Batch, queue: &Queue, sent: Moment, reply: &Reply) -> Result<Duration, Error> {
    let odd = || Error::odd_reply(queue.refresh.name, reply);
    let Reply::List(answers) = reply else { return Err(odd()) };
    let mut answers = answers.iter();
    let Some(Reply::Int(at)) = answers.next() else { return Err(odd()) };
    let mut quiet = Duration::MAX;
    for (protocol, entries) in batch {
        let now = engine.now();
        let (served, left) = (answers.next(), answers.next());
        let Some(Reply::Int(of_queue)) = answers.next() else { return Err(odd()) };
        let of_waiters = match answers.next() {
            Some(Reply::Int(1)) => None,
            Some(Reply::List(each)) if each.len() == entries.len() => Some(each),
            _ => return Err(odd()),
        };
        if !entries.is_empty() {
            quiet = quiet.min(Duration::from_millis(u64::try_from(*of_queue).unwrap_or(0)));
        }
        match (served, left) {
            (Some(Reply::Int(passed @ 1..)), _) => engine.queues.check_passed(protocol, *passed, now),
            (Some(Reply::Int(0)), Some(Reply::Int(left))) => {
                // No message announces the end of a lease, so it is checked. A lease that ends after the next refresh
                // is left to that refresh.
                let next = engine.options.longest_beat();
                let left = u64::try_from(*left).ok().filter(|left| Duration::from_millis(*left) < next);
                if let Some(left) = left {
                    engine.queues.check_in(protocol, now, left);
                }
            }
            (Some(Reply::Text(reason)), _) => {
                let reason = String::from_utf8_lossy(reason);
                if let Some(left_out) = engine.warnings.due("queue", &reason) {
                    let name = &protocol.name().as_written;
                    tracing::warn!(lock.name = %name, %reason, left_out, "the server refused to keep a queue");
                }
                for one in entries {
                    engine.registry.wake(&one.inbox);
                }
                continue;
            }
            _ => return Err(odd()),
        }
        for (n, one) in entries.iter().enumerate() {
            match of_waiters.map_or(Some(&Reply::Int(1)), |each| each.get(n)) {
                Some(Reply::Int(1)) => one.confirm(sent, *at),
                // The entry is gone. The waiter finds this out by its own attempt, in order with its other commands.
                Some(Reply::Int(0)) => engine.registry.wake(&one.inbox),
                Some(Reply::Int(left)) => was_passed_on(engine, one, sent, Duration::from_millis(left.unsigned_abs())),
                _ => return Err(odd()),
            }
        }
    }
    Ok(quiet)
}
