//! Helpers of the read-write lock's tests: its keys, its state in Redis, the messages on its channel, its waiters, and
//! a check that a writer is alone.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use distlock::{Acquire, Client, DistLock, Flavour, Guard, Owner};
use tokio::task::JoinHandle;

use bed::events::Events;
use bed::fault::got;
use bed::{Bed, becomes, ends, eventually, secs, text};

/// A watchdog or lease that outlasts every test.
pub const HOUR: Duration = secs(3600);

pub const BOTH: [Flavour; 2] = [Flavour::Read, Flavour::Write];

/// Holder and waiter: each pair of halves that exclude each other.
pub const RIVALS: [(Flavour, Flavour); 3] =
    [(Flavour::Write, Flavour::Read), (Flavour::Read, Flavour::Write), (Flavour::Write, Flavour::Write)];

pub fn writes(owner: &Owner) -> String {
    format!("{}:write", text(owner))
}

pub fn channel(name: &str) -> String {
    format!("redisson_rwlock:{{{name}}}")
}

pub fn marks(name: &str) -> String {
    format!("{{{name}}}:rwlock_waiting")
}

pub fn cover(name: &str, owner: &str, n: usize) -> String {
    format!("{{{name}}}:{owner}:rwlock_timeout:{n}")
}

pub async fn marked(bed: &Bed, name: &str) {
    eventually("a waiting writer leaves its mark", async || bed.admin.exists(&marks(name)).await).await;
}

/// Remaining ms of each cover of the owner, from its first hold on.
pub async fn covers(bed: &Bed, name: &str, owner: &Owner) -> Vec<i64> {
    let mut found = Vec::new();
    loop {
        let left = bed.admin.pttl(&cover(name, &text(owner), found.len() + 1)).await;
        if left == -2 {
            return found;
        }
        found.push(left);
    }
}

/// The expected hash: the mode, and the holds of every field.
pub fn fields(mode: &str, holds: &[(String, u32)]) -> BTreeMap<String, String> {
    let mut all: BTreeMap<_, _> = holds.iter().map(|(field, count)| (field.clone(), count.to_string())).collect();
    if !mode.is_empty() {
        all.insert("mode".to_owned(), mode.to_owned());
    }
    all
}

/// Returns true if `left` ms fit a lease of this many hours that was set in the same test. Other leases of the test are
/// several times longer or shorter.
pub fn near(left: i64, lease: Duration) -> bool {
    let lease = i64::try_from(lease.as_millis()).expect("a lease of hours");
    left <= lease + 1 && left > lease / 2
}

pub async fn lease(lock: &(impl DistLock + ?Sized), owner: &Owner, lease: Duration) -> Guard {
    got(lock.name(), "acquire with a lease", lock.acquire(Acquire::new().owner(owner).lease(lease)).await)
}

pub fn waiter(client: &Client, half: Flavour, name: &str) -> JoinHandle<Guard> {
    let lock = client.lock(half, name);
    tokio::spawn(async move { lock.lock().await.unwrap_or_else(|error| panic!("lock, {half}: {error:?}")) })
}

/// Returns the guard of a waiter that must acquire.
pub async fn granted(what: &str, waiter: JoinHandle<Guard>) -> Guard {
    ends(what, waiter).await.unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// Asserts that the waiter acquires, and releases the lock.
pub async fn served(what: &str, waiter: JoinHandle<Guard>) {
    unlock(what, granted(what, waiter).await).await;
}

async fn unlock(what: &str, guard: Guard) {
    if let Err(error) = guard.unlock().await {
        panic!("{what}: unlock: {error:?}");
    }
}

pub async fn unlock_all(guards: impl IntoIterator<Item = Guard>) {
    for (n, guard) in guards.into_iter().enumerate() {
        unlock(&format!("guard {n}"), guard).await;
    }
}

pub async fn passes(what: &str, lock: &impl DistLock) {
    unlock(what, got(what, "try_lock", lock.try_lock().await)).await;
}

/// Waits until this many acquires of the client wait, the channel has a subscriber, and no command is in flight. The
/// attempt that follows a subscription may not have been sent yet.
pub async fn waits(bed: &Bed, client: &Client, name: &str, count: usize) {
    let look = async || {
        let heard = bed.admin.numsub(&channel(name)).await > 0;
        let stats = client.stats();
        (heard, stats.waiting, stats.under_way)
    };
    becomes(&format!("{name}: listened to, waiters, commands in flight"), (true, count, 0), look).await;
}

pub async fn keys_gone(bed: &Bed) {
    eventually("no key is left", async || bed.admin.keys().await.is_empty()).await;
}

/// Deletes the covers that a force has left. There must be this number, and each must have a TTL.
pub async fn sweep_covers(bed: &Bed, count: usize) {
    let keys = bed.admin.keys().await;
    assert_eq!(keys.iter().filter(|key| key.contains(":rwlock_timeout:")).count(), count, "{keys:?}");
    for key in keys.iter().filter(|key| key.contains(":rwlock_timeout:")) {
        assert!(bed.admin.pttl(key).await > 0, "{key} has no end");
        let _: u64 = bed.admin.cmd(&["DEL", key]).await;
    }
}

/// Fails a test if another owner is inside together with a writer (RW1).
#[derive(Debug, Default)]
pub struct Inside {
    readers: AtomicI64,
    writers: AtomicI64,
    pub most: AtomicI64,
}

impl Inside {
    pub async fn read(&self, span: Duration) {
        let readers = self.readers.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(readers, Ordering::SeqCst);
        assert_eq!(self.writers.load(Ordering::SeqCst), 0, "a reader beside a writer");
        stay(span).await;
        assert_eq!(self.writers.load(Ordering::SeqCst), 0, "a writer came in beside a reader");
        self.readers.fetch_sub(1, Ordering::SeqCst);
    }

    pub async fn write(&self, span: Duration) {
        assert_eq!(self.writers.fetch_add(1, Ordering::SeqCst), 0, "two writers");
        assert_eq!(self.readers.load(Ordering::SeqCst), 0, "a writer beside a reader");
        stay(span).await;
        assert_eq!(self.readers.load(Ordering::SeqCst), 0, "a reader came in beside a writer");
        assert_eq!(self.writers.fetch_sub(1, Ordering::SeqCst), 1, "two writers");
    }
}

async fn stay(span: Duration) {
    if span.is_zero() {
        tokio::task::yield_now().await;
    } else {
        tokio::time::sleep(span).await;
    }
}

/// The lock's state on the server: its hash, its covers, and the messages on its channel.
pub struct Scene<'a> {
    bed: &'a Bed,
    name: &'a str,
    events: Events,
    marks: usize,
}

impl<'a> Scene<'a> {
    pub async fn new(bed: &'a Bed, name: &'a str) -> Self {
        let events = Events::subscribe(&bed.server, &[&channel(name)]).await;
        Self { bed, name, events, marks: 0 }
    }

    /// Counts the messages `0` and `1` so far. The counts are complete, because a later message of the test has
    /// arrived.
    pub async fn told(&mut self) -> (usize, usize) {
        let on = channel(self.name);
        self.marks += 1;
        self.bed.admin.publish(&on, b"mark").await;
        eventually("our own message comes", async || self.events.count(&on, "mark") == self.marks).await;
        (self.events.count(&on, "0"), self.events.count(&on, "1"))
    }

    /// Asserts that this is the hash, with a lease of an [`HOUR`]. Without holds, asserts that the hash does not exist.
    pub async fn is(&self, step: &str, mode: &str, holds: &[(String, u32)]) {
        let found = self.bed.admin.hgetall(self.name).await;
        let left = self.bed.admin.pttl(self.name).await;
        assert_eq!(found, fields(mode, holds), "{step}");
        assert!(if holds.is_empty() { left == -2 } else { near(left, HOUR) }, "{step}: the hash has {left} ms left");
    }

    /// Asserts that the owner has this number of covers, each with a lease of an [`HOUR`].
    pub async fn covered(&self, step: &str, owner: &Owner, count: usize) {
        let found = covers(self.bed, self.name, owner).await;
        let fits = found.len() == count && found.iter().all(|left| near(*left, HOUR));
        assert!(fits, "{step}: {count} covers of an hour expected, found {found:?} ms");
    }

    pub async fn gone(&self, step: &str) {
        assert_eq!(self.bed.admin.keys().await, [""; 0], "{step}");
    }
}
