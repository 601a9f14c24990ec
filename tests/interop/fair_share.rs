//! In a crowd of ours Java gets its turn, whatever it asks with, and the other way round.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use distlock::Client;
use distlock_support::agent::{AgentOptions, monotonic_ns};

use crate::fair_rig::Lane;
use crate::rig::{Rig, Times, ms, until};

/// Waiters of the crowd.
const CROWD: u64 = 6;
const HOLD: Duration = ms(10);
const TURNS: usize = 8;
/// Turns that the crowd may have from the question to the lock: one each, and as much again for who was asking already.
const FAIR: u64 = 2 * CROWD;

fn median(turns: &[u64]) -> u64 {
    let mut sorted = turns.to_vec();
    sorted.sort_unstable();
    sorted[sorted.len() / 2]
}

async fn hammer(client: Client, name: String, enough: Arc<AtomicBool>, taken: Arc<AtomicU64>) {
    let lock = client.fair(&name);
    while !enough.load(Ordering::Relaxed) {
        let guard = lock.lock().await.expect("the lock");
        taken.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(HOLD).await;
        guard.unlock().await.expect("a lock held");
    }
}

/// Tasks of ours that come again and again; Java by `lock()`, `tryLock(wait, lease)` and `tryLock(wait, SECONDS)`.
pub async fn fair_java_gets_its_turn(version: &str) {
    let rig = Rig::alone(vec![AgentOptions::version(version)]).await;
    let (client, other) = (rig.client().await, rig.client().await);
    let mut all = Vec::new();
    for (thread, how) in (1..).zip(["lock", "try", "try for milliseconds", "try for seconds"]) {
        let lane = Lane::new(&rig, how);
        let (enough, taken) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let task = |i| if i % 2 == 0 { client.clone() } else { other.clone() };
        let tasks: Vec<_> = (0..CROWD)
            .map(|i| tokio::spawn(hammer(task(i), how.to_owned(), Arc::clone(&enough), Arc::clone(&taken))))
            .collect();
        until("a crowd", async || lane.queue().await.len() as u64 == CROWD - 1).await;
        let (java, mut times, mut others, mut gave_up) = (lane.java(0, thread), Times::default(), Vec::new(), 0);
        for _ in 0..TURNS {
            let call = match how {
                "lock" => java.start_lock(),
                "try" => java.start_try_lock(Duration::from_secs(5), Some(Duration::from_secs(30))),
                "try for milliseconds" => java.start_try_lock(Duration::from_secs(5), None),
                _ => java.start_try_lock_seconds(5),
            };
            let (from, before) = (monotonic_ns(), taken.load(Ordering::Relaxed));
            let answer = call.await.expect("an answer");
            times.note(from, answer.t1);
            others.push(taken.load(Ordering::Relaxed) - before);
            if answer.value == true {
                java.unlock().await.expect("a lock held");
            } else {
                gave_up += 1;
                break;
            }
        }
        enough.store(true, Ordering::Relaxed);
        for task in tasks {
            task.await.expect("a task");
        }
        times.tell(&format!("{version}: fair, Java's {how} in a crowd of {CROWD} of ours, {gave_up} given up"));
        lane.is_gone().await;
        all.push((how, others, gave_up));
    }
    for (how, others, gave_up) in all {
        assert_eq!(gave_up, 0, "{how}: starved");
        assert!(median(&others) <= FAIR, "{how}: turns of others in between: {others:?}");
    }
    rig.end([client, other]).await;
}

/// Threads in Java that come again and again; one of ours among them.
pub async fn fair_we_get_our_turn(version: &str) {
    let rig = Rig::alone(vec![AgentOptions::version(version)]).await;
    let client = rig.client().await;
    let lane = Lane::new(&rig, "theirs");
    let fields = serde_json::json!({"counter": "turns", "rounds": 80, "hold_ms": HOLD.as_millis() as u64});
    let loops: Vec<_> =
        (1..=CROWD as i64).map(|thread| lane.java(0, thread).start("counter_loop", fields.clone())).collect();
    until("a crowd", async || lane.queue().await.len() as u64 == CROWD - 1).await;
    let turns = async || rig.admin.cmd::<Option<u64>>(&["GET", "turns"]).await.unwrap_or(0);
    let (lock, mut times, mut others) = (client.fair(lane.name), Times::default(), Vec::new());
    for _ in 0..TURNS {
        let (from, before) = (monotonic_ns(), turns().await);
        let guard = lock.lock().await.expect("the lock");
        times.note(from, monotonic_ns());
        others.push(turns().await - before);
        guard.unlock().await.expect("a lock held");
    }
    times.tell(&format!("{version}: fair, ours in a crowd of {CROWD} of Java's"));
    assert!(median(&others) <= FAIR, "turns of others in between: {others:?}");
    // For comparison: the same of Java's own that starves in a crowd of ours if deadlines behind ours are too near.
    let (java, mut times) = (lane.java(0, 50), Times::default());
    for _ in 0..TURNS {
        let answer = java.start_try_lock_seconds(5).await.expect("an answer");
        // Even there it sometimes gets no turn.
        if answer.value == true {
            times.note(answer.t0, answer.t1);
            java.unlock().await.expect("a lock held");
        }
    }
    times.tell(&format!("{version}: fair, Java's try for seconds in a crowd of {CROWD} of Java's"));
    for call in loops {
        call.await.expect("the loop in Java");
    }
    lane.is_gone().await;
    rig.admin.cmd::<()>(&["DEL", "turns"]).await;
    rig.end([client]).await;
}
