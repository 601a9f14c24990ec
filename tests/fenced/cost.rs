//! The cost of fenced locks, and renewals that fenced and spin locks share.

use distlock::{Client, Flavour};

use bed::cost::{only, passed_on, renewal, sent, steps, warm};
use bed::{Bed, becomes, reentrant};

/// Connects a client after the server has learned the scripts.
async fn begin(bed: &Bed) -> Client {
    let client = bed.still_client().await;
    client.fenced("warm").last_token().await.unwrap();
    warm(bed, &client, Flavour::Spin).await;
    warm(bed, &client, Flavour::Fenced).await;
    client
}

#[tokio::test]
async fn each_fenced_lock_operation_costs_one_command() {
    reentrant(async |bed| {
        let client = begin(bed).await;
        steps(bed, &client, Flavour::Fenced).await;
        client.fenced("x").last_token().await.unwrap();
        assert_eq!(sent(bed).await, only(&[("evalsha", 1)]));
    })
    .await;
}

/// Every section (hold of the lock) needs a number, so a fenced lock is not handed over inside the process. Each task
/// costs a release, an acquire, and one attempt while the lock is held.
#[tokio::test]
async fn fenced_lock_is_not_handed_over_inside_process() {
    reentrant(async |bed| {
        begin(bed).await;
        let all = passed_on(bed, Flavour::Fenced).await;
        assert!((100..=160).contains(&all["evalsha"]), "{all:?}");
        assert!(all.get("subscribe").is_none_or(|count| *count <= 1), "{all:?}");
    })
    .await;
}

/// Behind another process, a hundred tasks use one subscription, and only one of them attempts. Each task acquires by
/// one command, and releases by another.
#[tokio::test]
async fn hundred_waiting_tasks_are_one_contender() {
    const TASKS: u64 = 100;
    reentrant(async |bed| {
        let (client, holder) = (bed.still_client().await, begin(bed).await);
        let guard = holder.fenced("x").lock().await.unwrap();
        sent(bed).await;
        let tasks: Vec<_> = (0..TASKS).map(|_| bed::passer(client.fenced("x"))).collect();
        becomes("waiting tasks", TASKS as usize, async || client.stats().waiting).await;
        becomes("attempts", 2, async || bed.admin.calls("evalsha").await).await;
        assert_eq!(sent(bed).await, only(&[("evalsha", 2), ("subscribe", 1)]));
        guard.unlock().await.unwrap();
        for task in tasks {
            task.await.unwrap();
        }
        let all = sent(bed).await;
        // A few attempts may find the lock held.
        assert!((2 * TASKS + 1..=2 * TASKS + 20).contains(&all["evalsha"]), "{all:?}");
        assert_eq!(all.get("subscribe"), None, "{all:?}");
    })
    .await;
}

#[tokio::test]
async fn renewals_of_fenced_and_spin_locks_share_commands() {
    reentrant(async |bed| {
        let client = begin(bed).await;
        let mut guards = Vec::new();
        for n in 0..250 {
            let flavour = [Flavour::Fenced, Flavour::Spin][n % 2];
            guards.push(client.lock(flavour, &bed::kin(&format!("r{n}"))).lock().await.unwrap());
        }
        renewal(bed, &client, &guards, 3).await;
        for guard in guards {
            guard.unlock().await.unwrap();
        }
    })
    .await;
}
