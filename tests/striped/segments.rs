//! Any segment, all of them, and who waits for one.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use bed::{eventually, idle, in_vain, ms, reentrant, secs};
use distlock::{Acquire, Client, DistLock, Flavour, Guard, Released, Striped};

pub const SEGMENTS: usize = 4;

/// Takes any segment.
pub async fn any(striped: &Striped) -> (usize, Guard) {
    striped.any(Acquire::new()).await.unwrap().unwrap()
}

/// A striped lock of every flavour that keeps its own kind out.
fn exclusive(client: &Client) -> Vec<Striped> {
    let flavours = Flavour::ALL.iter().filter(|flavour| **flavour != Flavour::Read);
    flavours.map(|flavour| Striped::over(client, *flavour, flavour.as_str(), SEGMENTS)).collect()
}

/// As many holders as segments side by side, each with a segment of its own, at once; and no more.
#[tokio::test]
async fn as_many_holders_as_segments_and_no_more() {
    reentrant(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        for (striped, theirs) in exclusive(&client).into_iter().zip(exclusive(&other)) {
            let mut guards = Vec::new();
            let mut taken = HashSet::new();
            for n in 0..SEGMENTS {
                let (at, guard) = if n % 2 == 0 { any(&striped).await } else { any(&theirs).await };
                assert!(taken.insert(at), "{at} twice");
                assert_eq!(guard.name(), format!("{}:{at}", striped.name()));
                assert!(guard.is_held() && bed.admin.exists(guard.name()).await);
                guards.push(guard);
            }
            for lock in [&striped, &theirs] {
                assert!(lock.try_lock().await.unwrap().is_none());
                let began = Instant::now();
                let outcome = lock.lock_for(ms(60)).await;
                assert!(in_vain(&outcome), "{outcome:?}");
                assert!(began.elapsed() < secs(1), "{:?}", began.elapsed());
                assert!(lock.all().try_lock().await.unwrap().is_none());
            }
            for guard in guards {
                assert_eq!(guard.unlock().await.unwrap(), Released::Free);
            }
        }
    })
    .await;
}

/// Readers share their segments: no end to them.
#[tokio::test]
async fn readers_share_segments() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let read = Striped::over(&client, Flavour::Read, "rw", 2);
        let write = Striped::over(&client, Flavour::Write, "rw", 2);
        let mut guards = Vec::new();
        for _ in 0..6 {
            guards.push(read.try_lock().await.unwrap().expect("shared"));
        }
        assert!(write.try_lock().await.unwrap().is_none());
        for guard in guards {
            guard.unlock().await.unwrap();
        }
        let writing = write.all().lock().await.unwrap();
        assert!(read.try_lock().await.unwrap().is_none());
        writing.unlock().await.unwrap();
    })
    .await;
}

/// Who waits has the first segment that becomes free, whichever it is; and gives back what else it got.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_has_the_first_that_becomes_free() {
    reentrant(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        for (striped, theirs) in exclusive(&client).into_iter().zip(exclusive(&other)) {
            for freed in 0..SEGMENTS {
                let mut guards = Vec::new();
                for segment in 0..SEGMENTS {
                    guards.push(striped.segment(segment).unwrap().lock().await.unwrap());
                }
                let lock = if freed % 2 == 0 { striped.clone() } else { theirs.clone() };
                let waiting = if freed % 2 == 0 { &client } else { &other };
                let waiter = tokio::spawn(async move { any(&lock).await });
                eventually("it waits for each", async || waiting.stats().waiting == SEGMENTS).await;
                guards.remove(freed).unlock().await.unwrap();
                let (at, guard) = tokio::time::timeout(secs(7), waiter).await.expect("never woken").unwrap();
                assert_eq!(at, freed);
                guard.unlock().await.unwrap();
                eventually("it waits no more", async || waiting.stats().waiting == 0).await;
                for guard in guards {
                    guard.unlock().await.unwrap();
                }
            }
            // All at once: one is kept, the others are free.
            let all = striped.all().lock().await.unwrap();
            let lock = theirs.clone();
            let waiter = tokio::spawn(async move { any(&lock).await });
            eventually("it waits for each", async || other.stats().waiting == SEGMENTS).await;
            all.unlock().await.unwrap();
            let (at, guard) = tokio::time::timeout(secs(7), waiter).await.expect("never woken").unwrap();
            for n in (0..SEGMENTS).filter(|n| *n != at) {
                let free = async || !striped.segment(n).unwrap().is_locked().await.unwrap();
                eventually("the others are free", free).await;
            }
            guard.unlock().await.unwrap();
            idle(&client).await;
            idle(&other).await;
        }
    })
    .await;
}

/// All of them exclude any, and any excludes all, over every flavour.
#[tokio::test]
async fn all_and_any_exclude_each_other() {
    reentrant(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        for (striped, theirs) in exclusive(&client).into_iter().zip(exclusive(&other)) {
            let all = striped.all().lock().await.unwrap();
            assert_eq!(all.members().len(), SEGMENTS);
            assert!(theirs.try_lock().await.unwrap().is_none());
            assert!(theirs.segment(2).unwrap().try_lock().await.unwrap().is_none());
            all.unlock().await.unwrap();
            let (_, one) = any(&theirs).await;
            assert!(striped.all().try_lock().await.unwrap().is_none());
            let lock = striped.all();
            let waiter = tokio::spawn(async move { lock.lock().await.unwrap() });
            eventually("it waits", async || client.stats().waiting > 0).await;
            one.unlock().await.unwrap();
            let all = tokio::time::timeout(secs(7), waiter).await.expect("never woken").unwrap();
            all.unlock().await.unwrap();
            idle(&client).await;
            idle(&other).await;
        }
    })
    .await;
}

/// As a `DistLock` among others: chosen at run time, leased, waited for.
#[tokio::test]
async fn as_any_other_lock() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let lock: Arc<dyn DistLock> = Arc::new(client.striped("s", 2));
        assert_eq!(lock.name(), "s");
        let one = lock.lock().await.unwrap();
        let two = lock.lock_leased(ms(300)).await.unwrap();
        assert!(lock.try_lock().await.unwrap().is_none());
        // The second one's lease ends.
        let began = Instant::now();
        let three = lock.lock_for(secs(10)).await.unwrap().expect("a lease has ended");
        assert!(began.elapsed() < secs(3), "{:?}", began.elapsed());
        assert_eq!(three.name(), two.name());
        assert!(!two.is_held());
        drop(two);
        one.unlock().await.unwrap();
        three.unlock().await.unwrap();
    })
    .await;
}
