//! The subject of a test body: a bed, and the differences between flavours.

use std::ops::Deref;
use std::sync::Arc;

use distlock::{Client, DistLock, Error, Guard, Released};
use tokio::task::JoinHandle;

use bed::{Bed, Make, becomes};

/// The properties of a flavour that the suite uses.
#[derive(Clone, Copy)]
pub struct Kind {
    pub lock: Make,
    /// The lock that waits for `lock`, or is refused while `lock` is held.
    pub rival: Make,
    /// The fields of the hash while this holder has the lock.
    pub held_by: fn(&str) -> Vec<(String, String)>,
    pub comes_in_again: bool,
    /// True if the lock's key is a string and not a hash.
    pub is_text: bool,
    /// The main keys of a lock of this name. A lock made of others has several.
    pub keys: fn(&str) -> Vec<String>,
    /// The names that the lock and the guard report.
    pub called: fn(&str) -> (String, String),
    /// True if a release by a non-holder returns who holds the lock.
    pub tells_holder: bool,
    /// True if a guard covers several locks. It releases them when its deadline passes, shortly before their leases
    /// end.
    pub several: bool,
    /// The number of waiters in `Client::stats` while two tasks of one client wait.
    pub two_wait_as: usize,
    /// The waiters' queue in Redis for a lock of this name, if any.
    pub queue: Option<fn(&str) -> String>,
}

impl Kind {
    /// A lock that excludes its own kind, with its holders as the fields of its hash.
    pub const fn mutex(lock: Make) -> Self {
        Self {
            lock,
            rival: lock,
            held_by: |holder| vec![(holder.to_owned(), "no number".to_owned())],
            comes_in_again: true,
            is_text: false,
            keys: |name| vec![name.to_owned()],
            called: |name| (name.to_owned(), name.to_owned()),
            tells_holder: true,
            several: false,
            two_wait_as: 2,
            queue: None,
        }
    }

    pub const fn queued_in(mut self, queue: fn(&str) -> String) -> Self {
        self.queue = Some(queue);
        self
    }

    /// Expects the hash of a read-write lock that a writer holds.
    pub const fn held_by_a_writer(mut self) -> Self {
        self.held_by = |holder| {
            let mode = ("mode".to_owned(), "write".to_owned());
            vec![mode, (format!("{holder}:write"), "no number".to_owned())]
        };
        self
    }

    /// Stores the lock as a string with one holder, which cannot re-enter.
    pub const fn as_text(mut self) -> Self {
        self.comes_in_again = false;
        self.is_text = true;
        self
    }

    /// Returns `wanted`, or 1 if an owner cannot re-enter.
    pub const fn most_holds(&self, wanted: u32) -> u32 {
        if self.comes_in_again { wanted } else { 1 }
    }

    pub const fn against(mut self, rival: Make) -> Self {
        self.rival = rival;
        self
    }

    pub const fn of_several(mut self) -> Self {
        self.several = true;
        self
    }

    /// A lock made of several locks. Its name lists the names of its members.
    pub const fn of(self, keys: fn(&str) -> Vec<String>) -> Self {
        let mut kind = self.of_several();
        kind.keys = keys;
        kind.called = |name| {
            let all = format!("{name}+{name}/2");
            (all.clone(), all)
        };
        kind
    }

    /// The single segment of a striped lock. The guard is the segment's, a refused release does not name the holder,
    /// and all waiters of a process share one queue.
    pub const fn one_segment(mut self) -> Self {
        self.keys = |name| vec![format!("{name}:0")];
        self.called = |name| (name.to_owned(), format!("{name}:0"));
        self.tells_holder = false;
        self.two_wait_as = 1;
        self
    }
}

pub struct Subject<'a> {
    bed: &'a Bed,
    kind: Kind,
}

impl<'a> Subject<'a> {
    pub fn new(bed: &'a Bed, kind: Kind) -> Self {
        Self { bed, kind }
    }

    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    pub fn keys_of(&self, name: &str) -> Vec<String> {
        (self.kind.keys)(name)
    }

    pub async fn main_keys(&self) -> Vec<String> {
        if self.kind.is_text { self.bed.admin.keys().await } else { self.bed.admin.hash_keys().await }
    }

    /// How much longer the lock's longest key is than its name.
    pub fn added_to_names(&self) -> usize {
        self.keys_of("").iter().map(String::len).max().unwrap_or(0)
    }

    /// Returns the lock that excludes [`Bed::lock`] of this name. For a read-write lock this is the other half,
    /// otherwise the same lock.
    pub fn rival(&self, client: &Client, name: &str) -> Arc<dyn DistLock> {
        (self.kind.rival)(client, name)
    }

    /// Deletes the covers of readers whose holds were ended by force. Otherwise the covers stay until they expire.
    pub async fn sweep_covers(&self) {
        for key in self.bed.keys().await.iter().filter(|key| key.contains(":rwlock_timeout:")) {
            assert!(self.bed.admin.pttl(key).await > 0, "{key} never expires");
            self.bed.admin.cmd::<()>(&["DEL", key]).await;
        }
    }

    /// Makes a foreign owner hold the lock without a TTL.
    pub async fn give_to(&self, holder: &str, name: &str) {
        for key in self.keys_of(name) {
            if self.kind.is_text {
                let () = self.bed.admin.cmd(&["SET", &key, holder]).await;
                continue;
            }
            for (field, value) in (self.kind.held_by)(holder) {
                let _: u64 = self.bed.admin.cmd(&["HSET", &key, &field, &value]).await;
            }
        }
    }
}

pub async fn waiting(client: &Client, acquires: usize) {
    becomes("acquires that wait", acquires, async || client.stats().waiting).await;
}

pub fn waiter(lock: Arc<dyn DistLock>) -> JoinHandle<Guard> {
    tokio::spawn(async move { lock.lock().await.unwrap_or_else(|error| panic!("a waiter failed: {error:?}")) })
}

pub fn passer(lock: Arc<dyn DistLock>) -> JoinHandle<Released> {
    tokio::spawn(async move { waiter(lock).await.unwrap().unlock().await.expect("the release by a waiter") })
}

/// Unwraps the cause of an error. A RedLock without a majority reports why one of its servers did not grant.
pub fn cause(error: Error) -> Error {
    match error {
        Error::NoQuorum { why, granted: 0, .. } => (*why).clone(),
        error => error,
    }
}

impl Deref for Subject<'_> {
    type Target = Bed;

    fn deref(&self) -> &Bed {
        self.bed
    }
}
