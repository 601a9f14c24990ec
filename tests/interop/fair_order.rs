//! Waiters of both languages in one queue are served in the order of their arrival.

use distlock::Client;
use distlock_support::agent::AgentOptions;
use futures::future::join_all;

use crate::fair_rig::{Lane, Waiter, fair_wait};
use crate::rig::{Rig, replied};

/// Orders of arrival: J in Java, R in our client. Each letter alternates between two processes or clients.
const ORDERS: [&str; 6] = ["JRJRJR", "RJRJRJ", "JJRRJJRR", "RRRJJJ", "JRRJRJJRJRJR", "RJJJJRRRRJ"];

pub async fn fair_waiters_are_served_in_order_of_arrival(version: &str) {
    let rig = Rig::start(vec![AgentOptions::version(version); 2]).await;
    let clients = [rig.watched_client().await, rig.watched_client().await];
    for (round, order) in ORDERS.iter().enumerate() {
        for java_holds in [false, true] {
            in_order(&rig, &clients, &format!("order:{round}:{java_holds}"), order, java_holds).await;
        }
    }
    rig.end(clients).await;
}

async fn in_order(rig: &Rig, clients: &[Client; 2], name: &str, order: &str, java_holds: bool) {
    let lane = Lane::new(rig, name);
    let (java, mut guard) = (lane.java(0, 99), None);
    if java_holds {
        replied(java.start_lock()).await;
    } else {
        guard = Some(clients[0].fair(name).lock().await.expect("lock"));
    }
    let (mut arrived, mut waiters) = (Vec::new(), Vec::new());
    for (i, who) in order.chars().enumerate() {
        if who == 'J' {
            let lock = lane.java(i / 2 % 2, i as i64);
            let call = lock.start_lock();
            waiters.push(Waiter::Java(lock, call));
        } else {
            waiters.push(Waiter::Ours(fair_wait(&clients[i / 2 % 2], name)));
        }
        let owner = lane.joined(i + 1).await;
        let ours = clients.iter().any(|client| owner.starts_with(client.id()));
        assert_eq!(ours, who == 'R', "{owner} came as {who}");
        arrived.push(owner);
    }
    assert_eq!(lane.queue().await, arrived);
    match guard {
        Some(guard) => drop(guard.unlock().await.expect("unlock")),
        None => drop(replied(java.unlock()).await),
    }
    let turns = join_all(waiters.into_iter().map(Waiter::turn)).await;
    for (i, pair) in turns.windows(2).enumerate() {
        // Each release begins before the next acquire ends.
        assert!(pair[0].1 <= pair[1].0, "{order}: {} had it before {i}: {turns:?}", i + 1);
    }
    lane.is_gone().await;
}
