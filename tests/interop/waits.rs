//! Waits with an end, in either language, on a lock that the other holds.

use std::time::Duration;

use bed::in_vain;

use crate::rig::{NEVER, Rig, channel, ms, replied, soon};

const WAIT: Duration = ms(300);
/// Lives for nearly as long as a wait that begins after it.
const TIMER: &str = "w:timer";
const LIFE: Duration = ms(295);

/// Waits that end without the lock, and not before their time.
pub async fn waits_run_out(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.client().await;
    let (lock, java) = (client.reentrant("w"), rig.java("w", 1));

    let guard = lock.lock().await.expect("lock");
    assert_eq!(java.try_lock().await, Ok(false));
    assert_eq!(java.try_lock_within(Duration::ZERO).await, Ok(false));
    rig.timer(TIMER, LIFE).await;
    assert_eq!(replied(java.start_try_lock(WAIT, None)).await.value, false);
    assert!(!rig.admin.exists(TIMER).await, "Java has waited for less than {LIFE:?} of {WAIT:?}");
    // Nobody waits any more, so nobody listens.
    rig.listeners(&channel("w"), 0).await;
    guard.unlock().await.expect("unlock");

    replied(java.lock()).await;
    assert!(lock.try_lock().await.expect("try_lock").is_none());
    assert!(lock.lock_for(Duration::ZERO).await.expect("lock_for").is_none());
    rig.timer(TIMER, LIFE).await;
    let outcome = soon(lock.lock_for(WAIT)).await;
    assert!(in_vain(&outcome), "lock_for: {outcome:?}");
    assert!(!rig.admin.exists(TIMER).await, "we have waited for less than {LIFE:?} of {WAIT:?}");
    rig.waiting(&client, 0).await;
    replied(java.unlock()).await;
    rig.end([client]).await;
}

/// Waits that end with the lock, well before their time.
pub async fn waits_are_met(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.client().await;
    let (lock, java) = (client.reentrant("m"), rig.java("m", 1));

    let guard = lock.lock_leased(NEVER).await.expect("lock_leased");
    let theirs = java.start_try_lock(NEVER, Some(NEVER));
    rig.listeners(&channel("m"), 1).await;
    guard.unlock().await.expect("unlock");
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
    let guard = soon(ours).await.expect("the waiter").expect("lock_for").expect("the lock");
    guard.unlock().await.expect("unlock");
    rig.end([client]).await;
}
