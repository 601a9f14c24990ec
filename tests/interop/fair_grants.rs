//! A release grants the lock only to our waiters. A waiter of Java gets a message and acquires the lock itself, as in
//! Redisson.

use std::collections::BTreeMap;
use std::time::Duration;

use distlock::Client;
use distlock_support::agent::{AgentOptions, Call, JavaLock};

use crate::fair_rig::{Lane, fair_wait};
use crate::listener::{Listener, Message};
use crate::rig::{Rig, connect, replied, soon, until_is, watched};

/// Longer than a test, so that a frozen head keeps its place on a slow machine.
const GRACE: Duration = Duration::from_secs(300);

async fn heard(lane: &Lane<'_>, listener: &Listener) -> Vec<(String, String)> {
    let prefix = lane.channel("");
    let told = |message: &Message| {
        let owner = message.channel.strip_prefix(&prefix)?.to_owned();
        Some((owner, String::from_utf8_lossy(&message.payload).into_owned()))
    };
    listener.take(&lane.rig.admin).await.iter().filter_map(told).collect()
}

/// Asserts that the message was published for a frozen head of Java, and that the lock was not granted to the head.
async fn only_told(lane: &Lane<'_>, messages: &[(String, String)], head: &str) {
    assert_eq!(messages, [(head.to_owned(), "0".to_owned())], "{}", lane.name);
    assert!(lane.holders().await.is_empty(), "{}: {:?}", lane.name, lane.holders().await);
    assert_eq!(lane.queue().await.first().map(String::as_str), Some(head));
    assert!(lane.score(head).await.is_some());
}

/// Resumes Java, which then takes the lock itself.
async fn takes_it(lane: &Lane<'_>, java: JavaLock, call: Call, head: &str) {
    lane.rig.agents[0].cont();
    replied(call).await;
    lane.held_by(head).await;
    replied(java.unlock()).await;
}

async fn release_and_force_tell_java(rig: &Rig, client: &Client, listener: &Listener) {
    for how in ["released", "forced"] {
        let lane = Lane::new(rig, how);
        let guard = client.fair(how).lock().await.expect("lock");
        let java = lane.java(0, 1);
        let call = java.start_lock();
        let head = lane.joined(1).await;
        heard(&lane, listener).await;
        rig.agents[0].stop();
        if how == "forced" {
            assert!(client.fair(how).force_unlock().await.expect("force_unlock"));
        } else {
            guard.unlock().await.expect("unlock");
        }
        only_told(&lane, &heard(&lane, listener).await, &head).await;
        takes_it(&lane, java, call, &head).await;
        lane.is_gone().await;
    }
}

/// Our waiter at the head of a free lock gives up.
async fn leaving_waiter_tells_java(rig: &Rig, client: &Client, listener: &Listener) {
    let lane = Lane::new(rig, "left");
    let guard = client.fair(lane.name).lock().await.expect("lock");
    let ours = fair_wait(client, lane.name);
    let first = lane.joined(1).await;
    let java = lane.java(0, 2);
    let call = java.start_lock();
    let head = lane.joined(2).await;
    rig.agents[0].stop();
    lane.refreshed(&first).await;
    heard(&lane, listener).await;
    lane.vanish().await;
    ours.abort();
    drop(ours);
    until_is("its leaving", async || lane.queue().await.len(), |len| *len == 1).await;
    until_is("a free lock", async || lane.holders().await, BTreeMap::is_empty).await;
    only_told(&lane, &heard(&lane, listener).await, &head).await;
    takes_it(&lane, java, call, &head).await;
    let _ = guard.unlock().await;
    lane.is_gone().await;
}

/// Our waiter finds the lock free while a waiter of Java is ahead.
async fn refresh_tells_java(rig: &Rig, client: &Client, listener: &Listener) {
    let lane = Lane::new(rig, "found");
    let guard = client.fair(lane.name).lock().await.expect("lock");
    let java = lane.java(0, 3);
    let call = java.start_lock();
    let head = lane.joined(1).await;
    let ours = fair_wait(client, lane.name);
    let second = lane.joined(2).await;
    rig.agents[0].stop();
    heard(&lane, listener).await;
    lane.refreshed(&second).await;
    lane.vanish().await;
    lane.refreshed(&second).await;
    // Each refresh that finds the lock free sends one message.
    let mut messages = heard(&lane, listener).await;
    messages.dedup();
    only_told(&lane, &messages, &head).await;
    takes_it(&lane, java, call, &head).await;
    soon(ours).await.expect("the waiter").1.unlock().await.expect("unlock");
    let _ = guard.unlock().await;
    lane.is_gone().await;
}

/// Covers all our calls that free the lock or find it free.
pub async fn fair_java_head_is_notified_and_not_granted(version: &str) {
    let rig = Rig::start(vec![AgentOptions::version(version).in_own_process()]).await;
    let client = connect(watched(rig.builder()).configure(|options| options.fair_grace = GRACE)).await;
    let listener = Listener::open(rig.server.addr()).await;
    release_and_force_tell_java(&rig, &client, &listener).await;
    leaving_waiter_tells_java(&rig, &client, &listener).await;
    refresh_tells_java(&rig, &client, &listener).await;
    drop(listener);
    rig.end([client]).await;
}
