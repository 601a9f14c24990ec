//! Only a message wakes a waiter of either language before the lease ends.

use crate::rig::{NEVER, Rig, channel, ms, replied, soon, wait_for};
use crate::rw_rig::sits;

/// A waiter does not notice a key that is deleted without a message. A message wakes the waiter.
pub async fn waiter_is_woken_only_by_the_message(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.client().await;
    let name = "silent";
    let held = rig.java(name, 1);
    // Loads the scripts, so that each attempt is one command.
    client.reentrant(name).lock().await.expect("lock").unlock().await.expect("unlock");
    rig.listeners(&channel(name), 0).await;

    held.lock_for(NEVER).await.expect("lock_for");
    let before = rig.scripts().await;
    let mut ours = wait_for(&client, name);
    rig.scripts_since(before, 2).await;
    rig.listeners(&channel(name), 1).await;
    silently_free(&rig, name).await;
    assert!(tokio::time::timeout(ms(300), &mut ours).await.is_err(), "we did not wait for the message");
    assert_eq!(rig.admin.publish(&channel(name), b"0").await, 1);
    let guard = soon(ours).await.expect("the waiter");
    guard.unlock().await.expect("unlock");

    let guard = client.reentrant(name).lock_leased(NEVER).await.expect("lock_leased");
    let java = rig.java(name, 2);
    let before = rig.scripts().await;
    let mut theirs = java.start_lock();
    rig.scripts_since(before, 2).await;
    sits(&rig.agents[0], 2).await;
    silently_free(&rig, name).await;
    assert_eq!(theirs.within(ms(300)).await, None, "Redisson does not wait for the message any more");
    rig.admin.publish(&channel(name), b"0").await;
    replied(theirs).await;
    replied(java.unlock()).await;
    // Our guard learns late that its key was deleted.
    assert!(guard.unlock().await.is_err());
    rig.end([client]).await;
}

async fn silently_free(rig: &Rig, name: &str) {
    assert!(rig.admin.cmd::<bool>(&["DEL", name]).await, "nobody held it");
}
