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
use expect::{Act, Grip};
use ours::Unlike;
use rig::{Rig, ms};
use state::Half;
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
    let mut all = JoinSet::new();
    for _ in 0..lanes {
        all.spawn(lane(Arc::clone(&rig), Arc::clone(&next), last, steps));
    }
    let mut met = Tally::default();
    while let Some(lane) = all.join_next().await {
        match lane {
            Ok(tally) => met.add(tally),
            Err(failed) => std::panic::resume_unwind(failed.into_panic()),
        }
    }
    if met.sequences >= 500 {
        for why in Unlike::ALL {
            assert!(met.why.contains_key(&why), "{why:?} was never met");
        }
        assert!(met.same > met.steps / 2, "too little is compared with Redisson");
    }
    Arc::into_inner(rig).expect("all lanes have ended").end().await;
}

/// A tick of Redisson's watchdog for one reader shortens the leases promised to others. The next release restores
/// them, as Redisson's release does.
#[tokio::test]
async fn release_restores_leases_cut_by_java_watchdog() {
    let rig = Rig::start().await;
    let clients = connect(&rig).await;
    let guard = Grip { place: 0, who: 1, half: Half::Read, id: 0 };
    let steps = [
        Act::Acquire(0, Half::Read, Some(2 * WATCHDOG.lo)),
        Act::Acquire(1, Half::Read, None),
        Act::JavaLock(Half::Read, None),
        Act::JavaTick(Half::Read),
        Act::Unlock(guard),
    ];
    let mut story = Story::new(0, 0, &rig, &clients);
    story.follow(&steps).await.expect("no short lease");
    story.clean().await;
    close(clients).await;
    rig.end().await;
}

async fn connect(rig: &Rig) -> [Client; 2] {
    let builder = || Client::builder(&rig.server.url()).watchdog(ms(WATCHDOG.lo));
    let connect = || builder().command_timeout(PATIENCE).connect_timeout(PATIENCE).connect();
    let (one, two) = tokio::try_join!(connect(), connect()).expect("connect");
    [one, two]
}

async fn close(clients: [Client; 2]) {
    for client in clients {
        client.shutdown(PATIENCE).await.expect("shutdown");
    }
}

async fn lane(rig: Arc<Rig>, next: Arc<AtomicU64>, last: u64, steps: u64) -> Tally {
    let clients = connect(&rig).await;
    let mut met = Tally::default();
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed > last {
            break;
        }
        let mut attempt = 0;
        loop {
            assert!(attempt < ATTEMPTS, "SEED={seed}: this machine is too slow for leases of {} ms", 160 << attempt);
            let mut story = Story::new(seed, attempt, &rig, &clients);
            let played = story.play(steps).await;
            story.clean().await;
            if played.is_ok() {
                met.add(story.tally);
                break;
            }
            met.torn += 1;
            attempt += 1;
        }
    }
    close(clients).await;
    met
}
