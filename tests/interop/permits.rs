//! Our permits and Redisson's `RPermitExpirableSemaphore` share state, ids and messages. Also helpers for semaphores.

use std::collections::VecDeque;

use distlock::{Acquire, Client, PermitGuard, PermitId, Permits};
use distlock_support::Admin;
use futures::future::join_all;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::listener::Listener;
use crate::rig::{Rig, ms, replied, soon, until};
use crate::rw_rig::sits;

/// A lease that outlasts the test, one that a test waits for, and one that is short, in ms.
const LEASE: u64 = 600_000;
const BRIEF: u64 = 700;
const MOMENT: u64 = 50;
/// An id that no permit has.
const UNKNOWN: &str = "00112233445566778899aabbccddeeff";
const COUNTER: &str = "counter";
/// Rounds of each thread and client that count.
pub const ROUNDS: u64 = 100;

/// The channel of permits and semaphores.
pub fn sc_channel(name: &str) -> String {
    format!("redisson_sc:{{{name}}}")
}

/// The value of an operation of Java's, on its thread 1.
pub async fn java(rig: &Rig, name: &str, op: &str, fields: Value) -> Value {
    replied(rig.java(name, 1).start(op, fields)).await.value
}

/// Waits until one task of our client waits, and only one connection is subscribed.
pub async fn we_wait(rig: &Rig, client: &Client, channel: &str) {
    rig.waiting(client, 1).await;
    rig.listeners(channel, 1).await;
}

/// The messages since the last look, all of which must be numbers on this channel.
pub async fn said(rig: &Rig, listener: &Listener, channel: &str) -> Vec<i64> {
    let mut numbers = Vec::new();
    for message in listener.take(&rig.admin).await {
        assert_eq!(message.channel, channel);
        numbers.push(String::from_utf8_lossy(&message.payload).parse().expect("a number"));
    }
    numbers
}

/// A section that only a permit protects: reads a counter, adds one, and writes it.
pub async fn add_one(admin: &Admin) {
    let old: Option<u64> = admin.cmd(&["GET", COUNTER]).await;
    admin.cmd::<()>(&["SET", COUNTER, &(old.unwrap_or(0) + 1).to_string()]).await;
}

/// Waits for tasks that each run [`ROUNDS`] sections, and asserts that no update was lost.
pub async fn all_counted(rig: &Rig, tasks: Vec<JoinHandle<()>>) {
    let total = tasks.len() as u64 * ROUNDS;
    for ended in join_all(tasks).await {
        ended.expect("a loop");
    }
    let counted: u64 = rig.admin.cmd(&["GET", COUNTER]).await;
    assert_eq!(counted, total, "updates were lost: two had the only permit at once");
    rig.admin.cmd::<()>(&["DEL", COUNTER]).await;
}

fn texts(value: &Value) -> Vec<String> {
    serde_json::from_value(value.clone()).unwrap_or_else(|_| panic!("no list of ids: {value}"))
}

async fn take(permits: &Permits, n: u32, lease: u64) -> PermitGuard {
    let taken = soon(permits.acquire_with(n, Acquire::new().lease(ms(lease)))).await;
    taken.expect("acquire_with").expect("the permits")
}

/// Waits for permits in a separate task.
fn wait_for(permits: &Permits, n: u32) -> JoinHandle<PermitGuard> {
    let permits = permits.clone();
    tokio::spawn(async move { permits.acquire(n).await.expect("acquire") })
}

async fn counts(permits: &Permits) -> (i64, u64) {
    let counts = permits.counts().await.expect("counts");
    (counts.available, counts.acquired)
}

pub async fn permits_ids_of_each_side_are_extended_and_released_by_the_other(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.client().await;
    let (name, permits) = ("gate", client.permits("gate"));
    let ask = async |op: &str, fields: Value| java(&rig, name, op, fields).await;
    let lease = async |id: &str| ask("permit_lease", json!({"permit": id})).await.as_i64().expect("a time");
    let unknown: PermitId = UNKNOWN.parse().expect("an id");
    assert!(permits.try_set_permits(4).await.expect("try_set_permits"));

    let guard = take(&permits, 2, LEASE).await;
    let ids: Vec<_> = guard.ids().iter().map(PermitId::to_string).collect();
    assert!((1..=LEASE as i64).contains(&lease(&ids[0]).await));
    assert_eq!(ask("permit_renew", json!({"permit": ids[0], "lease_ms": 10 * LEASE})).await, true);
    let held = permits.holders().await.expect("holders");
    let longer: Vec<_> = held.iter().filter(|held| held.remaining > Some(ms(LEASE))).map(|held| held.id).collect();
    assert_eq!(longer, [guard.ids()[0]], "{held:?}");
    assert_eq!(ask("permit_release", json!({"ids": [ids[0], UNKNOWN]})).await, 0);
    assert_eq!(ask("permit_release", json!({"permit": UNKNOWN})).await, false);
    assert_eq!(counts(&permits).await, (2, 2));
    assert_eq!(ask("permit_release", json!({"ids": ids})).await, 2);
    assert!(guard.release().await.is_err(), "Java has released them");
    assert_eq!(counts(&permits).await, (4, 0));

    let texts = texts(&ask("permit_acquire", json!({"permits": 2, "lease_ms": LEASE})).await);
    let ids: Vec<PermitId> = texts.iter().map(|id| id.parse().expect("an id")).collect();
    assert!(permits.extend_ids(&ids, ms(10 * LEASE)).await.expect("extend_ids"));
    assert!(!permits.extend_ids(&[ids[0], unknown], ms(LEASE)).await.expect("extend_ids"));
    assert!(lease(&texts[0]).await > LEASE as i64 && lease(&texts[1]).await > LEASE as i64);
    assert!(!permits.release_ids(&[ids[0], unknown]).await.expect("release_ids"));
    assert_eq!(counts(&permits).await, (2, 2));
    assert!(permits.release_ids(&ids).await.expect("release_ids"));
    assert_eq!(ask("permit_release", json!({"permit": texts[0]})).await, false);
    let gone = soon(rig.java(name, 1).start("permit_lease", json!({"permit": texts[0]}))).await;
    assert!(gone.expect_err("a lease of no permit").message.contains("doesn't exist"));
    assert_eq!(counts(&permits).await, (4, 0));

    // One of two ids has expired: neither side changes anything.
    let guard = take(&permits, 1, LEASE).await;
    let dead = ask("permit_acquire", json!({"lease_ms": MOMENT})).await;
    let end = rig.now().await + MOMENT as i64;
    until("the end of a lease", async || rig.now().await > end).await;
    let ids = [guard.ids()[0], dead.as_str().expect("an id").parse().expect("an id")];
    assert!(!permits.extend_ids(&ids, ms(LEASE)).await.expect("extend_ids"));
    assert!(!permits.release_ids(&ids).await.expect("release_ids"));
    assert_eq!(ask("permit_release", json!({"ids": ids.map(|id| id.to_string())})).await, 0);
    let free: i64 = rig.admin.cmd(&["GET", name]).await;
    assert_eq!(free, 2, "an expired permit was returned");
    assert_eq!(ask("permit_renew", json!({"permit": dead, "lease_ms": LEASE})).await, false);
    guard.release().await.expect("release");
    assert_eq!(counts(&permits).await, (4, 0));
    assert!(permits.delete().await.expect("delete"));
    rig.end([client]).await;
}
