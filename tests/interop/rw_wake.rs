//! Releases and downgrades wake waiting readers of the other side. Unless a test says otherwise, only a message can wake
//! a waiter: waiters do not poll, and leases outlast the test.

use distlock::Client;
use distlock_support::agent::Kind;
use futures::future::join_all;

use crate::rig::{NEVER, Rig, connect, ms, replied, soon};
use crate::rw_rig::{Doc, enter, sits};

const READERS: usize = 20;

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
    let doc = Doc::new(&rig, "ours");
    let guard = enter(&client, Kind::Write, doc.name, &client.owner(), Some(NEVER)).await;
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
    rig.end([client]).await;
}

/// Redisson's downgrade sends no message. Our reader notices it by a poll. Java's reader does not wake up.
pub async fn rw_java_downgrade_is_noticed_only_by_our_readers(version: &str) {
    let rig = Rig::with(version).await;
    let client = connect(rig.builder().configure(|options| options.poll_cap = ms(400))).await;
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
