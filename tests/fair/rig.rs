//! Helpers of the fair lock's tests: keys, clients that keep their places (queue entries), and waiters.

use std::collections::BTreeMap;

use distlock::{Builder, Client, Flavour, Guard};
use tokio::task::JoinHandle;

use bed::wire::Wire;
use bed::{Bed, PATIENCE, becomes, scripts, secs};

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

/// Options with which clients keep their places even on a slow machine.
pub fn patient(builder: Builder) -> Builder {
    builder.configure(|options| options.fair_wait = secs(300))
}

/// A client that keeps its places and lets no command time out, even on a slow machine. All clients of a lock need
/// these options, because each client uses its own `fair_wait` to detect dead waiters.
pub async fn patient_client(bed: &Bed) -> Client {
    bed.connect(patient(bed.builder()).watchdog(secs(300)).command_timeout(PATIENCE)).await
}

/// The owners in the queue, head first.
pub async fn queue(bed: &Bed, name: &str) -> Vec<String> {
    bed.admin.cmd(&["LRANGE", &queue_key(name), "0", "-1"]).await
}

/// The deadlines of the waiters.
pub async fn deadlines(bed: &Bed, name: &str) -> BTreeMap<String, f64> {
    bed.admin.cmd(&["ZRANGE", &deadlines_key(name), "0", "-1", "WITHSCORES"]).await
}

/// Appends a waiter without a process to the queue. Its deadline is `left` ms from now, a whole number as in Java.
pub async fn plant(bed: &Bed, name: &str, owner: &str, left: f64) {
    let (secs, micros): (f64, f64) = bed.admin.cmd(&["TIME"]).await;
    let due = (secs * 1000.0 + (micros / 1000.0).floor() + left).to_string();
    // The place comes first, because a refresh deletes a deadline without a place.
    let _: u64 = bed.admin.cmd(&["RPUSH", &queue_key(name), owner]).await;
    let _: u64 = bed.admin.cmd(&["ZADD", &deadlines_key(name), &due, owner]).await;
}

pub async fn queued(bed: &Bed, name: &str, count: usize) {
    becomes(&format!("waiters for {name}"), count, async || bed.admin.cmd(&["LLEN", &queue_key(name)]).await).await;
}

/// Waits until the owner of a place is subscribed to its channel.
pub async fn listens(bed: &Bed, name: &str, owner: &str) {
    becomes("listeners of a waiter's channel", 1, async || bed.admin.numsub(&channel(name, owner)).await).await;
}

/// Runs a body on one server, which the body may inspect.
pub async fn fair_at_one(body: impl AsyncFn(&Bed)) {
    bed::at_one(|client, name| client.lock(Flavour::Fair, name), body).await;
}

pub async fn keys_gone(bed: &Bed) {
    becomes("keys", Vec::<String>::new(), async || bed.admin.keys().await).await;
}

pub async fn holders(bed: &Bed, name: &str) -> BTreeMap<String, String> {
    bed.admin.hgetall(name).await
}

pub fn waiter(client: &Client, name: &str) -> JoinHandle<Guard> {
    let lock = client.fair(name);
    tokio::spawn(async move { lock.lock().await.unwrap_or_else(|error| panic!("a waiter failed: {error:?}")) })
}

/// The client of an owner.
pub fn client_of(owner: &str) -> &str {
    owner.rsplit_once(':').map_or(owner, |(client, _)| client)
}

/// Counts the script calls of operations. Refreshes and renewals are not counted, because they depend on the clock.
pub struct Calls {
    wire: Wire,
    taken: usize,
}

impl Calls {
    pub async fn start(bed: &Bed) -> Self {
        Self { wire: Wire::tap(&bed.server).await, taken: 0 }
    }

    /// The calls since the last [`take`](Self::take), by script.
    pub async fn seen(&self, bed: &Bed) -> BTreeMap<&'static str, usize> {
        self.count(&self.wire.calls(bed).await[self.taken..])
    }

    /// Returns the same counts, and resets them.
    pub async fn take(&mut self, bed: &Bed) -> BTreeMap<&'static str, usize> {
        let calls = self.wire.calls(bed).await;
        let counts = self.count(&calls[self.taken..]);
        self.taken = calls.len();
        counts
    }

    fn count(&self, calls: &[Vec<String>]) -> BTreeMap<&'static str, usize> {
        let count = |script| {
            let hash = scripts::sha(&format!("fair/{script}"));
            (script, calls.iter().filter(|call| call[1] == hash).count())
        };
        ["acquire", "release", "leave", "force"].map(count).into_iter().filter(|(_, calls)| *calls > 0).collect()
    }
}
