//! Waiters of both languages in one queue: served in the order in which they came, and at once.

use std::time::Duration;

use distlock::Client;
use distlock_support::agent::{AgentOptions, monotonic_ns};
use futures::future::join_all;

use crate::fair_rig::{Lane, Waiter, fair_wait};
use crate::rig::{Rig, Times, replied, soon};
use crate::wake::judge;

/// Who comes in which order: J in Java, R with us; each letter alternates between two processes or clients.
const ORDERS: [&str; 6] = ["JRJRJR", "RJRJRJ", "JJRRJJRR", "RRRJJJ", "JRRJRJJRJRJR", "RJJJJRRRRJ"];
const LEASE: Duration = Duration::from_secs(30);
const ROUNDS: usize = 40;

/// First come, first served, whoever holds it first.
pub async fn fair_turns_are_in_order_of_arrival(version: &str) {
    let rig = Rig::start(vec![AgentOptions::version(version); 2]).await;
    let clients = [rig.client().await, rig.client().await];
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
        guard = Some(clients[0].fair(name).lock().await.expect("a free lock"));
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
        Some(guard) => assert!(guard.unlock().await.is_ok()),
        None => assert!(java.unlock().await.is_ok()),
    }
    let turns = join_all(waiters.into_iter().map(Waiter::turn)).await;
    for (i, pair) in turns.windows(2).enumerate() {
        // Each begins to give it back before the next can have it.
        assert!(pair[0].1 <= pair[1].0, "{order}: {} had it before {i}: {turns:?}", i + 1);
    }
    lane.is_gone().await;
}

/// Hold in Java, the head of the queue with us.
pub async fn fair_release_in_java_wakes_our_head(version: &str) {
    let rig = Rig::alone_with(version).await;
    let client = rig.client().await;
    let mut series = Vec::new();
    java_to_rust(&rig, &client, "warm", 2).await;
    loop {
        series.push(java_to_rust(&rig, &client, &format!("job:{}", series.len()), ROUNDS).await);
        if judge(&format!("{version}: fair, released in Java, taken in Rust"), &series) {
            break;
        }
    }
    rig.end([client]).await;
}

async fn java_to_rust(rig: &Rig, client: &Client, name: &str, rounds: usize) -> Times {
    let lane = Lane::new(rig, name);
    let java = lane.java(0, 1);
    let mut times = Times::default();
    for round in 0..rounds {
        java.lock_for(LEASE).await.expect("a free lock");
        let before = rig.scripts().await;
        let waiter = fair_wait(client, name);
        lane.joined(1).await;
        // Once subscribed it looks again; the subscription of the round before is still there.
        rig.scripts_since(before, if round == 0 { 2 } else { 1 }).await;
        let unlocked = replied(java.unlock()).await;
        let (had, guard) = soon(waiter).await.expect("the waiter");
        times.note(unlocked.t0, had);
        guard.unlock().await.expect("a lock held");
    }
    times
}

/// Hold with us, the head of the queue in Java.
pub async fn fair_release_of_ours_wakes_javas_head(version: &str) {
    let rig = Rig::alone_with(version).await;
    let client = rig.client().await;
    let mut series = Vec::new();
    rust_to_java(&rig, &client, "warm", 2).await;
    loop {
        series.push(rust_to_java(&rig, &client, &format!("job:{}", series.len()), ROUNDS).await);
        if judge(&format!("{version}: fair, released in Rust, taken in Java"), &series) {
            break;
        }
    }
    rig.end([client]).await;
}

async fn rust_to_java(rig: &Rig, client: &Client, name: &str, rounds: usize) -> Times {
    let lane = Lane::new(rig, name);
    let (lock, java) = (client.fair(name), lane.java(0, 1));
    let mut times = Times::default();
    for _ in 0..rounds {
        let guard = lock.lock_leased(LEASE).await.expect("a free lock");
        let before = rig.scripts().await;
        let waiter = java.start_lock();
        let owner = lane.joined(1).await;
        rig.scripts_since(before, 2).await;
        let from = monotonic_ns();
        guard.unlock().await.expect("a lock held");
        times.note(from, replied(waiter).await.t1);
        replied(java.unlock()).await;
        // Redisson subscribes anew each time.
        rig.listeners(&lane.channel(&owner), 0).await;
    }
    times
}

/// A chain of two in each language, each waking the next in the other: no turn is late.
pub async fn fair_chain_has_no_gaps(version: &str) {
    let rig = Rig::alone_with(version).await;
    let client = rig.client().await;
    let (mut to_java, mut to_us) = (Vec::new(), Vec::new());
    loop {
        let [java, us] = chain(&rig, &client, to_us.len()).await;
        to_java.push(java);
        to_us.push(us);
        let fine = [("to Rust", &to_us), ("to Java", &to_java)]
            .map(|(to, series)| judge(&format!("{version}: fair, in a chain, {to}"), series));
        if fine == [true; 2] {
            break;
        }
    }
    rig.end([client]).await;
}

/// Chains of eight; from each release to the next one's lock in Java, and with us.
async fn chain(rig: &Rig, client: &Client, series: usize) -> [Times; 2] {
    let mut times = [Times::default(), Times::default()];
    for round in 0..8 {
        let name = format!("chain:{series}:{round}");
        let lane = Lane::new(rig, &name);
        let guard = client.fair(&name).lock().await.expect("a free lock");
        let mut waiters = Vec::new();
        for i in 0..8 {
            if i % 2 == 0 {
                let lock = lane.java(0, i + 1);
                let call = lock.start_lock();
                waiters.push(Waiter::Java(lock, call));
            } else {
                waiters.push(Waiter::Ours(fair_wait(client, &name)));
            }
            lane.joined(waiters.len()).await;
        }
        guard.unlock().await.expect("a lock held");
        let turns = join_all(waiters.into_iter().map(|waiter| tokio::spawn(waiter.turn()))).await;
        let turns: Vec<_> = turns.into_iter().map(|turn| turn.expect("a turn")).collect();
        for (i, pair) in turns.windows(2).enumerate() {
            times[usize::from(i % 2 == 0)].note(pair[0].1, pair[1].0);
        }
        lane.is_gone().await;
    }
    times
}
