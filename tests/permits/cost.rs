//! The cost of permits: what each call sends, what waiters send, and how renewals are batched.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use distlock::Client;

use crate::rig::{counts, is_busy, permits, set_leases, take, with};
use bed::cost::{only, sent};
use bed::{Bed, becomes, ends, idle, on_each, secs};

/// Runs every script of permits once, so that each server knows it, then resets the counts.
async fn warm(bed: &Bed, client: &Client) {
    for name in on_each("warm") {
        let gate = with(client, &name, 2).await;
        let guard = take(&gate, 1).await;
        client.renew_now().await;
        assert!(gate.extend_ids(&guard.ids(), secs(7200)).await.unwrap());
        assert_eq!((counts(&gate).await, gate.holders().await.unwrap().len()), ((1, 1), 1));
        guard.release().await.unwrap();
        assert!(gate.delete().await.unwrap());
    }
    idle(client).await;
    sent(bed).await;
}

#[tokio::test]
async fn acquire_with_its_release_costs_two_commands_and_other_calls_one() {
    permits(async |bed| {
        let (other, client) = (bed.still_client().await, bed.still_client().await);
        warm(bed, &other).await;
        let gate = with(&client, "gate", 9).await;
        sent(bed).await;
        for n in [1, 7] {
            for by_hand in [true, false] {
                for _ in 0..5 {
                    let guard = gate.acquire(n).await.unwrap();
                    if by_hand {
                        guard.release().await.unwrap();
                    } else {
                        drop(guard);
                        idle(&client).await;
                    }
                }
                assert_eq!(sent(bed).await, only(&[("evalsha", 10)]), "{n} permits, by hand: {by_hand}");
            }
        }
        let guard = take(&gate, 7).await;
        sent(bed).await;
        assert!(is_busy(&gate, 3).await && is_busy(&other.permits("gate"), 3).await);
        assert_eq!(sent(bed).await, only(&[("evalsha", 2)]), "busy");
        assert_eq!(counts(&gate).await, (2, 7));
        assert_eq!(sent(bed).await, only(&[("evalsha", 1)]), "counts");
        assert_eq!(gate.holders().await.unwrap().len(), 7);
        assert_eq!(sent(bed).await, only(&[("evalsha", 1)]), "holders");
        let ids = guard.ids();
        assert!(guard.is_held() && guard.count() == 7 && !guard.remaining().is_zero());
        assert_eq!(sent(bed).await, only(&[]), "what the guard knows");
        assert!(gate.release_ids(&ids).await.unwrap());
        assert_eq!(sent(bed).await, only(&[("evalsha", 1)]), "release by id");
        drop(guard);
        idle(&client).await;
    })
    .await;
}

/// A command that shortens a lease must know the server's time, so that a late copy of it cuts no later lease.
#[tokio::test]
async fn extend_costs_one_command_and_the_first_shorter_lease_one_more() {
    permits(async |bed| {
        let other = bed.still_client().await;
        warm(bed, &other).await;
        with(&other, "gate", 2).await;
        // Without the check of its rights at connect, a client does not know the server's time.
        let client = bed.connect(bed.still_builder().configure(|options| options.preflight = false)).await;
        let gate = client.permits("gate");
        let (one, two) = (take(&gate, 1).await, take(&gate, 1).await);
        sent(bed).await;
        one.extend(secs(7200)).await.unwrap();
        assert_eq!(sent(bed).await, only(&[("evalsha", 1)]), "a longer lease");
        one.extend(secs(3700)).await.unwrap();
        assert_eq!(sent(bed).await.values().sum::<u64>(), 2, "the first shorter lease");
        two.extend(secs(60)).await.unwrap();
        assert_eq!(sent(bed).await, only(&[("evalsha", 1)]), "a shorter lease, at a known time");
        one.release().await.unwrap();
        two.release().await.unwrap();
    })
    .await;
}

/// Behind another process, a hundred tasks use one subscription, and only one of them asks. A grant costs an acquire, a
/// release and one attempt in vain at most, and nothing if the permit is handed over.
#[tokio::test]
async fn hundred_waiting_tasks_are_one_contender_and_one_subscription() {
    const TASKS: u64 = 100;
    permits(async |bed| {
        let (client, holder) = (bed.still_client().await, bed.still_client().await);
        warm(bed, &holder).await;
        let there = with(&holder, "gate", 2).await;
        let held = take(&there, 2).await;
        sent(bed).await;
        let granted = Arc::new(AtomicU64::new(0));
        let task = |_| {
            let (gate, granted) = (client.permits("gate"), Arc::clone(&granted));
            tokio::spawn(async move {
                let guard = gate.acquire(1).await.unwrap();
                granted.fetch_add(1, Ordering::Relaxed);
                guard.release().await.unwrap();
            })
        };
        let tasks: Vec<_> = (0..TASKS).map(task).collect();
        becomes("waiting tasks", TASKS as usize, async || client.stats().waiting).await;
        becomes("attempts", 2, async || bed.admin.calls("evalsha").await).await;
        assert_eq!(sent(bed).await, only(&[("evalsha", 2), ("subscribe", 1)]));
        held.release().await.unwrap();
        for task in tasks {
            ends("a waiting task", task).await.unwrap();
        }
        let all = sent(bed).await;
        assert_eq!(granted.load(Ordering::Relaxed), TASKS);
        // Most permits are handed over inside the process.
        assert!((3..=3 * TASKS + 20).contains(&all["evalsha"]), "{all:?}");
        assert_eq!(all.get("subscribe"), None, "{all:?}");
        assert_eq!(counts(&there).await, (2, 0));
    })
    .await;
}

/// A batch counts permits, because the server's work grows with them. A hold is never divided.
#[tokio::test]
async fn renewal_batch_has_a_hundred_permits_or_one_larger_hold() {
    permits(async |bed| {
        let client = bed.still_client().await;
        warm(bed, &client).await;
        assert_eq!(client.options().watchdog_batch, 100);
        for (holds, each, commands) in [(100, 1, 1), (101, 1, 2), (4, 50, 2), (5, 60, 5), (1, 1000, 1)] {
            let name = format!("{holds} holds of {each}");
            let gate = with(&client, &name, holds * each).await;
            let mut guards = Vec::new();
            for _ in 0..holds {
                guards.push(take(&gate, each).await);
            }
            set_leases(bed, &name, secs(600)).await;
            becomes("commands in flight", 0, async || client.stats().under_way).await;
            sent(bed).await;
            let round = client.renew_now().await;
            assert_eq!((round.renewed, round.failed, round.lost), (holds as usize, 0, 0), "{name}");
            assert_eq!(sent(bed).await, only(&[("evalsha", commands)]), "{name}");
            let held = gate.holders().await.unwrap();
            let is_renewed = held.iter().all(|held| held.remaining.is_some_and(|left| left > secs(600)));
            assert!(is_renewed && held.len() == (holds * each) as usize, "{name}: {held:?}");
            for guard in guards {
                guard.release().await.unwrap();
            }
        }
    })
    .await;
}
