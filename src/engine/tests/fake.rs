//! A server in miniature: plain locks, leases on tokio's paused clock, messages, and faults on request.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use distlock_support::Numbers;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::engine::names::LockName;
use crate::engine::script::Script;
use crate::engine::sync::Mutex;
use crate::engine::transport::{Arg, Call, Fault, FaultKind, Listener, Moment, Reply, Transport};
use crate::engine::world::World;

/// How long a command takes to the server, and its reply back.
pub(super) const HOP: Duration = Duration::from_millis(1);

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
        match self.words.get(self.keys + n) {
            Some(Arg::Int(int)) => int.to_string(),
            Some(Arg::Text(text)) => String::from_utf8(text.to_vec()).unwrap(),
            None => String::new(),
        }
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
    ear: OnceLock<Weak<dyn Listener>>,
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
            ear: OnceLock::new(),
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
            self.ear().message(&channel, b"0");
        }
    }

    pub(super) fn ear(&self) -> Arc<dyn Listener> {
        self.ear.get().unwrap().upgrade().unwrap()
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

impl State {
    fn expire(&mut self) {
        let now = Instant::now();
        self.locks.retain(|_, lock| lock.ends.is_none_or(|ends| now < ends) && !lock.holders.is_empty());
    }

    /// The reply to a command whose last moment has passed. The server's clock is tokio's, from some day on.
    fn too_late(&self, last: i64) -> Option<Reply> {
        let at = 1_700_000_000_000 + self.begin?.elapsed().as_millis() as i64;
        (last != 0 && at > last).then(|| Reply::List(vec![Reply::Int(-7), Reply::Int(at)]))
    }

    /// Every place is there, and every lock is held.
    fn refreshed(&self, call: &Call) -> Reply {
        let at = 1_700_000_000_000 + self.begin.map_or(0, |begin| begin.elapsed().as_millis() as i64);
        let (mut replies, mut n) = (vec![Reply::Int(at)], call.keys + 5);
        for _ in 0..call.keys / 4 {
            let Some(Arg::Int(places)) = call.words.get(n + 1) else { panic!("no count") };
            replies.extend([Reply::Int(0), Reply::Int(-1)]);
            replies.extend((0..*places).map(|_| Reply::Int(1)));
            n += 2 + 3 * *places as usize;
        }
        Reply::List(replies)
    }

    /// The scripts of `lua/reentrant`, told in Rust; of fair locks only what needs no state. `free`: the names of locks that became free.
    fn carry_out(&mut self, call: &Call, free: &mut Vec<String>) -> Reply {
        self.expire();
        if call.script.name == "reentrant/many" {
            return Reply::List(apart(call).iter().map(|call| self.carry_out(call, free)).collect());
        }
        let text = |n: usize| match call.words.get(n) {
            Some(Arg::Text(text)) => String::from_utf8(text.to_vec()).unwrap(),
            Some(Arg::Int(int)) => int.to_string(),
            None => String::new(),
        };
        let int =
            |n: usize| Some(text(n)).filter(|text| !text.is_empty()).map_or(0, |text| text.parse::<i64>().unwrap());
        let ends = |ms: i64| Some(Instant::now() + Duration::from_millis(u64::try_from(ms).unwrap()));
        let name = text(0);
        match call.script.name {
            "reentrant/acquire" => {
                let (owner, lease, hold, earlier, last) = (text(1), int(2), text(3), text(4), int(5));
                if let Some(late) = self.too_late(last) {
                    return late;
                }
                let hold = if hold.is_empty() { "-".to_owned() } else { hold };
                let free = !self.locks.contains_key(&name);
                if let Some(lock) = self.locks.get(&name) {
                    let Some(holds) = lock.holders.get(&owner) else {
                        let left = lock.ends.map_or(-1, |ends| (ends - Instant::now()).as_millis() as i64);
                        return Reply::Int(left);
                    };
                    if !earlier.is_empty() && !holds.contains(&earlier) && !holds.contains(&hold) {
                        return Reply::Int(-3);
                    }
                } else if !earlier.is_empty() {
                    return Reply::Int(-3);
                }
                let lock = self.locks.entry(name).or_default();
                let holds = lock.holders.entry(owner).or_default();
                if !holds.contains(&hold) {
                    holds.push(hold);
                }
                if free || lock.ends < ends(lease) {
                    lock.ends = ends(lease);
                }
                Reply::Nil
            }
            "reentrant/release" => {
                let (owner, hold, lease, mine) = (text(1), text(5), int(2), text(6));
                let Some(lock) = self.locks.get_mut(&name) else { return Reply::Nil };
                let Some(holds) = lock.holders.get_mut(&owner) else {
                    return Reply::Text(Bytes::from(lock.holders.keys().next().unwrap().clone()));
                };
                let before = holds.clone();
                let any = || {
                    let marked = before.iter().find(|hold| hold.starts_with('+'));
                    marked.or_else(|| before.iter().find(|hold| *hold == "-")).or(before.last()).unwrap().clone()
                };
                let hold = if hold == "*" { any() } else { hold };
                if text(5) == "*" && hold != "-" {
                    return Reply::List(vec![Reply::Int(-8), Reply::Text(Bytes::from(hold))]);
                }
                match hold.as_str() {
                    "" => holds.clear(),
                    several => holds.retain(|hold| !several.split(',').any(|one| one == hold)),
                }
                if *holds == before {
                    return Reply::List(vec![Reply::Int(-2), Reply::Int(before.len() as i64)]);
                }
                let left = holds.len() as i64;
                let told = i64::from(self.channels.contains(text(4).as_bytes()));
                if left > 0 {
                    let decides = !mine.is_empty() && mine.split(',').skip(1).count() as i64 == left;
                    if decides || lock.ends < ends(lease) {
                        lock.ends = ends(lease);
                    }
                } else {
                    self.locks.remove(&name);
                    free.push(name);
                }
                Reply::Int(if left > 0 { left } else { -told })
            }
            "common/disown" => {
                let holds = self.locks.get_mut(&name).and_then(|lock| lock.holders.get_mut(&text(1)));
                let hold = holds.into_iter().flatten().find(|hold| **hold == text(2));
                Reply::Int(i64::from(hold.map(|hold| hold.insert(0, '+')).is_some()))
            }
            "common/renew" => {
                let lease = int(call.keys);
                if let Some(late) = self.too_late(int(call.keys + 1)) {
                    return late;
                }
                let mut out = Vec::new();
                for n in 0..call.keys {
                    let (owner, relied) = (text(call.keys + 2 + 2 * n), text(call.keys + 3 + 2 * n));
                    let held = self.locks.get_mut(&text(n)).and_then(|lock| {
                        let holds = lock.holders.get(&owner)?.clone();
                        Some((lock, holds))
                    });
                    let Some((lock, holds)) = held else {
                        out.push(Reply::Int(0));
                        continue;
                    };
                    let relied: Vec<&str> = relied.split([',', '~']).skip(1).collect();
                    let relied: Vec<&str> = relied.into_iter().filter(|hold| hold.parse::<u64>().is_err()).collect();
                    let gone: Vec<Reply> = (1_i64..)
                        .zip(&relied)
                        .filter(|(_, hold)| !holds.iter().any(|held| held == *hold))
                        .map(|(n, _)| Reply::Int(n))
                        .collect();
                    if !gone.is_empty() && gone.len() == relied.len() {
                        out.push(Reply::Int(0));
                        continue;
                    }
                    if lease < 0 || lock.ends <= ends(lease) {
                        lock.ends = ends(lease.abs());
                    }
                    out.push(if gone.is_empty() { Reply::Int(1) } else { Reply::List(gone) });
                }
                Reply::List(out)
            }
            "reentrant/force" => {
                let held = self.locks.remove(&name).is_some();
                free.extend(held.then_some(name));
                Reply::Int(i64::from(held))
            }
            "fair/release" => Reply::Int(0),
            "fair/leave" | "rwlock/leave" => Reply::Nil,
            "fair/refresh" => self.refreshed(call),
            other => panic!("no such script here: {other}"),
        }
    }
}

/// The calls that go out together in one.
fn apart(call: &Call) -> Vec<Call> {
    static ACQUIRE: Script = Script::new("reentrant/acquire", "");
    static RELEASE: Script = Script::new("reentrant/release", "");
    let (keys, mut args) = call.words.split_at(call.keys);
    let mut keys = keys.iter();
    let mut calls = Vec::new();
    while let [Arg::Int(step), Arg::Int(nkeys), Arg::Int(nargs), rest @ ..] = args {
        let (own, rest) = rest.split_at(*nargs as usize);
        let words = keys.by_ref().take(*nkeys as usize).chain(own).cloned().collect();
        calls.push(Call { script: [&ACQUIRE, &RELEASE][*step as usize - 1], keys: *nkeys as usize, words });
        args = rest;
    }
    calls
}

/// Counts a command for as long as it is under way.
struct Alive(Arc<AtomicUsize>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The fake as a transport: what it does goes on when a caller drops its future, as a real server's would.
impl Transport for Arc<Fake> {
    fn run(&self, call: Call) -> BoxFuture<'static, Result<Reply, Fault>> {
        Fake::run(Arc::clone(self), call).boxed()
    }

    fn subscribe(&self, channel: Bytes) -> BoxFuture<'static, Result<(), Fault>> {
        let fake = Arc::clone(self);
        async move {
            let fails = {
                let mut state = fake.state.lock();
                state.subscribes.push(fake.begin.elapsed());
                state.subscribe_fails
            };
            fake.pass_gate().await;
            if fails {
                return Err(Fault::new(FaultKind::Lost, "no connection"));
            }
            sleep(HOP).await;
            fake.state.lock().channels.insert(channel);
            sleep(HOP).await;
            Ok(())
        }
        .boxed()
    }

    fn unsubscribe(&self, channel: Bytes) -> BoxFuture<'static, ()> {
        let fake = Arc::clone(self);
        async move {
            fake.state.lock().unsubscribes.push(fake.begin.elapsed());
            fake.pass_gate().await;
            // Later than a subscription that is asked for at the same time.
            sleep(2 * HOP).await;
            fake.state.lock().channels.remove(&channel);
            sleep(HOP).await;
        }
        .boxed()
    }

    fn listen(&self, ear: Weak<dyn Listener>) {
        assert!(self.ear.set(ear).is_ok(), "told twice");
    }

    fn address(&self) -> &str {
        "fake"
    }

    fn world(&self) -> Arc<dyn World> {
        Arc::new(Arc::clone(self))
    }

    fn close(&self, _within: Duration) -> BoxFuture<'static, ()> {
        self.state.lock().channels.clear();
        std::future::ready(()).boxed()
    }
}

impl Fake {
    async fn run(self: Arc<Self>, call: Call) -> Result<Reply, Fault> {
        self.alive.fetch_add(1, Ordering::Relaxed);
        let _alive = Alive(Arc::clone(&self.alive));
        let fate = {
            let mut state = self.state.lock();
            let script = call.script.name;
            state.sent.push(Sent { script, keys: call.keys, words: call.words.clone() });
            let fate = state.fates.iter().position(|(which, _)| script.ends_with(which));
            fate.map(|at| state.fates.remove(at).1)
        };
        let lost = || Fault::new(FaultKind::Lost, "connection lost");
        let (before, after) = match fate {
            None => (HOP, HOP),
            Some(Fate::NotSent) => return Err(Fault::new(FaultKind::NotSent, "no connection")),
            Some(Fate::Lost(carried_out)) => {
                sleep(HOP).await;
                if carried_out {
                    self.carry_out(&call);
                }
                sleep(HOP).await;
                return Err(lost());
            }
            Some(Fate::Slow(slow)) => (slow, HOP),
            Some(Fate::Late(late)) => (HOP, late),
            Some(Fate::Refused(message)) => {
                sleep(2 * HOP).await;
                return Err(Fault::new(FaultKind::Refused, message));
            }
            Some(Fate::Answer(reply)) => {
                sleep(2 * HOP).await;
                return Ok(reply);
            }
            Some(Fate::Later(reply, after)) => {
                sleep(after).await;
                return Ok(reply);
            }
            Some(Fate::Ghost(after)) => {
                tokio::spawn(async move {
                    sleep(after).await;
                    self.carry_out(&call);
                });
                sleep(2 * HOP).await;
                return Err(lost());
            }
        };
        sleep(before).await;
        let reply = self.carry_out(&call);
        sleep(after).await;
        Ok(reply)
    }
}

impl World for Arc<Fake> {
    fn now(&self) -> Moment {
        Moment::from_nanos(1_000_000_000) + self.begin.elapsed()
    }

    fn random(&self) -> u64 {
        self.numbers.lock().any()
    }
}
