//! Helpers for the fair lock: its keys and its waiters. A waiter's *place* is its entry in the queue, with a deadline.
//! Our waiters refresh their places, every one to two *beats* (see `src/config.rs`).

use std::collections::BTreeMap;
use std::time::Duration;

use distlock::{Client, Guard};
use distlock_support::agent::{Call, JavaLock, Kind, monotonic_ns};
use tokio::task::JoinHandle;

use crate::rig::{FAIR_WAIT, Rig, soon, until, until_is};

/// Redisson's `fairLockWaitTimeout`, the wait of its `lock()`.
pub const JAVAS_WAIT: i64 = 300_000;
/// How far a refreshed deadline of ours is ahead, in ms: `fair_wait` minus half a beat.
pub const OUR_WAIT: i64 = FAIR_WAIT.as_millis() as i64 - 500;
/// The default of `fair_wait`. A waiter that is suspended for longer only loses its place.
pub const USUAL_WAIT: Duration = Duration::from_secs(6);

#[derive(Clone, Copy)]
pub struct Lane<'a> {
    pub rig: &'a Rig,
    pub name: &'a str,
}

impl<'a> Lane<'a> {
    pub const fn new(rig: &'a Rig, name: &'a str) -> Self {
        Self { rig, name }
    }

    /// Adds a hash tag, so that the key is in the lock's slot.
    fn tagged(&self, prefix: &str) -> String {
        if self.name.contains('{') { format!("{prefix}:{}", self.name) } else { format!("{prefix}:{{{}}}", self.name) }
    }

    pub fn queue_key(&self) -> String {
        self.tagged("redisson_lock_queue")
    }

    pub fn deadlines_key(&self) -> String {
        self.tagged("redisson_lock_timeout")
    }

    /// The hash of our waiters at this lock (see docs/wire-format.md).
    pub fn waiters_key(&self) -> String {
        format!("{}:{}", self.deadlines_key().replace("redisson_lock_timeout", "redisson_lock_waiters"), self.name)
    }

    pub fn channel(&self, owner: &str) -> String {
        format!("{}:{owner}", self.tagged("redisson_lock__channel"))
    }

    pub fn java(&self, agent: usize, thread: i64) -> JavaLock {
        self.rig.agents[agent].at(Kind::Fair, self.name, thread)
    }

    pub fn java_owner(&self, agent: usize, thread: i64) -> String {
        self.rig.agents[agent].holder(Kind::Fair, thread)
    }

    pub async fn queue(&self) -> Vec<String> {
        self.rig.admin.cmd(&["LRANGE", &self.queue_key(), "0", "-1"]).await
    }

    pub async fn score(&self, owner: &str) -> Option<i64> {
        let score: Option<f64> = self.rig.admin.cmd(&["ZSCORE", &self.deadlines_key(), owner]).await;
        score.map(|score| score as i64)
    }

    /// All deadlines, read at one time.
    pub async fn scores(&self) -> BTreeMap<String, i64> {
        let flat: Vec<(String, f64)> =
            self.rig.admin.cmd(&["ZRANGE", &self.deadlines_key(), "0", "-1", "WITHSCORES"]).await;
        flat.into_iter().map(|(owner, score)| (owner, score as i64)).collect()
    }

    pub async fn holders(&self) -> BTreeMap<String, String> {
        self.rig.admin.hgetall(self.name).await
    }

    /// Waits until `count` waiters are queued and the last one is subscribed to its own channel. Returns the last one.
    pub async fn joined(&self, count: usize) -> String {
        let queue = async || self.queue().await;
        until_is(&format!("{count} in the queue of {:?}", self.name), queue, |queue| queue.len() == count).await;
        let last = queue().await.pop().expect("a waiter");
        self.rig.listeners(&self.channel(&last), 1).await;
        last
    }

    /// Returns true if this waiter is queued and subscribed to its own channel.
    pub async fn hears(&self, owner: &str) -> bool {
        self.queue().await.iter().any(|waiter| waiter == owner)
            && self.rig.admin.numsub(&self.channel(owner)).await == 1
    }

    pub async fn waits(&self, owner: &str) {
        until(&format!("{owner} in the queue of {:?}", self.name), async || self.hears(owner).await).await;
    }

    /// Waits until a waiter of this client is queued and subscribed to its own channel. Returns the waiter's owner.
    pub async fn waits_as(&self, client: &Client) -> String {
        let of_client = async || self.queue().await.into_iter().find(|owner| owner.starts_with(client.id()));
        until_is(&format!("our client in the queue of {:?}", self.name), of_client, Option::is_some).await;
        let owner = of_client().await.expect("a waiter keeps its place");
        self.waits(&owner).await;
        owner
    }

    pub async fn held_by(&self, owner: &str) {
        let alone = |held: &BTreeMap<String, String>| held.len() == 1 && held.contains_key(owner);
        until_is(&format!("{owner} to hold {:?}", self.name), async || self.holders().await, alone).await;
    }

    /// Waits until our waiter has just refreshed its place, so that the next refresh is most of a beat away.
    pub async fn refreshed(&self, owner: &str) {
        let before = self.score(owner).await;
        until("a refresh", async || self.score(owner).await != before).await;
    }

    pub async fn is_gone(&self) {
        for key in [self.name, &self.queue_key(), &self.deadlines_key()] {
            until(&format!("{key:?} gone"), async || !self.rig.admin.exists(key).await).await;
        }
    }

    /// Deletes the lock without a message.
    pub async fn vanish(&self) {
        assert!(self.rig.admin.cmd::<bool>(&["DEL", self.name]).await, "nobody held it");
    }

    /// Appends a waiter without a process to the queue. Its deadline is `left` ms from now.
    pub async fn haunt(&self, owner: &str, left: i64) {
        let due = (self.rig.now().await + left).to_string();
        self.rig.admin.cmd::<()>(&["ZADD", &self.deadlines_key(), &due, owner]).await;
        self.rig.admin.cmd::<()>(&["RPUSH", &self.queue_key(), owner]).await;
    }

    pub async fn exorcise(&self, owner: &str) {
        self.rig.admin.cmd::<()>(&["LREM", &self.queue_key(), "0", owner]).await;
        self.rig.admin.cmd::<()>(&["ZREM", &self.deadlines_key(), owner]).await;
    }
}

/// A waiter of Java's that never existed.
pub const GHOST: &str = "ffffffff-ffff-4fff-8fff-ffffffffffff:1";

/// Waits for our fair lock in a separate task. The task returns the time of the acquire, and the guard.
pub fn fair_wait(client: &Client, name: &str) -> JoinHandle<(u64, Guard)> {
    let lock = client.fair(name);
    tokio::spawn(async move {
        let guard = lock.lock().await.expect("lock");
        (monotonic_ns(), guard)
    })
}

pub enum Waiter {
    Java(JavaLock, Call),
    Ours(JoinHandle<(u64, Guard)>),
}

impl Waiter {
    /// Waits for the acquire, and releases the lock at once. Returns the times of the acquire and of the start of the
    /// release.
    pub async fn turn(self) -> (u64, u64) {
        soon(self.hold(Duration::ZERO)).await
    }

    /// Like [`Waiter::turn`], but without a time limit, and holds the lock for `hold`.
    pub async fn hold(self, hold: Duration) -> (u64, u64) {
        match self {
            Self::Java(lock, call) => {
                let taken = call.await.expect("an operation in Java");
                assert_eq!(taken.value, true, "gave up");
                tokio::time::sleep(hold).await;
                (taken.t1, lock.unlock().await.expect("unlock").t0)
            }
            Self::Ours(task) => {
                let (taken, guard) = task.await.expect("the waiter");
                tokio::time::sleep(hold).await;
                let from = monotonic_ns();
                guard.unlock().await.expect("unlock");
                (taken, from)
            }
        }
    }
}
