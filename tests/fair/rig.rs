//! What the tests of the fair lock add to the bed: its keys, and waiters that come one after the other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock::{Client, FairLock, Guard};
use tokio::task::JoinHandle;

use bed::{Bed, eventually, secs};

/// A waiter that a dead Java process has left behind.
pub const DEAD_JAVA: &str = "ffffffff-ffff-4fff-8fff-ffffffffffff:1";

pub fn queue_key(name: &str) -> String {
    format!("redisson_lock_queue:{{{name}}}")
}

pub fn deadlines_key(name: &str) -> String {
    format!("redisson_lock_timeout:{{{name}}}")
}

pub fn channel(name: &str, owner: &str) -> String {
    format!("redisson_lock__channel:{{{name}}}:{owner}")
}

/// Who stands in the queue, the head first.
pub async fn queue(bed: &Bed, name: &str) -> Vec<String> {
    bed.admin.cmd(&["LRANGE", &queue_key(name), "0", "-1"]).await
}

/// The deadlines of those who wait, in ms from now on.
pub async fn deadlines(bed: &Bed, name: &str) -> BTreeMap<String, f64> {
    let scores: Vec<(String, f64)> = bed.admin.cmd(&["ZRANGE", &deadlines_key(name), "0", "-1", "WITHSCORES"]).await;
    // After the deadlines: none is further away than it seems.
    let now = server_time(bed).await;
    // The fraction of one of ours is a stamp, no part of a time.
    let ours = |owner: &str| owner.as_bytes()[14] == b'8';
    let left = |(owner, due): (String, f64)| {
        let until = if ours(&owner) { due.floor() } else { due };
        (owner, until - now)
    };
    scores.into_iter().map(left).collect()
}

/// The server's time in ms.
pub async fn server_time(bed: &Bed) -> f64 {
    let (secs, micros): (f64, f64) = bed.admin.cmd(&["TIME"]).await;
    secs * 1000.0 + micros / 1000.0
}

/// Puts a waiter at the end of the queue that no process stands for, with a deadline so many ms from now.
pub async fn plant(bed: &Bed, name: &str, owner: &str, left: f64) {
    let due = (server_time(bed).await + left).to_string();
    let _: u64 = bed.admin.cmd(&["ZADD", &deadlines_key(name), &due, owner]).await;
    let _: u64 = bed.admin.cmd(&["RPUSH", &queue_key(name), owner]).await;
}

/// Waits until so many stand in the queue.
pub async fn queued(bed: &Bed, name: &str, count: usize) {
    let within = secs(10);
    eventually(&format!("{count} wait for {name}"), async || queue(bed, name).await.len() == count).await;
}

/// No key of the lock is left.
pub async fn keys_gone(bed: &Bed, within: Duration) {
    eventually("no key is left", async || bed.admin.keys().await.is_empty()).await;
}

/// Who holds the lock, and how often.
pub async fn holders(bed: &Bed, name: &str) -> BTreeMap<String, String> {
    bed.admin.hgetall(name).await
}

/// The calls of `EVALSHA` that the server has counted.
pub async fn evals(bed: &Bed) -> u64 {
    bed.admin.calls("evalsha").await
}

/// Waits for the lock, and tells when it had it.
pub fn waiter(client: &Client, name: &str) -> JoinHandle<(Guard, Instant)> {
    bed::waiter(client.fair(name))
}

/// Waits for the lock and gives it back at once.
pub fn passer(client: &Client, name: &str) -> JoinHandle<()> {
    bed::passer(client.fair(name))
}

/// Waiters that stand in the queue in this order; each notes its number when it is served, and is gone after `hold`.
pub async fn line_up(bed: &Bed, locks: &[FairLock], count: usize, hold: Duration) -> Line {
    let served = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for n in 0..count {
        let (lock, served) = (locks[n % locks.len()].clone(), Arc::clone(&served));
        let name = lock.name().to_owned();
        let before = queue(bed, &name).await.len();
        tasks.push(tokio::spawn(async move {
            let guard = lock.lock().await.unwrap_or_else(|error| panic!("{error:?}"));
            served.lock().push(n);
            tokio::time::sleep(hold).await;
            guard.unlock().await.unwrap_or_else(|error| panic!("{error:?}"));
        }));
        queued(bed, &name, before + 1).await;
    }
    Line { served, tasks }
}

/// Waiters under way.
pub struct Line {
    served: Arc<parking_lot::Mutex<Vec<usize>>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Line {
    /// All are served, in the order in which they came.
    pub async fn served_in_order(self) {
        let count = self.tasks.len();
        for task in self.tasks {
            task.await.unwrap();
        }
        assert_eq!(*self.served.lock(), (0..count).collect::<Vec<_>>());
    }
}
