//! `distlock dequeue`.

use distlock::Acquire;

use crate::rig::{Bed, JAVA, ends, keys_of_queue, until};

/// How far a deadline in ms may be from its expected value, because time passes inside a script. Less than each wait.
const TOLERANCE: f64 = 2_000.0;

fn java(number: u32) -> String {
    format!("00000000-0000-4000-8000-00000000000{number}:1")
}

fn owners(queue: &[(String, Option<f64>)]) -> Vec<&str> {
    queue.iter().map(|(owner, _)| owner.as_str()).collect()
}

/// Waiters 1, 2 and 3 of Java behind a holder whose lease ends at a known time. Their own waits are 5, 7 and 11 s.
/// Returns the end of the lease.
async fn three_waiters_of_java(bed: &Bed) -> i64 {
    let lease_ends = bed.now().await + 600_000;
    bed.java_locks("a", JAVA).await;
    let _: i64 = bed.admin.cmd(&["PEXPIREAT", "a", &lease_ends.to_string()]).await;
    for (number, wait) in [(1, 5_000), (2, 12_000), (3, 23_000)] {
        bed.java_waits("a", &java(number), lease_ends + wait).await;
    }
    lease_ends
}

async fn dequeue(bed: &Bed, owner: &str, code: i32) {
    let ran = bed.run(&["dequeue", "a", owner, "--yes"]).await;
    assert_eq!(ran.code, Some(code), "{ran:?}");
}

#[tokio::test]
async fn waiter_behind_the_removed_one_keeps_its_own_wait() {
    let bed = Bed::new().await;
    let lease_ends = three_waiters_of_java(&bed).await as f64;
    dequeue(&bed, &java(2), 0).await;
    let expected = [(java(1), Some(lease_ends + 5_000.0)), (java(3), Some(lease_ends + 16_000.0))];
    assert_eq!(bed.queue("a").await, expected);
    let members: Vec<String> = bed.admin.cmd(&["ZRANGE", &keys_of_queue("a").1, "0", "-1"]).await;
    assert_eq!(members, [java(1), java(3)]);
}

#[tokio::test]
async fn waiter_behind_a_removed_head_follows_the_lease() {
    let bed = Bed::new().await;
    let lease_ends = three_waiters_of_java(&bed).await as f64;
    dequeue(&bed, &java(1), 0).await;
    let queue = bed.queue("a").await;
    assert_eq!(owners(&queue), [java(2), java(3)]);
    for ((owner, deadline), wait) in queue.iter().zip([7_000.0, 18_000.0]) {
        let off = deadline.unwrap() - lease_ends - wait;
        assert!(off.abs() <= TOLERANCE, "{owner}: {off}");
    }
}

#[tokio::test]
async fn last_waiter_takes_the_keys_of_the_queue_with_it() {
    let bed = Bed::new().await;
    three_waiters_of_java(&bed).await;
    for number in [3, 1, 2] {
        dequeue(&bed, &java(number), 0).await;
    }
    assert_eq!(bed.admin.keys().await, ["a"]);
    dequeue(&bed, &java(2), 1).await;
}

#[tokio::test]
async fn live_waiter_queues_again_at_the_end() {
    let bed = Bed::new().await;
    let fair = bed.client.fair("a");
    let guard = fair.lock().await.unwrap();
    let owner = bed.client.owner();
    let (waits, how) = (fair.clone(), Acquire::new().owner(&owner));
    let waiter = tokio::spawn(async move { waits.acquire(how).await });
    until("our waiter", async || fair.queue_len().await.unwrap() == 1).await;
    bed.java_waits("a", JAVA, bed.now().await + 600_000).await;
    dequeue(&bed, owner.as_str(), 0).await;
    until("our waiter at the end", async || owners(&bed.queue("a").await) == [JAVA, owner.as_str()]).await;
    dequeue(&bed, JAVA, 0).await;
    guard.unlock().await.unwrap();
    let _guard = ends("our waiter", waiter).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn without_a_terminal_yes_is_needed() {
    let bed = Bed::new().await;
    three_waiters_of_java(&bed).await;
    let ran = bed.run(&["dequeue", "a", &java(1)]).await;
    assert_eq!(ran.code, Some(64), "{ran:?}");
    assert!(ran.err.contains("--yes"), "{ran:?}");
    assert_eq!(bed.queue("a").await.len(), 3);
}

#[tokio::test]
async fn terminal_is_asked() {
    let bed = Bed::new().await;
    three_waiters_of_java(&bed).await;
    let owner = java(2);
    for (answer, code, left) in [("n\n", 1, 3), ("y\n", 0, 2)] {
        let mut terminal = bed.at_terminal(&["dequeue", "a", &owner]);
        terminal.shows("(java), number 2 of 3 in the queue of a? [y/N]").await;
        terminal.type_keys(answer);
        terminal.ends_with(code).await;
        assert_eq!(bed.queue("a").await.len(), left);
    }
}
