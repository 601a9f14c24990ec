//! Signals: lost, expiring, and work that stops with the lock; leases set anew.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use distlock::{Error, Guard, Lost, Result};
use futures::FutureExt as _;

use crate::subject::Subject;
use bed::{Bed, QUICK, ms, secs};

/// Set when it is dropped.
struct Flag(Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// True when this says that the guard's lock is lost in this way, by the guard's own name for it.
fn is_lost<T>(outcome: &Result<T>, guard: &Guard, how: Lost) -> bool {
    matches!(outcome, Err(Error::Lost { name, why }) if **name == *guard.name() && *why == how)
}

pub async fn work_under_the_lock_is_stopped_when_it_is_lost(bed: &Bed) {
    let (ours, theirs) = (bed.quick().await, bed.quick().await);
    let (lock, other) = (bed.lock(&ours, "job"), bed.lock(&theirs, "job"));
    let guard = lock.lock().await.unwrap();
    // Longer than the watchdog: it is renewed meanwhile.
    let work = async {
        tokio::time::sleep(QUICK + QUICK / 3).await;
        7
    };
    assert_eq!(guard.run(work).await.unwrap(), 7);
    assert!(guard.is_held());

    let stopped = Arc::new(AtomicBool::new(false));
    let flag = Flag(Arc::clone(&stopped));
    let work = async move {
        let _flag = flag;
        std::future::pending::<()>().await;
    };
    let start = Instant::now();
    let (lost, ()) = tokio::join!(guard.run(work), async { assert!(other.force_unlock().await.unwrap()) });
    assert!(stopped.load(Ordering::SeqCst));
    assert!(is_lost(&lost, &guard, Lost::Gone), "{lost:?}");
    // Noticed by the next renewal.
    assert!(start.elapsed() < QUICK / 3 + ms(400), "{:?}", start.elapsed());
    assert!(!guard.is_held() && guard.remaining().is_zero() && guard.deadline() < Instant::now());
    // Work is not begun on a lock that is lost.
    assert!(guard.run(async { panic!("must not run") }).await.is_err());
    assert!(matches!(guard.unlock().await, Err(Error::Lost { why: Lost::Gone, .. })));
}

pub async fn an_explicit_lease_ends_here_before_anybody_else_has_it(bed: &Subject<'_>) {
    let (ours, theirs) = (bed.client().await, bed.client().await);
    let (lock, other) = (bed.lock(&ours, "job"), bed.rival(&theirs, "job"));
    for _ in 0..3 {
        let start = Instant::now();
        let guard = lock.lock_leased(ms(800)).await.unwrap();
        let deadline = guard.deadline();
        assert!(deadline <= start + ms(800) - ms(8) + ms(5) && deadline > start + ms(700));
        let waiter = tokio::spawn({
            let other = other.clone();
            async move {
                let guard = other.lock().await.unwrap();
                (Instant::now(), guard)
            }
        });
        let lost = guard.run(std::future::pending::<()>()).await;
        let noticed = Instant::now();
        assert!(is_lost(&lost, &guard, Lost::Expired), "{lost:?}");
        assert!(noticed >= deadline, "too early");
        assert!(!guard.is_held());
        let (taken, second) = waiter.await.unwrap();
        assert!(taken > deadline, "two at a time");
        // A timer may be late on a busy machine; the clock above may not.
        assert!(noticed < taken + ms(100), "{:?} late", noticed - taken);
        second.unlock().await.unwrap();
        drop(guard);
    }
}

pub async fn a_release_is_never_a_loss(bed: &Bed) {
    let (ours, theirs) = (bed.client().await, bed.client().await);
    let (lock, other) = (bed.lock(&ours, "job"), bed.lock(&theirs, "job"));
    let guard = lock.lock_leased(ms(300)).await.unwrap();
    let (mut lost, mut expiring) = (Box::pin(guard.lost()), Box::pin(guard.expiring()));
    assert!((&mut lost).now_or_never().is_none() && (&mut expiring).now_or_never().is_none());
    guard.unlock().await.unwrap();
    // They outlive the guard, and the lease.
    let second = other.lock().await.unwrap();
    let either = futures::future::select(lost, expiring);
    assert!(tokio::time::timeout(ms(400), either).await.is_err(), "a release was taken for a loss");
    second.unlock().await.unwrap();

    let guard = lock.lock().await.unwrap();
    let lost = guard.lost();
    drop(guard);
    let guard = lock.lock().await.unwrap();
    let lost_too = guard.lost();
    let owner = guard.into_owner();
    lock.release(&owner).await.unwrap();
    let either = futures::future::select(Box::pin(lost), Box::pin(lost_too));
    assert!(tokio::time::timeout(ms(100), either).await.is_err(), "a release was taken for a loss");
}

pub async fn the_end_is_announced_when_a_third_is_left(bed: &Bed) {
    let client = bed.quick().await;
    let lock = bed.lock(&client, "job");
    let start = Instant::now();
    let guard = lock.lock_leased(ms(1_200)).await.unwrap();
    guard.expiring().await;
    let at = start.elapsed();
    assert!(at > ms(750) && at < ms(1_000), "{at:?}");
    assert!(guard.is_held());
    // It has not been lost by being announced; more time can be had.
    guard.extend(ms(1_200)).await.unwrap();
    assert!(guard.expiring().now_or_never().is_none());
    guard.lost().await;
    assert!(start.elapsed() > ms(1_900), "{:?}", start.elapsed());
    guard.expiring().await;
    drop(guard);

    // The watchdog renews in time: nothing to announce.
    let guard = lock.lock().await.unwrap();
    assert!(tokio::time::timeout(QUICK * 3 / 2, guard.expiring()).await.is_err());
    guard.unlock().await.unwrap();
}

pub async fn extend_sets_the_lease_anew(bed: &Bed) {
    let client = bed.client().await;
    let lock = bed.lock(&client, "job");
    let guard = lock.lock_leased(ms(500)).await.unwrap();
    guard.extend(secs(20)).await.unwrap();
    let ttl = lock.remaining_ttl().await.unwrap().unwrap();
    assert!(ttl > secs(19) && ttl <= secs(20), "{ttl:?}");
    assert!(guard.remaining() > secs(18) && guard.remaining() < secs(20));
    tokio::time::sleep(ms(600)).await;
    assert!(guard.is_held() && lock.is_locked().await.unwrap());
    // Shorter as well.
    guard.extend(ms(200)).await.unwrap();
    let lost = tokio::time::timeout(secs(2), guard.lost()).await.expect("lost on time");
    assert!(is_lost(&Err::<(), _>(lost.clone()), &guard, Lost::Expired), "{lost:?}");
    let refused = guard.extend(secs(5)).await;
    assert!(is_lost(&refused, &guard, Lost::Expired), "{refused:?}");
    drop(guard);
    bed::freed(&lock, secs(1)).await;

    // What the server does not have any more is not made again.
    let guard = lock.lock_leased(secs(20)).await.unwrap();
    bed.admin.cmd::<()>(&["FLUSHALL"]).await;
    let refused = guard.extend(secs(30)).await;
    assert!(is_lost(&refused, &guard, Lost::Gone), "{refused:?}");
    assert!(!guard.is_held() && !lock.is_locked().await.unwrap());
}

pub async fn extend_ends_the_watchdogs_care(bed: &Bed) {
    let client = bed.quick().await;
    let lock = bed.lock(&client, "job");
    let guard = lock.lock().await.unwrap();
    let start = Instant::now();
    guard.extend(QUICK * 2 / 3).await.unwrap();
    assert_eq!(client.renew_now().await.renewed, 0);
    guard.lost().await;
    let at = start.elapsed();
    assert!(at > QUICK / 2 && at < QUICK, "{at:?}");
    drop(guard);
    bed::freed(&lock, secs(1)).await;
}
