//! Acquiring any segment or all segments, and waiting for one.

use std::collections::HashSet;

use bed::{becomes, ends, idle, ms, passer, reentrant, waits_in_vain};
use distlock::{Acquire, Client, Flavour, Guard, Released, Striped};
use tokio::task::JoinHandle;

pub const SEGMENTS: usize = 4;

pub async fn any(striped: &Striped) -> (usize, Guard) {
    striped.acquire_any(Acquire::new()).await.unwrap().unwrap()
}

pub async fn waits_for_each(client: &Client) {
    becomes("segments that are waited for", SEGMENTS, async || client.stats().waiting).await;
}

fn waits(striped: &Striped) -> JoinHandle<(usize, Guard)> {
    let lock = striped.clone();
    tokio::spawn(async move { any(&lock).await })
}

/// A striped lock of every flavour that excludes its own kind.
fn exclusive(client: &Client) -> Vec<Striped> {
    let flavours = Flavour::ALL.iter().filter(|flavour| **flavour != Flavour::Read);
    flavours.map(|flavour| Striped::over(client, *flavour, flavour.as_str(), SEGMENTS)).collect()
}

#[tokio::test]
async fn striped_lock_grants_exactly_one_hold_per_segment() {
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
                waits_in_vain(ms(60), async |wait| lock.lock_for(wait).await).await;
                assert!(lock.all().try_lock().await.unwrap().is_none());
            }
            for guard in guards {
                assert_eq!(guard.unlock().await.unwrap(), Released::Free);
            }
        }
    })
    .await;
}

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_gets_first_released_segment() {
    reentrant(async |bed| {
        let (client, other) = (bed.still_client().await, bed.still_client().await);
        for (striped, theirs) in exclusive(&client).into_iter().zip(exclusive(&other)) {
            for freed in 0..SEGMENTS {
                let mut guards = Vec::new();
                for segment in 0..SEGMENTS {
                    guards.push(striped.segment(segment).unwrap().lock().await.unwrap());
                }
                let (lock, waiting) = if freed % 2 == 0 { (&striped, &client) } else { (&theirs, &other) };
                let waiter = waits(lock);
                waits_for_each(waiting).await;
                guards.remove(freed).unlock().await.unwrap();
                let (at, guard) = ends("the waiter", waiter).await.unwrap();
                assert_eq!(at, freed);
                guard.unlock().await.unwrap();
                becomes("segments that are waited for", 0, async || waiting.stats().waiting).await;
                for guard in guards {
                    guard.unlock().await.unwrap();
                }
            }
            // All segments are released at once. The waiter keeps one segment, and the others are free.
            let all = striped.all().lock().await.unwrap();
            let waiter = waits(&theirs);
            waits_for_each(&other).await;
            all.unlock().await.unwrap();
            let (at, guard) = ends("the waiter", waiter).await.unwrap();
            for n in (0..SEGMENTS).filter(|n| *n != at) {
                let locked = async || striped.segment(n).unwrap().is_locked().await.unwrap();
                becomes(&format!("segment {n} is locked"), false, locked).await;
            }
            guard.unlock().await.unwrap();
            idle(&client).await;
            idle(&other).await;
        }
    })
    .await;
}

#[tokio::test]
async fn acquires_of_all_and_any_segment_exclude_each_other() {
    reentrant(async |bed| {
        let (client, other) = (bed.still_client().await, bed.still_client().await);
        for (striped, theirs) in exclusive(&client).into_iter().zip(exclusive(&other)) {
            let all = striped.all().lock().await.unwrap();
            assert_eq!(all.members().len(), SEGMENTS);
            assert!(theirs.try_lock().await.unwrap().is_none());
            assert!(theirs.segment(2).unwrap().try_lock().await.unwrap().is_none());
            all.unlock().await.unwrap();
            let (_, one) = any(&theirs).await;
            assert!(striped.all().try_lock().await.unwrap().is_none());
            let waiting = passer(striped.all());
            bed::eventually("it waits", async || client.stats().waiting > 0).await;
            one.unlock().await.unwrap();
            ends("the waiter for all", waiting).await.unwrap();
            idle(&client).await;
            idle(&other).await;
        }
    })
    .await;
}
