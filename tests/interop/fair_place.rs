//! Our live waiters keep their places (see `fair_rig.rs`), however long Java's waiters ahead of them take. A Java
//! waiter that gives up reduces the deadlines of all waiters behind it.

use std::time::Duration;

use distlock::Client;
use distlock_support::agent::{AgentOptions, Call, JavaLock};
use futures::future::join_all;
use serde_json::json;

use crate::fair_rig::{Lane, Waiter, fair_wait};
use crate::rig::{NEVER, Rig, connect, had, ms, replied, soon, until, watched};

/// Our clients' `fair_wait`: longer than any pause of the machine. The default is 6 s.
const OUR_FAIR_WAIT: Duration = Duration::from_secs(25);

#[derive(Clone, Copy)]
enum Ask {
    /// `lock()`.
    Lock,
    /// `tryLock(wait, lease, MILLISECONDS)`.
    Try(u64),
    /// `tryLock(wait, SECONDS)`: its queue deadline counts the number as milliseconds. When it gives up, it reduces
    /// deadlines by the number as seconds.
    Seconds(u64),
    /// `tryLockAsync(wait, lease)`: when it gives up, it reduces deadlines by 300 s.
    Async(u64),
}

/// The calls of Java's waiters ahead of ours, our hold time, and the hold time of each Java waiter afterwards.
struct Case {
    name: &'static str,
    ahead: &'static [Ask],
    held: Duration,
    hold: Duration,
}

use Ask::{Async, Lock, Seconds, Try};

/// Java's waiters acquire or give up. Together they take longer than our waiter's place lasts without a refresh.
static CASES: [Case; 10] = [
    Case { name: "lock", ahead: &[Lock], held: ms(30_000), hold: ms(30_000) },
    Case { name: "two locks", ahead: &[Lock, Lock], held: ms(0), hold: ms(25_000) },
    Case { name: "tries that end", ahead: &[Try(5000), Try(12_500)], held: ms(35_000), hold: ms(0) },
    Case { name: "tries behind a lock", ahead: &[Lock, Try(5000), Try(15_000)], held: ms(22_500), hold: ms(25_000) },
    Case { name: "tries that acquire", ahead: &[Try(300_000), Lock, Try(250_000)], held: ms(0), hold: ms(12_500) },
    Case { name: "seconds", ahead: &[Seconds(50)], held: ms(57_500), hold: ms(0) },
    Case { name: "seconds in a row", ahead: &[Lock, Seconds(50), Seconds(45)], held: ms(57_500), hold: ms(2500) },
    Case { name: "seconds that acquire", ahead: &[Seconds(100), Seconds(150)], held: ms(15_000), hold: ms(7500) },
    Case { name: "a try for ever", ahead: &[Try(FOR_EVER)], held: ms(30_000), hold: ms(30_000) },
    Case { name: "tries for ever", ahead: &[Lock, Try(FOR_EVER), Try(FOR_EVER / 2)], held: ms(0), hold: ms(12_500) },
];

/// Java's `Long.MAX_VALUE`. Deadlines behind such a waiter are so large that they have no fraction (see
/// docs/wire-format.md).
const FOR_EVER: u64 = i64::MAX as u64;

/// The holder's lease is shorter than the reduction by a waiter that gives up, so the deadlines do not show the
/// reduction's size.
static BRIEF: [Case; 3] = [
    Case { name: "seconds, brief lease", ahead: &[Seconds(40)], held: ms(47_500), hold: ms(0) },
    Case { name: "seconds in a row, brief lease", ahead: &[Seconds(40), Seconds(40)], held: ms(47_500), hold: ms(0) },
    Case { name: "tries, brief lease", ahead: &[Try(100_000), Try(25_000)], held: ms(30_000), hold: ms(25_000) },
];

/// One Java waiter ahead stays, in `lock()`. When the second gives up, it reduces deadlines by more than its queueing
/// added. Without the `lock()` ahead, our waiter may lose its place: see docs/waiting.md.
static ASYNCS: [Case; 1] =
    [Case { name: "async behind a lock", ahead: &[Lock, Async(7500)], held: ms(20_000), hold: ms(0) }];

/// Our waiter is behind Java's waiters, and one more Java waiter is behind ours. Meanwhile a second Java client keeps
/// removing expired waiters from the queue.
pub async fn fair_our_waiter_keeps_its_entry_behind_java(version: &str) {
    let rig = Rig::start(vec![AgentOptions::version(version); 2]).await;
    let client = connect(watched(rig.builder()).configure(|options| options.fair_wait = OUR_FAIR_WAIT)).await;
    // The first lease is longer than the reduction by waiters that give up after some seconds.
    let groups = [(&CASES[..], ms(150_000)), (&BRIEF[..], ms(22_500)), (&ASYNCS[..], ms(30_000))];
    let holders = groups.map(|(_, lease)| connect(rig.builder().watchdog(lease).command_timeout(lease / 3)));
    let holders = join_all(holders).await;
    let mut runs = Vec::new();
    for ((cases, _), holder) in groups.into_iter().zip(&holders) {
        for case in cases {
            let thread = 100 * (runs.len() as i64 + 1);
            runs.push(run(&rig, [&client, holder], case, thread));
        }
    }
    join_all(runs).await;
    rig.end(holders.into_iter().chain([client])).await;
}

/// Starts this call in Java.
fn start(java: &JavaLock, ask: Ask) -> Call {
    let lease = NEVER.as_millis() as u64;
    match ask {
        Lock => java.start_lock(),
        Try(wait) => java.start_try_lock(Duration::from_millis(wait), Some(NEVER)),
        Seconds(wait) => java.start_try_lock_seconds(wait),
        Async(wait) => java.start("try_lock_as", json!({"wait_ms": wait, "lease_ms": lease})),
    }
}

/// Asserts that our waiter's deadline never expires.
async fn run(rig: &Rig, [client, holder]: [&Client; 2], case: &Case, thread: i64) {
    let lane = Lane::new(rig, case.name);
    let guard = holder.fair(case.name).lock().await.expect("lock");
    let mut ahead = Vec::new();
    for (i, ask) in case.ahead.iter().enumerate() {
        let (java, owner) = (lane.java(0, thread + i as i64), lane.java_owner(0, thread + i as i64));
        let call = start(&java, *ask);
        let turn = tokio::spawn(turn(java, call, case.hold));
        until("one ahead in the queue", async || turn.is_finished() || lane.hears(&owner).await).await;
        ahead.push(turn);
    }
    let mut waiter = fair_wait(client, case.name);
    let ours = lane.waits_as(client).await;
    let java = lane.java(0, thread + 50);
    let behind = java.start_lock();
    let last = lane.java_owner(0, thread + 50);
    lane.waits(&last).await;

    let free = tokio::time::sleep(case.held);
    tokio::pin!(free);
    let (mut guard, mut margin) = (Some(guard), i64::MAX);
    let purger = lane.java(1, thread + 60);
    let guard = loop {
        tokio::select! {
            biased;
            had = &mut waiter => break had.expect("the waiter").1,
            () = &mut free, if guard.is_some() => {
                guard.take().expect("a guard").unlock().await.expect("unlock");
            }
            () = tokio::time::sleep(ms(50)) => {
                match left(&lane, &ours).await {
                    Some(left) => margin = margin.min(left),
                    None => assert!(lane.holders().await.contains_key(&ours), "{}: ours lost its place", case.name),
                }
                // This attempt removes expired waiters from the queue, as any client's attempt does.
                assert!(!purger.try_lock().await.expect("try_lock"), "{}: got in past the queue", case.name);
            }
        }
    };
    assert_eq!(guard.owner().as_str(), ours, "{}: ours lost its place", case.name);
    assert_eq!(lane.queue().await, [last], "{}: the one behind", case.name);
    for turn in ahead {
        soon(turn).await.expect("its turn came before ours");
    }
    guard.unlock().await.expect("unlock");
    replied(behind).await;
    replied(java.unlock()).await;
    lane.is_gone().await;
    assert!(margin > 0, "behind {}: out of date by {} ms for a while", case.name, -margin);
}

/// The time left until a deadline, if there is one.
async fn left(lane: &Lane<'_>, owner: &str) -> Option<i64> {
    let look = "local now = redis.call('time') \
                local due = redis.call('zscore', KEYS[1], ARGV[1]) \
                return due and math.min(due - (now[1] * 1000 + math.floor(now[2] / 1000)), 1e15)";
    lane.rig.admin.cmd(&["EVAL", look, "1", &lane.deadlines_key(), owner]).await
}

/// Waits, and holds the lock for this time if it acquires.
async fn turn(java: JavaLock, call: Call, hold: Duration) {
    if had(call.await).is_some() {
        tokio::time::sleep(hold).await;
        replied(java.unlock()).await;
    }
}

/// Java's waiters with the unit bug ([`Ask::Seconds`]) keep their places behind our waiter as long as behind a Java
/// waiter. Their deadlines are a few milliseconds, plus the remaining time of the waiters ahead.
pub async fn fair_java_waiter_keeps_its_entry_behind_ours(version: &str) {
    let rig = Rig::start(vec![AgentOptions::version(version); 2]).await;
    let client = rig.client().await;
    for ours_ahead in [false, true] {
        let name = format!("javas behind ours: {ours_ahead}");
        let lane = Lane::new(&rig, &name);
        let guard = client.fair(&name).lock().await.expect("lock");
        let ahead = if ours_ahead {
            Waiter::Ours(fair_wait(&client, &name))
        } else {
            let java = lane.java(0, 1);
            Waiter::Java(java.clone(), java.start_lock())
        };
        lane.joined(1).await;
        let java = lane.java(0, 2);
        let seconds = Waiter::Java(java.clone(), java.start_try_lock_seconds(100));
        let owner = lane.joined(2).await;
        let last = Waiter::Ours(fair_wait(&client, &name));
        lane.joined(3).await;
        let ahead = tokio::spawn(ahead.hold(ms(1500)));
        let (seconds, last) = (tokio::spawn(seconds.turn()), tokio::spawn(last.turn()));
        guard.unlock().await.expect("unlock");
        let (ahead, seconds, last) = (ahead.await, seconds.await, last.await);
        let (ahead, seconds, last) = (ahead.expect("a turn"), seconds.expect("a turn"), last.expect("a turn"));
        assert!(ahead.1 <= seconds.0 && seconds.1 <= last.0, "{name}: {owner} lost its place");
        lane.is_gone().await;
    }
    rig.end([client]).await;
}
