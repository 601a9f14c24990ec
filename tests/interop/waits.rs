//! Waits with a limit, in either language, for a lock that the other side holds.

use std::time::Duration;

use bed::{in_vain, with_longer_waits};
use distlock::Client;

use crate::rig::{NEVER, Rig, channel, had, ms, replied, soon};

const WAIT: Duration = ms(300);
/// A key that is set before a wait and expires [`SHORTER`] before the end of the wait.
const TIMER: &str = "w:timer";
const SHORTER: Duration = ms(5);

pub async fn wait_for_other_side_times_out(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.client().await;
    with_longer_waits(WAIT, async |wait| java_waits_in_vain(&rig, &client, wait).await).await;

    let (lock, java) = (client.reentrant("w"), rig.java("w", 1));
    replied(java.lock()).await;
    assert!(lock.try_lock().await.expect("try_lock").is_none());
    assert!(lock.lock_for(Duration::ZERO).await.expect("lock_for").is_none());
    let life = WAIT - SHORTER;
    rig.timer(TIMER, life).await;
    let outcome = soon(lock.lock_for(WAIT)).await;
    assert!(in_vain(&outcome), "lock_for: {outcome:?}");
    assert!(!rig.admin.exists(TIMER).await, "we have waited for less than {life:?} of {WAIT:?}");
    rig.waiting(&client, 0).await;
    replied(java.unlock()).await;
    rig.end([client]).await;
}

/// Java waits for a lock of ours until its wait runs out. Returns `None` if Java's subscription was not confirmed by
/// then, because 4.7.0 leaves such a subscription behind.
async fn java_waits_in_vain(rig: &Rig, client: &Client, wait: Duration) -> Option<()> {
    let (name, life) = (format!("w:{wait:?}"), wait - SHORTER);
    let java = rig.java(&name, 1);
    let guard = client.reentrant(&name).lock().await.expect("lock");
    assert_eq!(java.try_lock().await, Ok(false));
    assert_eq!(java.try_lock_within(Duration::ZERO).await, Ok(false));
    rig.timer(TIMER, life).await;
    let before = rig.scripts().await;
    let answer = soon(java.start_try_lock(wait, None)).await;
    // Redisson tries again when its subscription is confirmed.
    let in_time = rig.scripts().await >= before + 2;
    if in_time {
        assert_eq!(answer.expect("a try in Java").value, false);
        assert!(!rig.admin.exists(TIMER).await, "Java has waited for less than {life:?} of {wait:?}");
        // The wait has ended, so Java has unsubscribed.
        rig.listeners(&channel(&name), 0).await;
    } else {
        assert_eq!(had(answer), None);
    }
    guard.unlock().await.expect("unlock");
    in_time.then_some(())
}

/// Waits that acquire the lock well before their limit.
pub async fn wait_for_other_side_ends_with_the_lock(version: &str) {
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
