//! Redisson's own tests of its multi lock (`lessons.md` §1.4), translated.

use std::sync::Arc;
use std::time::Instant;

use distlock::{Acquire, DistLock, MultiLock};
use tokio::sync::Barrier;

use crate::rig::{Second, counts, member};
use bed::{ms, reentrant, secs};

/// `testLockUnlock`: three locks with a lease of 10 s; held by the owner while held, and not after.
#[tokio::test]
async fn held_by_the_owner_until_unlocked() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let multi = client.multi(["lock1", "lock2", "lock3"]);
        let me = client.owner();
        let guard = multi.acquire(Acquire::new().owner(&me).lease(secs(10))).await.unwrap().unwrap();
        assert!(multi.is_held_by(&me).await.unwrap() && guard.is_held());
        for lock in multi.locks() {
            assert!(lock.is_held_by(&me).await.unwrap(), "{lock:?}");
            let left = lock.remaining_ttl().await.unwrap().unwrap();
            assert!(left > secs(8) && left <= secs(10), "{left:?}");
        }
        guard.unlock().await.unwrap();
        assert!(!multi.is_held_by(&me).await.unwrap());
        for lock in multi.locks() {
            assert!(!lock.is_locked().await.unwrap(), "{lock:?}");
        }
    })
    .await;
}

/// `testWaitAndLeaseTimeouts`: ten ask at once, without a wait and with a lease: exactly one has it (threads 85: #2172).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_ten_that_ask_once_exactly_one_has_it() {
    reentrant(async |bed| {
        for clients in [1, 10] {
            let mut all = Vec::new();
            for _ in 0..clients {
                all.push(bed.client().await);
            }
            for round in 0..10 {
                let gate = Arc::new(Barrier::new(10));
                let began = Instant::now();
                let asking: Vec<_> = (0..10)
                    .map(|n| {
                        let (gate, multi) = (Arc::clone(&gate), all[n % clients].multi(["lock1", "lock2", "lock3"]));
                        tokio::spawn(async move {
                            gate.wait().await;
                            multi.acquire(Acquire::new().wait(ms(0)).lease(secs(10))).await.unwrap()
                        })
                    })
                    .collect();
                let mut guards = Vec::new();
                for task in asking {
                    guards.extend(task.await.unwrap());
                }
                assert_eq!(guards.len(), 1, "round {round}, {clients} clients");
                assert!(began.elapsed() < secs(5), "{:?}", began.elapsed());
                guards.pop().unwrap().unlock().await.unwrap();
            }
        }
    })
    .await;
}

/// `testMultiThreads`: one holds it for a while, the other waits and has it then.
#[tokio::test]
async fn who_waits_has_it_after_the_holder() {
    reentrant(async |bed| {
        let (one, other) = (bed.client().await, bed.client().await);
        for waiting in [&one, &other] {
            let names = ["lock1", "lock2", "lock3"];
            let guard = one.multi(names).lock().await.unwrap();
            let multi = waiting.multi(names);
            let waiter = tokio::spawn(async move { multi.lock().await.unwrap() });
            tokio::time::sleep(ms(200)).await;
            assert!(!waiter.is_finished());
            guard.unlock().await.unwrap();
            let released = Instant::now();
            let guard = tokio::time::timeout(secs(5), waiter).await.expect("never woken").unwrap();
            println!("had {:?} after the release", released.elapsed());
            guard.unlock().await.unwrap();
        }
    })
    .await;
}

/// `test`: three servers; while it is held another one's try fails, twice; an unlock frees all.
#[tokio::test]
async fn over_three_servers() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let (second, third) = (Second::start().await, Second::start().await);
        let multi = || {
            MultiLock::of(vec![
                member(client.reentrant("lock1")),
                member(second.client.reentrant("lock2")),
                member(third.client.reentrant("lock3")),
            ])
        };
        let guard = multi().lock().await.unwrap();
        let me = guard.owner().clone();
        for _ in 0..2 {
            let other = multi();
            assert!(tokio::spawn(async move { other.try_lock().await.unwrap().is_none() }).await.unwrap());
        }
        counts(&bed.admin, &me, &[("lock1", 1)]).await;
        counts(&second.admin().await, &me, &[("lock2", 1)]).await;
        counts(&third.admin().await, &me, &[("lock3", 1)]).await;
        guard.unlock().await.unwrap();
        let guard = multi().try_lock().await.unwrap().expect("free");
        guard.unlock().await.unwrap();
        second.end().await;
        third.end().await;
    })
    .await;
}
