//! The cost of the spin lock: that of the reentrant one, without messages.

use bed::cost::{passed_on, renewal, sent, steps, warm};
use bed::{Bed, eventually, idle, ms, secs};
use distlock::{Backoff, Client, Flavour};

use crate::rig::spin;

/// A client, when the server knows the scripts.
async fn begin(bed: &Bed) -> Client {
    let client = bed.client().await;
    warm(bed, &client, Flavour::Spin).await;
    client
}

#[tokio::test]
async fn every_step_of_a_spin_lock_is_one_command() {
    spin(async |bed| {
        let client = begin(bed).await;
        steps(bed, &client, Flavour::Spin).await;
    })
    .await;
}

/// As a reentrant lock is; nobody listens.
#[tokio::test]
async fn passing_on_inside_a_process_costs_nothing() {
    spin(async |bed| {
        let known = begin(bed).await;
        let all = passed_on(bed, Flavour::Spin).await;
        assert_eq!((all.get("evalsha"), all.get("subscribe")), (None, None), "{all:?}");
        idle(&known).await;
    })
    .await;
}

/// Behind another process a hundred tasks look as often as one, for as long as it takes.
#[tokio::test]
async fn a_hundred_waiting_tasks_of_one_process_are_one_contender() {
    const TASKS: usize = 100;
    spin(async |bed| {
        let (client, holder) = (begin(bed).await, bed.client().await);
        let guard = holder.spin("x").lock().await.unwrap();
        let lock = client.spin("x").backoff(Backoff::constant(ms(100)).unwrap());
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                let lock = lock.clone();
                tokio::spawn(async move { lock.lock().await.unwrap().unlock().await.unwrap() })
            })
            .collect();
        eventually("all wait", async || client.stats().waiting == TASKS).await;
        sent(bed).await;
        // A second's looks of one who waits, each pause up to a half shorter; a busy machine makes them fewer.
        tokio::time::sleep(secs(1)).await;
        let all = sent(bed).await;
        let looks = all.get("evalsha").copied().unwrap_or_default();
        assert!((2..=24).contains(&looks) && all.len() == 1, "{all:?}");
        guard.unlock().await.unwrap();
        for task in tasks {
            task.await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn renewal_of_250_locks_is_3_commands() {
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
