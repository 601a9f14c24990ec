//! Waits with an end, in either language, on a lock that the other holds.

use std::time::Duration;

use distlock_support::agent::monotonic_ns;

use crate::rig::{NEVER, Rig, channel, ms, replied, soon};

const WAIT: Duration = ms(300);

/// Waits that end without the lock, and not before their time.
pub async fn waits_run_out(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.client().await;
    let (lock, java) = (client.reentrant("w"), rig.java("w", 1));

    let guard = lock.lock().await.expect("a free lock");
    assert_eq!(java.try_lock().await, Ok(false));
    assert_eq!(java.try_lock_within(Duration::ZERO).await, Ok(false));
    let answer = replied(java.start_try_lock(WAIT, None)).await;
    assert_eq!(answer.value, false);
    assert!(answer.took() >= WAIT - ms(2), "Java waited for {:?} of {WAIT:?}", answer.took());
    // Nobody waits any more, so nobody listens.
    rig.listeners(&channel("w"), 0).await;
    guard.unlock().await.expect("a lock held");

    replied(java.lock()).await;
    assert!(lock.try_lock().await.expect("an answer").is_none());
    assert!(lock.lock_for(Duration::ZERO).await.expect("an answer").is_none());
    let from = monotonic_ns();
    assert!(soon(lock.lock_for(WAIT)).await.expect("an answer").is_none());
    let took = Duration::from_nanos(monotonic_ns() - from);
    assert!(took >= WAIT - ms(2), "we waited for {took:?} of {WAIT:?}");
    assert_eq!(client.stats().waiting, 0);
    replied(java.unlock()).await;
    rig.end([client]).await;
}

/// Waits that end with the lock, well before their time.
pub async fn waits_are_met(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.client().await;
    let (lock, java) = (client.reentrant("m"), rig.java("m", 1));

    let guard = lock.lock_leased(NEVER).await.expect("a free lock");
    let theirs = java.start_try_lock(NEVER, Some(NEVER));
    rig.listeners(&channel("m"), 1).await;
    guard.unlock().await.expect("a lock held");
    assert_eq!(replied(theirs).await.value, true);
    let (lease, asked) = (rig.admin.pttl("m").await, NEVER.as_millis() as i64);
    assert!((asked / 2..=asked).contains(&lease), "Java asked for {asked} ms and has {lease}");

    let ours = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock_for(NEVER).await }
    });
    rig.listeners(&channel("m"), 1).await;
    rig.waiting(&client, 1).await;
    replied(java.unlock()).await;
    let guard = soon(ours).await.expect("the waiter").expect("an answer").expect("the lock");
    guard.unlock().await.expect("a lock held");
    rig.end([client]).await;
}
