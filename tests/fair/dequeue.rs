//! `dequeue()`: removes a waiter of any client.

use crate::rig::{
    DEAD_JAVA, channel, client_of, deadlines, holders, listens, patient, patient_client, plant, queue, queued, waiter,
};
use bed::events::Events;
use bed::{PATIENCE, becomes, ends, eventually, fair, secs, text};

/// A waiter that a dead process of ours has left behind.
const DEAD: &str = "ffffffff-ffff-8fff-8fff-ffffffffffff:1";
/// Another waiter that a dead Java process has left behind.
const DEAD_JAVA_BEHIND: &str = "ffffffff-ffff-4fff-8fff-ffffffffffff:2";

#[tokio::test]
async fn dead_waiters_are_removed_and_holds_stay() {
    fair(async |bed| {
        let client = patient_client(bed).await;
        let lock = client.fair("a");
        let guard = lock.lock().await.unwrap();
        plant(bed, "a", DEAD, 300_000.0).await;
        let _: u64 = bed.admin.cmd(&["HSET", "redisson_lock_waiters:{a}:a", DEAD, "nonce"]).await;
        plant(bed, "a", DEAD_JAVA, 600_000.0).await;
        assert_eq!(lock.dequeue(&text(guard.owner())).await.unwrap(), None, "the holder does not wait");
        assert_eq!(lock.dequeue(DEAD_JAVA).await.unwrap(), Some(1));
        assert_eq!(queue(bed, "a").await, [DEAD]);
        assert_eq!(lock.dequeue(DEAD).await.unwrap(), Some(0));
        assert_eq!(bed.admin.keys().await, ["a"]);
        assert_eq!(lock.dequeue(DEAD).await.unwrap(), None);
        assert_eq!(holders(bed, "a").await, [(text(guard.owner()), "1".to_owned())].into());
        guard.unlock().await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn live_waiter_is_notified_and_queues_again_at_the_end() {
    fair(async |bed| {
        let holder = patient_client(bed).await;
        let (one, two) = (patient_client(bed).await, patient_client(bed).await);
        let guard = holder.fair("a").lock().await.unwrap();
        let removed = waiter(&one, "a");
        queued(bed, "a", 1).await;
        let behind = waiter(&two, "a");
        queued(bed, "a", 2).await;
        let first = queue(bed, "a").await.remove(0);
        let events = Events::subscribe(&bed.server, &[&channel("a", &first)]).await;
        assert_eq!(holder.fair("a").dequeue(&first).await.unwrap(), Some(0));
        becomes("messages to the removed waiter", 1, async || events.count(&channel("a", &first), "0")).await;
        let is_last = async || queue(bed, "a").await.last().is_some_and(|owner| client_of(owner) == one.id());
        eventually("the removed waiter is the last", is_last).await;
        guard.unlock().await.unwrap();
        ends("the waiter behind", behind).await.unwrap().unlock().await.unwrap();
        ends("the removed waiter", removed).await.unwrap().unlock().await.unwrap();
    })
    .await;
}

/// A waiter of ours stands between two of Java. Without it, the deadline of the last waiter is the deadline of the
/// first plus the last waiter's own wait.
async fn waiter_of_java_behind_keeps_its_own_wait(leaves: bool) {
    fair(async |bed| {
        let (holder, client) = (patient_client(bed).await, patient_client(bed).await);
        let lock = holder.fair("a");
        let guard = lock.lock().await.unwrap();
        plant(bed, "a", DEAD_JAVA, 300_000.0).await;
        let waiting = waiter(&client, "a");
        queued(bed, "a", 2).await;
        let ours = queue(bed, "a").await.remove(1);
        plant(bed, "a", DEAD_JAVA_BEHIND, 2_000_000.0).await;
        let before = deadlines(bed, "a").await;
        if leaves {
            waiting.abort();
        } else {
            assert_eq!(lock.dequeue(&ours).await.unwrap(), Some(1));
        }
        let is_gone = async || queue(bed, "a").await.get(1).is_some_and(|owner| owner == DEAD_JAVA_BEHIND);
        eventually("our waiter has left its place", is_gone).await;
        let after = deadlines(bed, "a").await;
        let wait = before[DEAD_JAVA_BEHIND] - before[&ours];
        let kept = after[DEAD_JAVA_BEHIND] - after[DEAD_JAVA];
        assert!((wait - kept).abs() < 1.0, "{before:?}, then {after:?}");
        for dead in [DEAD_JAVA, DEAD_JAVA_BEHIND] {
            assert!(lock.dequeue(dead).await.unwrap().is_some());
        }
        guard.unlock().await.unwrap();
        if !leaves {
            ends("our waiter", waiting).await.unwrap().unlock().await.unwrap();
        }
    })
    .await;
}

bed::cases!(on two threads, waiter_of_java_behind_keeps_its_own_wait:
    if_the_waiter_ahead_leaves = true,
    if_the_waiter_ahead_is_removed = false,
);

/// The lock is free, and a dead waiter of Java at the head has `fair_grace` to acquire it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn next_waiter_is_served_if_the_lock_is_free() {
    fair(async |bed| {
        let builder = patient(bed.builder()).watchdog(secs(300)).command_timeout(PATIENCE);
        let client = bed.connect(builder.configure(|options| options.fair_grace = secs(300))).await;
        plant(bed, "a", DEAD_JAVA, 300_000.0).await;
        let waiting = waiter(&client, "a");
        queued(bed, "a", 2).await;
        let ours = queue(bed, "a").await.remove(1);
        listens(bed, "a", &ours).await;
        assert_eq!(client.fair("a").dequeue(DEAD_JAVA).await.unwrap(), Some(0));
        assert_eq!(holders(bed, "a").await, [(ours, "1".to_owned())].into());
        ends("our waiter", waiting).await.unwrap().unlock().await.unwrap();
    })
    .await;
}
