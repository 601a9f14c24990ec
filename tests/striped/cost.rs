//! The cost of a striped lock: one command for each segment that is tried. No timer fires during these tests.

use bed::{Bed, becomes, eventually, idle, passer, reentrant};
use distlock::Client;

use crate::segments::{SEGMENTS, any, waits_for_each};

async fn sent(bed: &Bed) -> u64 {
    let count = bed.admin.calls("evalsha").await;
    bed.admin.reset_stats().await;
    count
}

/// Loads the scripts, and resets the counter.
async fn warm(bed: &Bed, client: &Client) {
    any(&client.striped("s", SEGMENTS)).await.1.unlock().await.unwrap();
    idle(client).await;
    sent(bed).await;
}

/// An acquire of a free segment costs one command for each segment that it tries. If all segments are busy, it tries
/// each of them once.
#[tokio::test]
async fn acquire_costs_one_command_per_tried_segment() {
    reentrant(async |bed| {
        let client = bed.still_client().await;
        warm(bed, &client).await;
        let striped = client.striped("s", SEGMENTS);
        let mut guards = vec![any(&striped).await.1];
        assert_eq!(sent(bed).await, 1);
        for n in 1..SEGMENTS {
            guards.push(any(&striped).await.1);
            assert!((1..=n as u64 + 1).contains(&sent(bed).await));
        }
        assert!(striped.try_lock().await.unwrap().is_none());
        assert_eq!(sent(bed).await, SEGMENTS as u64);
        for guard in guards {
            guard.unlock().await.unwrap();
        }
    })
    .await;
}

/// Tasks that wait on one object share one attempt at each segment, and then send nothing until they are woken. A query
/// of all segments costs one command for each segment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundred_waiting_tasks_share_one_subscription_per_segment() {
    const TASKS: usize = 100;
    reentrant(async |bed| {
        let (client, other) = (bed.still_client().await, bed.still_client().await);
        warm(bed, &client).await;
        let striped = client.striped("s", SEGMENTS);
        let all = other.striped("s", SEGMENTS).all().lock().await.unwrap();
        sent(bed).await;
        let tasks: Vec<_> = (0..TASKS).map(|_| passer(striped.clone())).collect();
        waits_for_each(&client).await;
        let listens = async || bed.admin.channels().await.len();
        becomes("segments that are listened for", SEGMENTS, listens).await;
        assert!(bed.admin.calls("subscribe").await <= SEGMENTS as u64);
        // Tasks that began before the first task had found all segments busy tried once themselves. No task tries more
        // often.
        let asked = bed.admin.calls("evalsha").await;
        assert!(asked <= (SEGMENTS * (TASKS + 2)) as u64, "{asked} commands of {TASKS} waiting tasks");
        assert_eq!(striped.state().await.unwrap().holders.len(), 1);
        all.unlock().await.unwrap();
        for task in tasks {
            task.await.unwrap();
        }
        idle(&client).await;
        sent(bed).await;
        striped.state().await.unwrap();
        assert_eq!(sent(bed).await, SEGMENTS as u64);
        assert!(!striped.force_unlock().await.unwrap());
        assert_eq!(sent(bed).await, SEGMENTS as u64);
        eventually("no segment is left", async || bed.admin.keys().await.is_empty()).await;
    })
    .await;
}
