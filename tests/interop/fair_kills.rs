//! Waiters of ours that are killed: those of Java behind them are held up for 5 s at the most.

use std::time::Duration;

use distlock::Client;
use distlock_support::agent::{AgentOptions, monotonic_ns};
use distlock_support::child::{self, Child};
use futures::future::join_all;

use crate::fair_rig::{Lane, Waiter, fair_wait};
use crate::rig::{Rig, ms};

/// From the moment the lock could be had to the lock in Java's hands.
const LIMIT: Duration = Duration::from_secs(5);
const LEASE: Duration = Duration::from_secs(40);
const AT: &str = "INTEROP_URL";
const NAME: &str = "INTEROP_LOCK";

/// Who waits, in order: K = ours, to be killed; R = ours, alive; J = Java's `lock()`; T = Java's `tryLock(40 s, lease)`.
/// And for how long each holds the lock.
const CASES: [(&str, Duration); 12] = [
    ("KRJ", ms(0)),
    ("JKRJ", ms(0)),
    ("TKJKR", ms(1000)),
    ("KJ", ms(0)),
    ("JKJ", ms(0)),
    ("JKJ", ms(2000)),
    ("TKJ", ms(0)),
    ("TKT", ms(6000)),
    ("KKKJ", ms(0)),
    ("JKKJ", ms(0)),
    ("KJKJ", ms(0)),
    ("JTKJ", ms(500)),
];

/// A holder of ours that lives; waiters of ours that do not.
pub async fn fair_waiters_killed_hold_java_up_for_seconds(version: &str) {
    let rig = Rig::alone(vec![AgentOptions::version(version)]).await;
    let client = rig.client().await;
    let cases = CASES.iter().enumerate().map(|(i, (order, hold))| {
        let (rig, client) = (&rig, &client);
        async move { (*order, *hold, case(rig, client, &format!("killed:{i}:{order}"), order, *hold).await) }
    });
    let all = join_all(cases).await;
    for (order, hold, delays) in &all {
        println!("{version}: killed in {order}, each holding for {hold:?}: delays {delays:?}");
    }
    for (order, hold, delays) in all {
        assert!(delays.iter().all(|delay| *delay <= LIMIT), "{order}, holding for {hold:?}: {delays:?}");
    }
    rig.end([client]).await;
}

/// How long each that lives waited after the lock could be had.
async fn case(rig: &Rig, client: &Client, name: &str, order: &str, hold: Duration) -> Vec<Duration> {
    let lane = Lane::new(rig, name);
    let guard = client.fair(name).lock().await.expect("a free lock");
    let (mut killed, mut alive) = (Vec::new(), Vec::new());
    for (i, who) in order.chars().enumerate() {
        let lock = lane.java(0, thread(name, i));
        match who {
            'K' => killed
                .push(Child::spawn("fair_kills::fair_waiter_to_be_killed", &[(AT, &rig.server.url()), (NAME, name)])),
            'R' => alive.push(Waiter::Ours(fair_wait(client, name))),
            'J' => alive.push(Waiter::Java(lock.clone(), lock.start_lock())),
            _ => alive.push(Waiter::Java(lock.clone(), lock.start_try_lock(LEASE, Some(LEASE)))),
        }
        let from = monotonic_ns();
        while lane.queue().await.len() != i + 1 {
            assert!(monotonic_ns() - from < 30_000_000_000, "{name}: the child does not come");
            tokio::time::sleep(ms(5)).await;
        }
        let last = lane.queue().await.pop().expect("a waiter");
        rig.listeners(&lane.channel(&last), 1).await;
    }
    killed.iter_mut().for_each(Child::kill9);
    let mut free = monotonic_ns();
    guard.unlock().await.expect("a lock held");
    let mut delays = Vec::new();
    for waiter in alive {
        let (taken, freed) = tokio::time::timeout(LEASE, waiter.hold(hold)).await.expect("the lock in time");
        delays.push(Duration::from_nanos(taken.saturating_sub(free)));
        free = freed;
    }
    lane.is_gone().await;
    delays
}

/// A thread of its own for each waiter: the cases run beside each other in one agent.
fn thread(name: &str, place: usize) -> i64 {
    let case = name.split(':').nth(1).and_then(|case| case.parse::<i64>().ok()).expect("a case");
    100 * (case + 1) + place as i64
}

/// The process that is killed; passes over in an ordinary run.
#[tokio::test]
async fn fair_waiter_to_be_killed() {
    if !child::is_child() {
        return;
    }
    child::init();
    let set = |name| std::env::var(name).expect("set by the parent");
    let client = Client::connect(&set(AT)).await.expect("the parent's server");
    let guard = client.fair(&set(NAME)).lock().await;
    panic!("waited until killed: {guard:?}");
}
