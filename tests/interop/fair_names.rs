//! Odd names and prefixes: both languages use the same queue, deadlines and channels.

use distlock::Client;
use distlock_support::agent::{Agent, Kind};

use crate::fair_rig::{Lane, Waiter, fair_wait};
use crate::names::{Spelt, under_every_name};
use crate::rig::Rig;

pub async fn fair_odd_names_use_the_same_queue_in_both_languages(version: &str) {
    under_every_name(version, queue_up).await;
}

/// Our client holds `key`. A Java waiter, one of ours and another Java waiter queue, each under its own name for the
/// lock.
async fn queue_up(rig: &Rig, client: &Client, agent: &Agent, Spelt { name, key, .. }: Spelt) {
    let lane = Lane::new(rig, key);
    let guard = client.fair(name).lock().await.expect("lock");
    let mut waiters = Vec::new();
    for i in 0..3 {
        if i % 2 == 0 {
            let java = agent.at(Kind::Fair, name, i + 1);
            let call = java.start_lock();
            waiters.push(Waiter::Java(java, call));
        } else {
            waiters.push(Waiter::Ours(fair_wait(client, name)));
        }
        lane.joined(waiters.len()).await;
    }
    let mut keys = vec![key.to_owned(), lane.queue_key(), lane.deadlines_key(), lane.waiters_key()];
    keys.sort();
    assert_eq!(rig.keys().await, keys);
    let turns: Vec<_> = waiters.into_iter().map(|waiter| tokio::spawn(waiter.turn())).collect();
    guard.unlock().await.expect("unlock");
    let mut last = 0;
    for turn in turns {
        let (taken, freed) = turn.await.expect("a turn");
        assert!(taken >= last, "{name:?}: out of order");
        last = freed;
    }
    lane.is_gone().await;
}
