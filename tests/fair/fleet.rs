//! Server cost of a fair queue, when nothing happens and when many waiters give up. The cost is proportional to the
//! client's own waiters, not to all waiters.

use std::sync::Arc;

use distlock::Client;
use parking_lot::Mutex;
use tokio::task::{JoinError, JoinHandle};

use crate::rig::{DEAD_JAVA, deadlines_key, patient_client, plant, queue, queue_key, queued};
use bed::{Bed, becomes, ends, eventually, fair, secs};

/// Starts clients with this number of waiters each, and waits until all waiters have a place (queue entry).
async fn wait(bed: &Bed, clients: usize, waiters: usize) -> (Vec<Client>, Vec<JoinHandle<()>>) {
    let (mut all, mut tasks) = (Vec::new(), Vec::new());
    for _ in 0..clients {
        let client = patient_client(bed).await;
        for _ in 0..waiters {
            let lock = client.fair("x");
            tasks.push(tokio::spawn(async move { drop(lock.lock().await.unwrap()) }));
        }
        all.push(client);
    }
    queued(bed, "x", clients * waiters).await;
    // When all subscriptions are confirmed, no waiter sends another command.
    let under_way = async || all.iter().map(|client| client.stats().under_way).sum::<usize>();
    becomes("calls under way", 0, under_way).await;
    (all, tasks)
}

/// Aborts waiters. Each of them must be waiting.
async fn cancelled(tasks: Vec<JoinHandle<()>>) {
    tasks.iter().for_each(JoinHandle::abort);
    for task in tasks {
        let ended = ends("an aborted waiter", task).await;
        assert!(ended.as_ref().is_err_and(JoinError::is_cancelled), "a waiter ended before it was aborted: {ended:?}");
    }
}

/// Waits until `count` refreshes have run. Returns how many of them read the whole queue.
async fn refreshes(bed: &Bed, count: u64) -> u64 {
    bed.admin.reset_stats().await;
    eventually("refreshes", async || bed.admin.calls("evalsha").await >= count).await;
    bed.admin.calls("lrange").await
}

#[tokio::test]
async fn scripts_read_the_whole_queue_only_with_java_waiters() {
    fair(async |bed| {
        let holder = patient_client(bed).await;
        let guard = holder.fair("x").lock_leased(secs(600)).await.unwrap();
        let (_clients, tasks) = wait(bed, 10, 5).await;
        assert_eq!(refreshes(bed, 20).await, 0, "a refresh has read the queue");
        bed.admin.reset_stats().await;
        cancelled(tasks).await;
        queued(bed, "x", 0).await;
        assert_eq!(bed.admin.calls("lrange").await, 0, "a waiter that leaves has read the queue");
        let (_clients, tasks) = wait(bed, 10, 1).await;
        // A Java waiter's deadline depends on the waiters ahead of it, so the refresh reads the whole queue.
        plant(bed, "x", DEAD_JAVA, 300_000.0).await;
        assert!(refreshes(bed, 10).await > 0, "a deadline of Java's was not set");
        let _: u64 = bed.admin.cmd(&["LREM", &queue_key("x"), "0", DEAD_JAVA]).await;
        let _: u64 = bed.admin.cmd(&["ZREM", &deadlines_key("x"), DEAD_JAVA]).await;
        cancelled(tasks).await;
        queued(bed, "x", 0).await;
        guard.unlock().await.unwrap();
    })
    .await;
}

/// One command removes many waiters in one pass over the list, wherever they are. The other waiters keep their order.
/// If the login may not run `LSET`, the script searches the list for each waiter.
async fn waiters_that_leave_together_are_taken_out_together(may_set: bool) {
    const EACH: usize = 300;
    fair(async |bed| {
        let (holder, client) = (patient_client(bed).await, patient_client(bed).await);
        let guard = holder.fair("x").lock_leased(secs(600)).await.unwrap();
        if !may_set {
            let _: String = bed.admin.cmd(&["ACL", "SETUSER", "default", "-lset"]).await;
        }
        let (mut leaving, mut staying, mut places) = (Vec::new(), Vec::new(), Vec::new());
        let order = Arc::new(Mutex::new(Vec::new()));
        // Waiters leave at the head, in the middle and at the end. One waiter among many stays.
        for n in 0..EACH + 3 {
            let (lock, order) = (client.fair("x"), Arc::clone(&order));
            let task = tokio::spawn(async move {
                let guard = lock.lock().await.unwrap();
                order.lock().push(n);
                guard.unlock().await.unwrap();
            });
            queued(bed, "x", n + 1).await;
            if n % 100 == 50 {
                staying.push(task);
                places.extend(queue(bed, "x").await.pop());
            } else {
                leaving.push(task);
            }
        }
        becomes("calls under way", 0, async || client.stats().under_way).await;
        bed.admin.reset_stats().await;
        cancelled(leaving).await;
        queued(bed, "x", staying.len()).await;
        assert_eq!(queue(bed, "x").await, places, "the places that stay");
        let searches = bed.admin.calls("lrem").await;
        let expected = if may_set { 0..=EACH as u64 / 4 } else { EACH as u64..=EACH as u64 };
        assert!(expected.contains(&searches), "{searches} searches for {EACH}, may set: {may_set}");
        guard.unlock().await.unwrap();
        for task in staying {
            ends("a waiter that stays", task).await.unwrap();
        }
        assert_eq!(*order.lock(), [50, 150, 250]);
    })
    .await;
}

bed::cases!(waiters_that_leave_together_are_taken_out_together:
    with_lset = true,
    without_the_right_to_lset = false,
);
