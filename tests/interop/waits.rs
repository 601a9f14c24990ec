//! Waits, in either language, for a lock that the other side holds.

use std::time::Duration;

use bed::{in_vain, with_longer_waits};
use distlock::Client;

use crate::rig::{Rig, channel, connect, had, ms, replied, soon, wait_for};
use crate::rw_rig::sits;

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

/// A foreign lock without a lease. Redisson waits for a message without a limit, and our client retries after every
/// poll cap.
pub async fn our_waiter_polls_behind_a_lock_without_lease(version: &str) {
    let rig = Rig::with(version).await;
    let client = connect(rig.builder().configure(|options| options.poll_cap = ms(400))).await;
    let name = "endless";
    rig.admin.cmd::<()>(&["HSET", name, "71b96ce8-2746-4c3a-9d0e-0123456789ab:1", "1"]).await;
    let java = rig.java(name, 1);
    let before = rig.scripts().await;
    let mut theirs = java.start_lock();
    rig.scripts_since(before, 2).await;
    sits(&rig.agents[0], 1).await;
    let ours = wait_for(&client, name);
    rig.listeners(&channel(name), 2).await;
    vanish(&rig, name).await;
    let guard = soon(ours).await.expect("the waiter");
    let _owner = guard.into_owner();
    vanish(&rig, name).await;
    assert_eq!(theirs.within(ms(900)).await, None, "Redisson looks again by itself");
    rig.admin.publish(&channel(name), b"0").await;
    replied(theirs).await;
    replied(java.unlock()).await;
    rig.end([client]).await;
}

/// Deletes the lock without a message.
async fn vanish(rig: &Rig, name: &str) {
    assert!(rig.admin.cmd::<bool>(&["DEL", name]).await, "nobody held it");
}
