//! Waiting: how long, who is woken when, and what a waiter that went away leaves.

use std::future::Future as _;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use distlock::{Acquire, Error};
use distlock_support::Numbers;
use futures::poll;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::subject::{Subject, cause};
use bed::{Bed, QUICK, eventually, freed, idle, in_vain, median, ms, secs};

// testTryLockWait
pub async fn the_wait_runs_out_on_time(bed: &Subject<'_>) {
    let (ours, theirs) = (bed.client().await, bed.client().await);
    let guard = bed.lock(&ours, "job").lock().await.unwrap();
    // Behind another process, and behind a task of this one.
    for client in [&theirs, &ours] {
        let lock = bed.rival(client, "job");
        let start = Instant::now();
        assert!(lock.lock_for(secs(1)).await.unwrap().is_none());
        let waited = start.elapsed();
        assert!(waited >= ms(995) && waited <= ms(1350), "{waited:?}");
    }
    // Queued behind a waiter that goes on waiting.
    let lock = bed.rival(&theirs, "job");
    let first = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await.unwrap() }
    });
    eventually("the first waits", async || theirs.stats().waiting == 1).await;
    let start = Instant::now();
    assert!(lock.lock_for(ms(300)).await.unwrap().is_none());
    let waited = start.elapsed();
    assert!(waited >= ms(295) && waited <= ms(650), "{waited:?}");
    guard.unlock().await.unwrap();
    first.await.unwrap().unlock().await.unwrap();
}

// testLockUninterruptibly: nothing interrupts a future but its being dropped
pub async fn a_waiter_waits_on_whatever_happens_around_it(bed: &Subject<'_>) {
    let (ours, theirs) = (bed.client().await, bed.client().await);
    let guard = bed.lock(&ours, "job").lock_leased(secs(600)).await.unwrap();
    let lock = bed.rival(&theirs, "job");
    let mut waiter = std::pin::pin!(lock.lock());
    let start = Instant::now();
    while start.elapsed() < secs(1) {
        assert!(poll!(&mut waiter).is_pending());
        // Neighbours come and go.
        assert!(in_vain(&lock.lock_for(ms(3)).await));
        assert!(lock.try_lock().await.unwrap().is_none());
        let mut neighbour = lock.lock();
        assert!(poll!(&mut neighbour).is_pending());
    }
    assert_eq!(theirs.stats().waiting, 1);
    guard.unlock().await.unwrap();
    let guard = tokio::time::timeout(secs(1), waiter).await.expect("woken").unwrap();
    guard.unlock().await.unwrap();
}

// A message wakes the waiter. On its own it would look after 5 s.
pub async fn a_release_wakes_a_waiter_at_once(bed: &Subject<'_>) {
    let (ours, theirs) = (bed.client().await, bed.client().await);
    let mut times = Vec::new();
    for round in 0..40 {
        let (lock, other) = (bed.lock(&ours, "job"), bed.rival(&theirs, "job"));
        let guard = lock.lock().await.unwrap();
        let waiter = tokio::spawn(async move {
            let guard = other.lock().await.unwrap();
            let now = Instant::now();
            guard.unlock().await.unwrap();
            now
        });
        eventually("it waits", async || theirs.stats().waiting == 1).await;
        // Some rounds before it has subscribed, some after.
        tokio::time::sleep(ms(round % 4)).await;
        let released = Instant::now();
        guard.unlock().await.unwrap();
        times.push(waiter.await.unwrap().saturating_duration_since(released));
    }
    let worst = *times.iter().max().unwrap();
    let median = median(times);
    println!("released to woken: median {median:?}, worst {worst:?}");
    assert!(median < ms(10), "median {median:?}");
    assert!(worst < ms(500), "worst {worst:?}");
}

pub async fn waiters_of_one_client_are_served_in_order(bed: &Subject<'_>) {
    let (ours, theirs) = (bed.client().await, bed.client().await);
    for holder in [&ours, &theirs] {
        let guard = bed.lock(holder, "job").lock().await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut waiters = JoinSet::new();
        for n in 0..50 {
            let (lock, order) = (bed.lock(&ours, "job"), Arc::clone(&order));
            waiters.spawn(async move {
                let guard = lock.lock().await.unwrap();
                order.lock().push(n);
                // Every other one by dropping.
                if n % 2 == 0 {
                    guard.unlock().await.unwrap();
                }
            });
            eventually("it waits", async || ours.stats().waiting == n + 1).await;
            // Their commands may overtake each other on several connections.
            if let Some(queue) = bed.kind().queue {
                let length = async || bed.admin.cmd::<usize>(&["LLEN", &queue("job")]).await;
                eventually("it stands in the queue", async || length().await == n + 1).await;
            }
        }
        guard.unlock().await.unwrap();
        while let Some(done) = waiters.join_next().await {
            done.unwrap();
        }
        assert_eq!(*order.lock(), (0..50).collect::<Vec<_>>());
        idle(&ours).await;
    }
}

// testLockIsNotRenewedAfterInterruptedTryLock
pub async fn a_dropped_try_lock_leaves_no_orphan(bed: &Bed) {
    let client = bed.quick().await;
    let mut numbers = Numbers::new(1);
    for n in 0..100_u32 {
        let lock = bed.lock(&client, &format!("job {n}"));
        let mut attempt = lock.try_lock();
        // From never polled to answered.
        for _ in 0..n % 7 {
            if let Poll::Ready(guard) = poll!(&mut attempt) {
                drop(guard);
                break;
            }
            tokio::time::sleep(Duration::from_micros(numbers.below(1_500))).await;
        }
    }
    idle(&client).await;
    assert_eq!(bed.keys().await, [""; 0]);
    // Nor does anything come back that was only late.
    tokio::time::sleep(QUICK).await;
    assert_eq!(bed.keys().await, [""; 0]);
}

pub async fn dropped_waiters_leave_nothing(bed: &Subject<'_>) {
    let (ours, theirs) = (bed.client().await, bed.connect(bed.builder().subscription_linger(ms(50))).await);
    let lock = bed.rival(&theirs, "job");
    let guard = bed.lock(&ours, "job").lock().await.unwrap();
    let mut numbers = Numbers::new(2);
    let mut waiters = JoinSet::new();
    for _ in 0..300 {
        let (lock, after) = (lock.clone(), Duration::from_micros(numbers.below(20_000)));
        waiters.spawn(async move { tokio::time::timeout(after, lock.lock()).await.is_err() });
    }
    while let Some(gave_up) = waiters.join_next().await {
        assert!(gave_up.unwrap());
    }
    eventually("nobody waits", async || theirs.stats().waiting == 0 && theirs.stats().names == 0).await;
    assert_eq!(bed.admin.channels().await, [""; 0]);
    guard.unlock().await.unwrap();

    // While the lock goes from hand to hand: whoever is dropped with it in hand gives it back.
    let mut waiters = JoinSet::new();
    for n in 0..300 {
        let after = Duration::from_micros(numbers.below(5_000));
        let lock = if n % 3 == 0 { bed.lock(&ours, "job") } else { lock.clone() };
        waiters.spawn(async move { drop(tokio::time::timeout(after, lock.lock()).await) });
    }
    while let Some(done) = waiters.join_next().await {
        done.unwrap();
    }
    let took = freed(&lock, secs(3)).await + freed(&bed.lock(&ours, "job"), secs(3)).await;
    println!("free {took:?} after the last one");
    let start = Instant::now();
    lock.lock_for(secs(5)).await.unwrap().expect("it is free").unlock().await.unwrap();
    assert!(start.elapsed() < ms(500), "{:?}", start.elapsed());
}

// testRedisFailed
pub async fn a_server_that_is_gone_is_an_error_and_not_a_hang(bed: &Bed) {
    let client = bed.quick().await;
    let lock = bed.lock(&client, "job");
    lock.lock().await.unwrap().unlock().await.unwrap();
    bed.server.kill9();
    let start = Instant::now();
    let failed = lock.acquire(Acquire::new().wait(secs(2)).lease(secs(10))).await;
    let waited = start.elapsed();
    let failed = failed.map_err(cause);
    assert!(matches!(failed, Err(Error::Connection { .. } | Error::Timeout { .. })), "{failed:?}");
    assert!(waited < ms(2_500), "{waited:?}");
    // One attempt lasts a command at the most, and a wait without end as long as errors are tried again.
    let start = Instant::now();
    assert!(lock.try_lock().await.unwrap_err().is_retryable());
    assert!(start.elapsed() < QUICK / 3 + ms(500), "{:?}", start.elapsed());
    let start = Instant::now();
    assert!(lock.lock().await.unwrap_err().is_retryable());
    assert!(start.elapsed() < secs(5), "{:?}", start.elapsed());
    bed.server.restart();
    eventually("it works again", async || match lock.lock_for(secs(1)).await {
        Ok(Some(guard)) => guard.unlock().await.is_ok(),
        _ => false,
    })
    .await;
}

pub async fn a_wait_without_end_and_a_wait_of_nothing(bed: &Subject<'_>) {
    let (ours, theirs) = (bed.client().await, bed.client().await);
    let (lock, other) = (bed.lock(&ours, "job"), bed.rival(&theirs, "job"));
    let guard = lock.lock_for(Duration::MAX).await.unwrap().expect("it is free");
    for wait in [Duration::ZERO, Duration::from_nanos(1), Duration::from_micros(900)] {
        let start = Instant::now();
        assert!(in_vain(&other.lock_for(wait).await));
        assert!(start.elapsed() < ms(300), "{:?}", start.elapsed());
    }
    let mut waiter = std::pin::pin!(other.lock_for(Duration::MAX));
    let beside = bed.rival(&ours, "job");
    let mut here = std::pin::pin!(beside.acquire(Acquire::new().wait(Duration::MAX).lease(secs(1))));
    for _ in 0..50 {
        assert!(poll!(&mut waiter).is_pending() && poll!(&mut here).is_pending());
        tokio::time::sleep(ms(2)).await;
    }
    guard.unlock().await.unwrap();
    let first = std::future::poll_fn(|context| match waiter.as_mut().poll(context) {
        Poll::Ready(guard) => Poll::Ready((true, guard)),
        Poll::Pending => here.as_mut().poll(context).map(|guard| (false, guard)),
    });
    let (waiter_first, guard) = tokio::time::timeout(secs(2), first).await.expect("one is woken");
    guard.unwrap().unwrap().unlock().await.unwrap();
    let second = if waiter_first { here.await } else { waiter.await };
    second.unwrap().unwrap().unlock().await.unwrap();
}
