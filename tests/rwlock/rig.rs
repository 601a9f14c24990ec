//! What the tests of the read-write lock add to the bed: its keys, its state in Redis, and what is told on its channel.

use std::collections::BTreeMap;
use std::time::Duration;

use distlock::{Acquire, Client, DistLock, Guard, Owner};

use bed::events::Events;
use bed::{Bed, eventually, ms, text};

pub fn writes(owner: &Owner) -> String {
    format!("{}:write", text(owner))
}

pub fn channel(name: &str) -> String {
    format!("redisson_rwlock:{{{name}}}")
}

/// The key of the writers of ours that wait.
pub fn marks(name: &str) -> String {
    format!("{{{name}}}:rwlock_waiting")
}

pub fn cover(name: &str, owner: &Owner, n: usize) -> String {
    format!("{{{name}}}:{}:rwlock_timeout:{n}", text(owner))
}

/// What is left of each cover of the owner, in ms, from its first hold on.
pub async fn covers(bed: &Bed, name: &str, owner: &Owner) -> Vec<i64> {
    let mut found = Vec::new();
    loop {
        let left = bed.admin.pttl(&cover(name, owner, found.len() + 1)).await;
        if left == -2 {
            return found;
        }
        found.push(left);
    }
}

/// What the hash must be: the mode, and the holds of every field.
pub fn fields(mode: &str, holds: &[(String, u32)]) -> BTreeMap<String, String> {
    let mut all: BTreeMap<_, _> = holds.iter().map(|(field, count)| (field.clone(), count.to_string())).collect();
    if !mode.is_empty() {
        all.insert("mode".to_owned(), mode.to_owned());
    }
    all
}

/// True for what is left of a lease of so many ms that was set a moment ago, on a busy machine.
pub fn near(left: i64, lease: i64) -> bool {
    left <= lease + 1 && left > lease - 2_000
}

/// Comes in as this owner for so long.
pub async fn lease(lock: &impl DistLock, owner: &Owner, lease: Duration) -> Guard {
    lock.acquire(Acquire::new().owner(owner).lease(lease)).await.unwrap().unwrap()
}

/// So many of this client's acquires wait, and hear what is told.
pub async fn waits(bed: &Bed, client: &Client, name: &str, count: usize) {
    let all_wait = async || client.stats().waiting == count && bed.admin.numsub(&channel(name)).await > 0;
    eventually(&format!("{count} wait for {name}"), all_wait).await;
    // Its look after the subscription.
    let mut asked = 0;
    loop {
        let now = bed.admin.calls("evalsha").await;
        if std::mem::replace(&mut asked, now) == now {
            return;
        }
        tokio::time::sleep(ms(10)).await;
    }
}

/// No key is left of any lock.
pub async fn keys_gone(bed: &Bed) {
    eventually("no key is left", async || bed.admin.keys().await.is_empty()).await;
}

/// Covers that nobody takes back any more, as they are after a lock was freed by force: all have an end. Takes them away.
pub async fn sweep_covers(bed: &Bed, count: usize) {
    let keys = bed.admin.keys().await;
    assert_eq!(keys.iter().filter(|key| key.contains(":rwlock_timeout:")).count(), count, "{keys:?}");
    for key in keys.iter().filter(|key| key.contains(":rwlock_timeout:")) {
        assert!(bed.admin.pttl(key).await > 0, "{key} has no end");
        let _: u64 = bed.admin.cmd(&["DEL", key]).await;
    }
}

/// One lock under watch: its hash, its covers, and what is told about it.
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

    /// What was told so far: how many times 0, and how many times 1. All of it: what came before a mark of our own.
    pub async fn told(&mut self) -> (usize, usize) {
        let on = channel(self.name);
        self.marks += 1;
        self.bed.admin.publish(&on, b"mark").await;
        eventually("the mark came", async || self.events.count(&on, "mark") == self.marks).await;
        (self.events.count(&on, "0"), self.events.count(&on, "1"))
    }

    /// The hash must be this, and last for about so many ms (0: there is none).
    pub async fn is(&self, step: &str, mode: &str, holds: &[(String, u32)], lasts: i64) {
        let found = self.bed.admin.hgetall(self.name).await;
        let left = self.bed.admin.pttl(self.name).await;
        assert_eq!(found, fields(mode, holds), "{step}");
        assert!(if lasts == 0 { left == -2 } else { near(left, lasts) }, "{step}: {left} ms left, expected {lasts}");
    }

    /// The owner's covers must last for about so many ms each, and there are no more.
    pub async fn covered(&self, step: &str, owner: &Owner, lasts: &[i64]) {
        let found = covers(self.bed, self.name, owner).await;
        let fits = found.len() == lasts.len() && found.iter().zip(lasts).all(|(left, lease)| near(*left, *lease));
        assert!(fits, "{step}: {found:?}, expected {lasts:?}");
    }

    /// Nothing is left of the lock.
    pub async fn gone(&self, step: &str) {
        assert_eq!(self.bed.admin.keys().await, [""; 0], "{step}");
    }
}
