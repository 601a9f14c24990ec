//! A mixed fleet at one lock that everybody wants all the time: neither language stands still beside the other.
//!
//! Eight processes, four of each language, two at work in each, sections of a millisecond, for four seconds.
//! `NEIGHBOURS_SECS=25` for as long as figures are to be had from it: then with the bounds that are meant, and beside a fleet of
//! Java's alone and one of ours in the same run.

use std::time::{Duration, Instant};

use distlock::Client;
use distlock_support::agent::{Agent, AgentOptions, Kind};
use distlock_support::child::{self, Child};
use futures::future::join_all;
use serde_json::{Value, json};

use crate::fenced::counter;
use crate::fleet::{AT, FLAVOUR};
use crate::fleet_parts::lock_of;
use crate::rig::{Rig, ms};

/// Processes of a fleet.
const FLEET: usize = 8;
const AT_WORK: u64 = 2;
const HOLD: Duration = ms(1);
const NAME: &str = "fleet:shared";
const SECS: &str = "INTEROP_SECS";
/// How long before what is measured.
const WARM_UP: Duration = ms(1500);

/// What a process had.
#[derive(Debug, Clone, Copy)]
struct Had {
    java: bool,
    turns: u64,
    p99: Duration,
    worst: Duration,
}

/// Half a fleet has between this and that of what it would have if all had the same: in a long run, and in a few seconds on a
/// machine that is busy otherwise. Before processes let each other go first, Java had 0.03.
const EVEN: [(f64, f64); 2] = [(0.7, 1.4), (0.35, 1.65)];

pub async fn fleet_of_reentrant_neighbours(version: &str) {
    beside(version, "reentrant", Kind::Reentrant).await;
}

pub async fn fleet_of_write_neighbours(version: &str) {
    beside(version, "read-write", Kind::Write).await;
}

pub async fn fleet_of_fenced_neighbours(version: &str) {
    beside(version, "fenced", Kind::Fenced).await;
}

pub async fn fleet_of_spin_neighbours(version: &str) {
    beside(version, "spin", Kind::Spin).await;
}

async fn beside(version: &str, flavour: &'static str, kind: Kind) {
    let rig = Rig::alone(Vec::new()).await;
    let told = std::env::var("NEIGHBOURS_SECS").ok().and_then(|secs| secs.parse().ok());
    let time = Duration::from_secs(told.unwrap_or(4));
    let even = if told.is_some() { EVEN[0] } else { EVEN[1] };
    let fleets: &[usize] = if told.is_some() { &[FLEET, FLEET / 2, 0] } else { &[FLEET / 2] };
    let mut p99 = Vec::new();
    for &java in fleets {
        let had = play(&rig, version, flavour, kind, java, time).await;
        let all: u64 = had.iter().map(|had| had.turns).sum();
        let of = |java: bool| had.iter().filter(move |had| had.java == java);
        for java in [true, false].into_iter().filter(|java| of(*java).count() > 0) {
            let turns: u64 = of(java).map(|had| had.turns).sum();
            let same = all as f64 * of(java).count() as f64 / FLEET as f64;
            let worst = of(java).map(|had| had.worst).max().unwrap_or_default();
            let slow = of(java).map(|had| had.p99).max().unwrap_or_default();
            let share = turns as f64 / same;
            let each: Vec<u64> = of(java).map(|had| had.turns).collect();
            println!(
                "{version}: {flavour}, {} of {}: {turns} turns in {time:?}, {share:.2} of even, {each:?}; p99 wait {slow:?}, worst {worst:?}",
                of(java).count(),
                if java { "Java" } else { "ours" },
            );
            p99.push((java, slow, share));
        }
    }
    for (_, _, share) in &p99 {
        assert!((even.0..even.1).contains(share), "not even: {p99:?}");
    }
    if flavour == "fenced" {
        rig.admin.cmd::<()>(&["DEL", &counter(NAME)]).await;
    }
    rig.end([]).await;
}

/// What each process of a fleet had, of which so many are Java's.
async fn play(rig: &Rig, version: &str, flavour: &'static str, kind: Kind, java: usize, time: Duration) -> Vec<Had> {
    let url = rig.server.url();
    let agents = join_all((0..java).map(|_| Agent::start(&url, AgentOptions::version(version)))).await;
    let secs = time.as_secs().to_string();
    let env = [(AT, url.as_str()), (FLAVOUR, flavour), (SECS, secs.as_str())];
    let mut ours: Vec<Child> = (java..FLEET).map(|_| Child::spawn("fleet_shares::neighbour", &env)).collect();
    for child in &mut ours {
        assert_eq!(child.line().await.as_deref(), Some("ready"));
    }
    ours.iter_mut().for_each(|child| child.tell("go"));
    let fields = json!({
        "hold_us": HOLD.as_micros() as u64, "tasks": AT_WORK, "seconds": time.as_secs_f64(), "warmup_seconds": WARM_UP.as_secs_f64(),
    });
    let theirs = agents.iter().map(|agent| agent.at(kind, NAME, 1).start("bench_contended", fields.clone()));
    let theirs: Vec<_> = theirs.collect();
    let mut had = Vec::new();
    for call in theirs {
        let reply = call.await.expect("the loop in Java");
        let us = |field: &str| Duration::from_secs_f64(reply.value[field].as_f64().expect("a number") / 1e6);
        let turns = reply.value["counts"].as_array().expect("counts").iter().filter_map(Value::as_u64).sum();
        had.push(Had { java: true, turns, p99: us("p99_us"), worst: us("worst_us") });
    }
    for child in &mut ours {
        let line = child.line().await.expect("what it had");
        let words: Vec<u64> = line.split(' ').map(|word| word.parse().expect("a number")).collect();
        let us = Duration::from_micros;
        had.push(Had { java: false, turns: words[0], p99: us(words[1]), worst: us(words[2]) });
        assert_eq!(child.line().await, None, "{}", child.output());
    }
    for agent in agents {
        agent.shutdown().await;
    }
    had
}

/// A process of ours; passes over in an ordinary run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neighbour() {
    if !child::is_child() {
        return;
    }
    child::init();
    let set = |name| std::env::var(name).expect("set by the parent");
    let time = Duration::from_secs(set(SECS).parse().expect("seconds"));
    let client = Client::connect(&set(AT)).await.expect("the parent's server");
    child::say("ready");
    assert_eq!(child::hear().await, "go");
    let begin = Instant::now() + WARM_UP;
    let tasks = (0..AT_WORK).map(|_| tokio::spawn(turns(client.clone(), set(FLAVOUR), begin, time)));
    let mut waits: Vec<Duration> = join_all(tasks).await.into_iter().flat_map(|waits| waits.expect("a task")).collect();
    waits.sort_unstable();
    let at =
        |part: f64| waits.get((waits.len() as f64 * part) as usize).or(waits.last()).map_or(0, |wait| wait.as_micros());
    child::say(&format!("{} {} {}", waits.len(), at(0.99), at(1.0)));
    client.shutdown(Duration::from_secs(5)).await.expect("a shutdown in time");
}

async fn turns(client: Client, flavour: String, begin: Instant, time: Duration) -> Vec<Duration> {
    let lock = lock_of(&client, &flavour, &[NAME], true);
    let mut waits = Vec::new();
    while begin.elapsed() < time {
        let asked = Instant::now();
        let guard = lock.lock().await.expect("the lock");
        let waited = asked.elapsed();
        tokio::time::sleep(HOLD).await;
        guard.unlock().await.expect("a lock held");
        if asked >= begin {
            waits.push(waited);
        }
    }
    waits
}
