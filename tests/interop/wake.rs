//! A release in one language wakes a waiter of the other language. Unless a test says otherwise, only a message can
//! wake a waiter: waiters do not poll, and leases outlast the test.

use distlock::{Client, Flavour};
use distlock_support::agent::Kind;

use crate::rig::{NEVER, Rig, channel, connect, ms, replied, soon, wait_for, wait_for_lock};
use crate::rw_rig::sits;

const ROUNDS: usize = 10;
const REENTRANT: (Kind, Flavour) = (Kind::Reentrant, Flavour::Reentrant);

pub async fn java_release_wakes_our_waiter(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.client().await;
    java_to_us(&rig, &client, REENTRANT, "job", ROUNDS).await;
    rig.end([client]).await;
}

/// For any kind that announces its releases.
pub async fn java_to_us(rig: &Rig, client: &Client, (kind, flavour): (Kind, Flavour), name: &str, rounds: usize) {
    let java = rig.agents[0].at(kind, name, 1);
    for _ in 0..rounds {
        java.lock_for(NEVER).await.expect("lock_for");
        let waiter = wait_for_lock(client.lock(flavour, name));
        rig.waiting(client, 1).await;
        rig.listeners(&channel(name), 1).await;
        replied(java.unlock()).await;
        let guard = soon(waiter).await.expect("the waiter");
        guard.unlock().await.expect("unlock");
    }
}

pub async fn our_release_wakes_java_waiter(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.client().await;
    us_to_java(&rig, &client, REENTRANT, "job", ROUNDS).await;
    rig.end([client]).await;
}

/// For any kind that announces its releases.
pub async fn us_to_java(rig: &Rig, client: &Client, (kind, flavour): (Kind, Flavour), name: &str, rounds: usize) {
    let (lock, java) = (client.lock(flavour, name), rig.agents[0].at(kind, name, 1));
    for _ in 0..rounds {
        let guard = lock.lock_leased(NEVER).await.expect("lock_leased");
        let waiter = java.start_lock();
        rig.listeners(&channel(name), 1).await;
        guard.unlock().await.expect("unlock");
        replied(waiter).await;
        replied(java.unlock()).await;
        // Redisson unsubscribes after each wait.
        rig.listeners(&channel(name), 0).await;
    }
}

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

/// A foreign lock without a lease. Redisson waits for a message without a limit, and our client retries after every
/// poll cap.
pub async fn our_waiter_polls_behind_a_lock_without_lease(version: &str) {
    let rig = Rig::with(version).await;
    let client = connect(rig.builder().poll_cap(ms(400))).await;
    let name = "endless";
    rig.admin.cmd::<()>(&["HSET", name, "71b96ce8-2746-4c3a-9d0e-0123456789ab:1", "1"]).await;
    let java = rig.java(name, 1);
    let before = rig.scripts().await;
    let mut theirs = java.start_lock();
    rig.scripts_since(before, 2).await;
    sits(&rig.agents[0], 1).await;
    let ours = wait_for(&client, name);
    rig.listeners(&channel(name), 2).await;
    silently_free(&rig, name).await;
    let guard = soon(ours).await.expect("the waiter");
    let _owner = guard.into_owner();
    silently_free(&rig, name).await;
    assert_eq!(theirs.within(ms(900)).await, None, "Redisson looks again by itself");
    rig.admin.publish(&channel(name), b"0").await;
    replied(theirs).await;
    replied(java.unlock()).await;
    rig.end([client]).await;
}
