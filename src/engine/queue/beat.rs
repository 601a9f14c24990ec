//! The beat: one command for many queue entries, which keeps them and serves the heads of queues whose locks are free.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::sync::watch;

use super::{QueueEntry, Queues};
use crate::engine::Engine;
use crate::engine::protocol::{Protocol, Queue};
use crate::engine::registry::Passed;
use crate::engine::renewal::{self, Which};
use crate::error::Error;
use crate::transport::{Arg, Call, Reply};
use crate::world::Moment;

/// The most waiters that one command refreshes: a script blocks the server for as long as it runs.
const MOST: usize = 500;

/// Keeps queue entries and looks after locks until the client closes. Holds the engine only while a beat is under way.
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

/// Refreshes every queue entry if it is time, and looks after the locks that are due.
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

/// Splits locks into commands: each for one flavour, one server, and not too many waiters.
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
            // A waiter that was not confirmed for so long asks for itself, and finds out what is wrong.
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
                // The end of a lease is not announced. A lease that lasts beyond the next beat is checked then.
                let left =
                    u64::try_from(*left).ok().filter(|left| Duration::from_millis(*left) < engine.options.beat());
                if let Some(left) = left {
                    engine.queues.check_in(protocol, now, left);
                }
            }
            (Some(Reply::Text(reason)), _) => {
                let reason = String::from_utf8_lossy(reason);
                tracing::warn!(lock.name = %protocol.name().as_written, %reason, "the server refused to keep a queue");
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
                // The entry is gone. Its waiter finds that out by asking, in order with its other commands.
                Some(Reply::Int(0)) => engine.registry.wake(&one.inbox),
                Some(Reply::Int(left)) => {
                    let lease = Duration::from_millis(left.unsigned_abs());
                    let mut wakes = None;
                    let entries = engine.queues.entries.lock();
                    // Under the lock, and only for the very entry that was asked about: its owner may have held the lock since,
                    // and wait anew.
                    if entries.get(&one.target.hold.key()).is_some_and(|found| Arc::ptr_eq(found, one)) {
                        wakes = Some(engine.registry.passed_on(&one.inbox, Passed { lease, since: Some(sent) }));
                    }
                    drop(entries);
                    // Dropped once the entries are unlocked: a waker may lock them again.
                    drop(wakes);
                }
                _ => return Err(odd()),
            }
        }
    }
    Ok(())
}
