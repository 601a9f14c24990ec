//! What ends without a message: leases that lapse, and waiters of Java's that are killed.

use std::time::Duration;

use distlock::Client;
use distlock_support::agent::{AgentOptions, Kind, monotonic_ns};
use futures::future::join_all;

use crate::fair_rig::{Lane, Waiter, fair_wait};
use crate::rig::{Rig, ms, replied, soon, until};

/// Long enough for two waiters to queue up in.
const LEASE: Duration = ms(5000);
/// Redis reckons in whole milliseconds.
const GRAIN: u64 = 1_000_000;

/// The lease of one side lapses with the other at the head of the queue.
pub async fn fair_leases_that_lapse(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.client().await;
    // A round of Java's lease, a round of ours, then each with a waiter of the other language behind the head.
    join_all((0..4).map(|round| lapse(&rig, &client, round))).await;
    rig.end([client]).await;
}

async fn lapse(rig: &Rig, client: &Client, round: i64) {
    let name = format!("lapse:{round}");
    let lane = Lane::new(rig, &name);
    let (javas, more) = (round % 2 == 0, round > 1);
    let (mut guard, java) = (None, lane.java(0, 10 * round + 1));
    let from = monotonic_ns();
    if javas {
        replied(java.lock_for(LEASE)).await;
    } else {
        guard = Some(client.fair(&name).lock_leased(LEASE).await.expect("a free lock"));
    }
    let mut waiters = Vec::new();
    for i in 0..=usize::from(more) {
        if (i == 0) == javas {
            waiters.push(Waiter::Ours(fair_wait(client, &name)));
        } else {
            let java = lane.java(0, 10 * round + 2);
            waiters.push(Waiter::Java(java.clone(), java.start_lock()));
        }
        lane.joined(i + 1).await;
    }
    let turns = join_all(waiters.into_iter().map(Waiter::turn)).await;
    let end = from + LEASE.as_nanos() as u64;
    assert!(turns[0].0 + GRAIN >= end, "{name}: served before the end of the lease");
    assert!(!more || turns[0].1 <= turns[1].0, "{name}: not in order of arrival: {turns:?}");
    drop(guard);
    lane.is_gone().await;
}

/// A waiter of Java's that was killed keeps its place until its own deadline; ours behind it is served then.
pub async fn fair_killed_java_waiter_is_passed_over(version: &str) {
    let rig = Rig::start(vec![AgentOptions::version(version), AgentOptions::version(version).in_own_process()]).await;
    let client = rig.client().await;
    let lane = Lane::new(&rig, "killed");
    let lease = ms(3000);
    let held = lane.java(0, 1);
    held.lock_for(lease).await.expect("a free lock");
    let _killed = lane.java(1, 1).start_try_lock(ms(6000), Some(lease));
    let dead = lane.joined(1).await;
    assert_eq!(dead, rig.agents[1].holder(Kind::Fair, 1));
    let waiter = fair_wait(&client, lane.name);
    let ours = lane.joined(2).await;
    let java = lane.java(0, 2);
    rig.agents[1].kill9().await;
    until("the lease over", async || lane.holders().await.is_empty()).await;
    let due = lane.score(&dead).await.expect("a dead waiter keeps its place until its deadline");
    let (_, guard) = soon(waiter).await.expect("the waiter");
    let (seconds, micros): (i64, i64) = rig.admin.cmd(&["TIME"]).await;
    assert!(seconds * 1000 + micros / 1000 >= due, "served before the dead waiter's deadline");
    assert_eq!(guard.owner().as_str(), ours);
    guard.unlock().await.expect("a lock held");
    replied(java.start_lock()).await;
    replied(java.unlock()).await;
    lane.is_gone().await;
    rig.end([client]).await;
}
