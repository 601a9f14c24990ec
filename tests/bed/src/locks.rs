//! Holders and waiters of locks, as tests need them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use distlock::{Acquire, DistLock, Flavour, Guard, Owner};
use tokio::task::JoinHandle;

use crate::eventually;

/// The owner's text in Redis. `as_str()` would mark the owner as shared, and its holds would be counted differently.
pub fn text(owner: &Owner) -> String {
    let debug = format!("{owner:?}");
    debug.strip_prefix("Owner(").and_then(|rest| rest.strip_suffix(')')).unwrap().to_owned()
}

pub async fn enter(lock: &(impl DistLock + ?Sized), owner: &Owner) -> Guard {
    match lock.acquire(Acquire::new().owner(owner)).await {
        Ok(Some(guard)) => guard,
        outcome => panic!("acquire {:?} as {owner:?}: {outcome:?}", lock.name()),
    }
}

/// Waits for a lock. The task returns the guard and the time of the acquire.
pub fn waiter(lock: impl DistLock + 'static) -> JoinHandle<(Guard, Instant)> {
    tokio::spawn(async move {
        let guard = lock.lock().await.unwrap_or_else(|error| panic!("lock: {error:?}"));
        (guard, Instant::now())
    })
}

pub fn passer(lock: impl DistLock + 'static) -> JoinHandle<()> {
    tokio::spawn(async move {
        let guard = lock.lock().await.unwrap_or_else(|error| panic!("lock: {error:?}"));
        guard.unlock().await.unwrap_or_else(|error| panic!("unlock: {error:?}"));
    })
}

pub async fn freed(lock: &Arc<dyn DistLock>) {
    eventually("the lock is free", async || !lock.is_locked().await.unwrap()).await;
}

/// The end of a guard's lease. `Guard::deadline` converts between two clocks and may be slightly early, so this
/// function takes the latest of ten reads.
pub fn deadline(guard: &Guard) -> Instant {
    (0..10).map(|_| guard.deadline()).max().expect("ten looks")
}

/// How far a guard's deadline has moved since an earlier read by [`deadline`].
pub fn moved(guard: &Guard, before: Instant) -> Duration {
    deadline(guard).saturating_duration_since(before)
}

/// Every flavour that is a single lock.
pub const FLAVOURS: [Flavour; 7] =
    [Flavour::Reentrant, Flavour::Fair, Flavour::Read, Flavour::Write, Flavour::Fenced, Flavour::Spin, Flavour::Plain];

/// Flavours with one holder at a time, among them the write half.
pub const EXCLUSIVE: [Flavour; 6] =
    [Flavour::Reentrant, Flavour::Fair, Flavour::Write, Flavour::Fenced, Flavour::Spin, Flavour::Plain];

/// Flavours whose holder can be asked to finish.
pub const REVOCABLE: [Flavour; 5] = [Flavour::Reentrant, Flavour::Fair, Flavour::Write, Flavour::Fenced, Flavour::Spin];

/// A counter that panics when two tasks increment it at the same time.
#[derive(Debug, Default)]
pub struct Counter {
    count: AtomicU64,
    inside: AtomicU64,
}

impl Counter {
    /// Increments in steps that are not atomic together, with a pause in between.
    pub async fn bump(&self, pause: Duration) {
        let others = self.inside.fetch_add(1, Ordering::SeqCst);
        let seen = self.count.load(Ordering::SeqCst);
        if pause.is_zero() {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(pause).await;
        }
        self.count.store(seen + 1, Ordering::SeqCst);
        self.inside.fetch_sub(1, Ordering::SeqCst);
        assert_eq!(others, 0, "exclusion broken: another holder was inside");
    }

    pub fn get(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }
}
