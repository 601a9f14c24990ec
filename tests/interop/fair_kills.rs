//! Live waiters of both languages acquire although waiters ahead were killed or frozen. The simulator's tests check the
//! exact times. Redisson alone skips a killed waiter only after 300 s.

use std::time::Duration;

use distlock::{Client, Guard};
use distlock_support::agent::AgentOptions;
use distlock_support::child::{self, Child};
use futures::future::join_all;

use crate::fair_rig::{Lane, USUAL_WAIT, Waiter, fair_wait};
use crate::rig::{Rig, connect, ms, soon, watched};

const LEASE: Duration = Duration::from_secs(300);
const AT: &str = "INTEROP_URL";
const NAME: &str = "INTEROP_LOCK";

/// The waiters in order, and how long each holds the lock.
///
/// | letter | waiter |
/// |---|---|
/// | K | ours, killed |
/// | X | Java's `lock()`, killed |
/// | F | Java's `lock()`, frozen until the others have had their turns |
/// | R | ours |
/// | J | Java's `lock()` |
/// | T | Java's `tryLock(wait, lease)` |
const CASES: [(&str, Duration); 17] = [
    // Our waiters are dead: at the head or behind Java. A client of ours waits, too.
    ("KRJ", ms(0)),
    ("JKRJ", ms(0)),
    ("TKJKR", ms(1000)),
    // Our waiters are dead, and only Java is behind them. Holds are shorter or longer than a dead waiter's queue entry
    // lasts.
    ("KJ", ms(0)),
    ("JKJ", ms(0)),
    ("JKJ", ms(2000)),
    ("TKJ", ms(0)),
    ("TKT", ms(6000)),
    // Several waiters are dead, side by side or apart.
    ("KKKJ", ms(0)),
    ("JKKJ", ms(0)),
    ("KJKJ", ms(0)),
    ("JTKJ", ms(500)),
    // Java's waiters are dead: at the head, in the middle, two of them, and next to a dead waiter of ours.
    ("XRJ", ms(0)),
    ("JXR", ms(0)),
    ("RXXJ", ms(0)),
    ("XKJR", ms(0)),
    // Java's head is frozen, and resumes.
    ("FJR", ms(0)),
];

/// Indexes of the agents: `ALIVE` has J and T, `KILLED` has X, `FROZEN` has F.
const ALIVE: usize = 0;
const KILLED: usize = 1;
const FROZEN: usize = 2;

/// A holder of ours releases the lock after some of the waiters were killed or frozen.
pub async fn fair_live_waiters_are_served_in_order_past_killed_ones(version: &str) {
    let alone = || AgentOptions::version(version).in_own_process();
    let rig = Rig::start(vec![AgentOptions::version(version), alone(), alone()]).await;
    // The releasing client's `fair_wait` limits the first lease. With the rig's 5 min, a killed waiter that is granted
    // the lock could keep it for a whole watchdog lease.
    let holder = connect(watched(rig.builder()).configure(|options| options.fair_wait = USUAL_WAIT)).await;
    let client = rig.watched_client().await;
    let names: Vec<_> = CASES.iter().enumerate().map(|(i, (order, _))| format!("killed:{i}:{order}")).collect();
    let queues = (1..).zip(&names).zip(CASES);
    let queues = queues.map(|((number, name), (order, _))| queue(&rig, [&holder, &client], number, name, order));
    let mut queues = join_all(queues).await;

    queues.iter_mut().flat_map(|queue| &mut queue.killed).for_each(Child::kill9);
    rig.agents[KILLED].kill9().await;
    rig.agents[FROZEN].stop();
    let (mut alive, mut frozen) = (Vec::new(), Vec::new());
    for ((queue, name), (_, hold)) in queues.into_iter().zip(&names).zip(CASES) {
        alive.push(in_order(name, queue.guard, queue.alive, hold));
        frozen.extend(queue.frozen);
    }
    join_all(alive).await;
    rig.agents[FROZEN].cont();
    join_all(frozen.into_iter().map(Waiter::turn)).await;
    for name in &names {
        Lane::new(&rig, name).is_gone().await;
    }
    rig.end([holder, client]).await;
}

/// A held lock and its waiters.
struct Queue {
    guard: Guard,
    killed: Vec<Child>,
    alive: Vec<Waiter>,
    frozen: Vec<Waiter>,
}

async fn queue(rig: &Rig, [holder, client]: [&Client; 2], number: i64, name: &str, order: &str) -> Queue {
    let lane = Lane::new(rig, name);
    let guard = holder.fair(name).lock().await.expect("lock");
    let (mut killed, mut alive, mut frozen) = (Vec::new(), Vec::new(), Vec::new());
    for (i, who) in order.chars().enumerate() {
        // Threads are numbered uniquely, because the cases share the agents.
        let java = |agent| lane.java(agent, 100 * number + i as i64);
        let waits = |agent| Waiter::Java(java(agent), java(agent).start_lock());
        match who {
            'K' => killed
                .push(Child::spawn("fair_kills::fair_waiter_to_be_killed", &[(AT, &rig.server.url()), (NAME, name)])),
            'X' => drop(java(KILLED).start_lock()),
            'F' => frozen.push(waits(FROZEN)),
            'R' => alive.push(Waiter::Ours(fair_wait(client, name))),
            'J' => alive.push(waits(ALIVE)),
            _ => alive.push(Waiter::Java(java(ALIVE), java(ALIVE).start_try_lock(LEASE, Some(LEASE)))),
        }
        lane.joined(i + 1).await;
    }
    Queue { guard, killed, alive, frozen }
}

/// Checks that all live waiters acquire in the order of their arrival.
async fn in_order(name: &str, guard: Guard, alive: Vec<Waiter>, hold: Duration) {
    guard.unlock().await.expect("unlock");
    let turns = join_all(alive.into_iter().map(|waiter| soon(waiter.hold(hold)))).await;
    for (i, pair) in turns.windows(2).enumerate() {
        assert!(pair[0].1 <= pair[1].0, "{name}: {} had it before {i}: {turns:?}", i + 1);
    }
}

/// The process that is killed.
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
