//! Callers never deadlock, whatever the order of their lists. `tests/sim` checks how long they wait, and runs many
//! rounds, also against callers of single locks in the opposite order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use distlock::{Client, DistLock, Flavour, MultiLock};
use distlock_support::Numbers;

use crate::rig::{Second, fair, member, multi};
use bed::{Bed, Counter, ends, enter, eventually, ms, reentrant};

/// Two callers acquire in turn, `rounds` times each. The second caller's list is reversed.
async fn reversed(one: Vec<Arc<dyn DistLock>>, mut other: Vec<Arc<dyn DistLock>>, rounds: u64) {
    other.reverse();
    let counter = Arc::new(Counter::default());
    let tasks = [one, other].into_iter().enumerate().map(|(n, locks)| {
        let (lock, counter) = (MultiLock::of(locks), Arc::clone(&counter));
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reversed_lists_of_all_flavours_do_not_deadlock() {
    reentrant(async |bed| {
        let (one, other) = (bed.client().await, bed.client().await);
        let all = |client: &Client| -> Vec<_> {
            Flavour::ALL.iter().map(|flavour| client.lock(*flavour, flavour.as_str())).collect()
        };
        reversed(all(&one), all(&other), 40).await;
        // With one client.
        reversed(all(&one), all(&one), 20).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reversed_lists_over_two_servers_do_not_deadlock() {
    reentrant(async |bed| {
        let (one, other) = (bed.client().await, bed.client().await);
        let second = Second::start().await;
        let both = |client: &Client| {
            vec![
                member(client.reentrant("a")),
                member(second.client.reentrant("a")),
                member(client.fair("b")),
                member(second.client.reentrant("b")),
            ]
        };
        reversed(both(&one), both(&other), 100).await;
        second.end().await;
    })
    .await;
}

/// Another caller holds b and waits for a, against the common order, while our multi lock waits for both. Both callers
/// get the locks.
async fn against_the_order(bed: &Bed, ours: MultiLock, theirs: [Arc<dyn DistLock>; 2], owned: bool) {
    let [a, b] = theirs;
    let client = bed.client().await;
    let first = b.lock().await.unwrap();
    let waiting = tokio::spawn(async move {
        let me = client.owner();
        let guard = if owned { enter(&ours, &me).await } else { ours.lock().await.unwrap() };
        assert!(guard.members().iter().all(|member| member.is_held));
        guard.unlock().await.unwrap();
    });
    // With an explicit owner, the multi lock holds `a` while it waits for `b`.
    eventually("it waits for b", async || !bed.admin.channels().await.is_empty()).await;
    let second = ends("a is given back", a.lock()).await.unwrap();
    assert!(!waiting.is_finished());
    second.unlock().await.unwrap();
    first.unlock().await.unwrap();
    ends("the multi lock", waiting).await.unwrap();
}

/// Redisson's multi lock, for example, acquires its members in the order of its list.
#[tokio::test]
async fn multi_lock_and_opposite_lock_order_do_not_deadlock() {
    reentrant(async |bed| {
        let (one, other) = (bed.client().await, bed.client().await);
        let by_hand = |flavour| [other.lock(flavour, "a"), other.lock(Flavour::Reentrant, "b")];
        // One script acquires all members or none.
        against_the_order(bed, one.multi(["a", "b"]), by_hand(Flavour::Reentrant), false).await;
        against_the_order(bed, one.multi(["a", "b"]), by_hand(Flavour::Reentrant), true).await;
        let mixed = multi(&one, &[(Flavour::Write, "a"), (Flavour::Spin, "c"), (Flavour::Reentrant, "b")]);
        against_the_order(bed, mixed, by_hand(Flavour::Write), true).await;
        let both_fair = [other.lock(Flavour::Fair, "a"), other.lock(Flavour::Fair, "b")];
        against_the_order(bed, fair(&one, &["a", "b"]), both_fair, true).await;
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
