//! A lock that becomes free on one side is taken on the other at once, and it is the message that does it.

use std::time::Duration;

use distlock::{Client, Flavour};
use distlock_support::agent::{Kind, monotonic_ns};

use crate::rig::{BUSY, Rig, Times, channel, connect, ms, replied, soon, wait_for, wait_for_lock};

const LEASE: Duration = Duration::from_secs(30);
const ROUNDS: usize = 40;

/// From the release to the lock in other hands: 1 to 5 ms on a quiet machine, which the bench watches. A waiter that no message
/// woke would come in at the end of a lease, or after a poll cap.
const MEDIAN: Duration = ms(100);

/// One round is out of bounds when the machine was busy with something else; all series have one when we are slow.
const SERIES: usize = 3;

pub fn judge(what: &str, series: &[Times]) -> bool {
    let times = series.last().expect("a series");
    times.tell(what);
    let fine = times.median() < MEDIAN && times.worst() < BUSY;
    assert!(fine || series.len() < SERIES, "{what}: too slow in every series of {SERIES}");
    fine
}

/// Hold in Java, wait in Rust.
pub async fn a_release_in_java_wakes_us(version: &str) {
    let rig = Rig::alone_with(version).await;
    let client = rig.client().await;
    let mut series = Vec::new();
    // The first has everything loaded: scripts, classes.
    java_to_rust(&rig, &client, "warm", 2).await;
    loop {
        series.push(java_to_rust(&rig, &client, &format!("job:{}", series.len()), ROUNDS).await);
        if judge(&format!("{version}: released in Java, taken in Rust"), &series) {
            break;
        }
    }
    rig.end([client]).await;
}

async fn java_to_rust(rig: &Rig, client: &Client, name: &str, rounds: usize) -> Times {
    java_to_us(rig, client, (Kind::Reentrant, Flavour::Reentrant), name, rounds).await
}

/// Of any kind that tells of its releases.
pub async fn java_to_us(
    rig: &Rig,
    client: &Client,
    (kind, flavour): (Kind, Flavour),
    name: &str,
    rounds: usize,
) -> Times {
    let java = rig.agents[0].at(kind, name, 1);
    let mut times = Times::default();
    for round in 0..rounds {
        java.lock_for(LEASE).await.expect("a free lock");
        let before = rig.scripts().await;
        let waiter = wait_for_lock(client.lock(flavour, name));
        rig.waiting(client, 1).await;
        rig.listeners(&channel(name), 1).await;
        // Once subscribed it looks again; the subscription of the round before is still there.
        rig.scripts_since(before, if round == 0 { 2 } else { 1 }).await;
        let unlocked = replied(java.unlock()).await;
        let (had, guard) = soon(waiter).await.expect("the waiter");
        times.note(unlocked.t0, had);
        guard.unlock().await.expect("a lock held");
    }
    times
}

/// Hold in Rust, wait in Java.
pub async fn our_release_wakes_java(version: &str) {
    let rig = Rig::alone_with(version).await;
    let client = rig.client().await;
    let mut series = Vec::new();
    rust_to_java(&rig, &client, "warm", 2).await;
    loop {
        series.push(rust_to_java(&rig, &client, &format!("job:{}", series.len()), ROUNDS).await);
        if judge(&format!("{version}: released in Rust, taken in Java"), &series) {
            break;
        }
    }
    rig.end([client]).await;
}

async fn rust_to_java(rig: &Rig, client: &Client, name: &str, rounds: usize) -> Times {
    us_to_java(rig, client, (Kind::Reentrant, Flavour::Reentrant), name, rounds).await
}

/// Of any kind that tells of its releases.
pub async fn us_to_java(
    rig: &Rig,
    client: &Client,
    (kind, flavour): (Kind, Flavour),
    name: &str,
    rounds: usize,
) -> Times {
    let (lock, java) = (client.lock(flavour, name), rig.agents[0].at(kind, name, 1));
    let mut times = Times::default();
    for _ in 0..rounds {
        let guard = lock.lock_leased(LEASE).await.expect("a free lock");
        let before = rig.scripts().await;
        let waiter = java.start_lock();
        rig.listeners(&channel(name), 1).await;
        rig.scripts_since(before, 2).await;
        let from = monotonic_ns();
        guard.unlock().await.expect("a lock held");
        times.note(from, replied(waiter).await.t1);
        replied(java.unlock()).await;
        // Redisson subscribes anew each time.
        rig.listeners(&channel(name), 0).await;
    }
    times
}

/// A key that goes without a message lets nobody in before his time; a message alone does.
pub async fn nothing_but_the_message_wakes(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.client().await;
    let name = "silent";
    let held = rig.java(name, 1);

    held.lock_for(LEASE).await.expect("a free lock");
    let mut ours = wait_for(&client, name);
    rig.listeners(&channel(name), 1).await;
    rig.waiting(&client, 1).await;
    silently_free(&rig, name).await;
    assert!(tokio::time::timeout(ms(500), &mut ours).await.is_err(), "we did not wait for the message");
    let from = monotonic_ns();
    assert_eq!(rig.admin.publish(&channel(name), b"0").await, 1);
    let (had, guard) = soon(ours).await.expect("the waiter");
    println!("{version}: from a bare message to the lock, Rust: {:?}", Duration::from_nanos(had - from));
    guard.unlock().await.expect("a lock held");

    let guard = client.reentrant(name).lock_leased(LEASE).await.expect("a free lock");
    let java = rig.java(name, 2);
    let before = rig.scripts().await;
    let mut theirs = java.start_lock();
    rig.scripts_since(before, 2).await;
    silently_free(&rig, name).await;
    assert_eq!(theirs.within(ms(500)).await, None, "Redisson does not wait for the message any more");
    rig.admin.publish(&channel(name), b"0").await;
    replied(theirs).await;
    replied(java.unlock()).await;
    // Whoever deletes a key ends the hold of a guard that learns of it late.
    assert!(guard.unlock().await.is_err());
    rig.end([client]).await;
}

/// Deletes the key once the looks that are under way have been made.
async fn silently_free(rig: &Rig, name: &str) {
    tokio::time::sleep(ms(100)).await;
    assert!(rig.admin.cmd::<bool>(&["DEL", name]).await);
}

/// A foreign lock without a lease: Redisson waits for a message without bound, we look now and then.
pub async fn a_lock_without_end_is_looked_at_again(version: &str) {
    let rig = Rig::with(version).await;
    let client = connect(rig.builder().poll_cap(ms(400))).await;
    let name = "endless";
    rig.admin.cmd::<()>(&["HSET", name, "71b96ce8-2746-4c3a-9d0e-0123456789ab:1", "1"]).await;
    let java = rig.java(name, 1);
    let mut theirs = java.start_lock();
    rig.listeners(&channel(name), 1).await;
    let ours = wait_for(&client, name);
    rig.listeners(&channel(name), 2).await;
    silently_free(&rig, name).await;
    let from = monotonic_ns();
    let (had, guard) = soon(ours).await.expect("the waiter");
    assert!(Duration::from_nanos(had - from) < ms(400) + BUSY, "later than its own next look");
    let _owner = guard.into_owner();
    assert!(rig.admin.cmd::<bool>(&["DEL", name]).await);
    assert_eq!(theirs.within(ms(900)).await, None, "Redisson looks again by itself");
    rig.admin.publish(&channel(name), b"0").await;
    replied(theirs).await;
    replied(java.unlock()).await;
    rig.end([client]).await;
}
