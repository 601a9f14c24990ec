//! A model of the queue as the protocol describes it, in plain Rust: the state.

mod deadlines;
mod holds;
mod java;
mod scripts;

pub use scripts::is_shared;

use std::collections::{BTreeMap, BTreeSet};

pub use holds::Hold;

/// Redisson's wait in ms of a waiter without a wait of its own.
pub const LONG: i64 = 300_000;

/// Units of a deadline per ms. The servers' scores have no finer fractions, so nothing is lost.
pub const MS: i64 = 4096;

/// Time in ms for which a lock that was just acquired may be held.
pub const JAVA_LEASE: i64 = 30_000;

/// Time in ms for which registered waiters outlive their last refresh.
const REGISTERED: i64 = 60_000;

#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Nil,
    Int(i64),
    Text(String),
    List(Vec<Reply>),
}

use Reply::{Int, List};

#[derive(Clone, Debug)]
pub struct Ask {
    pub owner: String,
    pub lease: i64,
    /// '' = the only hold that this owner will ever have.
    pub hold: String,
    /// A hold that must still exist; '' = none.
    pub earlier: String,
    /// The last moment; 0 = none.
    pub last: i64,
    pub alone: bool,
    pub turn: u8,
    pub nonce: String,
}

/// A release, by itself or when a waiter leaves the queue.
#[derive(Clone, Debug)]
pub struct Give {
    pub owner: String,
    pub hold: String,
    pub lease: i64,
    /// The holds that the caller has left, one `,id` each; '' = unknown.
    pub mine: String,
}

/// A waiter of ours in a refresh.
#[derive(Clone, Debug)]
pub struct Alive {
    pub owner: String,
    /// The time of the last reply to this waiter; 0 = none.
    pub last: i64,
    pub nonce: String,
}

/// The state of one lock. The queue is shared with other names.
#[derive(Clone, Debug, Default)]
pub struct Own {
    pub hold: Option<Hold>,
    /// Our waiters, with their registrations.
    pub registered: BTreeMap<String, String>,
    /// When the registrations expire.
    forgotten: i64,
}

#[derive(Clone, Debug)]
pub struct Model {
    pub now: i64,
    pub wait: i64,
    pub first_lease: i64,
    pub grace: i64,
    /// Our waiters whose clients have no subscription.
    pub absent: BTreeSet<String>,
    /// The lock.
    pub own: Own,
    /// Another lock with the same queue.
    pub twin: Own,
    pub queue: Vec<String>,
    /// Deadlines by owner, in 4096ths of a ms.
    pub due: BTreeMap<String, i64>,
    /// Messages of the last act: owner, text.
    said: Vec<(String, String)>,
}

/// Reads a text as the servers' texts are read: a number becomes an `Int`.
pub fn word(text: &str) -> Reply {
    text.parse().map_or_else(|_| Reply::Text(text.into()), Int)
}

impl Own {
    fn pass(&mut self, now: i64) {
        self.hold.take_if(|hold| hold.end <= now);
        if self.forgotten <= now {
            self.registered.clear();
        }
    }

    /// The hash, its TTL, the waiters, and their TTL.
    fn state(&self, now: i64) -> [Reply; 4] {
        let hash = self.hold.iter().flat_map(|hold| {
            let list = hold.list().map(|list| [word(&format!("{}:holds", hold.owner)), word(&list)]);
            [word(&hold.owner), Int(hold.count)].into_iter().chain(list.into_iter().flatten())
        });
        let waiters = self.registered.iter().flat_map(|(owner, nonce)| [word(owner), word(nonce)]).collect();
        let kept = if self.registered.is_empty() { -2 } else { self.forgotten - now };
        [List(hash.collect()), Int(self.left(now)), List(waiters), Int(kept)]
    }

    fn left(&self, now: i64) -> i64 {
        self.hold.as_ref().map_or(-2, |hold| hold.end - now)
    }

    fn mine(&mut self, owner: &str) -> Option<&mut Hold> {
        self.hold.as_mut().filter(|hold| hold.owner == owner)
    }
}

pub fn ours(owner: &str) -> bool {
    owner.as_bytes().get(14) == Some(&b'8')
}

/// Rounds like a score, which is a double and loses its last digits beyond 2^41 ms. Only deliberately spoiled deadlines
/// are so large.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
fn double(due: i64) -> i64 {
    due as f64 as i64
}

impl Model {
    pub fn new(now: i64, wait: i64, first_lease: i64, grace: i64) -> Self {
        Self {
            now,
            wait,
            first_lease,
            grace,
            absent: BTreeSet::new(),
            own: Own::default(),
            twin: Own::default(),
            queue: Vec::new(),
            due: BTreeMap::new(),
            said: Vec::new(),
        }
    }

    pub fn left(&self) -> i64 {
        self.own.left(self.now)
    }

    pub fn held(&self, owner: &str) -> Option<&Hold> {
        self.own.hold.as_ref().filter(|hold| hold.owner == owner)
    }

    pub fn holds(&self, owner: &str) -> i64 {
        self.held(owner).map_or(0, |hold| hold.count)
    }

    /// The whole state and the messages, in the servers' format.
    pub fn state(&self) -> Reply {
        let queue = self.queue.iter().map(|owner| word(owner)).collect();
        let due = self.due.iter().flat_map(|(owner, due)| [word(owner), Int(*due)]).collect();
        let said = self.said.iter().flat_map(|(owner, message)| [word(owner), word(message)]).collect();
        let locks = [&self.own, &self.twin].into_iter().flat_map(|own| own.state(self.now));
        List([List(queue), List(due), List(said)].into_iter().chain(locks).collect())
    }

    pub fn pass(&mut self, ms: i64) {
        self.now += ms;
        self.own.pass(self.now);
        self.twin.pass(self.now);
        self.said.clear();
    }

    /// Runs one act at the lock or at its twin.
    pub fn act(&mut self, twin: bool, act: impl FnOnce(&mut Self) -> Reply) -> Reply {
        self.said.clear();
        self.swap(twin);
        let reply = act(self);
        self.due.values_mut().for_each(|due| *due = double(*due));
        self.swap(twin);
        reply
    }

    /// Selects the lock for the next act.
    pub fn swap(&mut self, twin: bool) {
        if twin {
            std::mem::swap(&mut self.own, &mut self.twin);
        }
    }

    fn tell(&mut self, owner: &str, message: impl Into<String>) {
        self.said.push((owner.into(), message.into()));
    }

    pub fn register(&mut self, owner: &str, nonce: &str) {
        self.own.registered.insert(owner.into(), nonce.into());
        self.own.forgotten = self.now + REGISTERED;
    }

    /// Registers a waiter, unless it has a registration.
    fn register_anew(&mut self, owner: &str, nonce: &str) {
        if !self.own.registered.contains_key(owner) {
            self.register(owner, nonce);
        }
    }

    /// The reply to a call after its last moment.
    fn too_late(&self, last: i64) -> Option<Reply> {
        (last != 0 && self.now > last).then(|| List(vec![Int(-7), Int(self.now)]))
    }
}
