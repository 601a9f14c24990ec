//! The simulated server behind a transport that the tests control. Tests choose a fate for commands by script name,
//! and read the commands that were sent.

mod scripts;
mod transport;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use distlock_sim::{LinkOptions, SimLink, SimReply, SimScript, SimServer};
use distlock_support::Numbers;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::names::LockName;
use crate::transport::{Arg, Listener, Reply};

#[derive(Debug)]
pub(super) enum Fate {
    /// The command does not reach the server.
    NotSent,
    /// The connection breaks. Either the command is lost (false), or its reply is lost (true).
    Lost(bool),
    /// The server runs the command after this delay.
    Slow(Duration),
    /// The server runs the command at once, and the reply takes this long.
    Late(Duration),
    /// The server runs the command, and no replica has its writes.
    Unacknowledged,
    Refused(&'static str),
    /// The server does not run the command, and gives this reply.
    Answer(Reply),
    /// The server does not run the command, and this reply arrives after this delay.
    Later(Reply, Duration),
    /// The connection breaks, but a copy reaches the server after this delay.
    Ghost(Duration),
}

#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) script: &'static str,
    pub(super) keys: usize,
    pub(super) words: Vec<Arg>,
}

impl Sent {
    /// Argument `n` after the keys, from 0, as text. Empty if it was left out.
    pub(super) fn text(&self, n: usize) -> String {
        text(&self.words, self.keys + n)
    }
}

/// A word of a command as text. Empty if it was left out.
fn text(words: &[Arg], n: usize) -> String {
    match words.get(n) {
        Some(Arg::Int(int)) => int.to_string(),
        Some(Arg::Text(text)) => String::from_utf8(text.to_vec()).unwrap(),
        None => String::new(),
    }
}

fn said(reply: &SimReply) -> &str {
    let SimReply::Text(text) = reply else { panic!("{reply:?}") };
    std::str::from_utf8(text).unwrap()
}

#[derive(Default)]
struct State {
    fates: Vec<(&'static str, Fate)>,
    sent: Vec<Sent>,
    subscribes: Vec<Duration>,
    unsubscribes: Vec<Duration>,
    subscribe_fails: bool,
}

pub(super) struct Fake {
    begin: Instant,
    /// Total time for which this machine was suspended, in ms.
    suspended: AtomicU64,
    sim: SimServer,
    /// The link that carries subscriptions.
    line: SimLink,
    scripts: Mutex<HashMap<Bytes, SimScript>>,
    state: Mutex<State>,
    listener: OnceLock<Weak<dyn Listener>>,
    numbers: Mutex<Numbers>,
    /// While false, subscribes and unsubscribes wait.
    gate: Mutex<bool>,
    opened: Notify,
    alive: Arc<AtomicUsize>,
    /// The result of `Transport::prefers_bare_commands`.
    prefers_bare: AtomicBool,
    pub(super) trouble: Mutex<Option<String>>,
}

impl std::fmt::Debug for Fake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fake")
    }
}

impl Fake {
    pub(super) fn new() -> Arc<Self> {
        let sim = SimServer::new(0);
        // From here on, the simulator keeps published messages for subscribers.
        assert!(sim.overhear().is_empty());
        Arc::new(Self {
            begin: Instant::now(),
            suspended: AtomicU64::new(0),
            line: sim.link(LinkOptions::instant()),
            sim,
            scripts: Mutex::default(),
            state: Mutex::default(),
            listener: OnceLock::new(),
            numbers: Mutex::new(Numbers::new(0)),
            gate: Mutex::new(true),
            opened: Notify::new(),
            alive: Arc::default(),
            prefers_bare: AtomicBool::new(false),
            trouble: Mutex::default(),
        })
    }

    /// Sets the fate of the next command of this script (`acquire`, `release`, ..) that has no fate yet.
    pub(super) fn next(&self, script: &'static str, fate: Fate) {
        self.state.lock().fates.push((script, fate));
    }

    /// Calls [`Self::next`] this many times. [`Self::calm`] clears the fates that are left.
    pub(super) fn times(&self, count: usize, script: &'static str, fate: impl Fn() -> Fate) {
        (0..count).for_each(|_| self.next(script, fate()));
    }

    /// Makes bare commands cheap from here on.
    pub(super) fn prefer_bare_commands(&self) {
        self.prefers_bare.store(true, Ordering::Relaxed);
    }

    /// Suspends this machine: time passes for the server and for deadlines, but not for timers.
    pub(super) fn suspend(&self, ms: u32) {
        self.suspended.fetch_add(u64::from(ms), Ordering::Relaxed);
        self.sim.step_clock(i64::from(ms));
    }

    pub(super) fn step_clock(&self, ms: i64) {
        self.sim.step_clock(ms);
    }

    /// The server's time of day, in ms.
    pub(super) fn clock_ms(&self) -> i64 {
        let SimReply::List(time) = self.sim.command(&[b"time"]) else { panic!("no time") };
        let part = |n: usize| said(&time[n]).parse::<i64>().unwrap();
        part(0) * 1_000 + part(1) / 1_000
    }

    pub(super) fn calm(&self) {
        self.state.lock().fates.clear();
    }

    pub(super) fn sent(&self, script: &str) -> Vec<Sent> {
        self.state.lock().sent.iter().filter(|sent| sent.script.ends_with(script)).cloned().collect()
    }

    pub(super) fn subscriptions(&self) -> (Vec<Duration>, Vec<Duration>) {
        let state = self.state.lock();
        (state.subscribes.clone(), state.unsubscribes.clone())
    }

    pub(super) fn channels(&self) -> usize {
        self.sim.channels().len()
    }

    pub(super) fn subscribe_fails(&self, fails: bool) {
        self.state.lock().subscribe_fails = fails;
    }

    /// Blocks subscribes and unsubscribes, or lets them proceed.
    pub(super) fn gate(&self, open: bool) {
        *self.gate.lock() = open;
        self.opened.notify_waiters();
    }

    /// The locks that are held, each as `name owner-number count`.
    pub(super) fn held(&self) -> Vec<String> {
        let mut held = Vec::new();
        for key in self.sim.keys() {
            // Keys of other types are not locks.
            let SimReply::List(fields) = self.sim.command(&[b"hgetall", &key]) else { continue };
            let fields: Vec<&str> = fields.iter().map(said).collect();
            for pair in fields.chunks(2).filter(|pair| !pair[0].ends_with(":holds")) {
                let number = pair[0].rsplit(':').next().unwrap_or_default();
                held.push(format!("{} {number} {}", String::from_utf8_lossy(&key), pair[1]));
            }
        }
        held.sort();
        held
    }

    pub(super) fn left(&self, name: &str) -> Option<Duration> {
        u64::try_from(self.sim.pttl(name.as_bytes())).ok().map(Duration::from_millis)
    }

    pub(super) fn steal(&self, name: &str, lease: Duration) {
        self.delete(name);
        self.sim.command(&[b"hset", name.as_bytes(), b"other:1", b"1"]);
        self.sim.command(&[b"pexpire", name.as_bytes(), lease.as_millis().to_string().as_bytes()]);
    }

    /// Deletes the lock without a message.
    pub(super) fn delete(&self, name: &str) {
        self.sim.command(&[b"del", name.as_bytes()]);
    }

    /// Deletes the lock, and announces that it is free.
    pub(super) fn free(&self, name: &str) {
        self.delete(name);
        self.publish(name);
    }

    pub(super) fn persist(&self, name: &str) {
        self.sim.command(&[b"persist", name.as_bytes()]);
    }

    pub(super) fn publish(&self, name: &str) {
        let channel = LockName::new("", name).channel.clone();
        if self.sim.channels().iter().any(|subscribed| *subscribed == channel) {
            self.listener().message(&channel, b"0");
        }
    }

    pub(super) fn listener(&self) -> Arc<dyn Listener> {
        self.listener.get().unwrap().upgrade().unwrap()
    }

    /// Number of commands in flight.
    pub(super) fn tasks(&self) -> usize {
        self.alive.load(Ordering::Relaxed)
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
