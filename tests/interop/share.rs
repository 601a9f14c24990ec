//! One language acquires a lock without pause, and the other language also acquires it. Neither is starved.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use distlock::Client;
use distlock_support::agent::Kind;
use serde_json::json;

use crate::rig::{Rig, connect, ms, replied, soon, until};

const TASKS: u64 = 8;
const ROUNDS: usize = 10;
const HOLD: Duration = ms(1);

/// Eight tasks of ours acquire one name without pause, and Java also waits for it. Our process hands the lock from task
/// to task for a while, and then yields to Java.
pub async fn java_is_not_starved_by_our_tasks(version: &str) {
    let rig = Rig::with(version).await;
    let client = connect(rig.builder().take_turns(true)).await;
    let (name, taken, enough) = ("busy", Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| tokio::spawn(hammer(client.clone(), name, Arc::clone(&taken), Arc::clone(&enough))))
        .collect();
    until("our tasks at work", async || taken.load(Ordering::Relaxed) > 0).await;
    let java = rig.java(name, 1);
    for _ in 0..ROUNDS {
        replied(java.lock()).await;
        replied(java.unlock()).await;
    }
    let ours = taken.load(Ordering::Relaxed);
    until("a turn of ours beside Java", async || taken.load(Ordering::Relaxed) > ours).await;
    enough.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.expect("a task");
    }
    rig.end([client]).await;
}

async fn hammer(client: Client, name: &'static str, taken: Arc<AtomicU64>, enough: Arc<AtomicBool>) {
    let lock = client.reentrant(name);
    while !enough.load(Ordering::Relaxed) {
        let guard = lock.lock().await.expect("lock");
        taken.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(HOLD).await;
        guard.unlock().await.expect("unlock");
    }
}

/// Eight Java threads acquire one name without pause until our client has had its turns.
pub async fn our_client_is_not_starved_by_java(version: &str) {
    /// Turns of a Java thread in one call. The number is small, because our process may be suspended during a call.
    const EACH: u64 = 10;
    /// Limit of Java's turns between two of ours.
    const MOST: u64 = 2400;
    let rig = Rig::with(version).await;
    let client = rig.client().await;
    let (name, counter, enough) = ("busy", "turns", Arc::new(AtomicBool::new(false)));
    let threads = (1..=TASKS as i64).map(|thread| {
        let (java, enough) = (rig.agents[0].at(Kind::Reentrant, name, thread), Arc::clone(&enough));
        let fields = json!({"counter": counter, "rounds": EACH, "hold_ms": HOLD.as_millis() as u64});
        tokio::spawn(async move {
            let mut loops = 0;
            while !enough.load(Ordering::Relaxed) {
                replied(java.start("counter_loop", fields.clone())).await;
                loops += 1;
            }
            loops
        })
    });
    let threads: Vec<_> = threads.collect();
    let turns = async || rig.admin.cmd::<Option<u64>>(&["GET", counter]).await.unwrap_or(0);
    until("Java at work", async || turns().await > 0).await;
    let lock = client.reentrant(name);
    let mut before = turns().await;
    for round in 0..ROUNDS {
        let guard = soon(lock.lock()).await.expect("lock");
        let now = turns().await;
        let javas = now - before;
        assert!(javas <= MOST, "we were starved: before our turn {round} Java had {javas}");
        before = now;
        guard.unlock().await.expect("unlock");
    }
    enough.store(true, Ordering::Relaxed);
    let mut loops = 0;
    for thread in threads {
        loops += thread.await.expect("a thread of Java's");
    }
    assert_eq!(turns().await, EACH * loops, "updates were lost: two had the lock at once");
    rig.admin.cmd::<()>(&["DEL", counter]).await;
    rig.end([client]).await;
}
