//! The state in Redis after each step of a fair lock is the same, whichever language takes which step. A *cast* assigns
//! a language to each of the actors A, B, C, D.

use std::time::Duration;

use bed::{in_vain, with_longer_waits};
use distlock::{Acquire, Client, Guard, Owner};
use distlock_support::agent::{Call, JavaLock};
use futures::future::join_all;
use tokio::task::JoinHandle;

use crate::fair_rig::{JAVAS_WAIT, Lane, OUR_WAIT, fair_wait};
use crate::rig::{NEVER, Rig, had, ms, replied, soon, until};

/// Long enough for the next waiter to queue on a machine that is not slow.
const SHORT: Duration = ms(4000);
const LEASE: Duration = NEVER;
const CAST: usize = 4;

struct Actor {
    owner: String,
    side: Side,
}

enum Side {
    Java(JavaLock),
    Ours(Client, Owner, Vec<Guard>),
}

enum Had {
    Nothing,
    InJava,
    Ours(Guard),
}

impl Actor {
    fn new(lane: &Lane<'_>, client: &Client, java: bool, thread: i64) -> Self {
        if java {
            return Self { owner: lane.java_owner(0, thread), side: Side::Java(lane.java(0, thread)) };
        }
        let owner = client.owner();
        Self { owner: owner.as_str().to_owned(), side: Side::Ours(client.clone(), owner, Vec::new()) }
    }

    /// Starts to wait, and gives up after this time if there is one.
    fn ask(&self, name: &str, wait: Option<Duration>) -> JoinHandle<Had> {
        match &self.side {
            Side::Java(lock) => {
                let call = wait.map_or_else(|| lock.start_lock(), |wait| lock.start_try_lock(wait, Some(LEASE)));
                tokio::spawn(async move { if had(call.await).is_some() { Had::InJava } else { Had::Nothing } })
            }
            Side::Ours(client, owner, _) => {
                let (lock, how) = (client.fair(name), Acquire::new().owner(owner));
                let how = wait.map_or(how.clone(), |wait| how.wait(wait));
                tokio::spawn(async move {
                    match lock.acquire(how).await {
                        outcome if in_vain(&outcome) => Had::Nothing,
                        outcome => Had::Ours(outcome.expect("acquire").expect("a guard")),
                    }
                })
            }
        }
    }

    /// Waits until the actor's wait has ended. Returns true if the actor acquired.
    async fn hear(&mut self, waiting: JoinHandle<Had>) -> bool {
        let had = soon(waiting).await.expect("the waiter");
        let held = !matches!(had, Had::Nothing);
        if let (Side::Ours(_, _, guards), Had::Ours(guard)) = (&mut self.side, had) {
            guards.push(guard);
        }
        held
    }

    async fn lock(&mut self, name: &str) {
        let waiting = self.ask(name, None);
        assert!(self.hear(waiting).await);
    }

    async fn unlock(&mut self) {
        match &mut self.side {
            Side::Java(lock) => drop(replied(lock.unlock()).await),
            Side::Ours(_, _, guards) => {
                guards.pop().expect("a hold").unlock().await.expect("unlock");
            }
        }
    }
}

/// Prints holders and waiters as letters, in the order of the cast.
async fn seen(lane: &Lane<'_>, cast: &[Actor], step: &str) -> String {
    let letter = |owner: &String| {
        let at = cast.iter().position(|actor| &actor.owner == owner);
        at.map_or_else(|| owner.clone(), |at| char::from(b'A' + at as u8).to_string())
    };
    let held: Vec<_> = lane.holders().await.iter().map(|(owner, count)| letter(owner) + count).collect();
    let queue: Vec<_> = lane.queue().await.iter().map(letter).collect();
    let mut due: Vec<_> = lane.scores().await.keys().map(letter).collect();
    due.sort();
    format!("{step}: held [{}] queue [{}] deadlines [{}]", held.join(" "), queue.join(" "), due.join(" "))
}

/// Runs all steps with this cast. Returns the state after each step, or `None` if C gave up too early on a slow
/// machine.
async fn play(rig: &Rig, client: &Client, name: &str, java: u32, short: Duration) -> Option<Vec<String>> {
    let lane = Lane::new(rig, name);
    let mut cast: Vec<_> =
        (0..CAST).map(|i| Actor::new(&lane, client, java >> i & 1 == 1, i64::from(java) * 10 + i as i64)).collect();
    let mut all = Vec::new();
    cast[0].lock(name).await;
    all.push(seen(&lane, &cast, "A holds").await);
    cast[0].lock(name).await;
    all.push(seen(&lane, &cast, "A holds twice").await);
    let b = cast[1].ask(name, None);
    lane.waits(&cast[1].owner).await;
    all.push(seen(&lane, &cast, "B waits").await);
    let c = cast[2].ask(name, Some(short));
    until("C in the queue", async || c.is_finished() || lane.hears(&cast[2].owner).await).await;
    all.push(seen(&lane, &cast, "C waits").await);
    let d = cast[3].ask(name, None);
    lane.waits(&cast[3].owner).await;
    all.push(seen(&lane, &cast, "D waits").await);
    // A re-entry bypasses the queue.
    cast[0].lock(name).await;
    all.push(seen(&lane, &cast, "A holds three times").await);
    let in_time = lane.queue().await.contains(&cast[2].owner);
    assert!(!cast[2].hear(c).await);
    // Our waiter gives up without waiting for the reply.
    until("C gone", async || lane.queue().await.len() == 2).await;
    all.push(seen(&lane, &cast, "C gave up").await);
    for step in ["A holds twice", "A holds once"] {
        cast[0].unlock().await;
        all.push(seen(&lane, &cast, step).await);
    }
    cast[0].unlock().await;
    assert!(cast[1].hear(b).await);
    all.push(seen(&lane, &cast, "B holds").await);
    cast[1].unlock().await;
    assert!(cast[3].hear(d).await);
    all.push(seen(&lane, &cast, "D holds").await);
    cast[3].unlock().await;
    all.push(seen(&lane, &cast, "free").await);
    lane.is_gone().await;
    in_time.then_some(all)
}

/// Every cast of both languages leaves the same state as Redisson alone.
pub async fn fair_state_after_each_step_matches_redisson(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.watched_client().await;
    let all_java = (1 << CAST) - 1;
    let right = with_longer_waits(SHORT, async |short| play(&rig, &client, "cast", all_java, short).await).await;
    assert_eq!(right[4], "D waits: held [A2] queue [B C D] deadlines [B C D]");
    assert_eq!(right[9], "B holds: held [B1] queue [D] deadlines [D]");
    let casts = (0..all_java).map(async |java| {
        let name = format!("cast:{java}");
        let seen = with_longer_waits(SHORT, async |short| play(&rig, &client, &name, java, short).await).await;
        assert_eq!(seen, right, "with Java at {java:04b}");
    });
    join_all(casts).await;
    rig.end([client]).await;
}

/// The deadline of a Java waiter behind ours is Java's wait after our deadline. It becomes earlier when our waiter
/// leaves.
pub async fn fair_java_deadlines_depend_on_our_waiter_ahead(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.watched_client().await;
    // A round is repeated if our waiter refreshed its place between two readings: the exact deadline is then unknown.
    with_longer_waits(ms(1), async |_| ours_acquires(&rig, &client).await).await;
    // The waiter that gives up is behind a waiter of Java, or behind one of ours, which gives up afterwards.
    for java_ahead in [true, false] {
        with_longer_waits(ms(1), async |_| ours_gives_up(&rig, &client, java_ahead).await).await;
    }
    rig.end([client]).await;
}

struct Java(JavaLock, Call, String);

impl Java {
    async fn join(lane: &Lane<'_>, thread: i64, wait: Option<Duration>, count: usize) -> Self {
        let java = lane.java(0, thread);
        let call = match wait {
            Some(wait) => java.start_try_lock(wait, Some(LEASE)),
            None => java.start_lock(),
        };
        Self(java, call, lane.joined(count).await)
    }

    async fn turn(self) {
        assert_eq!(replied(self.1).await.value, true);
        replied(self.0.unlock()).await;
    }
}

/// After our waiter has left, Java's deadline is Java's wait after our last refresh. Returns false if that refresh came
/// after `ours_before` was read.
async fn is_nearer(lane: &Lane<'_>, java: i64, ours_before: i64) -> bool {
    let (from, now) = (ours_before - OUR_WAIT, lane.rig.now().await);
    assert!((from..=now).contains(&(java - JAVAS_WAIT)), "{}: {java}, {ours_before} before, now {now}", lane.name);
    java - JAVAS_WAIT == from
}

async fn ours_acquires(rig: &Rig, client: &Client) -> Option<()> {
    let lane = Lane::new(rig, "acquires");
    let wait = Duration::from_secs(300);
    let guard = client.fair(lane.name).lock().await.expect("lock");
    let waiter = fair_wait(client, lane.name);
    let ours = lane.joined(1).await;
    let first = Java::join(&lane, 1, None, 2).await;
    let second = Java::join(&lane, 2, Some(wait), 3).await;
    for round in 0..3 {
        let due = lane.scores().await;
        assert_eq!(due[&first.2] - due[&ours], JAVAS_WAIT, "round {round}");
        assert_eq!(due[&second.2] - due[&first.2], wait.as_millis() as i64, "round {round}");
        lane.refreshed(&ours).await;
    }
    let before = lane.scores().await;
    guard.unlock().await.expect("unlock");
    let after = lane.scores().await;
    assert_eq!(after.len(), 2, "{after:?}");
    let is_exact = is_nearer(&lane, after[&first.2], before[&ours]).await;
    assert_eq!(after[&second.2] - after[&first.2], wait.as_millis() as i64);
    soon(waiter).await.expect("the waiter").1.unlock().await.expect("unlock");
    assert_eq!(replied(first.1).await.value, true);
    assert_eq!(lane.scores().await[&second.2], after[&second.2] - JAVAS_WAIT);
    replied(first.0.unlock()).await;
    second.turn().await;
    lane.is_gone().await;
    is_exact.then_some(())
}

async fn ours_gives_up(rig: &Rig, client: &Client, java_ahead: bool) -> Option<()> {
    let name = format!("gives up:{java_ahead}");
    let lane = Lane::new(rig, &name);
    let guard = client.fair(&name).lock().await.expect("lock");
    let (mut java, mut other) = (None, None);
    if java_ahead {
        java = Some(Java::join(&lane, 1, None, 1).await);
    } else {
        other = Some(fair_wait(client, &name));
    }
    let head = lane.joined(1).await;
    let waiter = fair_wait(client, &name);
    let ours = lane.joined(2).await;
    let behind = Java::join(&lane, 2, None, 3).await;
    lane.refreshed(&ours).await;
    let before = lane.scores().await;
    assert_eq!(before[&behind.2] - before[&ours], JAVAS_WAIT);
    waiter.abort();
    until("it gone", async || lane.queue().await.len() == 2).await;
    let after = lane.scores().await;
    let mut is_exact = after[&head] == before[&head];
    // A head of ours may have refreshed its place in the meantime.
    assert!(is_exact || !java_ahead && after[&head] > before[&head], "{before:?} {after:?}");
    assert_eq!(after[&behind.2] - after[&head], JAVAS_WAIT, "{before:?} {after:?}");
    if let Some(other) = other {
        lane.refreshed(&head).await;
        let before = lane.scores().await;
        assert_eq!(before[&behind.2] - before[&head], JAVAS_WAIT);
        other.abort();
        until("it gone", async || lane.queue().await.len() == 1).await;
        is_exact &= is_nearer(&lane, lane.scores().await[&behind.2], before[&head]).await;
    }
    guard.unlock().await.expect("unlock");
    if let Some(java) = java {
        java.turn().await;
    }
    behind.turn().await;
    lane.is_gone().await;
    is_exact.then_some(())
}
