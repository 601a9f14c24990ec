//! Callers never deadlock, whatever the order of their lists. `tests/sim` checks how long they wait, and runs many
//! rounds: over one server and two, and against callers of single locks in the opposite order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use distlock::{Flavour, MultiLock};
use distlock_support::Numbers;

use crate::rig::multi;
use bed::{Counter, ends, enter, eventually, ms, reentrant};

/// Two callers acquire in turn, by two clients or by one. The second caller's list is reversed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reversed_lists_of_all_flavours_do_not_deadlock() {
    reentrant(async |bed| {
        let clients = [bed.client().await, bed.client().await];
        for (other, rounds) in [(1, 40), (0, 20)] {
            let counter = Arc::new(Counter::default());
            let tasks = [0, other].map(|client| &clients[client]).into_iter().enumerate().map(|(n, client)| {
                let all = Flavour::ALL.iter().map(|flavour| client.lock(*flavour, flavour.as_str()));
                let lock = MultiLock::of(if n == 0 { all.collect() } else { all.rev().collect() });
                let counter = Arc::clone(&counter);
                tokio::spawn(async move {
                    let mut numbers = Numbers::new(n as u64);
                    for round in 0..rounds {
                        let guard = ends(&format!("round {round} of {lock:?}"), lock.lock()).await.unwrap();
                        counter.bump(Duration::ZERO).await;
                        match numbers.below(4) {
                            0 => drop(guard),
                            _ => drop(guard.unlock().await.unwrap()),
                        }
                    }
                })
            });
            for task in tasks.collect::<Vec<_>>() {
                task.await.unwrap();
            }
            assert_eq!(counter.get(), 2 * rounds);
        }
    })
    .await;
}

/// Redisson's multi lock, for example, acquires its members in the order of its list. Another caller holds b and waits
/// for a, against the common order, while our multi lock waits for both. Both callers get the locks.
#[tokio::test]
async fn multi_lock_and_opposite_lock_order_do_not_deadlock() {
    reentrant(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let ours = multi(&client, &[(Flavour::Write, "a"), (Flavour::Spin, "c"), (Flavour::Reentrant, "b")]);
        let first = other.reentrant("b").lock().await.unwrap();
        let me = client.owner();
        let waiting = tokio::spawn(async move {
            let guard = enter(&ours, &me).await;
            assert!(guard.members().iter().all(|member| member.is_held));
            guard.unlock().await.unwrap();
        });
        // With an explicit owner, the multi lock holds `a` while it waits for `b`.
        eventually("it waits for b", async || !bed.admin.channels().await.is_empty()).await;
        let second = ends("a is given back", other.rw("a").write().lock()).await.unwrap();
        assert!(!waiting.is_finished());
        second.unlock().await.unwrap();
        first.unlock().await.unwrap();
        ends("the multi lock", waiting).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn multi_lock_does_not_starve_beside_single_locks() {
    reentrant(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let counters = Arc::new([Counter::default(), Counter::default()]);
        let done = Arc::new(AtomicBool::new(false));
        let singles: Vec<_> = (0..4_usize)
            .map(|n| {
                let lock = other.reentrant(["a", "b"][n % 2]);
                let (counters, done) = (Arc::clone(&counters), Arc::clone(&done));
                tokio::spawn(async move {
                    while !done.load(Ordering::Relaxed) {
                        let guard = lock.lock().await.unwrap();
                        counters[n % 2].bump(ms(1)).await;
                        guard.unlock().await.unwrap();
                    }
                })
            })
            .collect();
        for lock in [client.multi(["a", "b"]), client.multi(["b", "a", "c"])] {
            for _ in 0..10 {
                let guard = ends("the multi lock", lock.lock()).await.unwrap();
                tokio::join!(counters[0].bump(ms(0)), counters[1].bump(ms(0)));
                guard.unlock().await.unwrap();
            }
        }
        done.store(true, Ordering::Relaxed);
        for single in singles {
            single.await.unwrap();
        }
    })
    .await;
}
