//! Waiting: who is woken, and what a waiter leaves when it gives up.

use std::sync::Arc;
use std::time::Duration;

use distlock::{Acquire, Error};
use distlock_support::Numbers;
use futures::poll;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::subject::{Subject, cause, freed, passer, waiting};
use bed::{becomes, ends, idle, in_vain, ms, secs};

// testTryLockWait, testLockUninterruptibly: only dropping a future ends its wait early
pub async fn timed_out_wait_does_not_disturb_other_waiters(bed: &Subject<'_>) {
    let (ours, theirs) = (bed.still_client().await, bed.still_client().await);
    let (lock, beside) = (bed.rival(&theirs, "job"), bed.rival(&ours, "job"));
    let guard = bed.mutex(&ours, "job").lock_for(Duration::MAX).await.unwrap().expect("it is free");
    let mut waiter = std::pin::pin!(lock.lock_for(Duration::MAX));
    let mut here = std::pin::pin!(beside.acquire(Acquire::new().wait(Duration::MAX).lease(secs(60))));
    for wait in [ms(0), Duration::from_nanos(1), Duration::from_micros(900), ms(3), ms(50)] {
        assert!(poll!(&mut waiter).is_pending() && poll!(&mut here).is_pending(), "somebody else holds it");
        // The rival waits for a holder at another client, and for a holder at its own client.
        for rival in [&lock, &beside] {
            let outcome = ends("a short wait", rival.lock_for(wait)).await;
            assert!(in_vain(&outcome), "after a wait of {wait:?}: {outcome:?}");
            assert!(rival.try_lock().await.unwrap().is_none());
            let mut neighbour = rival.lock();
            assert!(poll!(&mut neighbour).is_pending());
        }
    }
    waiting(&theirs, 1).await;
    guard.unlock().await.unwrap();
    let (first, second) = ends("both waits", async {
        tokio::join!(async { waiter.await.unwrap().expect("it waits without end").unlock().await }, async {
            here.await.unwrap().expect("it waits without end").unlock().await
        })
    })
    .await;
    first.unwrap();
    second.unwrap();
}

pub async fn release_wakes_a_waiter_of_another_client(bed: &Subject<'_>) {
    let (ours, theirs) = (bed.still_client().await, bed.still_client().await);
    let (lock, other) = (bed.mutex(&ours, "job"), bed.rival(&theirs, "job"));
    for round in 0..20 {
        let guard = lock.lock().await.unwrap();
        let waiter = passer(other.clone());
        waiting(&theirs, 1).await;
        // Some rounds release before the waiter has subscribed, some after.
        tokio::time::sleep(ms(round % 4)).await;
        guard.unlock().await.unwrap();
        ends("the waiter, which is woken by the release alone", waiter).await.unwrap();
    }
}

pub async fn waiters_of_one_client_are_served_in_order(bed: &Subject<'_>) {
    const WAITERS: usize = 30;
    // A long `fair_wait`, so that a fair lock's waiters keep their places while this process is suspended.
    let builder = || bed.still_builder().configure(|options| options.fair_wait = secs(300));
    let (ours, theirs) = (bed.connect(builder()).await, bed.connect(builder()).await);
    for holder in [&ours, &theirs] {
        let guard = bed.mutex(holder, "job").lock().await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut waiters = JoinSet::new();
        for n in 0..WAITERS {
            let (lock, order) = (bed.mutex(&ours, "job"), Arc::clone(&order));
            waiters.spawn(async move {
                let guard = lock.lock().await.unwrap();
                order.lock().push(n);
                // Every other holder releases by dropping its guard.
                if n % 2 == 0 {
                    guard.unlock().await.unwrap();
                }
            });
            waiting(&ours, n + 1).await;
            // The next waiter must be queued later, but commands on different connections may overtake each other.
            if let Some(queue) = bed.kind().queue {
                let queue = queue("job");
                becomes("places in the queue", n + 1, async || bed.admin.cmd(&["LLEN", &queue]).await).await;
            }
        }
        guard.unlock().await.unwrap();
        while let Some(done) = ends("the next waiter", waiters.join_next()).await {
            done.unwrap();
        }
        assert_eq!(*order.lock(), (0..WAITERS).collect::<Vec<_>>());
        idle(&ours).await;
    }
}

// testLockIsNotRenewedAfterInterruptedTryLock. The watchdog's lease lasts an hour.
pub async fn dropped_try_lock_leaves_no_keys(bed: &Subject<'_>) {
    let client = bed.still_client().await;
    let mut numbers = Numbers::new(1);
    for n in 0..60_u32 {
        let name = format!("job {n}");
        bed.prepare(&[&name]).await;
        let lock = bed.mutex(&client, &name);
        let mut attempt = lock.try_lock();
        // The attempt is dropped at different points, from before its first poll until after the reply.
        for _ in 0..n % 7 {
            if poll!(&mut attempt).is_ready() {
                break;
            }
            tokio::time::sleep(Duration::from_micros(numbers.below(1_500))).await;
        }
    }
    idle(&client).await;
    becomes("keys", Vec::<String>::new(), async || bed.keys_of_holds().await).await;
}

pub async fn dropped_waiters_leave_no_subscription_and_no_hold(bed: &Subject<'_>) {
    let ours = bed.still_client().await;
    let theirs = bed.connect(bed.still_builder().configure(|options| options.subscription_linger = ms(50))).await;
    let lock = bed.rival(&theirs, "job");
    let guard = bed.mutex(&ours, "job").lock().await.unwrap();
    let mut numbers = Numbers::new(2);
    let mut waiters = JoinSet::new();
    for _ in 0..200 {
        let (lock, after) = (lock.clone(), Duration::from_micros(numbers.below(20_000)));
        waiters.spawn(async move { tokio::time::timeout(after, lock.lock()).await.map(|taken| taken.map(drop)) });
    }
    for waited in std::mem::take(&mut waiters).join_all().await {
        assert!(waited.is_err(), "a waiter had the lock that somebody else holds, or failed: {waited:?}");
    }
    becomes("acquires that wait, and names", (0, 0), async || (theirs.stats().waiting, theirs.stats().names)).await;
    becomes("channels", Vec::<String>::new(), async || bed.admin.channels().await).await;
    guard.unlock().await.unwrap();

    // Acquires are dropped while the lock passes between clients. A dropped acquire that got the lock releases it.
    for n in 0..200 {
        let after = Duration::from_micros(numbers.below(5_000));
        let lock = if n % 3 == 0 { bed.mutex(&ours, "job") } else { lock.clone() };
        waiters.spawn(async move { tokio::time::timeout(after, lock.lock()).await.map(|taken| taken.map(drop)) });
    }
    for waited in waiters.join_all().await {
        assert!(!matches!(waited, Ok(Err(_))), "{waited:?}");
    }
    freed(&lock).await;
    freed(&bed.mutex(&ours, "job")).await;
    ends("the next acquire", lock.lock()).await.unwrap().unlock().await.unwrap();
}

// testRedisFailed
pub async fn acquire_without_a_server_returns_an_error(bed: &Subject<'_>) {
    let builder = bed
        .builder()
        .command_timeout(ms(600))
        .retry_attempts(2)
        .configure(|options| options.retry_delay = (ms(10), ms(100)));
    let client = bed.connect(builder).await;
    let lock = bed.mutex(&client, "job");
    // On a slow machine the first attempt may fail.
    becomes("it works", true, async || matches!(lock.try_lock().await, Ok(Some(_)))).await;
    idle(&client).await;
    bed.server.kill9();
    let waits = [
        lock.acquire(Acquire::new().wait(secs(1)).lease(secs(10))),
        lock.try_lock(),
        // This acquire waits until its retries are used up.
        lock.acquire(Acquire::new()),
    ];
    for failed in ends("acquires without a server", futures::future::join_all(waits)).await {
        let failed = failed.map_err(cause);
        assert!(
            matches!(failed, Err(Error::Connection { .. } | Error::Timeout { .. })),
            "without a server: {failed:?}"
        );
    }
    bed.server.restart();
    // The number of permits is lost, too.
    bed.prepare(&["job"]).await;
    becomes("it works again", true, async || match lock.lock_for(secs(1)).await {
        Ok(Some(guard)) => guard.unlock().await.is_ok(),
        _ => false,
    })
    .await;
}
