//! The cost of the spin lock. It is that of the reentrant lock without messages. `fenced/cost.rs` has its renewals.

use bed::cost::{only, passed_on, sent, steps, warm};
use bed::{Bed, becomes, secs};
use distlock::{Backoff, Client, Flavour};

use crate::rig::spin;

/// Connects a client after the server has learned the scripts.
async fn begin(bed: &Bed) -> Client {
    let client = bed.still_client().await;
    warm(bed, &client, Flavour::Spin).await;
    client
}

/// The lock is handed over like a reentrant lock, but without subscriptions.
#[tokio::test]
async fn each_operation_costs_one_command_and_a_hand_over_none() {
    spin(async |bed| {
        let client = begin(bed).await;
        steps(bed, &client, Flavour::Spin).await;
        assert_eq!(passed_on(bed, Flavour::Spin).await, only(&[]));
    })
    .await;
}

/// Behind another process, only one of a hundred tasks attempts, with pauses.
#[tokio::test]
async fn hundred_waiting_tasks_are_one_contender() {
    spin(async |bed| {
        let (client, holder) = (begin(bed).await, bed.still_client().await);
        let guard = holder.spin("x").lock().await.unwrap();
        sent(bed).await;
        let lock = client.spin("x").backoff(Backoff::constant(secs(3600)).unwrap());
        let waiting: Vec<_> = (0..100).map(|_| bed::passer(lock.clone())).collect();
        becomes("waiting tasks", 100, async || client.stats().waiting).await;
        becomes("calls under way", 0, async || client.stats().under_way).await;
        assert_eq!(sent(bed).await, only(&[("evalsha", 1)]));
        waiting.iter().for_each(|task| task.abort());
        futures::future::join_all(waiting).await;
        guard.unlock().await.unwrap();
    })
    .await;
}
