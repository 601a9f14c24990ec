//! The subject of a test body: a bed, and the differences between flavours.

use std::ops::Deref;

use distlock::{Client, Error, Flavour, Released};
use tokio::task::JoinHandle;

use crate::mutex::{Held, Mutex};
use bed::{Bed, Make, becomes, eventually};

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
    /// True for permits with a total of one. They have no owner, and no [`Bed::lock`].
    pub is_permit: bool,
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
            is_permit: false,
        }
    }

    /// Permits with a total of one. Their key is the set of leases: the free count stays when nothing is held.
    pub const fn one_permit() -> Self {
        let mut kind = Self::mutex(|client, name| client.lock(Flavour::Reentrant, name));
        kind.is_permit = true;
        kind.comes_in_again = false;
        kind.keys = |name| {
            let tag = if name.contains('{') { name.to_owned() } else { format!("{{{name}}}") };
            vec![format!("{tag}:timeout")]
        };
        kind
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

/// The score that Redisson writes for a permit without a lease.
const NO_END: &str = "922337203685477";

pub struct Subject<'a> {
    bed: &'a Bed,
    kind: Kind,
}

impl<'a> Subject<'a> {
    /// The subject of one body. The name `job` is prepared.
    pub async fn start(bed: &'a Bed, kind: Kind) -> Self {
        let subject = Self { bed, kind };
        subject.prepare(&["job"]).await;
        subject
    }

    /// Ends a body: all permits must be free. Deletes their free counts, which have no expiry.
    pub async fn end(&self) {
        if !self.kind.is_permit {
            return;
        }
        becomes("leases of permits", Vec::<String>::new(), async || self.keys_of_holds().await).await;
        for key in self.bed.keys().await {
            assert_eq!(self.bed.admin.cmd::<String>(&["GET", &key]).await, "1", "free permits of {key:?}");
            self.bed.admin.cmd::<()>(&["DEL", &key]).await;
        }
    }

    /// Sets the total of permits of these names to one. `names` include the prefix. Locks need no preparation.
    pub async fn prepare(&self, names: &[impl AsRef<str>]) {
        for name in names.iter().filter(|_| self.kind.is_permit) {
            // A cluster that has just been restarted refuses commands for a moment.
            let set = async || self.bed.admin.raw(&["SETNX", name.as_ref(), "1"]).await.is_ok();
            eventually("the number of permits is set", set).await;
        }
    }

    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    pub fn keys_of(&self, name: &str) -> Vec<String> {
        (self.kind.keys)(name)
    }

    pub async fn main_keys(&self) -> Vec<String> {
        match (self.kind.is_permit, self.kind.is_text) {
            (true, _) => self.keys_of_holds().await,
            (_, true) => self.bed.admin.keys().await,
            _ => self.bed.admin.hash_keys().await,
        }
    }

    /// The keys that exist only while something is held: all keys except the free counts of permits.
    pub async fn keys_of_holds(&self) -> Vec<String> {
        let mut keys = self.bed.keys().await;
        keys.retain(|key| !self.kind.is_permit || key.ends_with(":timeout"));
        keys
    }

    /// Bytes by which the lock's longest key exceeds its name. The limit of names ignores the leases of permits.
    pub fn added_to_names(&self) -> usize {
        if self.kind.is_permit { 0 } else { self.keys_of("").iter().map(String::len).max().unwrap_or(0) }
    }

    /// The lock or permits of this name. Bodies that need an owner use [`Bed::lock`].
    pub fn mutex(&self, client: &Client, name: &str) -> Mutex {
        if self.kind.is_permit {
            Mutex::Permits(client.permits(name))
        } else {
            Mutex::Lock(self.bed.lock(client, name))
        }
    }

    /// The mutex that excludes [`Subject::mutex`] of this name. For a read-write lock this is the other half, otherwise
    /// the same mutex.
    pub fn rival(&self, client: &Client, name: &str) -> Mutex {
        if self.kind.is_permit { self.mutex(client, name) } else { Mutex::Lock((self.kind.rival)(client, name)) }
    }

    /// Ends the leases of all holds, at the latest after 1 ms.
    pub async fn end_leases(&self) {
        let admin = &self.bed.admin;
        for key in self.keys_of_holds().await {
            if self.kind.is_permit {
                let ids: Vec<Vec<u8>> = admin.cmd(&["ZRANGE", &key, "0", "-1"]).await;
                for id in ids {
                    let words: [&[u8]; 4] = [b"ZADD", key.as_bytes(), b"1", &id];
                    admin.cmd_bytes::<(), _>(&words).await;
                }
                continue;
            }
            let left = admin.pttl(&key).await;
            assert!(left > 0 || left == -2, "{key} never expires: {left}");
            admin.cmd::<()>(&["PEXPIRE", &key, "1"]).await;
        }
    }

    /// Deletes the covers of readers whose holds were ended by force. Otherwise the covers stay until they expire.
    pub async fn sweep_covers(&self) {
        for key in self.bed.keys().await.iter().filter(|key| key.contains(":rwlock_timeout:")) {
            assert!(self.bed.admin.pttl(key).await > 0, "{key} never expires");
            self.bed.admin.cmd::<()>(&["DEL", key]).await;
        }
    }

    /// Makes a foreign owner hold the lock without a TTL. For permits: takes the permit with a lease that has no end, as
    /// Redisson writes it. The id is `holder`, padded to 16 bytes.
    pub async fn give_to(&self, holder: &str, name: &str) {
        for key in self.keys_of(name) {
            if self.kind.is_permit {
                let added: u64 = self.bed.admin.cmd(&["ZADD", &key, NO_END, &format!("{holder:.<16}")]).await;
                let free: i64 = self.bed.admin.cmd(&["DECR", name]).await;
                assert_eq!((added, free), (1, 0), "the permit was free");
                continue;
            }
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

pub fn waiter(mutex: Mutex) -> JoinHandle<Held> {
    tokio::spawn(async move { mutex.lock().await.unwrap_or_else(|error| panic!("a waiter failed: {error:?}")) })
}

pub fn passer(mutex: Mutex) -> JoinHandle<Released> {
    tokio::spawn(async move { waiter(mutex).await.unwrap().unlock().await.expect("the release by a waiter") })
}

pub async fn freed(mutex: &Mutex) {
    eventually("the lock is free", async || !mutex.is_locked().await.unwrap()).await;
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
