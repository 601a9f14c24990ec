//! A mixed fleet competes for one lock without pause. Neither language is starved.
//!
//! There are eight clients, four of each language. Each of ours has its own process. Each client has two workers with
//! sections of a millisecond.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use distlock::Client;
use distlock_support::Admin;
use distlock_support::agent::{Agent, AgentOptions, Kind};
use distlock_support::child::{self, Child};
use futures::future::join_all;
use serde_json::json;

use crate::fleet::{AT, FLAVOUR, TURNS_OF, with_room};
use crate::fleet_parts::lock_of;
use crate::rig::{Rig, connect, ms, patient, until};

const EACH: usize = 4;
const AT_WORK: i64 = 2;
const HOLD: Duration = ms(1);
const NAME: &str = "fleet:shared";
/// Rounds of one call of a Java thread.
const ROUNDS: u64 = 100;

/// In each window, both languages have at least this number of turns.
const TURNS: u64 = 20;
/// An odd number. A pause of a slow machine spoils one or two windows, but not the median.
const WINDOWS: usize = 9;

/// Minimum share of the turns for each language in the median window. Each language has half of the clients. Without
/// our processes' pause after a release, Java's share was 1 in 66.
const LEAST: f64 = 0.1;

/// Also for the fenced lock, which has the release of the reentrant lock.
pub async fn fleet_at_one_reentrant_lock_starves_neither_language(version: &str) {
    beside(version, "reentrant", Kind::Reentrant).await;
}

pub async fn fleet_at_one_write_lock_starves_neither_language(version: &str) {
    beside(version, "read-write", Kind::Write).await;
}

/// Spin locks yield in a different way, because nobody hears their releases.
pub async fn fleet_at_one_spin_lock_starves_neither_language(version: &str) {
    beside(version, "spin", Kind::Spin).await;
}

async fn beside(version: &str, flavour: &'static str, kind: Kind) {
    let _room = with_room().await;
    let rig = Rig::start(Vec::new()).await;
    let url = rig.server.url();
    let options = || patient(AgentOptions::version(version));
    let agents = join_all((0..EACH).map(|_| Agent::start(&url, options()))).await;
    let env = [(AT, url.as_str()), (FLAVOUR, flavour)];
    let mut ours: Vec<Child> = (0..EACH).map(|_| Child::spawn("fleet_shares::neighbour", &env)).collect();
    for child in &mut ours {
        child.expect("at work").await;
    }
    let over = Arc::new(AtomicBool::new(false));
    let threads = agents.iter().flat_map(|agent| (1..=AT_WORK).map(|thread| agent.at(kind, NAME, thread)));
    let theirs = threads.map(|java| {
        let over = Arc::clone(&over);
        let fields = json!({"counter": TURNS_OF[0], "rounds": ROUNDS, "hold_ms": HOLD.as_millis() as u64});
        tokio::spawn(async move {
            while !over.load(Ordering::Relaxed) {
                java.start("counter_loop", fields.clone()).await.expect("a loop in Java");
            }
        })
    });
    let theirs: Vec<_> = theirs.collect();

    let mut shares = Vec::new();
    for _ in 0..WINDOWS {
        shares.push(javas_share(&rig, flavour).await);
    }
    shares.sort_by(f64::total_cmp);
    println!("{version}: {flavour}: Java's shares of the turns: {shares:.2?}");
    over.store(true, Ordering::Relaxed);
    ours.iter_mut().for_each(|child| child.tell("enough"));
    for ended in join_all(theirs).await {
        ended.expect("a thread of Java's");
    }
    for child in &mut ours {
        child.expect("done").await;
    }
    let share = shares[WINDOWS / 2];
    assert!((LEAST..1.0 - LEAST).contains(&share), "{version}, {flavour}: Java's shares of the turns: {shares:.2?}");
    join_all(agents.iter().map(Agent::close)).await;
    rig.admin.cmd::<()>(&["DEL", TURNS_OF[0], TURNS_OF[1]]).await;
    rig.end([]).await;
}

/// Java's share of the turns in a window, which lasts until each language has had [`TURNS`].
async fn javas_share(rig: &Rig, flavour: &str) -> f64 {
    let turns = async || {
        let turns: [Option<u64>; 2] = rig.admin.cmd(&["MGET", TURNS_OF[0], TURNS_OF[1]]).await;
        turns.map(|turns| turns.unwrap_or(0))
    };
    let before = turns().await;
    let mut had = [0; 2];
    until(&format!("{flavour}: {TURNS} turns of each language"), async || {
        let now = turns().await;
        had = [now[0] - before[0], now[1] - before[1]];
        had.iter().all(|had| *had >= TURNS)
    })
    .await;
    had[0] as f64 / (had[0] + had[1]) as f64
}

/// A process of ours.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neighbour() {
    if !child::is_child() {
        return;
    }
    child::init();
    let set = |name| std::env::var(name).expect("set by the parent");
    let client = connect(bed::builder(&set(AT))).await;
    let over = Arc::new(AtomicBool::new(false));
    let tasks = (0..AT_WORK).map(|_| tokio::spawn(turns(client.clone(), set(AT), set(FLAVOUR), Arc::clone(&over))));
    let tasks: Vec<_> = tasks.collect();
    child::say("at work");
    assert_eq!(child::hear().await, "enough");
    over.store(true, Ordering::Relaxed);
    for ended in join_all(tasks).await {
        ended.expect("a task");
    }
    bed::end(client).await;
    child::say("done");
}

async fn turns(client: Client, url: String, flavour: String, over: Arc<AtomicBool>) {
    let (lock, admin) = (lock_of(&client, &flavour, &[NAME], true), Admin::from_url(&url).await);
    while !over.load(Ordering::Relaxed) {
        let guard = lock.lock().await.expect("lock");
        tokio::time::sleep(HOLD).await;
        admin.cmd::<u64>(&["INCR", TURNS_OF[1]]).await;
        guard.unlock().await.expect("unlock");
    }
}
