//! A lock that one process hammers goes to the other language too: passing it on inside a process has its bounds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use distlock::Client;
use distlock_support::agent::{Kind, monotonic_ns};
use serde_json::json;

use crate::listener::Listener;
use crate::rig::{Rig, Times, ms, replied, until};

const TASKS: u64 = 8;
const ROUNDS: usize = 10;
const HOLD: Duration = ms(1);

/// For how long our process keeps a lock to itself while others want it, by the median: the default of `handoff_time`,
/// the holds that begin and end it, and room for a busy machine. At the most, for one that was busy elsewhere.
const TO_OURSELVES: (Duration, Duration) = (ms(50 + 2 + 28), ms(1000));
/// After each such time our process gives way, so that the others are not left with a race that they lose: the median of
/// their waits is about `handoff_time` (43 ms here; 200 to 640 ms without giving way), and none is long.
const THEIRS: Duration = ms(50 + 100);
const EACH: Duration = Duration::from_secs(5);

/// Eight tasks of ours on one name; Java wants it as well.
pub async fn java_is_not_starved(version: &str) {
    let rig = Rig::alone_with(version).await;
    let client = rig.builder().take_turns(true).connect().await.expect("the server");
    let listener = Listener::open(rig.server.addr()).await;
    let (name, taken, enough) = ("busy", Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| tokio::spawn(hammer(client.clone(), name, Arc::clone(&taken), Arc::clone(&enough))))
        .collect();
    let java = rig.java(name, 1);
    let (mut times, began) = (Times::default(), Instant::now());
    for _ in 0..ROUNDS {
        let locked = tokio::time::timeout(EACH, java.lock()).await.expect("Java was starved").expect("the lock");
        times.note(locked.t0, locked.t1);
        replied(java.unlock()).await;
    }
    let (took, ours) = (began.elapsed(), taken.load(Ordering::Relaxed));
    enough.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.expect("a task");
    }
    let chances = listener.take(&rig.admin).await;
    let mut kept = Times::default();
    chances.windows(2).for_each(|pair| kept.note(pair[0].at, pair[1].at));
    times.tell(&format!("{version}: Java's waits beside {TASKS} tasks of ours"));
    kept.tell(&format!("{version}: from one release that all hear of to the next"));
    println!("{version}: meanwhile {ours} times ours in {took:?}: {:.0} a second", ours as f64 / took.as_secs_f64());
    assert!(times.median() < THEIRS, "Java waited for too long");
    // A few of ours for each of theirs: nobody is left out.
    assert!(ours >= ROUNDS as u64 / 2, "we were not at it");
    assert!(kept.median() < TO_OURSELVES.0 && kept.worst() < TO_OURSELVES.1, "kept to ourselves for too long");
    drop(listener);
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

/// Eight Java threads on one name; we want it as well.
pub async fn we_are_not_starved(version: &str) {
    let rig = Rig::alone_with(version).await;
    let client = rig.client().await;
    let (name, counter) = ("busy", "turns");
    let agent = &rig.agents[0];
    let mut loops = Vec::new();
    for thread in 1..=TASKS as i64 {
        let lock = agent.at(Kind::Reentrant, name, thread);
        let fields = json!({"counter": counter, "rounds": 150, "hold_ms": HOLD.as_millis() as u64});
        loops.push(lock.start("counter_loop", fields));
    }
    let lock = client.reentrant(name);
    let turns = async || rig.admin.cmd::<Option<u64>>(&["GET", counter]).await.unwrap_or(0);
    until("Java at work", async || turns().await > 0).await;
    let (mut times, from, began) = (Times::default(), turns().await, Instant::now());
    for _ in 0..ROUNDS {
        let asked = monotonic_ns();
        let guard = lock.lock().await.expect("the lock");
        times.note(asked, monotonic_ns());
        tokio::time::sleep(HOLD).await;
        guard.unlock().await.expect("a lock held");
    }
    let (took, java) = (began.elapsed(), turns().await - from);
    times.tell(&format!("{version}: our waits beside {TASKS} threads in Java"));
    println!(
        "{version}: meanwhile {java} times Java's in {took:?}: our share {:.2}",
        ROUNDS as f64 / (ROUNDS as f64 + java as f64)
    );
    for call in loops {
        call.await.expect("the loop in Java");
    }
    assert_eq!(turns().await, 150 * TASKS);
    assert!(times.worst() < EACH, "we were starved");
    rig.admin.cmd::<()>(&["DEL", counter]).await;
    rig.end([client]).await;
}
