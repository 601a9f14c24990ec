//! Java is not starved by a crowd of our tasks, whichever call it uses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use distlock::Client;

use crate::fair_rig::{Lane, USUAL_WAIT};
use crate::rig::{NEVER, PATIENCE, Rig, connect, ms, replied, until, watched};

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

/// Our tasks acquire again and again, while Java uses `lock()`, `tryLock(wait, lease)` and `tryLock(wait, SECONDS)`.
pub async fn fair_java_is_not_starved_by_our_waiters(version: &str) {
    let rig = Rig::with(version).await;
    let client = async || connect(watched(rig.builder()).configure(|options| options.fair_wait = USUAL_WAIT)).await;
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
