//! Odd names and prefixes: both languages use the same queue, deadlines and channels.

use distlock::Client;
use distlock_support::agent::{Agent, AgentOptions, Kind};

use crate::fair_rig::{Lane, Waiter, fair_wait};
use crate::names::NAMES;
use crate::rig::{Rig, connect, lasting, ms};

/// Our client holds `key`. A Java waiter, one of ours and another Java waiter queue, each under its own name for the
/// lock.
async fn queue_up(rig: &Rig, client: &Client, agent: &Agent, name: &str, key: &str) {
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

pub async fn fair_odd_names_use_the_same_queue_in_both_languages(version: &str) {
    let rig = Rig::start(vec![lasting(version)]).await;
    let client = connect(rig.builder().subscription_linger(ms(1))).await;
    for (name, _) in NAMES {
        queue_up(&rig, &client, &rig.agents[0], name, name).await;
    }
    rig.end([client]).await;
}

/// Java uses a name mapper, and our client a name prefix.
pub async fn fair_prefixes_use_the_same_queue_in_both_languages(version: &str) {
    let prefixes = ["p:", "{app}:"];
    let options = |prefix: &str| AgentOptions { prefix: Some(prefix.to_owned()), ..lasting(version) };
    let rig = Rig::start(prefixes.map(options).to_vec()).await;
    let mut clients = Vec::new();
    for (prefix, agent) in prefixes.into_iter().zip(&rig.agents) {
        let client = connect(rig.builder().name_prefix(prefix)).await;
        queue_up(&rig, &client, agent, "job", &format!("{prefix}job")).await;
        clients.push(client);
    }
    rig.end(clients).await;
}
