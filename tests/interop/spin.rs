//! Our spin lock and Redisson's spin lock under one name. No messages are sent or needed.

use std::sync::Arc;

use distlock::{Backoff, Client, DistLock, Flavour};
use distlock_support::agent::{AgentOptions, Kind};

use crate::listener::Listener;
use crate::reentry::Step::{self, Leased, Lock, Stray, Try, TryLeased, Unlock};
use crate::reentry::{Left, Ours, Theirs};
use crate::rig::{LATCH, NEVER, Rig, channel, connect, lasting, ms, replied, soon, wait_for, wait_for_lock};
use crate::several::{count_together, take};

const ROWS: [&[Step]; 4] = [
    &[Lock, Lock, Unlock, Unlock, Stray],
    &[Try, Unlock, TryLeased(7_000), Unlock],
    &[Leased(8_000), Leased(8_000), Unlock, Unlock],
    &[Stray, Lock, Unlock, Leased(6_000), Unlock],
];

fn spin(client: &Client, name: &str) -> Arc<dyn DistLock> {
    client.lock(Flavour::Spin, name)
}

/// Compares state and lease after every step. No message is sent.
pub async fn spin_state_after_each_step_matches_redisson(version: &str) {
    let rig = Rig::start(vec![lasting(version)]).await;
    let (client, listener) = (rig.client().await, Listener::open(rig.server.addr()).await);
    let mut compared = 0;
    for (number, steps) in ROWS.iter().enumerate() {
        let (a, b) = (format!("java:{number}:x"), format!("rust:{number}:x"));
        let theirs = Theirs::of(&rig, &listener, &a, rig.agents[0].at(Kind::Spin, &a, 7));
        let mut ours = Ours::of(&rig, &listener, &b, spin(&client, &b), client.owner());
        for (at, step) in steps.iter().enumerate() {
            let what = format!("{version}, step {at} of {steps:?}");
            let (left_by_them, left_by_us) = (theirs.take(*step).await, ours.take(*step).await);
            left_by_us.assert_like(&what, &left_by_them);
            assert!(left_by_us.messages.is_empty() && left_by_them.messages.is_empty(), "{what}: {left_by_us:?}");
            compared += 1;
        }
    }
    println!("{version}: {compared} states compared");
    // `force_unlock` and a wait send no message either.
    let guard = take(&*spin(&client, "forced")).await;
    let waiter = wait_for_lock(spin(&client, "forced"));
    rig.waiting(&client, 1).await;
    assert!(rig.admin.channels().await.is_empty(), "a waiter listens");
    assert!(spin(&client, "forced").force_unlock().await.expect("force_unlock"));
    drop(guard);
    soon(waiter).await.expect("the waiter").unlock().await.expect("unlock");
    let left = Left::look(&rig.admin, "forced", &listener).await;
    assert!(left.messages.is_empty() && left.others.iter().all(|key| key.starts_with(LATCH)), "{left:?}");
    drop(listener);
    rig.end([client]).await;
}

/// Two threads of Java's and two tasks of ours count without any message.
pub async fn spin_counter_of_both_languages_is_exact(version: &str) {
    let rig = Rig::start(vec![AgentOptions::version(version); 2]).await;
    let (clients, listener) = ([rig.client().await, rig.client().await], Listener::open(rig.server.addr()).await);
    let java = [0, 1].map(|agent| rig.agents[agent].at(Kind::Spin, "till", 5));
    let quick = Backoff::constant(ms(3)).expect("a back-off");
    let ours: Vec<Arc<dyn DistLock>> =
        vec![spin(&clients[0], "till"), Arc::new(clients[1].spin("till").backoff(quick))];
    count_together(&format!("{version}, spin locks"), &rig, &java, ours, (80, 80)).await;
    assert!(listener.take(&rig.admin).await.is_empty());
    drop(listener);
    rig.end(clients).await;
}

/// A waiter that is not woken acquires at its next poll, on both sides.
pub async fn spin_waiters_acquire_by_polling(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.client().await;
    let name = "looked-at";
    let (java, ours) = (rig.agents[0].at(Kind::Spin, name, 1), spin(&client, name));
    for _ in 0..5 {
        replied(java.lock()).await;
        let waiter = wait_for_lock(ours.clone());
        rig.scripts_since(rig.scripts().await, 2).await;
        replied(java.unlock()).await;
        let guard = soon(waiter).await.expect("the waiter");
        let waiter = java.start_lock();
        rig.scripts_since(rig.scripts().await, 2).await;
        guard.unlock().await.expect("unlock");
        replied(waiter).await;
        replied(java.unlock()).await;
    }
    rig.end([client]).await;
}

/// A waiter for a reentrant lock is not woken by the release of a spin lock of the same name. Redisson's waiter sleeps
/// until the last known lease ends. Our waiter retries after its poll cap.
pub async fn spin_release_wakes_no_reentrant_waiter(version: &str) {
    let rig = Rig::with(version).await;
    let client = connect(rig.builder().poll_cap(ms(300))).await;
    let name = "mixed";
    // Loads the script, so that each attempt is one command.
    replied(rig.java(name, 1).lock()).await;
    replied(rig.java(name, 1).unlock()).await;
    for ours_holds in [true, false] {
        let java = rig.agents[0].at(Kind::Spin, name, 7);
        let guard = if ours_holds {
            Some(spin(&client, name).lock_leased(NEVER).await.expect("lock_leased"))
        } else {
            replied(java.lock_for(NEVER)).await;
            None
        };
        let before = rig.scripts().await;
        let mut theirs = rig.java(name, 1).start_lock();
        rig.scripts_since(before, 2).await;
        match guard {
            Some(guard) => drop(guard.unlock().await.expect("unlock")),
            None => drop(replied(java.unlock()).await),
        }
        assert_eq!(theirs.within(ms(600)).await, None, "Redisson was woken");
        // We acquire at once and release without a message, while Redisson sleeps on.
        let between = client.reentrant(name).try_lock().await.expect("try_lock").expect("a free lock");
        let _owner = between.into_owner();
        rig.admin.cmd::<()>(&["DEL", name]).await;
        assert_eq!(theirs.within(ms(0)).await, None, "Redisson was woken");
        rig.admin.publish(&channel(name), b"0").await;
        replied(theirs).await;
        replied(rig.java(name, 1).unlock()).await;
    }
    let guard = take(&*spin(&client, name)).await;
    let waiter = wait_for(&client, name);
    rig.waiting(&client, 1).await;
    guard.unlock().await.expect("unlock");
    let guard = soon(waiter).await.expect("the waiter");
    guard.unlock().await.expect("unlock");
    rig.end([client]).await;
}
