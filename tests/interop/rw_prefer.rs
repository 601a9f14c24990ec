//! Clients of ours that prefer writers, next to Java. A waiting writer of ours sets a *mark* (a key), which holds back
//! only our readers. No mark is left.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bed::in_vain;
use distlock::{Client, Prefer};
use distlock_support::agent::{JavaLock, Kind};
use futures::future::join_all;

use crate::rig::{NEVER, PATIENCE, Rig, connect, lasting, ms, replied, soon, until, watched};
use crate::rw_rig::{Doc, HALVES, half_of, refused, sits, wait_for_half};

/// A key that lives nearly as long as the default of `max_reader_delay`.
const TIMER: &str = "prefers:timer";
const LIFE: Duration = ms(950);

/// A client whose writers' marks outlast the test. Its readers yield for the default `max_reader_delay`.
async fn preferring(rig: &Rig) -> Client {
    connect(rig.builder().configure(|options| (options.prefer, options.poll_cap) = (Prefer::Writers, NEVER))).await
}

pub async fn rw_only_our_readers_are_held_back(version: &str) {
    // The test counts scripts, so leases are long and nothing is renewed.
    let rig = Rig::start(vec![lasting(version)]).await;
    let (client, plain) = (preferring(&rig).await, rig.client().await);
    let doc = Doc::new(&rig, "prefers");
    let marked = async || rig.admin.exists(&doc.waiting()).await;
    let (first, second) = (doc.java(0, Kind::Read, 1), doc.java(0, Kind::Read, 2));
    replied(first.lock()).await;
    let writer = wait_for_half(&client, Kind::Write, doc.name);
    until("a mark", marked).await;

    assert_eq!(second.try_lock().await, Ok(true), "a reader of Java's was held back");
    assert_eq!(doc.java(0, Kind::Read, 3).try_lock().await, Ok(true));
    replied(doc.java(0, Kind::Read, 3).unlock()).await;
    assert_eq!(doc.java(0, Kind::Write, 3).try_lock().await, Ok(false));
    for client in [&client, &plain] {
        refused(client, Kind::Read, doc.name).await;
        rig.timer(TIMER, LIFE).await;
        let guard = soon(wait_for_half(client, Kind::Read, doc.name)).await.expect("a reader");
        assert!(!rig.admin.exists(TIMER).await, "a reader of ours was held back for less than {LIFE:?}");
        guard.unlock().await.expect("unlock");
    }
    // A waiting Java writer does not hold back our readers, and does not yield to our writers.
    let theirs = doc.java_waits(0, Kind::Write, 4).await;
    replied(first.unlock()).await;
    assert!(!writer.is_finished());
    let before = rig.scripts().await;
    replied(second.unlock()).await;
    // Either writer may acquire first. The other acquires after its release.
    let (mut ours, mut theirs) = (std::pin::pin!(soon(writer)), std::pin::pin!(replied(theirs)));
    tokio::select! {
        first = &mut ours => {
            // Waits for three scripts: Java's release, our acquire, and Java's attempt. Then Java sleeps again. Before
            // that sleep, Java would miss a message.
            rig.scripts_since(before, 3).await;
            sits(&rig.agents[0], 4).await;
            first.expect("the writer").unlock().await.expect("unlock");
            theirs.await;
            replied(doc.java(0, Kind::Write, 4).unlock()).await;
        }
        _ = &mut theirs => {
            replied(doc.java(0, Kind::Write, 4).unlock()).await;
            ours.await.expect("the writer").unlock().await.expect("unlock");
        }
    }
    assert!(!marked().await, "a mark of nobody");

    replied(first.lock()).await;
    give_up(&doc, &client).await;
    drop(half_of(&plain, Kind::Read, doc.name).try_lock().await.expect("try_lock").expect("nobody waits"));
    replied(first.unlock()).await;
    rig.end([client, plain]).await;
}

async fn give_up(doc: &Doc<'_>, client: &Client) {
    let marked = async || doc.rig.admin.exists(&doc.waiting()).await;
    let lock = half_of(client, Kind::Write, doc.name);
    let outcome = lock.lock_for(ms(150)).await;
    assert!(in_vain(&outcome), "lock_for: {outcome:?}");
    until("no mark", async || !marked().await).await;
    let writer = wait_for_half(client, Kind::Write, doc.name);
    until("a mark", marked).await;
    writer.abort();
    until("no mark", async || !marked().await).await;
}

/// Number of tasks of each kind in each language. All continue until each has had `TURNS` turns.
const TASKS: i64 = 3;
const TURNS: usize = 6;
/// All tasks compete at once, and each acquires `TURNS` times.
pub async fn rw_preferred_writers_starve_no_task(version: &str) {
    let rig = Rig::with(version).await;
    let builder = watched(rig.builder()).configure(|options| options.prefer = Prefer::Writers);
    let client = connect(builder.configure(|options| options.poll_cap = Duration::from_secs(2))).await;
    let doc = Doc::new(&rig, "busy");
    let lacking = Arc::new(AtomicI64::new(4 * TASKS));
    let mut tasks = Vec::new();
    for half in HALVES {
        for task in 0..TASKS {
            let thread = 1 + task + if half == Kind::Write { TASKS } else { 0 };
            tasks.push(tokio::spawn(in_java(doc.java(0, half, thread), Arc::clone(&lacking))));
            tasks.push(tokio::spawn(in_rust(client.clone(), half, doc.name.to_owned(), Arc::clone(&lacking))));
        }
    }
    let mut all = std::pin::pin!(join_all(tasks));
    let ended = async {
        loop {
            tokio::select! {
                all = &mut all => return all,
                () = tokio::time::sleep(ms(500)) => {}
            }
            // A waiting Java thread may have missed the last message.
            if lacking.load(Ordering::Relaxed) <= 0 {
                rig.admin.publish(&doc.channel(), b"1").await;
            }
        }
    };
    // Long enough for several events on a slow machine.
    let ended = tokio::time::timeout(4 * PATIENCE, ended).await;
    let all = ended.unwrap_or_else(|_| panic!("{} tasks never had {TURNS} turns", lacking.load(Ordering::Relaxed)));
    all.into_iter().for_each(|ended| ended.expect("one of them"));
    assert!(!rig.admin.exists(&doc.waiting()).await, "a mark of nobody");
    rig.end([client]).await;
}

async fn in_java(lock: JavaLock, lacking: Arc<AtomicI64>) {
    let mut turns = 0;
    while lacking.load(Ordering::Relaxed) > 0 {
        lock.lock().await.expect("lock");
        turns += 1;
        lacking.fetch_sub(i64::from(turns == TURNS), Ordering::Relaxed);
        tokio::time::sleep(ms(1)).await;
        lock.unlock().await.expect("unlock");
        tokio::time::sleep(ms(4)).await;
    }
}

async fn in_rust(client: Client, half: Kind, name: String, lacking: Arc<AtomicI64>) {
    let (lock, mut turns) = (half_of(&client, half, &name), 0);
    while lacking.load(Ordering::Relaxed) > 0 {
        let guard = lock.lock().await.expect("lock");
        turns += 1;
        lacking.fetch_sub(i64::from(turns == TURNS), Ordering::Relaxed);
        tokio::time::sleep(ms(1)).await;
        guard.unlock().await.expect("unlock");
        tokio::time::sleep(ms(4)).await;
    }
}
