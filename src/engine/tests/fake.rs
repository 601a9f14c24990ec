//! A server in miniature: plain locks, leases on tokio's paused clock, messages, and faults on request. Here is what tests
//! ask of it and how they harm it.

mod scripts;
mod transport;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use distlock_support::Numbers;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::names::LockName;
use crate::transport::{Arg, Call, Listener, Reply};

/// What becomes of a command.
#[derive(Debug)]
pub(super) enum Fate {
    /// It does not reach the server.
    NotSent,
    /// It is lost with its connection, on the way there (false) or its reply on the way back (true).
    Lost(bool),
    /// The server carries it out only after so long.
    Slow(Duration),
    /// The reply takes so long.
    Late(Duration),
    /// The server refuses it.
    Refused(&'static str),
    /// The server does nothing and gives this reply.
    Answer(Reply),
    /// The server does nothing, and this reply comes after so long.
    Later(Reply, Duration),
    /// The connection is lost, but a copy reaches the server after so long.
    Ghost(Duration),
}

/// A command as it was sent.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) script: &'static str,
    pub(super) keys: usize,
    pub(super) words: Vec<Arg>,
}

impl Sent {
    /// Argument `n` as text, counted from 0 behind the keys; empty where it was left out.
    pub(super) fn text(&self, n: usize) -> String {
        text(&self.words, self.keys + n)
    }
}

/// A word of a command as text; empty where it was left out.
fn text(words: &[Arg], n: usize) -> String {
    match words.get(n) {
        Some(Arg::Int(int)) => int.to_string(),
        Some(Arg::Text(text)) => String::from_utf8(text.to_vec()).unwrap(),
        None => String::new(),
    }
}

#[derive(Default)]
struct Lock {
    /// The holds of each owner, by what they are listed as; one that is not is called as scripts are told of it.
    holders: BTreeMap<String, Vec<String>>,
    ends: Option<Instant>,
}

#[derive(Default)]
struct State {
    begin: Option<Instant>,
    locks: HashMap<String, Lock>,
    fates: Vec<(&'static str, Fate)>,
    sent: Vec<Sent>,
    channels: BTreeSet<Bytes>,
    subscribes: Vec<Duration>,
    unsubscribes: Vec<Duration>,
    subscribe_fails: bool,
}

pub(super) struct Fake {
    begin: Instant,
    state: Mutex<State>,
    listener: OnceLock<Weak<dyn Listener>>,
    numbers: Mutex<Numbers>,
    /// While false, subscribing and unsubscribing wait.
    gate: Mutex<bool>,
    opened: Notify,
    alive: Arc<AtomicUsize>,
}

impl std::fmt::Debug for Fake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fake")
    }
}

impl Fake {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            begin: Instant::now(),
            state: Mutex::new(State { begin: Some(Instant::now()), ..State::default() }),
            listener: OnceLock::new(),
            numbers: Mutex::new(Numbers::new(0)),
            gate: Mutex::new(true),
            opened: Notify::new(),
            alive: Arc::default(),
        })
    }

    /// The next command of this script (`acquire`, `release`, ..) that has no fate yet meets this one.
    pub(super) fn next(&self, script: &'static str, fate: Fate) {
        self.state.lock().fates.push((script, fate));
    }

    /// From here on commands meet no more fates.
    pub(super) fn calm(&self) {
        self.state.lock().fates.clear();
    }

    /// Commands of this script sent so far.
    pub(super) fn sent(&self, script: &str) -> Vec<Sent> {
        self.state.lock().sent.iter().filter(|sent| sent.script.ends_with(script)).cloned().collect()
    }

    /// When subscriptions were asked for, and when they were ended.
    pub(super) fn subscriptions(&self) -> (Vec<Duration>, Vec<Duration>) {
        let state = self.state.lock();
        (state.subscribes.clone(), state.unsubscribes.clone())
    }

    /// How many channels are listened to.
    pub(super) fn channels(&self) -> usize {
        self.state.lock().channels.len()
    }

    /// From now on subscribing fails at once, or not.
    pub(super) fn subscribe_fails(&self, fails: bool) {
        self.state.lock().subscribe_fails = fails;
    }

    /// Holds subscribing and unsubscribing back, or lets them go on.
    pub(super) fn gate(&self, open: bool) {
        *self.gate.lock() = open;
        self.opened.notify_waiters();
    }

    /// The locks that are held: `name owner-number count`.
    pub(super) fn held(&self) -> Vec<String> {
        let mut state = self.state.lock();
        state.expire();
        let mut held = Vec::new();
        for (name, lock) in &state.locks {
            for (owner, holds) in &lock.holders {
                let count = holds.len();
                held.push(format!("{name} {} {count}", owner.rsplit(':').next().unwrap_or_default()));
            }
        }
        held.sort();
        held
    }

    /// How long the lock is held without a renewal.
    pub(super) fn left(&self, name: &str) -> Option<Duration> {
        let mut state = self.state.lock();
        state.expire();
        state.locks.get(name)?.ends.map(|ends| ends - Instant::now())
    }

    /// Somebody else takes the lock, whoever has it.
    pub(super) fn steal(&self, name: &str, lease: Duration) {
        let lock = Lock {
            holders: BTreeMap::from([("other:1".to_owned(), vec!["-".to_owned()])]),
            ends: Some(Instant::now() + lease),
        };
        self.state.lock().locks.insert(name.to_owned(), lock);
    }

    /// Somebody else deletes the lock, without a message.
    pub(super) fn delete(&self, name: &str) {
        self.state.lock().locks.remove(name);
    }

    /// Sends a message to whoever listens on the channel of a name.
    pub(super) fn publish(&self, name: &str) {
        let channel = LockName::new("", name).channel.clone();
        if self.state.lock().channels.contains(&channel) {
            self.listener().message(&channel, b"0");
        }
    }

    pub(super) fn listener(&self) -> Arc<dyn Listener> {
        self.listener.get().unwrap().upgrade().unwrap()
    }

    /// Commands under way at the server.
    pub(super) fn tasks(&self) -> usize {
        self.alive.load(Ordering::Relaxed)
    }

    fn carry_out(&self, call: &Call) -> Reply {
        let mut free = Vec::new();
        let reply = self.state.lock().carry_out(call, &mut free);
        for name in free {
            self.publish(&name);
        }
        reply
    }

    async fn pass_gate(&self) {
        loop {
            let opened = self.opened.notified();
            if *self.gate.lock() {
                return;
            }
            opened.await;
        }
    }
}
