//! Our latch and Redisson's `RCountDownLatch` share one count. Also helpers for permits and semaphores.

use distlock::{Client, Latch};
use distlock_support::agent::Call;
use futures::future::join_all;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::listener::Listener;
use crate::rig::{NEVER, Rig, connect, ms, replied, soon, until};

/// The value of a call of Java's, on its thread 1.
pub async fn java(rig: &Rig, name: &str, op: &str, fields: Value) -> Value {
    replied(rig.java(name, 1).start(op, fields)).await.value
}

/// The messages since the last call, which must all be numbers on this channel.
pub async fn spoken(rig: &Rig, listener: &Listener, channel: &str) -> Vec<i64> {
    let mut numbers = Vec::new();
    for message in listener.take(&rig.admin).await {
        assert_eq!(message.channel, channel);
        numbers.push(String::from_utf8_lossy(&message.payload).parse().expect("a number"));
    }
    numbers
}

/// Deletes the tokens of our commands, which may outlive the test, and ends the test.
pub async fn end_with_tokens(rig: Rig, clients: impl IntoIterator<Item = Client>) {
    for key in rig.admin.keys().await.iter().filter(|key| key.starts_with("distlock_once:")) {
        assert!(rig.admin.pttl(key).await > 0, "{key} has no end");
        rig.admin.cmd::<()>(&["DEL", key]).await;
    }
    rig.end(clients).await;
}

fn channel(name: &str) -> String {
    format!("redisson_countdownlatch__channel__{{{name}}}")
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// `trySetCount`.
    Set(u32),
    /// This many times `countDown`.
    Down(u32),
    Delete,
}

use Step::{Delete, Down, Set};

/// A step, its answer (the count that is left, or 1 for true), the count after it, and the messages of Redisson and of
/// this crate.
type Row = (Step, u64, Option<u64>, &'static [i64], &'static [i64]);

const ROWS: [Row; 13] = [
    (Down(1), 0, None, &[], &[]),
    (Set(2), 1, Some(2), &[1], &[1]),
    (Set(5), 0, Some(2), &[], &[]),
    (Down(1), 1, Some(1), &[], &[]),
    (Down(1), 0, None, &[0], &[0]),
    (Down(1), 0, None, &[], &[]),
    (Set(3), 1, Some(3), &[1], &[1]),
    (Down(3), 0, None, &[0], &[0]),
    (Set(2), 1, Some(2), &[1], &[1]),
    (Down(5), 0, None, &[0], &[0]),
    (Set(1), 1, Some(1), &[1], &[1]),
    // Redisson's own message leaves its waiters waiting.
    (Delete, 1, None, &[1], &[0]),
    (Delete, 0, None, &[], &[]),
];

async fn theirs(rig: &Rig, name: &str, step: Step) -> u64 {
    let answer = match step {
        Set(n) => java(rig, name, "latch_set", json!({"count": n})).await,
        Down(k) => {
            for _ in 0..k {
                java(rig, name, "latch_down", json!({})).await;
            }
            java(rig, name, "latch_count", json!({})).await
        }
        Delete => java(rig, name, "latch_delete", json!({})).await,
    };
    answer.as_u64().or_else(|| answer.as_bool().map(u64::from)).unwrap_or_else(|| panic!("{step:?}: {answer}"))
}

async fn ours(latch: &Latch, step: Step) -> u64 {
    match step {
        Set(n) => latch.try_set(n).await.expect("try_set").into(),
        Down(k) => latch.count_down(k).await.expect("count_down"),
        Delete => latch.delete().await.expect("delete").into(),
    }
}

pub async fn latch_state_after_each_step_matches_redisson(version: &str) {
    let rig = Rig::with(version).await;
    let (client, listener) = (rig.client().await, Listener::open(rig.server.addr()).await);
    let (a, b) = ("java", "rust");
    let latch = client.latch(b);
    for (at, (step, answer, count, they_say, we_say)) in ROWS.into_iter().enumerate() {
        let what = format!("{version}, step {at}: {step:?}");
        assert_eq!(theirs(&rig, a, step).await, answer, "{what} of Redisson");
        assert_eq!(spoken(&rig, &listener, &channel(a)).await, they_say, "{what} of Redisson");
        assert_eq!(ours(&latch, step).await, answer, "{what} of ours");
        assert_eq!(spoken(&rig, &listener, &channel(b)).await, we_say, "{what} of ours");
        for name in [a, b] {
            let (left, ttl): (Option<u64>, _) = (rig.admin.cmd(&["GET", name]).await, rig.admin.pttl(name).await);
            assert_eq!((left, ttl), (count, if count.is_some() { -1 } else { -2 }), "{what} at {name}");
        }
        let count = count.unwrap_or(0);
        assert_eq!(client.latch(a).count().await.expect("count"), count, "{what}");
        assert_eq!(java(&rig, b, "latch_count", json!({})).await, count, "{what}");
    }
    drop(listener);
    end_with_tokens(rig, [client]).await;
}

/// Two waiters of each of our clients, and three threads of Java's.
struct Waiters {
    ours: Vec<JoinHandle<()>>,
    theirs: Vec<Call>,
}

impl Waiters {
    async fn start(rig: &Rig, clients: &[Client], name: &str) -> Self {
        let mut ours = Vec::new();
        for client in clients {
            let (one, other) = (client.latch(name), client.latch(name));
            ours.push(tokio::spawn(async move { one.wait().await.expect("wait") }));
            ours.push(tokio::spawn(async move { assert!(other.wait_for(NEVER).await.expect("wait_for")) }));
        }
        let theirs = [2, 3, 4].map(|thread| rig.java(name, thread).start("latch_await", json!({}))).into();
        for client in clients {
            rig.waiting(client, 2).await;
        }
        // One connection of each client.
        rig.listeners(&channel(name), clients.len() as u64 + 1).await;
        Self { ours, theirs }
    }

    async fn all_wait(&mut self) {
        assert!(!self.ours.iter().any(JoinHandle::is_finished), "a waiter of ours has gone");
        for waiter in &mut self.theirs {
            assert_eq!(waiter.within(ms(0)).await, None, "a waiter of Java's has gone");
        }
    }

    async fn all_go(self) {
        for waiter in soon(join_all(self.ours)).await {
            waiter.expect("a waiter of ours");
        }
        for waiter in self.theirs {
            assert_eq!(replied(waiter).await.value, true);
        }
    }
}

pub async fn latch_waiters_of_both_sides_go_on_whichever_side_counts_down_last(version: &str) {
    let rig = Rig::with(version).await;
    let clients = [rig.client().await, rig.client().await];
    for java_is_last in [true, false] {
        let name = format!("last:{java_is_last}");
        let latch = clients[0].latch(&name);
        // The side that counts down last has not set the count.
        assert_eq!(if java_is_last { ours(&latch, Set(2)).await } else { theirs(&rig, &name, Set(2)).await }, 1);
        let mut waiters = Waiters::start(&rig, &clients, &name).await;
        assert_eq!(if java_is_last { ours(&latch, Down(1)).await } else { theirs(&rig, &name, Down(1)).await }, 1);
        waiters.all_wait().await;
        assert_eq!(if java_is_last { theirs(&rig, &name, Down(1)).await } else { ours(&latch, Down(1)).await }, 0);
        waiters.all_go().await;
        // An open latch holds up nobody.
        latch.wait().await.expect("wait");
        assert_eq!(java(&rig, &name, "latch_await", json!({})).await, true);
    }
    end_with_tokens(rig, clients).await;
}

pub async fn latch_deleted_by_us_ends_the_waits_of_both_sides(version: &str) {
    let rig = Rig::with(version).await;
    let clients = [rig.client().await, rig.client().await];
    let latch = clients[0].latch("deleted");
    assert_eq!(theirs(&rig, "deleted", Set(2)).await, 1);
    let mut waiters = Waiters::start(&rig, &clients, "deleted").await;
    waiters.all_wait().await;
    assert!(latch.delete().await.expect("delete"));
    waiters.all_go().await;
    end_with_tokens(rig, clients).await;
}

/// Redisson's delete closes the gate of its own waiters, which then wait on. Our waiter also looks without a message.
pub async fn latch_deleted_by_java_ends_only_our_waits(version: &str) {
    let rig = Rig::with(version).await;
    let client = connect(rig.builder().configure(|options| options.poll_cap = ms(300))).await;
    for with_message in [true, false] {
        let name = format!("deleted:{with_message}");
        let (latch, waits) = (client.latch(&name), client.latch(&name));
        assert!(latch.try_set(1).await.expect("try_set"));
        let before = rig.admin.calls("get").await;
        let mut javas = rig.java(&name, 2).start("latch_await", json!({}));
        // Java looks, subscribes, and looks once more.
        until("two looks of Java's", async || rig.admin.calls("get").await >= before + 2).await;
        let waiter = tokio::spawn(async move { waits.wait().await.expect("wait") });
        rig.waiting(&client, 1).await;
        rig.listeners(&channel(&name), 2).await;
        if with_message {
            assert_eq!(theirs(&rig, &name, Delete).await, 1);
        } else {
            assert!(rig.admin.cmd::<bool>(&["DEL", &name]).await);
        }
        soon(waiter).await.expect("the waiter");
        assert_eq!(javas.within(ms(100)).await, None, "Redisson has learnt it");
        rig.admin.publish(&channel(&name), b"0").await;
        replied(javas).await;
    }
    end_with_tokens(rig, [client]).await;
}
