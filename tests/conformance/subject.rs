//! What a body of the suite is run over: a bed, and what differs between flavours.

use std::ops::Deref;
use std::sync::Arc;

use distlock::{Client, DistLock, Error, Guard, Released};
use tokio::task::JoinHandle;

use bed::{Bed, Make, becomes};

/// A flavour, as far as the suite has to know.
#[derive(Clone, Copy)]
pub struct Kind {
    /// The lock whose holder is looked at.
    pub lock: Make,
    /// The lock that waits for that one, or is refused beside it.
    pub rival: Make,
    /// What stands in the hash when this one holds the lock.
    pub held_by: fn(&str) -> Vec<(String, String)>,
    /// True when its owner may come in again.
    pub comes_in_again: bool,
    /// True when a text stands under its name, and no hash.
    pub is_text: bool,
    /// The main keys of a lock of this name: several of one that is made of others.
    pub keys: fn(&str) -> Vec<String>,
    /// What such a lock says that its name is, and what its guard says.
    pub called: fn(&str) -> (String, String),
    /// True when the release of a stranger is told who holds the lock.
    pub tells_holder: bool,
    /// True when the guard is of several locks: one that is lost by its clock is told so without a word from the server.
    pub several: bool,
    /// As how many those of one process count who wait for it, two of them.
    pub two_wait_as: usize,
    /// The queue in Redis in which those stand who wait for the lock of this name, if there is one.
    pub queue: Option<fn(&str) -> String>,
}

impl Kind {
    /// A lock that keeps out its own kind, with its holders as the fields of its hash.
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

    /// With a queue in Redis.
    pub const fn queued_in(mut self, queue: fn(&str) -> String) -> Self {
        self.queue = Some(queue);
        self
    }

    /// As the hash of a read-write lock is in the hands of a writer.
    pub const fn held_by_a_writer(mut self) -> Self {
        self.held_by = |holder| {
            let mode = ("mode".to_owned(), "write".to_owned());
            vec![mode, (format!("{holder}:write"), "no number".to_owned())]
        };
        self
    }

    /// With a text under its name, and one holder that cannot come in again.
    pub const fn as_text(mut self) -> Self {
        self.comes_in_again = false;
        self.is_text = true;
        self
    }

    /// How many holds an owner may have, of so many.
    pub const fn most_holds(&self, wanted: u32) -> u32 {
        if self.comes_in_again { wanted } else { 1 }
    }

    /// With others waiting for it than its own kind.
    pub const fn against(mut self, rival: Make) -> Self {
        self.rival = rival;
        self
    }

    /// With guards that are of several locks.
    pub const fn of_several(mut self) -> Self {
        self.several = true;
        self
    }

    /// Made of the locks of these names, and named after all of them.
    pub const fn of(self, keys: fn(&str) -> Vec<String>) -> Self {
        let mut kind = self.of_several();
        kind.keys = keys;
        kind.called = |name| {
            let all = format!("{name}+{name}/2");
            (all.clone(), all)
        };
        kind
    }

    /// The one segment of a striped lock: what is held is the segment, who holds nothing is told no more than that, and those
    /// who wait stand in one line.
    pub const fn one_segment(mut self) -> Self {
        self.keys = |name| vec![format!("{name}:0")];
        self.called = |name| (name.to_owned(), format!("{name}:0"));
        self.tells_holder = false;
        self.two_wait_as = 1;
        self
    }
}

/// A bed with a flavour on it.
pub struct Subject<'a> {
    bed: &'a Bed,
    kind: Kind,
}

impl<'a> Subject<'a> {
    pub fn new(bed: &'a Bed, kind: Kind) -> Self {
        Self { bed, kind }
    }

    /// What differs from other flavours.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The main keys of the lock of this name, in order.
    pub fn keys_of(&self, name: &str) -> Vec<String> {
        (self.kind.keys)(name)
    }

    /// The main keys of all locks that are held.
    pub async fn main_keys(&self) -> Vec<String> {
        if self.kind.is_text { self.bed.admin.keys().await } else { self.bed.admin.hash_keys().await }
    }

    /// How much longer its longest key is than a name.
    pub fn added_to_names(&self) -> usize {
        self.keys_of("").iter().map(String::len).max().unwrap_or(0)
    }

    /// A lock that is kept out while [`Bed::lock`] of this name is held by another owner, and keeps that out: the same, but
    /// for the halves of a read-write lock.
    pub fn rival(&self, client: &Client, name: &str) -> Arc<dyn DistLock> {
        (self.kind.rival)(client, name)
    }

    /// Deletes what readers that were forced out leave until it expires: the keys that cover their holds.
    pub async fn sweep_covers(&self) {
        for key in self.bed.keys().await.iter().filter(|key| key.contains(":rwlock_timeout:")) {
            assert!(self.bed.admin.pttl(key).await > 0, "{key} never expires");
            self.bed.admin.cmd::<()>(&["DEL", key]).await;
        }
    }

    /// Has a stranger hold a lock, without end.
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

/// Waits until so many acquires of a client wait.
pub async fn waiting(client: &Client, acquires: usize) {
    becomes("acquires that wait", acquires, async || client.stats().waiting).await;
}

/// Waits for a lock.
pub fn waiter(lock: Arc<dyn DistLock>) -> JoinHandle<Guard> {
    tokio::spawn(async move { lock.lock().await.unwrap_or_else(|error| panic!("a waiter failed: {error:?}")) })
}

/// Waits for a lock, and releases it at once.
pub fn passer(lock: Arc<dyn DistLock>) -> JoinHandle<Released> {
    let waiter = waiter(lock);
    tokio::spawn(
        async move { waiter.await.unwrap().unlock().await.expect("the release of a lock that a waiter was given") },
    )
}

/// Waits until a client has no command or clean-up in flight.
pub async fn quiet(client: &Client) {
    becomes("commands and clean-ups in flight", 0, async || client.stats().under_way).await;
}

/// What is behind an error: a RedLock has no majority, and says why one of its servers is not in it.
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
