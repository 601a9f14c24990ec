//! Random sequences on a read-write lock: two owners of ours, each of its own client, and one of a real Redisson.
//! After every step Redis must hold what a model in plain Rust says. It must also hold what Redisson alone would have
//! left, except for the differences that `rw_model/ours.rs` names.
//!
//! A failure prints its seed. `SEED=n` replays one sequence, `SEQUENCES=n` and `STEPS=n` set the length, `LANES=n`
//! sets how many sequences run at a time.

mod book;
mod expect;
mod java;
mod ours;
mod rig;
mod state;
mod steps;
mod story;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bed::PATIENCE;
use distlock::Client;
use tokio::task::JoinSet;

use book::WATCHDOG;
use ours::Unlike;
use rig::{Rig, ms};
use story::{Story, Tally};

/// Each time that a sequence is torn, its short lease doubles. After this number of attempts the lease is longer than a
/// minute.
const ATTEMPTS: u32 = 14;

fn from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn state_in_redis_matches_model_and_redisson() {
    let steps = from_env("STEPS").unwrap_or(14);
    let (first, last) = from_env("SEED").map_or((1, from_env("SEQUENCES").unwrap_or(2000)), |seed| (seed, seed));
    let lanes = from_env("LANES").unwrap_or(24).min(last - first + 1);
    let rig = Arc::new(Rig::start().await);
    let next = Arc::new(AtomicU64::new(first));
    let all: JoinSet<_> = (0..lanes).map(|_| lane(Arc::clone(&rig), Arc::clone(&next), last, steps)).collect();
    let mut met = Tally::default();
    for tally in all.join_all().await {
        met.add(tally);
    }
    if met.sequences >= 500 {
        // `Upgrade` is the last variant.
        assert_eq!(met.why.len(), Unlike::Upgrade as usize + 1, "a difference was never met: {:?}", met.why);
        assert!(met.same > met.steps / 2, "too little is compared with Redisson");
    }
    Arc::into_inner(rig).expect("all lanes have ended").end().await;
}

async fn lane(rig: Arc<Rig>, next: Arc<AtomicU64>, last: u64, steps: u64) -> Tally {
    let builder = Client::builder(&rig.server.url()).watchdog(ms(WATCHDOG.lo));
    let builder = builder.command_timeout(PATIENCE).connect_timeout(PATIENCE);
    let (one, two) = tokio::try_join!(builder.clone().connect(), builder.connect()).expect("connect");
    let clients = [one, two];
    let mut met = Tally::default();
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed > last {
            break;
        }
        for attempt in 0.. {
            assert!(attempt < ATTEMPTS, "SEED={seed}: this machine is too slow for leases of {} ms", 160 << attempt);
            let mut story = Story::new(seed, attempt, &rig, &clients);
            let played = story.play(steps).await;
            story.clean().await;
            if played.is_ok() {
                met.add(story.tally);
                break;
            }
        }
    }
    for client in clients {
        client.shutdown(PATIENCE).await.expect("shutdown");
    }
    met
}
