//! A release by Java wakes our waiters, and our release wakes Java's, for the read half and the write half. Unless a
//! test says otherwise, only a message can wake a waiter: waiters do not poll, and leases outlast the test.

use distlock::{Acquire, Client};
use distlock_support::agent::Kind;
use futures::future::join_all;

use crate::rig::{NEVER, Rig, connect, ms, replied, soon};
use crate::rw_rig::{Doc, enter, half_of, sits};

const ROUNDS: usize = 5;
const READERS: usize = 20;

/// Java waits for a holder of ours, and we wait for Java, in each pair of halves except read and read.
pub async fn rw_releases_wake_the_other_side(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.client().await;
    for held in [Kind::Read, Kind::Write] {
        for wanted in [Kind::Write, Kind::Read] {
            if (held, wanted) != (Kind::Read, Kind::Read) {
                rust_to_java(&rig, &client, (held, wanted)).await;
                java_to_rust(&rig, &client, (held, wanted)).await;
            }
        }
    }
    rig.end([client]).await;
}

async fn rust_to_java(rig: &Rig, client: &Client, (held, wanted): (Kind, Kind)) {
    let doc = Doc::new(rig, "ours");
    for _ in 0..ROUNDS {
        let guard = enter(client, held, doc.name, &client.owner(), Some(NEVER)).await;
        let waiter = doc.java_waits(0, wanted, 1).await;
        guard.unlock().await.expect("unlock");
        replied(waiter).await;
        replied(doc.java(0, wanted, 1).unlock()).await;
        // Redisson unsubscribes after each wait, and our client has not subscribed.
        rig.listeners(&doc.channel(), 0).await;
    }
}

async fn java_to_rust(rig: &Rig, client: &Client, (held, wanted): (Kind, Kind)) {
    let doc = Doc::new(rig, "theirs");
    let java = doc.java(0, held, 1);
    for _ in 0..ROUNDS {
        rig.listeners(&doc.channel(), 0).await;
        replied(java.lock_for(NEVER)).await;
        let waiter = doc.we_wait(client, wanted, 2).await;
        replied(java.unlock()).await;
        soon(waiter).await.expect("the waiter").unlock().await.expect("unlock");
    }
}

pub async fn rw_waiting_readers_acquire_together(version: &str) {
    let rig = Rig::with(version).await;
    let clients = [rig.client().await, rig.client().await];
    java_reads(&rig, &clients[0]).await;
    we_read(&rig, &clients).await;
    rig.end(clients).await;
}

async fn java_reads(rig: &Rig, client: &Client) {
    let doc = Doc::new(rig, "java reads");
    let threads = 1..=READERS as i64;
    let guard = enter(client, Kind::Write, doc.name, &client.owner(), Some(NEVER)).await;
    let mut calls = Vec::new();
    for thread in threads.clone() {
        calls.push(doc.java_waits(0, Kind::Read, thread).await);
    }
    guard.unlock().await.expect("unlock");
    join_all(calls.into_iter().map(replied)).await;
    assert_eq!(doc.look().await.covers.len(), READERS);
    join_all(threads.map(async |thread| replied(doc.java(0, Kind::Read, thread).unlock()).await)).await;
    doc.is_gone().await;
}

async fn we_read(rig: &Rig, clients: &[Client; 2]) {
    let doc = Doc::new(rig, "we read");
    let java = doc.java(0, Kind::Write, 1);
    replied(java.lock_for(NEVER)).await;
    let mut tasks = Vec::new();
    for reader in 0..READERS {
        // The first reader of each client sends two commands. The client's other readers send none.
        tasks.push(doc.we_wait(&clients[reader % 2], Kind::Read, if reader < 2 { 2 } else { 0 }).await);
    }
    replied(java.unlock()).await;
    let mut guards = Vec::new();
    for task in tasks {
        guards.push(soon(task).await.expect("a reader"));
    }
    assert_eq!(doc.look().await.covers.len(), READERS);
    for guard in guards {
        guard.unlock().await.expect("unlock");
    }
    doc.is_gone().await;
}

/// Our downgrade sends a message, by which Java's waiting readers acquire.
pub async fn rw_our_downgrade_admits_java_readers(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.client().await;
    for round in 0..ROUNDS {
        let name = format!("ours:{round}");
        let doc = Doc::new(&rig, &name);
        let guard = enter(&client, Kind::Write, &name, &client.owner(), Some(NEVER)).await;
        let reader = doc.java_waits(0, Kind::Read, 1).await;
        let mut writer = doc.java_waits(0, Kind::Write, 2).await;
        let before = rig.scripts().await;
        let guard = guard.downgrade().await.expect("downgrade");
        replied(reader).await;
        // Four scripts: two of the downgrade, and one attempt of each of Java's two waiters.
        rig.scripts_since(before, 4).await;
        assert_eq!(writer.within(ms(5)).await, None, "a writer beside readers");
        replied(doc.java(0, Kind::Read, 1).unlock()).await;
        sits(&rig.agents[0], 2).await;
        guard.unlock().await.expect("unlock");
        replied(writer).await;
        replied(doc.java(0, Kind::Write, 2).unlock()).await;
    }
    rig.end([client]).await;
}

/// Redisson's downgrade sends no message. Our reader notices it by a poll. Java's reader does not wake up.
pub async fn rw_java_downgrade_is_noticed_only_by_our_readers(version: &str) {
    let rig = Rig::with(version).await;
    let client = connect(rig.builder().poll_cap(ms(400))).await;
    let doc = Doc::new(&rig, "theirs");
    let (reading, writing) = (doc.java(0, Kind::Read, 1), doc.java(0, Kind::Write, 1));
    replied(writing.lock_for(NEVER)).await;
    let mut theirs = doc.java_waits(0, Kind::Read, 2).await;
    let ours = doc.we_wait(&client, Kind::Read, 2).await;
    replied(reading.lock_for(NEVER)).await;
    replied(writing.unlock()).await;
    let guard = soon(ours).await.expect("the reader");
    assert_eq!(theirs.within(ms(500)).await, None, "Redisson tells its readers of a downgrade");
    // Our release sends Java no message either, because another reader remains.
    guard.unlock().await.expect("unlock");
    assert_eq!(theirs.within(ms(100)).await, None);
    replied(reading.unlock()).await;
    replied(theirs).await;
    replied(doc.java(0, Kind::Read, 2).unlock()).await;
    rig.end([client]).await;
}

/// A reader requests the write half. Redisson waits for its own read hold. Our call returns an error at once.
pub async fn rw_our_upgrade_returns_would_deadlock(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.client().await;
    let doc = Doc::new(&rig, "upgrade");
    let owner = client.owner();
    replied(doc.java(0, Kind::Read, 1).lock_for(NEVER)).await;
    let guard = enter(&client, Kind::Read, doc.name, &owner, Some(NEVER)).await;
    let error = soon(half_of(&client, Kind::Write, doc.name).acquire(Acquire::new().owner(&owner))).await;
    assert!(matches!(error, Err(distlock::Error::WouldDeadlock { .. })), "{error:?}");
    guard.unlock().await.expect("unlock");
    // Java's reader is now the only holder. Its request for the write half waits for its own read hold.
    let mut hangs = doc.java_waits(0, Kind::Write, 1).await;
    assert_eq!(hangs.within(ms(300)).await, None, "Redisson upgrades");
    rig.admin.cmd::<()>(&["DEL", doc.name, &doc.cover(&doc.java_owner(0, 1), 1)]).await;
    rig.admin.publish(&doc.channel(), b"1").await;
    replied(hangs).await;
    replied(doc.java(0, Kind::Write, 1).unlock()).await;
    rig.end([client]).await;
}
