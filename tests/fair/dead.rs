//! What the dead cost: processes that were killed while their waiters stood in the queue.

use std::time::{Duration, Instant};

use distlock::{Acquire, Error};

use crate::peer::{HISTORY, Peer};
use crate::rig::{DEAD_JAVA, evals, keys_gone, passer, plant, queue, queued, waiter};
use bed::{eventually, fair, ms, secs};

/// What a dead process may cost those behind it, by default.
const BOUND: Duration = secs(5);

/// A killed process, with one waiter or 16 in a row at the head: the one behind them is served within the bound, however
/// long after the kill the lock is released.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_at_the_head_costs_five_seconds_at_most() {
    fair(async |bed| {
        let (holder, alive) = (bed.client().await, bed.client().await);
        let mut peer = Peer::start(bed, &[]).await;
        let mut cases = Vec::new();
        for dead in [1, 16] {
            for pause in [ms(0), ms(1500), ms(3500), ms(6000)] {
                let name = format!("{dead} dead, released after {pause:?}");
                // The name travels to the peer in one word.
                let name = name.replace(' ', "_");
                let guard = holder.fair(&name).lock().await.unwrap();
                peer.wait(&name, dead);
                queued(bed, &name, dead).await;
                let behind = waiter(&alive, &name);
                queued(bed, &name, dead + 1).await;
                cases.push((name, pause, guard, behind));
            }
        }
        peer.child.kill9();
        let killed = Instant::now();
        let outcomes = futures::future::join_all(cases.into_iter().map(async |(name, pause, guard, behind)| {
            tokio::time::sleep_until((killed + pause).into()).await;
            guard.unlock().await.unwrap();
            let released = Instant::now();
            let (guard, granted) = behind.await.unwrap();
            guard.unlock().await.unwrap();
            (name, granted.saturating_duration_since(released))
        }))
        .await;
        for (name, cost) in &outcomes {
            println!("{name}: {cost:?}");
        }
        for (name, cost) in outcomes {
            assert!(cost <= BOUND, "{name}: {cost:?}");
        }
        keys_gone(bed, secs(5)).await;
    })
    .await;
}

/// A process killed while it holds and waits: its lease, and then the bound.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_holder_costs_its_lease() {
    fair(async |bed| {
        let alive = bed.quick().await;
        let mut peer = Peer::start(bed, &[("WATCHDOG", "1800")]).await;
        let guard = alive.fair("a").acquire(Acquire::new().lease(secs(20))).await.unwrap().unwrap();
        peer.wait("a", 3);
        queued(bed, "a", 3).await;
        let behind = waiter(&alive, "a");
        queued(bed, "a", 4).await;
        // Frozen first, so that it does not give the lock back before it is killed.
        peer.child.stop();
        guard.unlock().await.unwrap();
        let holders = crate::rig::holders(bed, "a").await;
        assert!(holders.keys().all(|owner| owner.starts_with(&peer.id)) && holders.len() == 1, "{holders:?}");
        peer.child.kill9();
        let killed = Instant::now();
        let (guard, granted) = behind.await.unwrap();
        let cost = granted.saturating_duration_since(killed);
        println!("served {cost:?} after the kill");
        assert!(cost < ms(1800) * 2 + BOUND, "{cost:?}");
        guard.unlock().await.unwrap();
        let _: u64 = bed.admin.cmd(&["DEL", HISTORY]).await;
        keys_gone(bed, secs(5)).await;
    })
    .await;
}

/// 64 waiters behind a dead waiter of Java's, with the lock free: they sleep, and their client sends a command a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_behind_a_dead_java_waiter_do_not_spin() {
    const SPAN: Duration = secs(6);
    fair(async |bed| {
        let client = bed.client().await;
        plant(bed, "a", DEAD_JAVA, 300_000.0).await;
        let waiting: Vec<_> = (0..64).map(|_| passer(&client, "a")).collect();
        queued(bed, "a", 65).await;
        let listening = async || bed.admin.channels().await.len() == 64;
        eventually("all listen", listening).await;
        // The look after the subscription, and the first series of refreshes.
        tokio::time::sleep(secs(1)).await;
        let before = evals(bed).await;
        tokio::time::sleep(SPAN).await;
        let commands = evals(bed).await - before;
        println!("{commands} commands in {SPAN:?} of 64 waiters behind a dead head");
        assert!(commands <= 2 * SPAN.as_secs(), "{commands} commands in {SPAN:?}");
        assert_eq!(queue(bed, "a").await.len(), 65, "Redisson's rules for the waiters of Java");
        // Its end, without which it would stand there for 5 minutes.
        let _: u64 = bed.admin.cmd(&["ZADD", &crate::rig::deadlines_key("a"), "1", DEAD_JAVA]).await;
        let gone = Instant::now();
        for waiting in waiting {
            waiting.await.unwrap();
        }
        println!("all served {:?} after its end", gone.elapsed());
        keys_gone(bed, secs(5)).await;
    })
    .await;
}

/// A client that shuts down takes its waiters out of the queue at once, and the one behind them is served by the release
/// (#4661, #4323: queues left behind by restarts of applications).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_takes_its_waiters_out() {
    fair(async |bed| {
        let (holder, going, alive) = (bed.client().await, bed.client().await, bed.client().await);
        let guard = holder.fair("a").lock().await.unwrap();
        let leaving: Vec<_> = (0..16)
            .map(|_| {
                let lock = going.fair("a");
                tokio::spawn(async move { lock.lock().await })
            })
            .collect();
        queued(bed, "a", 16).await;
        let behind = waiter(&alive, "a");
        queued(bed, "a", 17).await;
        let start = Instant::now();
        going.shutdown(secs(5)).await.unwrap();
        assert_eq!(queue(bed, "a").await.len(), 1, "after the shutdown");
        println!("16 waiters left in {:?}", start.elapsed());
        for task in leaving {
            assert!(matches!(task.await.unwrap(), Err(Error::Closed)));
        }
        guard.unlock().await.unwrap();
        let released = Instant::now();
        let (guard, granted) = behind.await.unwrap();
        let cost = granted.saturating_duration_since(released);
        assert!(cost < ms(50), "{cost:?}");
        guard.unlock().await.unwrap();
        keys_gone(bed, secs(5)).await;
    })
    .await;
}

/// The head gives up while the lock is free for it alone: the next is served at once (idle gap, #3254, #6427).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_goes_serves_the_next() {
    fair(async |bed| {
        let (holder, going, alive) = (bed.client().await, bed.client().await, bed.client().await);
        for _ in 0..50 {
            let guard = holder.fair("a").lock().await.unwrap();
            let lock = going.fair("a");
            let head = tokio::spawn(async move { lock.lock().await.unwrap() });
            queued(bed, "a", 1).await;
            let behind = waiter(&alive, "a");
            queued(bed, "a", 2).await;
            // At the same time: it is passed on to somebody who goes, or to the next.
            let unlock = tokio::spawn(guard.unlock());
            head.abort();
            unlock.await.unwrap().unwrap();
            let released = Instant::now();
            drop(head.await);
            let (guard, granted) = behind.await.unwrap();
            let cost = granted.saturating_duration_since(released);
            assert!(cost < ms(100), "{cost:?}");
            guard.unlock().await.unwrap();
        }
        keys_gone(bed, secs(5)).await;
    })
    .await;
}

/// A dead process, and a watchdog shorter than a place: each of its waiters is passed the lock for that long, until
/// their deadlines are over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]

async fn a_short_watchdog_does_not_make_the_dead_dearer() {
    fair(async |bed| {
        let (holder, alive) =
            (bed.connect(bed.builder().watchdog(ms(3000)).command_timeout(ms(1000))).await, bed.client().await);
        let mut peer = Peer::start(bed, &[]).await;
        let guard = holder.fair("a").lock().await.unwrap();
        peer.wait("a", 4);
        queued(bed, "a", 4).await;
        let behind = waiter(&alive, "a");
        queued(bed, "a", 5).await;
        // Right after a refresh.
        tokio::time::sleep(ms(300)).await;
        peer.child.kill9();
        guard.unlock().await.unwrap();
        let released = Instant::now();
        let (guard, granted) = behind.await.unwrap();
        let cost = granted.saturating_duration_since(released);
        println!("served {cost:?} after the release");
        guard.unlock().await.unwrap();
        assert!(cost <= BOUND, "{cost:?}");
        keys_gone(bed, secs(5)).await;
    })
    .await;
}
