//! A lock that one process hammers goes to the other language too: neither side is starved.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use distlock::Client;
use distlock_support::agent::Kind;
use serde_json::json;

use crate::rig::{Rig, ms, replied, soon, until};

const TASKS: u64 = 8;
const ROUNDS: usize = 10;
const HOLD: Duration = ms(1);

/// Eight tasks of ours on one name; Java wants it as well. Our process passes the lock on inside for a while, then gives way.
pub async fn java_is_not_starved(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.builder().take_turns(true).connect().await.expect("the server");
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
        let guard = lock.lock().await.expect("the lock");
        taken.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(HOLD).await;
        guard.unlock().await.expect("a lock held");
    }
}

/// Eight Java threads on one name; we want it as well, and have our turns while they are at it.
pub async fn we_are_not_starved(version: &str) {
    const EACH: u64 = 300;
    let rig = Rig::with(version).await;
    let client = rig.client().await;
    let (name, counter) = ("busy", "turns");
    let agent = &rig.agents[0];
    let mut loops = Vec::new();
    for thread in 1..=TASKS as i64 {
        let lock = agent.at(Kind::Reentrant, name, thread);
        let fields = json!({"counter": counter, "rounds": EACH, "hold_ms": HOLD.as_millis() as u64});
        loops.push(lock.start("counter_loop", fields));
    }
    let lock = client.reentrant(name);
    let turns = async || rig.admin.cmd::<Option<u64>>(&["GET", counter]).await.unwrap_or(0);
    until("Java at work", async || turns().await > 0).await;
    let guard = soon(lock.lock()).await.expect("the lock");
    assert!(turns().await < EACH * TASKS, "our first turn came after all of Java's");
    guard.unlock().await.expect("a lock held");
    for _ in 1..ROUNDS {
        soon(lock.lock()).await.expect("the lock").unlock().await.expect("a lock held");
    }
    for call in loops {
        replied(call).await;
    }
    assert_eq!(turns().await, EACH * TASKS);
    rig.admin.cmd::<()>(&["DEL", counter]).await;
    rig.end([client]).await;
}
