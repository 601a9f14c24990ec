//! Java is not starved by a crowd of our tasks, whichever call it uses. Our tasks are not starved by a crowd of Java
//! threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use distlock::Client;
use distlock_support::agent::JavaLock;

use crate::fair_rig::{Lane, USUAL_WAIT};
use crate::rig::{NEVER, PATIENCE, Rig, connect, ms, replied, soon, until, watched};

const CROWD: u64 = 6;
const HOLD: Duration = ms(10);
const TURNS: usize = 8;
/// Limit of the crowd's turns while a waiter of the other language waits: one for each member, and one more for each
/// call in flight.
const FAIR: u64 = 2 * CROWD;

fn median(turns: &[u64]) -> u64 {
    let mut sorted = turns.to_vec();
    sorted.sort_unstable();
    sorted[sorted.len() / 2]
}

async fn hammer(client: Client, name: String, enough: Arc<AtomicBool>, taken: Arc<AtomicU64>) {
    let lock = client.fair(&name);
    while !enough.load(Ordering::Relaxed) {
        let guard = lock.lock().await.expect("lock");
        taken.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(HOLD).await;
        guard.unlock().await.expect("unlock");
    }
}

async fn java_hammers(java: JavaLock, enough: Arc<AtomicBool>) {
    let fields = serde_json::json!({"counter": "turns", "rounds": 20, "hold_ms": HOLD.as_millis() as u64});
    while !enough.load(Ordering::Relaxed) {
        java.start("counter_loop", fields.clone()).await.expect("a loop in Java");
    }
}

/// Our tasks acquire again and again, while Java uses `lock()`, `tryLock(wait, lease)` and `tryLock(wait, SECONDS)`.
pub async fn fair_java_is_not_starved_by_our_waiters(version: &str) {
    let rig = Rig::with(version).await;
    let client = async || connect(watched(rig.builder()).fair_wait(USUAL_WAIT)).await;
    let (client, other) = (client().await, client().await);
    for (thread, how) in (1..).zip(["lock", "try", "try for milliseconds", "try for seconds"]) {
        let lane = Lane::new(&rig, how);
        let (enough, taken) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let task = |i| if i % 2 == 0 { client.clone() } else { other.clone() };
        let tasks: Vec<_> = (0..CROWD)
            .map(|i| tokio::spawn(hammer(task(i), how.to_owned(), Arc::clone(&enough), Arc::clone(&taken))))
            .collect();
        until("a crowd", async || lane.queue().await.len() as u64 == CROWD - 1).await;
        let (java, mut others) = (lane.java(0, thread), Vec::new());
        for _ in 0..TURNS {
            let call = match how {
                "lock" => java.start_lock(),
                "try" => java.start_try_lock(PATIENCE, Some(NEVER)),
                "try for milliseconds" => java.start_try_lock(PATIENCE, None),
                _ => java.start_try_lock_seconds(PATIENCE.as_secs()),
            };
            let before = taken.load(Ordering::Relaxed);
            assert_eq!(replied(call).await.value, true, "Java's {how} was starved in a crowd of {CROWD} of ours");
            others.push(taken.load(Ordering::Relaxed) - before);
            replied(java.unlock()).await;
        }
        enough.store(true, Ordering::Relaxed);
        for task in tasks {
            task.await.expect("a task");
        }
        lane.is_gone().await;
        assert!(median(&others) <= FAIR, "{version}, {how}: turns of others in between: {others:?}");
    }
    rig.end([client, other]).await;
}

pub async fn fair_our_client_is_not_starved_by_java(version: &str) {
    let rig = Rig::with(version).await;
    let client = connect(watched(rig.builder()).fair_wait(USUAL_WAIT)).await;
    let lane = Lane::new(&rig, "theirs");
    let enough = Arc::new(AtomicBool::new(false));
    let loops: Vec<_> = (1..=CROWD as i64)
        .map(|thread| tokio::spawn(java_hammers(lane.java(0, thread), Arc::clone(&enough))))
        .collect();
    until("a crowd", async || lane.queue().await.len() as u64 == CROWD - 1).await;
    let turns = async || rig.admin.cmd::<Option<u64>>(&["GET", "turns"]).await.unwrap_or(0);
    let (lock, mut others) = (client.fair(lane.name), Vec::new());
    for _ in 0..TURNS {
        let before = turns().await;
        let guard = soon(lock.lock()).await.expect("lock");
        others.push(turns().await - before);
        guard.unlock().await.expect("unlock");
    }
    enough.store(true, Ordering::Relaxed);
    for ended in loops {
        ended.await.expect("a thread of Java's");
    }
    assert!(median(&others) <= FAIR, "{version}: turns of others in between: {others:?}");
    lane.is_gone().await;
    rig.admin.cmd::<()>(&["DEL", "turns"]).await;
    rig.end([client]).await;
}
