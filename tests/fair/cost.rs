//! The cost of the fair lock.

use std::sync::Arc;

use bed::cost::{only, sent, turns};
use bed::{Bed, Counter, becomes, ends, fair};
use distlock::Client;

use crate::rig::{Calls, fair_at_one, listens, patient, queue, queued, waiter};

/// Connects a client that does not batch commands. The server knows the scripts.
async fn begin(bed: &Bed) -> Client {
    let client = bed.connect(patient(bed.still_builder()).configure(|options| options.batching = false)).await;
    let lock = client.fair("warm");
    let guard = lock.lock().await.unwrap();
    let leaves = waiter(&client, "warm");
    queued(bed, "warm", 1).await;
    leaves.abort();
    queued(bed, "warm", 0).await;
    lock.queue().await.unwrap();
    lock.dequeue("nobody").await.unwrap();
    lock.force_unlock().await.unwrap();
    drop(guard);
    lock.lock().await.unwrap().unlock().await.unwrap();
    bed::idle(&client).await;
    bed.admin.reset_stats().await;
    client
}

#[tokio::test]
async fn uncontended_calls_and_queue_queries_cost_one_command_each() {
    fair(async |bed| {
        let (client, other) = (begin(bed).await, bed.still_client().await);
        let lock = client.fair("x");
        sent(bed).await;
        turns(bed, &client, &lock).await;
        let guard = lock.lock().await.unwrap();
        sent(bed).await;
        assert!(other.fair("x").try_lock().await.unwrap().is_none());
        assert!(lock.try_lock().await.unwrap().is_none());
        assert_eq!(sent(bed).await, only(&[("evalsha", 2)]));
        lock.queue().await.unwrap();
        lock.queue_len().await.unwrap();
        lock.position(&client.owner()).await.unwrap();
        lock.dequeue("nobody").await.unwrap();
        assert_eq!(sent(bed).await, only(&[("evalsha", 4)]));
        guard.unlock().await.unwrap();
    })
    .await;
}

/// A waiter's first wait costs two scripts and a SUBSCRIBE: the first script queues the waiter, the second runs after
/// the subscription. Later waits cost one script. A grant costs no command of its own, because the release grants the
/// lock.
#[tokio::test]
async fn first_wait_costs_two_scripts_and_later_waits_one() {
    const WAITERS: usize = 16;
    fair_at_one(async |bed| {
        let (holder, client) = (begin(bed).await, begin(bed).await);
        let mut calls = Calls::start(bed).await;
        for (round, asks, subscriptions) in [(0, 2 * WAITERS, WAITERS), (1, WAITERS, 0), (2, WAITERS, 0)] {
            let guard = holder.fair("x").lock().await.unwrap();
            assert_eq!(calls.take(bed).await, [("acquire", 1)].into(), "round {round}");
            bed.admin.reset_stats().await;
            let waiting: Vec<_> = (0..WAITERS).map(|_| bed::passer(client.fair("x"))).collect();
            queued(bed, "x", WAITERS).await;
            for owner in queue(bed, "x").await {
                listens(bed, "x", &owner).await;
            }
            becomes("calls of waiters", [("acquire", asks)].into(), async || calls.seen(bed).await).await;
            assert_eq!(bed.admin.calls("subscribe").await as usize, subscriptions, "round {round}");
            becomes("calls under way", 0, async || client.stats().under_way).await;
            assert_eq!(calls.take(bed).await, [("acquire", asks)].into(), "round {round}: waiters that have settled");
            guard.unlock().await.unwrap();
            for waiter in waiting {
                ends("a waiter", waiter).await.unwrap();
            }
            // The counts include everything that the waiters sent after all of them were queued.
            assert_eq!(calls.take(bed).await, [("release", WAITERS + 1)].into(), "round {round}");
            assert_eq!(bed.admin.calls("subscribe").await as usize, subscriptions, "round {round}");
        }
    })
    .await;
}

/// An acquire and a release cost one command each. A waiter also subscribes once, and tries once more afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steady_contention_costs_two_commands_per_acquire() {
    const TASKS: usize = 8;
    const ROUNDS: usize = 50;
    fair_at_one(async |bed| {
        let clients = [begin(bed).await, begin(bed).await];
        for clients in [&clients[..1], &clients[..]] {
            let (all, counter) = (TASKS * clients.len(), Arc::new(Counter::default()));
            let mut calls = Calls::start(bed).await;
            bed.admin.reset_stats().await;
            let tasks = (0..all).map(|n| {
                let (lock, counter) = (clients[n % clients.len()].fair("hot"), Arc::clone(&counter));
                tokio::spawn(async move {
                    for _ in 0..ROUNDS {
                        let guard = lock.lock().await.unwrap();
                        counter.bump(bed::ms(0)).await;
                        guard.unlock().await.unwrap();
                    }
                })
            });
            for task in tasks.collect::<Vec<_>>() {
                // The bed's limit ends a test that hangs here.
                task.await.unwrap();
            }
            assert_eq!(counter.get() as usize, all * ROUNDS);
            let (sent, subscribed) = (calls.take(bed).await, bed.admin.calls("subscribe").await as usize);
            assert_eq!(sent["release"], all * ROUNDS, "{sent:?}");
            // A waiter that acquired before its subscription was confirmed does not reuse its owner, so the next wait
            // subscribes again.
            assert!(sent["acquire"] <= all * ROUNDS + 2 * all && subscribed <= 2 * all, "{sent:?}, {subscribed}");
        }
    })
    .await;
}
