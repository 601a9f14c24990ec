//! Fair locks that get free without a message, because a lease expires.

use std::collections::BTreeMap;
use std::time::Duration;

use distlock::Client;
use futures::future::join_all;

use crate::fair_rig::{Lane, Waiter, fair_wait};
use crate::rig::{Rig, ms, replied, until, until_is};

/// Long enough for two waiters to queue on a machine that is not slow.
const LEASE: Duration = ms(5000);

/// One side's lease expires while the other side is at the head of the queue.
pub async fn fair_waiter_acquires_when_lease_of_other_side_expires(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.watched_client().await;
    // Each language is the holder, with and without another waiter behind the head.
    join_all((0..4).map(|round| lapse(&rig, &client, round))).await;
    rig.end([client]).await;
}

async fn lapse(rig: &Rig, client: &Client, round: i64) {
    let name = format!("lapse:{round}");
    let lane = Lane::new(rig, &name);
    let (javas, more) = (round % 2 == 0, round > 1);
    let (mut guard, java) = (None, lane.java(0, 10 * round + 1));
    let from = rig.now().await;
    let holder = if javas {
        replied(java.lock_for(LEASE)).await;
        lane.java_owner(0, 10 * round + 1)
    } else {
        let held = guard.insert(client.fair(&name).lock_leased(LEASE).await.expect("lock_leased"));
        held.owner().to_string()
    };
    let mut waiters = Vec::new();
    for i in 0..=usize::from(more) {
        if (i == 0) == javas {
            waiters.push(Waiter::Ours(fair_wait(client, &name)));
        } else {
            let java = lane.java(0, 10 * round + 2);
            waiters.push(Waiter::Java(java.clone(), java.start_lock()));
        }
        // A first waiter that holds the lock already counts, too.
        let all = async || lane.queue().await.len() + lane.holders().await.keys().filter(|one| **one != holder).count();
        until(&format!("{} waiters of {name}", i + 1), async || all().await == i + 1).await;
    }
    // The first waiter holds the lock until its release below.
    let succeeded = |held: &BTreeMap<_, _>| !held.is_empty() && !held.contains_key(&holder);
    until_is(&format!("another holder of {name}"), async || lane.holders().await, succeeded).await;
    let after = rig.now().await - from;
    assert!(after >= LEASE.as_millis() as i64, "{name}: served within {after} ms, before the end of the lease");
    let turns = join_all(waiters.into_iter().map(Waiter::turn)).await;
    assert!(!more || turns[0].1 <= turns[1].0, "{name}: not in order of arrival: {turns:?}");
    drop(guard);
    lane.is_gone().await;
}
