//! The cost of the spin lock. It is that of the reentrant lock without messages.

use bed::cost::{only, passed_on, renewal, sent, steps, warm};
use bed::{Bed, becomes, idle, secs};
use distlock::{Backoff, Client, Flavour};

use crate::rig::spin;

/// Connects a client after the server has learned the scripts.
async fn begin(bed: &Bed) -> Client {
    let client = bed.still_client().await;
    warm(bed, &client, Flavour::Spin).await;
    client
}

#[tokio::test]
async fn each_spin_lock_operation_costs_one_command() {
    spin(async |bed| {
        let client = begin(bed).await;
        steps(bed, &client, Flavour::Spin).await;
    })
    .await;
}

/// The lock is handed over like a reentrant lock, but without subscriptions.
#[tokio::test]
async fn hand_over_inside_process_costs_no_commands() {
    spin(async |bed| {
        let known = begin(bed).await;
        let all = passed_on(bed, Flavour::Spin).await;
        assert_eq!(all, only(&[]));
        idle(&known).await;
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
        let waiting: Vec<_> = (0..100)
            .map(|_| {
                let lock = lock.clone();
                tokio::spawn(async move { lock.lock().await.map(drop) })
            })
            .collect();
        becomes("waiting tasks", 100, async || client.stats().waiting).await;
        becomes("calls under way", 0, async || client.stats().under_way).await;
        assert_eq!(sent(bed).await, only(&[("evalsha", 1)]));
        waiting.iter().for_each(|task| task.abort());
        futures::future::join_all(waiting).await;
        guard.unlock().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn renewal_of_250_locks_costs_3_commands() {
    spin(async |bed| {
        let client = begin(bed).await;
        let mut guards = Vec::new();
        for n in 0..250 {
            guards.push(client.spin(&bed::kin(&format!("r{n}"))).lock().await.unwrap());
        }
        renewal(bed, &client, &guards, 3).await;
        for guard in guards {
            guard.unlock().await.unwrap();
        }
    })
    .await;
}
