//! Spin and reentrant locks of one name: the same lock in Redis, but for the message.

use std::sync::Arc;
use std::time::Instant;

use distlock::{Acquire, DistLock, Flavour, Released};
use tokio::task::JoinSet;

use crate::rig::spin;
use bed::{Counter, enter, eventually, ms, secs};

/// The hash of the reentrant lock, and no key beside it.
#[tokio::test]
async fn what_stands_in_redis_is_the_reentrant_locks_hash() {
    spin(async |bed| {
        let client = bed.client().await;
        let me = client.owner();
        let lock = client.spin("job");
        let how = |lease| Acquire::new().owner(&me).lease(secs(lease));
        let outer = lock.acquire(how(20)).await.unwrap().unwrap();
        let inner = lock.acquire(how(40)).await.unwrap().unwrap();
        assert_eq!(bed.admin.keys().await, ["job"]);
        assert_eq!(bed.admin.hgetall("job").await.into_iter().collect::<Vec<_>>(), [(me.to_string(), "2".to_owned())]);
        let ttl = bed.admin.pttl("job").await;
        assert!((39_000..=40_000).contains(&ttl), "{ttl}");
        // One of the same owner by the other kind of lock: one more.
        let third = client.reentrant("job").acquire(how(20)).await.unwrap().unwrap();
        assert_eq!(lock.hold_count(&me).await.unwrap(), 3);
        assert_eq!(inner.unlock().await.unwrap(), Released::StillHeld(2));
        assert_eq!(third.unlock().await.unwrap(), Released::StillHeld(1));
        let ttl = bed.admin.pttl("job").await;
        assert!((19_000..=20_000).contains(&ttl), "{ttl}");
        assert_eq!(outer.unlock().await.unwrap(), Released::Free);
        assert_eq!(bed.admin.keys().await, [""; 0]);
    })
    .await;
}

/// Each kind keeps the other out, in one process and in two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_kinds_keep_each_other_out() {
    spin(async |bed| {
        let quick = || bed.builder().poll_cap(ms(50));
        let clients = [bed.connect(quick()).await, bed.connect(quick()).await];
        let counter = Arc::new(Counter::default());
        let mut tasks = JoinSet::new();
        for n in 0..12 {
            let flavour = if n % 4 < 2 { Flavour::Spin } else { Flavour::Reentrant };
            let (lock, counter) = (clients[n % 2].lock(flavour, "job"), Arc::clone(&counter));
            tasks.spawn(async move {
                for _ in 0..15 {
                    let guard = lock.lock().await.unwrap();
                    counter.bump(ms(1)).await;
                    guard.unlock().await.unwrap();
                }
            });
        }
        tasks.join_all().await;
        assert_eq!(counter.get(), 12 * 15);
    })
    .await;
}

/// Who waits for a reentrant lock behind the holder of a spin lock is told nothing by another process: it looks when its pause
/// is over, or the lease. Behind one of its own process it is in at once.
#[tokio::test]
async fn a_reentrant_waiter_behind_a_spin_holder_looks_for_itself() {
    spin(async |bed| {
        let (ours, theirs) = (bed.client().await, bed.connect(bed.builder().poll_cap(ms(400))).await);
        let holder = ours.spin("job");
        let waiter = |client: &distlock::Client| {
            let lock = client.reentrant("job");
            tokio::spawn(async move { (lock.lock().await.unwrap(), Instant::now()) })
        };
        // The pause.
        let guard = holder.lock().await.unwrap();
        let waiting = waiter(&theirs);
        eventually("it listens", async || bed.admin.channels().await.len() == 1).await;
        let released = Instant::now();
        guard.unlock().await.unwrap();
        let (guard, at) = waiting.await.unwrap();
        let took = at.saturating_duration_since(released);
        println!("in after {took:?} with a pause of 400 ms");
        assert!(took < ms(1_400), "{took:?}");
        guard.unlock().await.unwrap();
        // The lease, which is shorter than the pause of 5 s.
        let third = bed.client().await;
        let start = Instant::now();
        let guard = holder.lock_leased(ms(400)).await.unwrap();
        let (second, _) = waiter(&third).await.unwrap();
        assert!(start.elapsed() + ms(1) >= ms(400) && start.elapsed() < ms(1_400), "{:?}", start.elapsed());
        second.unlock().await.unwrap();
        drop(guard);
        // The same process, whichever way it is given back.
        for way in ["unlock", "release", "force"] {
            let me = ours.owner();
            let guard = enter(&holder, &me).await;
            let waiting = waiter(&ours);
            eventually("it waits", async || ours.stats().waiting == 1).await;
            eventually("it listens", async || bed.admin.channels().await.len() == 1).await;
            tokio::time::sleep(ms(50)).await;
            let released = Instant::now();
            match way {
                "unlock" => assert_eq!(guard.unlock().await.unwrap(), Released::Free),
                "release" => assert_eq!(holder.release(&guard.into_owner()).await.unwrap(), Released::Free),
                _ => assert!(holder.force_unlock().await.unwrap()),
            }
            let (guard, at) = waiting.await.unwrap();
            let took = at.saturating_duration_since(released);
            assert!(took < secs(2), "{way}: {took:?}");
            guard.unlock().await.unwrap();
        }
    })
    .await;
}

/// The other way round it finds the release by its own pauses, and the message is nothing to it.
#[tokio::test]
async fn a_spin_waiter_behind_a_reentrant_holder_looks_as_ever() {
    spin(async |bed| {
        let (ours, theirs) = (bed.client().await, bed.client().await);
        let guard = ours.reentrant("job").lock().await.unwrap();
        let lock = theirs.spin("job");
        let waiting = tokio::spawn(async move { lock.lock().await.unwrap() });
        eventually("it waits", async || theirs.stats().waiting == 1).await;
        tokio::time::sleep(ms(200)).await;
        assert_eq!(bed.admin.channels().await, [""; 0]);
        let released = Instant::now();
        guard.unlock().await.unwrap();
        waiting.await.unwrap().unlock().await.unwrap();
        assert!(released.elapsed() < secs(1), "{:?}", released.elapsed());
    })
    .await;
}
