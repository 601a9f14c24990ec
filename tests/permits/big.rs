//! Large requests and numbers, and one permit as a lock.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use distlock_support::Numbers;
use tokio::task::JoinSet;

use crate::rig::{counts, is_busy, permits, take, waits, with};
use bed::cost::sent;
use bed::{Counter, becomes, ends, ms, secs};

#[tokio::test]
async fn one_request_takes_a_thousand_of_fifteen_hundred_permits() {
    permits(async |bed| {
        let (client, other) = (bed.still_client().await, bed.still_client().await);
        let (gate, there) = (with(&client, "gate", 1500).await, other.permits("gate"));
        let many = take(&gate, 1000).await;
        assert_eq!((many.count(), counts(&gate).await), (1000, (500, 1000)));
        assert!(is_busy(&there, 501).await);
        let rest = take(&there, 500).await;
        let held: BTreeSet<_> = there.holders().await.unwrap().into_iter().map(|held| held.id).collect();
        let known: BTreeSet<_> = many.ids().into_iter().chain(rest.ids()).collect();
        assert!(held == known && held.len() == 1500, "{} ids are listed, {} are known", held.len(), known.len());
        let next = waits(&there, 1000);
        becomes("waiting tasks", 1, async || other.stats().waiting).await;
        many.release().await.unwrap();
        let next = ends("the second request for a thousand", next).await.unwrap();
        assert_eq!((next.count(), counts(&gate).await), (1000, (0, 1500)));
        assert!(gate.release_ids(&next.ids()).await.unwrap());
        assert_eq!(counts(&gate).await, (1000, 500));
        rest.release().await.unwrap();
        assert_eq!(counts(&gate).await, (1500, 0));
        assert!(next.release().await.is_err(), "its permits are released already");
        assert_eq!(counts(&gate).await, (1500, 0));
    })
    .await;
}

#[tokio::test]
async fn largest_numbers_of_permits_are_counted_exactly() {
    permits(async |bed| {
        let client = bed.client().await;
        let most = i64::from(u32::MAX);
        let gate = with(&client, "gate", u32::MAX >> 1).await;
        let guard = take(&gate, 3).await;
        assert_eq!(counts(&gate).await, (most / 2 - 3, 3));
        gate.set_permits(u32::MAX).await.unwrap();
        assert_eq!((counts(&gate).await, gate.counts().await.unwrap().total()), ((most - 3, 3), most));
        gate.add_permits(i32::MAX).await.unwrap();
        gate.add_permits(i32::MIN).await.unwrap();
        assert_eq!(counts(&gate).await, (most - 4, 3));
        guard.release().await.unwrap();
        assert_eq!(counts(&gate).await, (most - 1, 0));
    })
    .await;
}

/// Redisson's testConcurrencyLoopMax_MultiInstance.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_four_clients_for_one_permit_and_for_all_are_served() {
    permits(async |bed| {
        let gate = with(&bed.client().await, "gate", 1000).await;
        let (inside, mut tasks) = (Arc::new(AtomicU32::new(0)), JoinSet::new());
        for n in 0..4 {
            let (gate, inside) = (bed.client().await.permits("gate"), Arc::clone(&inside));
            tasks.spawn(async move {
                let mut numbers = Numbers::new(n);
                for _ in 0..10 {
                    let want = if numbers.once_in(2) { 1000 } else { 1 };
                    let guard = ends("a request", gate.acquire(want)).await.unwrap();
                    let held = inside.fetch_add(want, Ordering::SeqCst) + want;
                    assert!(held <= 1000, "{held} of 1000 permits are held");
                    tokio::time::sleep(ms(1)).await;
                    inside.fetch_sub(want, Ordering::SeqCst);
                    guard.release().await.unwrap();
                }
            });
        }
        tasks.join_all().await;
        assert_eq!(counts(&gate).await, (1000, 0));
    })
    .await;
}

/// Redisson's testConcurrencyLoop_MultiInstance. Every other task releases by dropping its guard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counter_of_four_clients_under_one_permit_is_exact() {
    permits(async |bed| {
        let gate = with(&bed.client().await, "gate", 1).await;
        let (counter, mut tasks) = (Arc::new(Counter::default()), JoinSet::new());
        for _ in 0..4 {
            let client = bed.client().await;
            for n in 0..5 {
                let (gate, counter) = (client.permits("gate"), Arc::clone(&counter));
                tasks.spawn(async move {
                    for _ in 0..5 {
                        let guard = ends("a request", gate.acquire(1)).await.unwrap();
                        counter.bump(Duration::ZERO).await;
                        if n % 2 == 0 {
                            guard.release().await.unwrap();
                        }
                    }
                });
            }
        }
        tasks.join_all().await;
        assert_eq!(counter.get(), 100);
        becomes("free and held permits", (1, 0), async || counts(&gate).await).await;
    })
    .await;
}

/// Ten thousand tasks of one process wait for one permit that another process holds. Each is served exactly once, and
/// most of them without a command: at most one in `local_handoff_limit` acquires and releases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_waiters_are_served_once_each_with_few_commands() {
    const TASKS: usize = 10_000;
    permits(async |bed| {
        // Longer turns, so that a slow machine needs no more commands.
        let client = bed.connect(bed.still_builder().configure(|options| options.local_handoff_time = secs(600))).await;
        let holder = bed.still_client().await;
        let gate = with(&holder, "gate", 1).await;
        let held = take(&gate, 1).await;
        let (served, inside) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let task = |_| {
            let (gate, served, inside) = (client.permits("gate"), Arc::clone(&served), Arc::clone(&inside));
            tokio::spawn(async move {
                let guard = gate.acquire(1).await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                served.fetch_add(1, Ordering::SeqCst);
                inside.fetch_sub(1, Ordering::SeqCst);
                guard.release().await.unwrap();
            })
        };
        let tasks: Vec<_> = (0..TASKS).map(task).collect();
        becomes("waiters", TASKS, async || client.stats().waiting).await;
        sent(bed).await;
        held.release().await.unwrap();
        for task in tasks {
            ends("a task", task).await.unwrap();
        }
        assert_eq!(served.load(Ordering::SeqCst), TASKS as u64);
        let commands = sent(bed).await["evalsha"];
        let turns = (TASKS / client.options().local_handoff_limit as usize) as u64;
        assert!(commands <= 3 * turns + 20, "{commands} commands for {turns} turns");
        println!("{TASKS} waiters: {commands} commands");
    })
    .await;
}
