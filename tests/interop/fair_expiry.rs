//! What ends without a message: leases that lapse, and waiters of Java's that are killed.

use std::time::Duration;

use distlock_support::agent::{AgentOptions, Kind, monotonic_ns};

use crate::fair_rig::{Lane, Waiter, fair_wait};
use crate::rig::{Rig, ms, replied, soon};

const LEASE: Duration = ms(1500);
/// How often we look, and room for a busy machine.
const LOOK: Duration = ms(1000 + 100);

/// The lease of one side lapses with the other at the head of the queue.
pub async fn fair_leases_that_lapse(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.client().await;
    for round in 0..4 {
        let name = format!("lapse:{round}");
        let lane = Lane::new(&rig, &name);
        // A round of Java's lease, a round of ours, then each with a waiter of the other language behind the head.
        let (javas, more) = (round % 2 == 0, round > 1);
        let (mut guard, java) = (None, lane.java(0, 1));
        if javas {
            java.lock_for(LEASE).await.expect("a free lock");
        } else {
            guard = Some(client.fair(&name).lock_leased(LEASE).await.expect("a free lock"));
        }
        let from = monotonic_ns();
        let mut waiters = Vec::new();
        for i in 0..=usize::from(more) {
            if (i == 0) == javas {
                waiters.push(Waiter::Ours(fair_wait(&client, &name)));
            } else {
                let java = lane.java(0, 2);
                waiters.push(Waiter::Java(java.clone(), java.start_lock()));
            }
            lane.joined(i + 1).await;
        }
        let mut turns = Vec::new();
        for waiter in waiters {
            turns.push(waiter.turn().await);
        }
        let after = Duration::from_nanos(turns[0].0.saturating_sub(from)).saturating_sub(LEASE);
        println!("{version}: fair, lapsed in {}, more waiters {more}: the head after {after:?}", who(javas));
        // The lease began when the server had the command, some time before its answer was here.
        assert!(turns[0].0 + 150_000_000 >= from + LEASE.as_nanos() as u64, "before the end of the lease");
        assert!(after < LOOK, "late");
        drop(guard);
        lane.is_gone().await;
    }
    rig.end([client]).await;
}

const fn who(javas: bool) -> &'static str {
    if javas { "Java" } else { "Rust" }
}

/// A waiter of Java's that was killed keeps its place until its own deadline; ours behind it is served then, and asks in
/// between no more than at other times.
pub async fn fair_killed_java_waiter_is_passed_over(version: &str) {
    let rig = Rig::start(vec![AgentOptions::version(version); 2]).await;
    let client = rig.client().await;
    let lane = Lane::new(&rig, "killed");
    let lease = ms(1000);
    let held = lane.java(0, 1);
    held.lock_for(lease).await.expect("a free lock");
    let _killed = lane.java(1, 1).start_try_lock(ms(3000), Some(lease));
    let dead = lane.joined(1).await;
    assert_eq!(dead, rig.agents[1].holder(Kind::Fair, 1));
    let waiter = fair_wait(&client, lane.name);
    let ours = lane.joined(2).await;
    let java = lane.java(0, 2);
    rig.agents[1].kill9().await;
    let due = lane.score(&dead).await.expect("a deadline");
    let (seconds, micros): (i64, i64) = rig.admin.cmd(&["TIME"]).await;
    let left = Duration::from_millis((due - seconds * 1000 - micros / 1000).unsigned_abs());
    let (from, before) = (monotonic_ns(), rig.scripts().await);
    let (had, guard) = soon(waiter).await.expect("the waiter");
    let (after, asked) = (Duration::from_nanos(had - from), rig.scripts().await - before);
    println!("{version}: {left:?} left to a dead waiter of Java's; ours had it after {after:?} and {asked} commands");
    assert_eq!(guard.owner().as_str(), ours);
    assert!(after >= left.saturating_sub(ms(5)) && after < left + LOOK, "not in time");
    assert!(asked <= 2 * (after.as_secs() + 1) + 2, "{asked} commands");
    guard.unlock().await.expect("a lock held");
    replied(java.start_lock()).await;
    replied(java.unlock()).await;
    lane.is_gone().await;
    rig.end([client]).await;
}
