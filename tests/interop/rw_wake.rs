//! A half that is to be had on one side is had on the other at once, by all that may have it, and it is the message that
//! does it.

use std::time::Duration;

use distlock::{Acquire, Client};
use distlock_support::agent::{Kind, monotonic_ns};
use futures::future::join_all;

use crate::rig::{Rig, Times, connect, ms, replied, soon};
use crate::rw_rig::{Doc, enter, half_of, told};
use crate::wake::judge;

const LEASE: Duration = Duration::from_secs(30);
const ROUNDS: usize = 15;
const SERIES: usize = 3;
/// How many readers wait together, and within what time all are in.
const READERS: usize = 20;
const ALL: Duration = ms(500);

/// One waits for one: Java for us, and we for Java, each half for the other.
pub async fn rw_releases_wake_the_other_side(version: &str) {
    let rig = Rig::alone_with(version).await;
    let client = rig.client().await;
    for held in [Kind::Read, Kind::Write] {
        for wanted in [Kind::Write, Kind::Read] {
            if (held, wanted) == (Kind::Read, Kind::Read) {
                continue;
            }
            let what = format!("{version}: {held:?} given back, {wanted:?} taken");
            rust_to_java(&rig, &client, "warm", (held, wanted), 2).await;
            java_to_rust(&rig, &client, "warm", (held, wanted), 2).await;
            let mut series = Vec::new();
            while series.is_empty() || !judge(&format!("{what}, Rust to Java"), &series) {
                series.push(rust_to_java(&rig, &client, &format!("a:{}", series.len()), (held, wanted), ROUNDS).await);
            }
            let mut series = Vec::new();
            while series.is_empty() || !judge(&format!("{what}, Java to Rust"), &series) {
                series.push(java_to_rust(&rig, &client, &format!("b:{}", series.len()), (held, wanted), ROUNDS).await);
            }
        }
    }
    rig.end([client]).await;
}

async fn rust_to_java(rig: &Rig, client: &Client, name: &str, (held, wanted): (Kind, Kind), rounds: usize) -> Times {
    let doc = Doc::new(rig, name);
    let mut times = Times::default();
    for _ in 0..rounds {
        let guard = enter(client, held, name, &client.owner(), Some(LEASE)).await;
        let waiter = doc.java_waits(0, wanted, 1).await;
        let from = monotonic_ns();
        guard.unlock().await.expect("held");
        times.note(from, told(rig, &doc.channel(), waiter).await.t1);
        replied(doc.java(0, wanted, 1).unlock()).await;
        // Redisson subscribes anew each time; ours is not there.
        rig.listeners(&doc.channel(), 0).await;
    }
    times
}

async fn java_to_rust(rig: &Rig, client: &Client, name: &str, (held, wanted): (Kind, Kind), rounds: usize) -> Times {
    let doc = Doc::new(rig, name);
    let java = doc.java(0, held, 1);
    let mut times = Times::default();
    for _ in 0..rounds {
        rig.listeners(&doc.channel(), 0).await;
        replied(java.lock_for(LEASE)).await;
        let waiter = doc.we_wait(client, wanted, 2).await;
        let unlocked = replied(java.unlock()).await;
        let (had, guard) = soon(waiter).await.expect("the waiter");
        times.note(unlocked.t0, had);
        guard.unlock().await.expect("held");
    }
    times
}

/// All readers that wait come in together when a writer of the other side leaves.
pub async fn rw_readers_come_in_together(version: &str) {
    let rig = Rig::alone_with(version).await;
    let clients = [rig.client().await, rig.client().await];
    for java_reads in [true, false] {
        let what = format!("{version}: {READERS} readers in {} come in", if java_reads { "Java" } else { "Rust" });
        let mut last = Vec::new();
        together(&rig, &clients, "warm", java_reads).await;
        loop {
            let times = together(&rig, &clients, &format!("{java_reads}:{}", last.len()), java_reads).await;
            times.tell(&what);
            last.push(times.worst());
            if last.last() <= Some(&ALL) {
                break;
            }
            assert!(last.len() < SERIES, "{what}: too late every time: {last:?}");
        }
    }
    rig.end(clients).await;
}

/// From the release to each reader's being in; all are in at one time.
async fn together(rig: &Rig, clients: &[Client; 2], name: &str, java_reads: bool) -> Times {
    let doc = Doc::new(rig, name);
    let mut times = Times::default();
    let threads = 1..=READERS as i64;
    if java_reads {
        let guard = enter(&clients[0], Kind::Write, name, &clients[0].owner(), Some(LEASE)).await;
        let mut calls = Vec::new();
        for thread in threads.clone() {
            calls.push(doc.java_waits(0, Kind::Read, thread).await);
        }
        let from = monotonic_ns();
        guard.unlock().await.expect("held");
        for reply in join_all(calls.into_iter().map(async |call| told(rig, &doc.channel(), call).await)).await {
            times.note(from, reply.t1);
        }
        assert_eq!(doc.look().await.covers.len(), READERS);
        join_all(threads.map(async |thread| replied(doc.java(0, Kind::Read, thread).unlock()).await)).await;
    } else {
        let java = doc.java(0, Kind::Write, 1);
        replied(java.lock_for(LEASE)).await;
        let mut tasks = Vec::new();
        for reader in 0..READERS {
            // One of each client asks for all of it.
            tasks.push(doc.we_wait(&clients[reader % 2], Kind::Read, if reader < 2 { 2 } else { 0 }).await);
        }
        let unlocked = replied(java.unlock()).await;
        let mut guards = Vec::new();
        for task in tasks {
            let (had, guard) = soon(task).await.expect("a reader");
            times.note(unlocked.t0, had);
            guards.push(guard);
        }
        assert_eq!(doc.look().await.covers.len(), READERS);
        for guard in guards {
            guard.unlock().await.expect("held");
        }
    }
    doc.is_gone().await;
    times
}

/// A writer that becomes a reader: ours tells Java's readers; Redisson tells nobody, and ours look for themselves.
pub async fn rw_downgrades_let_readers_in(version: &str) {
    let rig = Rig::alone_with(version).await;
    let cap = ms(400);
    let client = connect(rig.builder().poll_cap(cap)).await;

    let mut series = Vec::new();
    while series.is_empty() || !judge(&format!("{version}: downgraded by Rust, reader in Java"), &series) {
        let mut times = Times::default();
        for round in 0..ROUNDS {
            let name = format!("ours:{}:{round}", series.len());
            let doc = Doc::new(&rig, &name);
            let guard = enter(&client, Kind::Write, &name, &client.owner(), Some(LEASE)).await;
            let reader = doc.java_waits(0, Kind::Read, 1).await;
            let mut writer = doc.java_waits(0, Kind::Write, 2).await;
            let from = monotonic_ns();
            let guard = guard.downgrade().await.expect("held");
            times.note(from, told(&rig, &doc.channel(), reader).await.t1);
            assert_eq!(writer.within(ms(5)).await, None, "a writer beside readers");
            replied(doc.java(0, Kind::Read, 1).unlock()).await;
            guard.unlock().await.expect("held");
            replied(writer).await;
            replied(doc.java(0, Kind::Write, 2).unlock()).await;
        }
        series.push(times);
    }

    let doc = Doc::new(&rig, "theirs");
    let (reading, writing) = (doc.java(0, Kind::Read, 1), doc.java(0, Kind::Write, 1));
    replied(writing.lock_for(LEASE)).await;
    let mut theirs = doc.java_waits(0, Kind::Read, 2).await;
    let ours = doc.we_wait(&client, Kind::Read, 2).await;
    replied(reading.lock_for(LEASE)).await;
    let downgraded = replied(writing.unlock()).await;
    let (had, guard) = soon(ours).await.expect("the reader");
    let after = Duration::from_nanos(had.saturating_sub(downgraded.t1));
    println!("{version}: downgraded by Java: our reader in after {after:?}, looking every {cap:?}");
    assert!(after < cap + ms(300), "later than its own next look");
    assert_eq!(theirs.within(2 * cap).await, None, "Redisson tells its readers of a downgrade");
    // Nor does Java hear of a reader that leaves beside others.
    guard.unlock().await.expect("held");
    assert_eq!(theirs.within(ms(100)).await, None);
    replied(reading.unlock()).await;
    replied(theirs).await;
    replied(doc.java(0, Kind::Read, 2).unlock()).await;
    rig.end([client]).await;
}

/// A reader who wants to write: Redisson waits for itself, ours is told at once.
pub async fn rw_an_upgrade_never_hangs(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.client().await;
    let doc = Doc::new(&rig, "upgrade");
    let owner = client.owner();
    replied(doc.java(0, Kind::Read, 1).lock_for(LEASE)).await;
    let guard = enter(&client, Kind::Read, doc.name, &owner, Some(LEASE)).await;
    let began = monotonic_ns();
    let error = soon(half_of(&client, Kind::Write, doc.name).acquire(Acquire::new().owner(&owner))).await;
    assert!(matches!(error, Err(distlock::Error::WouldDeadlock { .. })), "{error:?}");
    println!("{version}: refused after {:?}", Duration::from_nanos(monotonic_ns() - began));
    guard.unlock().await.expect("held");
    // Alone, and still it waits.
    let mut hangs = doc.java_waits(0, Kind::Write, 1).await;
    assert_eq!(hangs.within(ms(500)).await, None, "Redisson upgrades");
    rig.admin.cmd::<()>(&["DEL", doc.name, &doc.cover(&doc.java_owner(0, 1), 1)]).await;
    rig.admin.publish(&doc.channel(), b"1").await;
    replied(hangs).await;
    replied(doc.java(0, Kind::Write, 1).unlock()).await;
    rig.end([client]).await;
}
