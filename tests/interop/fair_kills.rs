//! Java's waiters are served although our waiter ahead of them was killed. The simulator's tests assert that this takes
//! at most 5 s. Redisson skips its own killed waiters only after 300 s.

use std::time::Duration;

use distlock::Client;
use distlock_support::child::{self, Child};
use futures::future::join_all;

use crate::fair_rig::{Lane, USUAL_WAIT, Waiter, fair_wait};
use crate::rig::{Rig, connect, ms, soon, watched};

const LEASE: Duration = Duration::from_secs(300);
const AT: &str = "INTEROP_URL";
const NAME: &str = "INTEROP_LOCK";

/// The waiters in order: K = ours, to be killed; R = ours, alive; J = Java's `lock()`; T = Java's `tryLock(wait,
/// lease)`. And how long each holds the lock.
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

/// Our holder lives, and some of our waiters are killed.
pub async fn fair_waiters_killed_keep_java_from_no_turn(version: &str) {
    let rig = Rig::with(version).await;
    // A killed waiter keeps a granted lock for the holder's `fair_wait`.
    let holder = connect(watched(rig.builder()).fair_wait(USUAL_WAIT)).await;
    let client = rig.watched_client().await;
    let cases = CASES.iter().enumerate().map(|(i, (order, hold))| {
        let (rig, clients) = (&rig, [&holder, &client]);
        async move { case(rig, clients, &format!("killed:{i}:{order}"), order, *hold).await }
    });
    join_all(cases).await;
    rig.end([holder, client]).await;
}

/// All live waiters have their turns in the order of their arrival.
async fn case(rig: &Rig, [holder, client]: [&Client; 2], name: &str, order: &str, hold: Duration) {
    let lane = Lane::new(rig, name);
    let guard = holder.fair(name).lock().await.expect("lock");
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
        lane.joined(i + 1).await;
    }
    killed.iter_mut().for_each(Child::kill9);
    guard.unlock().await.expect("unlock");
    let turns = join_all(alive.into_iter().map(|waiter| soon(waiter.hold(hold)))).await;
    for (i, pair) in turns.windows(2).enumerate() {
        assert!(pair[0].1 <= pair[1].0, "{name}: {} had it before {i}: {turns:?}", i + 1);
    }
    lane.is_gone().await;
}

/// A separate thread for each waiter, because the cases run concurrently in one agent.
fn thread(name: &str, place: usize) -> i64 {
    let case = name.split(':').nth(1).and_then(|case| case.parse::<i64>().ok()).expect("a case");
    100 * (case + 1) + place as i64
}

/// The process that is killed. Does nothing in an ordinary run.
#[tokio::test]
async fn fair_waiter_to_be_killed() {
    if !child::is_child() {
        return;
    }
    child::init();
    let set = |name| std::env::var(name).expect("set by the parent");
    let client = connect(bed::builder(&set(AT))).await;
    let guard = client.fair(&set(NAME)).lock().await;
    panic!("waited until killed: {guard:?}");
}
