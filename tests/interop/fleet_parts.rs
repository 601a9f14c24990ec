//! The workers of a mixed fleet, and the spans in which they certainly held a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use distlock::{Acquire, Client, DistLock, Error, Flavour, Guard};
use distlock_support::agent::{Agent, AgentError, Call, JavaLock, Kind, monotonic_ns};
use distlock_support::{Admin, Numbers, child};
use serde_json::json;

use crate::fleet::{LONGEST, NAMES, TURNS_OF, WATCHDOG};
use crate::rig::{had, ms};

/// A span in which a worker certainly held a lock, on the clock of [`monotonic_ns`]: from the acquire to the release,
/// or to the end of its process or of its lease.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    /// One bit per name.
    pub locks: u64,
    pub alone: bool,
    pub token: u64,
    pub from: u64,
    pub to: u64,
}

#[derive(Debug, Clone, Copy)]
struct Ask {
    locks: u64,
    alone: bool,
    wait: Duration,
    lease: Option<Duration>,
    hold: Duration,
}

impl Ask {
    fn roll(flavour: &str, dice: &mut Numbers) -> Self {
        let longest = LONGEST.as_millis() as u64;
        // Short, medium and long waits are equally frequent.
        let most = [20, 200, longest][dice.below(3) as usize];
        Self {
            locks: if flavour == "multi" { [3, 5, 6, 7][dice.below(4) as usize] } else { 1 },
            alone: flavour != "read-write" || dice.below(3) == 0,
            wait: ms(1 + dice.below(most)),
            lease: (dice.below(3) == 0).then(|| ms(3000 + dice.below(2001))),
            hold: ms(dice.below(31)),
        }
    }

    fn names(&self) -> Vec<&'static str> {
        let asked = NAMES.into_iter().enumerate().filter(|(bit, _)| self.locks >> bit & 1 == 1);
        asked.map(|(_, name)| name).collect()
    }

    /// Earliest end of the lease, counted from the request.
    fn holds_until(&self, asked: u64) -> u64 {
        asked + self.lease.unwrap_or(WATCHDOG).as_nanos() as u64
    }

    /// Returns true if the lease cannot have ended, because less than half of it has passed.
    fn must_hold(&self, asked: u64) -> bool {
        monotonic_ns() < asked.midpoint(self.holds_until(asked))
    }
}

pub fn lock_of(client: &Client, flavour: &str, names: &[&str], alone: bool) -> Arc<dyn DistLock> {
    let flavour = match flavour {
        "multi" => return Arc::new(client.multi(names)),
        "fair" => Flavour::Fair,
        "read-write" if alone => Flavour::Write,
        "read-write" => Flavour::Read,
        "fenced" => Flavour::Fenced,
        "spin" => Flavour::Spin,
        _ => Flavour::Reentrant,
    };
    client.lock(flavour, names[0])
}

/// A task of ours. Reports each hold before it ends, so the report is true even if the process is killed.
pub async fn in_rust(client: Client, url: String, flavour: String, seed: u64, over: Arc<AtomicBool>) {
    let (mut dice, admin) = (Numbers::new(seed), Admin::from_url(&url).await);
    while !over.load(Ordering::Relaxed) {
        let ask = Ask::roll(&flavour, &mut dice);
        let lock = lock_of(&client, &flavour, &ask.names(), ask.alone);
        let wish = Acquire::new().wait(ask.wait);
        let wish = ask.lease.map_or(wish.clone(), |lease| wish.lease(lease));
        let asked = monotonic_ns();
        let got = if dice.below(4) == 0 {
            // Drops the acquire while it waits or its command is in flight.
            tokio::time::timeout(ms(1 + dice.below(100)), lock.acquire(wish)).await.unwrap_or(Ok(None))
        } else {
            lock.acquire(wish).await
        };
        let from = monotonic_ns();
        let guard = match got {
            Ok(Some(guard)) => guard,
            // The machine was busy. The client undoes the acquire, even if the grant comes late.
            Ok(None) | Err(Error::Timeout { .. } | Error::Connection { .. }) => continue,
            Err(error) => panic!("acquire: {error:?}"),
        };
        let until = ask.holds_until(asked);
        stay(&guard, &ask, seed, [from, until], &admin).await;
        let ended = if flavour == "read-write" && ask.alone && dice.below(4) == 0 {
            let reading = Ask { alone: false, ..ask };
            read_on(guard, &reading, seed, until, &admin).await
        } else if dice.below(4) == 0 {
            drop(guard);
            Ok(())
        } else {
            guard.unlock().await.map(drop)
        };
        if let Err(error @ (Error::Lost { .. } | Error::NotHeld { .. })) = ended
            && ask.must_hold(asked)
        {
            child::say(&format!("robbed {seed} {error:?}"));
        }
    }
}

/// Holds the lock for a while, and reports the start and the end.
async fn stay(guard: &Guard, ask: &Ask, seed: u64, [from, until]: [u64; 2], admin: &Admin) {
    let token = guard.fencing_token().unwrap_or(0);
    child::say(&format!("in {seed} {} {} {token} {from} {until}", ask.locks, u64::from(ask.alone)));
    tokio::time::sleep(ask.hold).await;
    admin.cmd::<u64>(&["INCR", TURNS_OF[1]]).await;
    let to = monotonic_ns();
    let held = guard.is_held();
    child::say(&format!("{} {seed} {to}", if held { "out" } else { "late" }));
}

/// Downgrades a writer, which then stays as a reader.
async fn read_on(guard: Guard, ask: &Ask, seed: u64, until: u64, admin: &Admin) -> distlock::Result<()> {
    let guard = guard.downgrade().await?;
    stay(&guard, ask, seed, [monotonic_ns(), until], admin).await;
    guard.unlock().await.map(drop)
}

fn in_java_of(agent: &Agent, flavour: &str, ask: &Ask, thread: i64) -> JavaLock {
    let kind = match flavour {
        "multi" => return agent.at_all(false, Kind::Reentrant, &ask.names(), thread),
        "fair" => Kind::Fair,
        "read-write" if ask.alone => Kind::Write,
        "read-write" => Kind::Read,
        "fenced" => Kind::Fenced,
        "spin" => Kind::Spin,
        _ => Kind::Reentrant,
    };
    agent.at(kind, NAMES[0], thread)
}

fn start(lock: &JavaLock, flavour: &str, ask: &Ask) -> Call {
    if flavour != "fenced" {
        return lock.start_try_lock(ask.wait, ask.lease);
    }
    let ms = |time: Duration| time.as_millis() as u64;
    lock.start("lock_token", json!({"wait_ms": ms(ask.wait), "lease_ms": ask.lease.map(ms)}))
}

#[derive(Default)]
pub struct End {
    pub over: AtomicBool,
    pub killed: AtomicU64,
}

pub async fn in_java(
    agent: Agent,
    url: String,
    flavour: &'static str,
    thread: i64,
    seed: u64,
    end: Arc<End>,
) -> Vec<Span> {
    let (mut dice, mut spans, admin) = (Numbers::new(seed), Vec::new(), Admin::from_url(&url).await);
    while !end.over.load(Ordering::Relaxed) {
        let ask = Ask::roll(flavour, &mut dice);
        // A fresh lock object, because a shared object would keep another thread's lease.
        let lock = in_java_of(&agent, flavour, &ask, thread).fresh();
        let got = match start(&lock, flavour, &ask).await {
            Err(error) if is_gone(&error) => break,
            answer => had(answer),
        };
        let Some(got) = got else { continue };
        let token = got.value.as_u64().unwrap_or(0);
        tokio::time::sleep(ask.hold).await;
        // Redisson's multi lock first acquires its members with a lease of twice the wait. A short wait can thus lose
        // the lock.
        let robs_itself = flavour == "multi" && ask.lease.is_some();
        admin.cmd::<u64>(&["INCR", TURNS_OF[0]]).await;
        let sent = monotonic_ns();
        let to = match lock.unlock().await {
            Ok(reply) => reply.t0,
            Err(error) if is_gone(&error) => sent.min(end.killed.load(Ordering::SeqCst)).min(ask.holds_until(got.t0)),
            Err(error) => {
                let sound = ask.must_hold(got.t0) && !robs_itself;
                assert!(!sound, "{flavour}: Java was robbed of a lock: {ask:?}: {error}");
                continue;
            }
        };
        spans.push(Span { locks: ask.locks, alone: ask.alone, token, from: got.t1, to });
    }
    spans
}

fn is_gone(error: &AgentError) -> bool {
    error.error == "AgentGone"
}
