//! The queue as the protocol describes it, in plain Rust: what there is.

mod deadlines;
mod holds;
mod java;
mod scripts;

pub use scripts::is_shared;

use std::collections::BTreeMap;

pub use holds::Hold;

/// Redisson's wait of one that has none of its own.
pub const LONG: i64 = 300_000;

/// Deadlines are in 4096ths of a millisecond: a score of the servers has no finer ones, and none of it is lost.
pub const MS: i64 = 4096;

/// What a lock that was just taken may be held for.
pub const JAVA_LEASE: i64 = 30_000;

/// Registered waiters outlive their last refresh by so much.
const REGISTERED: i64 = 60_000;

#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Nil,
    Int(i64),
    Text(String),
    List(Vec<Reply>),
}

use Reply::{Int, List};

/// An acquire.
#[derive(Clone, Debug)]
pub struct Ask {
    pub owner: String,
    pub lease: i64,
    /// '' = the only one that this owner will ever have.
    pub hold: String,
    /// A hold that must be there still; '' = none.
    pub earlier: String,
    /// Its last moment; 0 = none.
    pub last: i64,
    pub alone: bool,
    pub turn: u8,
    pub nonce: String,
}

/// A release; as part of leaving, too.
#[derive(Clone, Debug)]
pub struct Give {
    pub owner: String,
    pub hold: String,
    pub lease: i64,
    /// The holds that the caller has left, one `,id` each; '' = unknown.
    pub mine: String,
}

/// A waiter of ours that is named in a refresh.
#[derive(Clone, Debug)]
pub struct Alive {
    pub owner: String,
    /// The time of its last answer; 0 = none.
    pub last: i64,
    pub nonce: String,
}

/// What a lock has to itself: the other names with its queue have their own.
#[derive(Clone, Debug, Default)]
pub struct Own {
    pub hold: Option<Hold>,
    /// The waiters of ours, and what they are registered by.
    pub registered: BTreeMap<String, String>,
    /// When that is over.
    forgotten: i64,
}

#[derive(Clone, Debug)]
pub struct Model {
    pub now: i64,
    pub wait: i64,
    pub first_lease: i64,
    /// The lock.
    pub own: Own,
    /// Another one with the same queue.
    pub twin: Own,
    pub queue: Vec<String>,
    /// In 4096ths of a ms, like all that is reckoned with them.
    pub due: BTreeMap<String, i64>,
    /// Whom the last act told what.
    said: Vec<(String, String)>,
}

/// As the servers' texts are read: what is a number is one.
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

    /// The hash, what is left of it, and the waiters with what is left of those.
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

/// Scores are doubles: those beyond 2^41 ms, which only what somebody spoilt comes to, lose what is finest.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
fn double(due: i64) -> i64 {
    due as f64 as i64
}

impl Model {
    pub fn new(now: i64, wait: i64, first_lease: i64) -> Self {
        Self {
            now,
            wait,
            first_lease,
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

    /// What this owner has.
    pub fn held(&self, owner: &str) -> Option<&Hold> {
        self.own.hold.as_ref().filter(|hold| hold.owner == owner)
    }

    pub fn holds(&self, owner: &str) -> i64 {
        self.held(owner).map_or(0, |hold| hold.count)
    }

    /// All there is, and who was told what, as the servers tell it.
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

    /// One act, at the lock or at its twin.
    pub fn act(&mut self, twin: bool, act: impl FnOnce(&mut Self) -> Reply) -> Reply {
        self.said.clear();
        self.swap(twin);
        let reply = act(self);
        self.due.values_mut().for_each(|due| *due = double(*due));
        self.swap(twin);
        reply
    }

    /// Which lock it is that things are done to.
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

    /// Where one of ours is known by something else already, that stays.
    fn register_anew(&mut self, owner: &str, nonce: &str) {
        if !self.own.registered.contains_key(owner) {
            self.register(owner, nonce);
        }
    }

    /// The answer to what comes after its last moment.
    fn too_late(&self, last: i64) -> Option<Reply> {
        (last != 0 && self.now > last).then(|| List(vec![Int(-7), Int(self.now)]))
    }
}
