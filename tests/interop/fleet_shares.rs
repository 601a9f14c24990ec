//! A mixed fleet at one lock that everybody wants all the time: neither language stands still beside the other.
//!
//! Eight clients, four of each language and ours in processes of their own, two at work in each, sections of a millisecond.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use distlock::Client;
use distlock_support::agent::{Agent, AgentOptions, Kind};
use distlock_support::child::{self, Child};
use futures::future::join_all;
use serde_json::{Value, json};

use crate::fenced::counter;
use crate::fleet::{AT, FLAVOUR, with_room};
use crate::fleet_parts::lock_of;
use crate::rig::{Rig, ms, replied};

/// Clients of each language.
const EACH: usize = 4;
const AT_WORK: u64 = 2;
const HOLD: Duration = ms(1);
const NAME: &str = "fleet:shared";
const SECONDS: u64 = 4;

/// The least part of all turns that a language has with half of the clients. Without letting each other go first, Java had 1 in 66.
const LEAST: f64 = 0.1;

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
    let _room = with_room().await;
    let rig = Rig::start(Vec::new()).await;
    let url = rig.server.url();
    let agents = join_all((0..EACH).map(|_| Agent::start(&url, AgentOptions::version(version)))).await;
    let env = [(AT, url.as_str()), (FLAVOUR, flavour)];
    let mut ours: Vec<Child> = (0..EACH).map(|_| Child::spawn("fleet_shares::neighbour", &env)).collect();
    for child in &mut ours {
        child.expect("at work").await;
    }
    let fields =
        json!({"hold_us": HOLD.as_micros() as u64, "tasks": AT_WORK, "seconds": SECONDS, "warmup_seconds": 1.5});
    let theirs = agents.iter().map(|agent| agent.at(kind, NAME, 1).start("bench_contended", fields.clone()));
    let mut javas = 0;
    for reply in join_all(theirs.collect::<Vec<_>>().into_iter().map(replied)).await {
        javas += reply.value["counts"].as_array().expect("counts").iter().filter_map(Value::as_u64).sum::<u64>();
    }
    // Ours are counted over the same time and somewhat more.
    ours.iter_mut().for_each(|child| child.tell("enough"));
    let mut all = javas;
    for child in &mut ours {
        all += child.line().await.expect("its turns").parse::<u64>().expect("a number");
    }
    let share = javas as f64 / all as f64;
    println!("{version}: {flavour}: {share:.2} of {all} turns are Java's");
    assert!((LEAST..1.0 - LEAST).contains(&share), "{version}, {flavour}: {share:.2} of {all} turns are Java's");
    join_all(agents.iter().map(Agent::close)).await;
    if flavour == "fenced" {
        rig.admin.cmd::<()>(&["DEL", &counter(NAME)]).await;
    }
    rig.end([]).await;
}

/// A process of ours; passes over in an ordinary run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neighbour() {
    if !child::is_child() {
        return;
    }
    child::init();
    let set = |name| std::env::var(name).expect("set by the parent");
    let client = Client::connect(&set(AT)).await.expect("the parent's server");
    let over = Arc::new(AtomicBool::new(false));
    let tasks = (0..AT_WORK).map(|_| tokio::spawn(turns(client.clone(), set(FLAVOUR), Arc::clone(&over))));
    let tasks: Vec<_> = tasks.collect();
    child::say("at work");
    assert_eq!(child::hear().await, "enough");
    over.store(true, Ordering::Relaxed);
    let turns: u64 = join_all(tasks).await.into_iter().map(|turns| turns.expect("a task")).sum();
    child::say(&turns.to_string());
    client.shutdown(Duration::from_secs(60)).await.expect("a shutdown in time");
}

async fn turns(client: Client, flavour: String, over: Arc<AtomicBool>) -> u64 {
    let (lock, mut turns) = (lock_of(&client, &flavour, &[NAME], true), 0);
    while !over.load(Ordering::Relaxed) {
        let guard = lock.lock().await.expect("the lock");
        tokio::time::sleep(HOLD).await;
        guard.unlock().await.expect("a lock held");
        turns += 1;
    }
    turns
}
