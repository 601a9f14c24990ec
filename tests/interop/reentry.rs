//! The same steps by Java under one name and by this crate under another leave the same state and send the same
//! messages.

use std::sync::Arc;
use std::time::Duration;

use distlock::{Acquire, Client, DistLock, Guard, Owner, Released};
use distlock_support::Admin;
use distlock_support::agent::{JavaLock, Kind};
use serde_json::json;

use crate::listener::{Listener, Message};
use crate::rig::{LATCH, Rig, channel, lasting, ms, replied, soon};
use crate::sides::flavour;

/// Steps. Leases are in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Lock,
    /// `lock(lease)`.
    Leased(u64),
    Try,
    /// `tryLock(0, lease)`.
    TryLeased(u64),
    Unlock,
    /// `unlock()` of a lock that is not held.
    Stray,
}

use Step::{Leased, Lock, Stray, Try, TryLeased, Unlock};

/// Sequences of steps with the same result on both sides. Sequences with differences are in `unlike.rs`.
const SAME: [&[Step]; 7] = [
    &[Lock, Lock, Unlock, Unlock, Stray],
    &[Try, Lock, Try, Unlock, Unlock, Unlock],
    &[Leased(8_000), Leased(8_000), Unlock, Unlock],
    &[Leased(5_000), Leased(9_000), TryLeased(9_000), Unlock],
    &[TryLeased(7_000), TryLeased(7_000), Unlock, TryLeased(7_000), Unlock, Unlock],
    &[Lock, Unlock, Leased(6_000), Unlock, Lock, Unlock],
    &[Stray, Lock, Unlock],
];

const SPIN: [&[Step]; 4] = [
    &[Lock, Lock, Unlock, Unlock, Stray],
    &[Try, Unlock, TryLeased(7_000), Unlock],
    &[Leased(8_000), Leased(8_000), Unlock, Unlock],
    &[Stray, Lock, Unlock, Leased(6_000), Unlock],
];

/// Tolerance between two leases, in ms: less than the differences that a test detects, and more than the steps take on
/// a slow machine.
const ALIKE: i64 = 500_000;

#[derive(Debug)]
pub struct Left {
    kind: String,
    encoding: String,
    pub fields: Vec<String>,
    pub counts: Vec<String>,
    /// The remaining lease in ms. None: no key, or no lease.
    pub lease: Option<i64>,
    pub messages: Vec<Message>,
    pub others: Vec<String>,
}

impl Left {
    pub async fn look(admin: &Admin, name: &str, listener: &Listener) -> Self {
        let lease = Some(admin.pttl(name).await).filter(|pttl| *pttl >= 0);
        let (fields, counts) = admin.hgetall(name).await.into_iter().unzip();
        let kind: String = admin.cmd(&["TYPE", name]).await;
        let encoding: Option<String> = match kind.as_str() {
            "none" => None,
            _ => admin.cmd(&["OBJECT", "ENCODING", name]).await,
        };
        let messages = listener.take(admin).await;
        let mut others = admin.keys().await;
        others.retain(|key| key != name && key.contains(name));
        Self { kind, encoding: encoding.unwrap_or_default(), fields, counts, lease, messages, others }
    }

    pub fn assert_lease(&self, what: &str, seconds: u64) {
        let (ms, lease) = (1000 * seconds as i64, self.lease.unwrap_or_else(|| panic!("{what}: no lease in {self:?}")));
        assert!((lease - ms).abs() <= ALIKE, "{what}: the lease is {lease} ms, not {ms}");
    }

    pub fn assert_like(&self, what: &str, theirs: &Self) {
        let plain = |left: &Self| (left.kind.clone(), left.encoding.clone(), left.counts.clone(), left.payloads());
        assert_eq!(plain(self), plain(theirs), "{what}: ours, Redisson's");
        match (self.lease, theirs.lease) {
            (None, None) => {}
            (Some(ours), Some(theirs)) => {
                assert!((ours - theirs).abs() <= ALIKE, "{what}: our lease is {ours} ms, Redisson's {theirs}");
            }
            other => panic!("{what}: ours, Redisson's: {other:?}"),
        }
        assert!(self.others.is_empty(), "{what}: we left more: {:?}", self.others);
        for field in self.fields.iter().chain(&theirs.fields) {
            field.parse::<Owner>().unwrap_or_else(|error| panic!("{what}: {error}"));
        }
        for (left, version) in [(self, '8'), (theirs, '4')] {
            assert!(left.fields.iter().all(|field| field.chars().nth(14) == Some(version)), "{what}: {left:?}");
        }
    }

    fn payloads(&self) -> Vec<Vec<u8>> {
        self.messages.iter().map(|message| message.payload.clone()).collect()
    }
}

pub struct Theirs<'a> {
    pub rig: &'a Rig,
    pub listener: &'a Listener,
    pub name: String,
    pub lock: JavaLock,
}

impl<'a> Theirs<'a> {
    pub fn new(rig: &'a Rig, listener: &'a Listener, name: &str) -> Self {
        Self::of(rig, listener, name, rig.java(name, 7))
    }

    pub fn of(rig: &'a Rig, listener: &'a Listener, name: &str, lock: JavaLock) -> Self {
        Self { rig, listener, name: name.to_owned(), lock }
    }

    pub async fn take(&self, step: Step) -> Left {
        self.act(step).await;
        let mut left = Left::look(&self.rig.admin, &self.name, self.listener).await;
        let latch = format!("{LATCH}{{{}}}:", self.name);
        assert!(left.others.iter().all(|key| key.starts_with(&latch)), "{:?}", left.others);
        self.rig.latches_gone().await;
        left.others.clear();
        left
    }

    /// Returns how long the step took in Java.
    pub async fn act(&self, step: Step) -> Duration {
        let call = match step {
            Lock => self.lock.start("lock", json!({})),
            Leased(lease) => self.lock.start("lock", json!({"lease_ms": 1000 * lease})),
            Try => self.lock.start("try_lock", json!({})),
            TryLeased(lease) => self.lock.start("try_lock", json!({"wait_ms": 0, "lease_ms": 1000 * lease})),
            Unlock | Stray => self.lock.start("unlock", json!({})),
        };
        match (step, soon(call).await) {
            (Stray, Err(error)) => {
                assert_eq!(error.error, "IllegalMonitorStateException");
                Duration::ZERO
            }
            (Stray, Ok(reply)) => panic!("unlocked what was not held: {reply:?}"),
            (_, Ok(reply)) => {
                assert_eq!(reply.value, true, "{step:?}");
                reply.took()
            }
            (_, Err(error)) => panic!("{step:?} in Java: {error:?}"),
        }
    }
}

/// A lock of ours, used by one owner.
pub struct Ours<'a> {
    pub rig: &'a Rig,
    pub listener: &'a Listener,
    pub name: String,
    pub lock: Arc<dyn DistLock>,
    pub me: Owner,
    pub guards: Vec<Guard>,
}

impl<'a> Ours<'a> {
    pub fn new(rig: &'a Rig, listener: &'a Listener, client: &Client, name: &str) -> Self {
        Self::of(rig, listener, name, Arc::new(client.reentrant(name)), client.owner())
    }

    pub fn of(rig: &'a Rig, listener: &'a Listener, name: &str, lock: Arc<dyn DistLock>, me: Owner) -> Self {
        Self { rig, listener, name: name.to_owned(), lock, me, guards: Vec::new() }
    }

    pub async fn take(&mut self, step: Step) -> Left {
        self.act(step).await;
        Left::look(&self.rig.admin, &self.name, self.listener).await
    }

    pub async fn act(&mut self, step: Step) {
        let how = Acquire::new().owner(&self.me);
        let how = match step {
            Lock | Unlock | Stray => how,
            Leased(lease) => how.lease(ms(1000 * lease)),
            Try => how.wait(ms(0)),
            TryLeased(lease) => how.wait(ms(0)).lease(ms(1000 * lease)),
        };
        match step {
            Unlock => {
                let guard = self.guards.pop().expect("a guard to unlock");
                let left = match self.guards.len() as u32 {
                    0 => Released::Free,
                    left => Released::StillHeld(left),
                };
                assert_eq!(guard.unlock().await.expect("unlock"), left);
            }
            Stray => {
                // Releases as another owner than `self.me`, so that the count of `self.me` stays known to this client
                // alone.
                let stranger = "71b96ce8-2746-8c3a-9d0e-0123456789ab:1".parse().expect("an owner");
                let error = self.lock.release(&stranger).await.expect_err("not held");
                assert!(matches!(error, distlock::Error::NotHeld { .. }), "{error:?}");
            }
            _ => self.guards.push(self.lock.acquire(how).await.expect("acquire").expect("the lock")),
        }
    }
}

/// A release of a spin lock sends no message.
pub async fn reentrant_and_spin_state_after_each_step_matches_redisson(version: &str) {
    let rig = Rig::start(vec![lasting(version)]).await;
    let (client, listener) = (rig.client().await, Listener::open(rig.server.addr()).await);
    let rows = SAME.map(|steps| (Kind::Reentrant, steps)).into_iter().chain(SPIN.map(|steps| (Kind::Spin, steps)));
    for (number, (kind, steps)) in rows.enumerate() {
        let (a, b) = (format!("java:{number}:x"), format!("rust:{number}:x"));
        let theirs = Theirs::of(&rig, &listener, &a, rig.agents[0].at(kind, &a, 7));
        let mut ours = Ours::of(&rig, &listener, &b, client.lock(flavour(kind), &b), client.owner());
        for (at, step) in steps.iter().enumerate() {
            let what = format!("{version}, {kind:?}, step {at} of {steps:?}");
            let (left_by_them, left_by_us) = (theirs.take(*step).await, ours.take(*step).await);
            left_by_us.assert_like(&what, &left_by_them);
            for (left, name) in [(&left_by_them, &a), (&left_by_us, &b)] {
                let fine = |message: &Message| message.channel == channel(name) && message.payload == b"0";
                assert!(left.messages.iter().all(fine), "{what}: {left:?}");
                assert!(kind != Kind::Spin || left.messages.is_empty(), "{what}: {left:?}");
            }
        }
        while let Some(guard) = ours.guards.pop() {
            replied(theirs.lock.unlock()).await;
            guard.unlock().await.expect("unlock");
        }
        listener.take(&rig.admin).await;
    }
    drop(listener);
    rig.end([client]).await;
}
