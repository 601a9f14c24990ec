//! The renewal scheduler: renews the leases of watched holds (holds without an explicit lease) in batches, which are
//! sent in parallel.
//!
//! Each server has its own rounds, so a server that is down does not delay the others:
//!
//! 1. A *regular* round runs once per period, a third of the option `watchdog`. A round also starts at once after a
//!    reconnect or a slot move.
//! 2. If renewals fail, retry rounds follow every tenth of a period, until the leases end.
//! 3. One bad entry of a batch does not stop the others.
//!
//! [`plan`] divides the holds into commands, [`send`] sends them, and [`settle`] records each outcome.
//!
//! Holds with an explicit lease are usually not renewed. After a reconnect, a promotion or a slot move the server may
//! lack such holds, so they are *confirmed*: the same scripts run with a lease of 0, which leaves the lease unchanged.

mod plan;
mod send;
mod settle;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::Engine;
use super::hold::Hold;
use crate::topology::{MemberId, Placement};
pub(crate) use plan::Which;
pub(crate) use settle::{at_positions, is_revoked};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Round {
    pub(crate) renewed: usize,
    pub(crate) failed: usize,
    pub(crate) lost: usize,
    /// The error of the last renewal that failed.
    pub(crate) cause: Option<Arc<str>>,
}

impl Round {
    fn lost(guards: usize) -> Self {
        Self { lost: guards, ..Self::default() }
    }

    fn failed(cause: impl Into<Arc<str>>) -> Self {
        Self { failed: 1, cause: Some(cause.into()), ..Self::default() }
    }
}

impl AddAssign for Round {
    fn add_assign(&mut self, part: Self) {
        self.renewed += part.renewed;
        self.failed += part.failed;
        self.lost += part.lost;
        self.cause = part.cause.or_else(|| self.cause.take());
    }
}

/// Requests to renew or confirm holds at once.
#[derive(Debug, Default)]
pub(crate) struct Kick {
    kicked: Mutex<Kicked>,
    notify: Notify,
}

#[derive(Debug, Default)]
struct Kicked {
    /// Servers that have reconnected.
    members: BTreeSet<MemberId>,
    /// Slots that have moved to another server.
    slots: BTreeSet<u16>,
}

impl Kick {
    pub(crate) fn renew_at(&self, member: MemberId) {
        self.kicked.lock().members.insert(member);
        self.notify.notify_one();
    }

    pub(crate) fn renew_slots(&self, slots: &[u16]) {
        self.kicked.lock().slots.extend(slots);
        self.notify.notify_one();
    }

    /// Waits for requests, and takes them at `not_before` or later.
    async fn kicked(&self, not_before: Instant) -> Kicked {
        loop {
            let notified = self.notify.notified();
            let is_empty = {
                let kicked = self.kicked.lock();
                kicked.members.is_empty() && kicked.slots.is_empty()
            };
            if !is_empty {
                tokio::time::sleep_until(not_before).await;
                return std::mem::take(&mut *self.kicked.lock());
            }
            notified.await;
        }
    }
}

/// Shortest time between two takings of requests. Requests in between share a round, because each round searches all
/// holds. Slots often move one after another.
const QUIET: Duration = Duration::from_millis(10);

/// Schedule of one server's rounds.
struct Rounds {
    due: Instant,
    /// Start of the next regular round.
    regular: Instant,
    has_failed: bool,
    /// Start of a round that repeats a failed round for moved slots. May be earlier than `due`.
    retry: Option<Instant>,
    is_busy: bool,
    is_kicked: bool,
    /// Since when this server's holds wait for a successful confirmation, in ns of the local clock.
    unconfirmed: Option<u64>,
}

/// The end of a round at one server. `of_slots`: the round covered only slots that have moved to the server.
struct Done {
    member: MemberId,
    of_slots: bool,
    /// Start of the round, in ns of the local clock.
    began: u64,
    round: Round,
}

/// The holds of a round at one server, and where each lock lived when the round began.
type Part = Vec<(Placement, Arc<Hold>)>;

type UnderWay = FuturesUnordered<BoxFuture<'static, Done>>;

/// Renews leases until the client closes. Keeps the engine alive only while a round is in flight.
pub(crate) async fn run(engine: Weak<Engine>, kick: Arc<Kick>, mut closing: watch::Receiver<bool>, watchdog: Duration) {
    let period = watchdog / 3;
    let mut members: BTreeMap<MemberId, Rounds> = BTreeMap::new();
    let (mut under_way, mut quiet_until) = (UnderWay::new(), Instant::now());
    loop {
        let Some(this) = engine.upgrade() else { return };
        let homes = this.topology.homes();
        members.retain(|member, rounds| rounds.is_busy || homes.contains(member));
        for member in homes {
            members.entry(member).or_insert_with(|| Rounds::of_new(period));
        }
        begin_rounds(&this, &mut members, period, &under_way);
        drop(this);
        let idle = members.values().filter(|rounds| !rounds.is_busy);
        let due = idle.map(Rounds::next).min().unwrap_or_else(|| Instant::now() + period);
        tokio::select! {
            biased;
            _ = closing.wait_for(|closing| *closing) => return,
            kicked = kick.kicked(quiet_until) => {
                quiet_until = Instant::now() + QUIET;
                let Some(engine) = engine.upgrade() else { return };
                for member in kicked.members {
                    // The server may be new. `retain` above removes a server that is no longer used.
                    members.entry(member).or_insert_with(|| Rounds::of_new(period)).kick(engine.now().as_nanos());
                }
                if !kicked.slots.is_empty() {
                    let of_slots = collect(&engine, Which::Held, |hold, _| kicked.slots.contains(&hold.name().slot()));
                    for (member, part) in of_slots {
                        under_way.push(begin(&engine, member, part, Which::Held, true));
                    }
                }
            }
            Some(done) = under_way.next() => {
                let Some(rounds) = members.get_mut(&done.member) else { continue };
                rounds.end(&done, period, |most| engine.upgrade().map_or(most, |engine| engine.jitter(most)));
            }
            () = tokio::time::sleep_until(due) => {}
        }
    }
}

impl Rounds {
    fn of_new(period: Duration) -> Self {
        let due = Instant::now() + period;
        Self { due, regular: due, has_failed: false, retry: None, is_busy: false, is_kicked: false, unconfirmed: None }
    }

    /// Requests a round that confirms all holds. `now`: ns of the local clock.
    fn kick(&mut self, now: u64) {
        (self.is_kicked, self.unconfirmed) = (true, Some(now));
    }

    fn next(&self) -> Instant {
        self.retry.map_or(self.due, |retry| retry.min(self.due))
    }

    fn end(&mut self, done: &Done, period: Duration, jitter: impl FnOnce(Duration) -> Duration) {
        let failed = done.round.failed > 0;
        let mut pause = if failed { (period / 10).max(Duration::from_millis(20)) } else { period };
        // Jitter, so that clients that started together do not renew together forever.
        pause -= jitter(pause) / 20;
        let next = Instant::now() + pause;
        if !done.of_slots {
            (self.is_busy, self.has_failed, self.due) = (false, failed, next);
            if !failed && !self.is_kicked && self.unconfirmed.is_some_and(|since| since <= done.began) {
                self.unconfirmed = None;
            }
        } else if failed {
            (self.retry, self.unconfirmed) = (Some(next), self.unconfirmed.max(Some(done.began)));
        }
    }

    /// Begins a round and returns which holds it renews.
    ///
    /// A retry round skips holds that were renewed recently, unless another server has taken over since. A regular
    /// round skips no watched hold, so a loss is noticed within one period. Failures do not delay regular rounds.
    fn begin(&mut self, period: Duration) -> Which {
        let now = Instant::now();
        let repeats = self.has_failed || self.retry.is_some();
        let is_regular = self.is_kicked || !repeats || now >= self.regular;
        let which = match self.unconfirmed {
            None if is_regular => Which::All,
            None => Which::Due,
            Some(_) if is_regular => Which::Held,
            Some(since) => Which::Unconfirmed(since),
        };
        if is_regular {
            self.regular = now + period;
        }
        (self.is_busy, self.is_kicked, self.retry) = (true, false, None);
        which
    }
}

fn begin_rounds(
    engine: &Arc<Engine>,
    members: &mut BTreeMap<MemberId, Rounds>,
    period: Duration,
    under_way: &UnderWay,
) {
    let now = Instant::now();
    let is_due = |rounds: &Rounds| !rounds.is_busy && (rounds.is_kicked || rounds.next() <= now);
    let due = members.iter_mut().filter(|(_, rounds)| is_due(rounds));
    let due: BTreeMap<MemberId, Which> = due.map(|(member, rounds)| (*member, rounds.begin(period))).collect();
    for which in due.values().copied().collect::<BTreeSet<_>>() {
        let of_these = || due.iter().filter(|(_, known)| **known == which).map(|(member, _)| *member);
        let is_of_these = |_: &Hold, placement: Placement| due.get(&placement.member) == Some(&which);
        let mut parts = collect(engine, which, is_of_these);
        for member in of_these() {
            let part = parts.remove(&member).unwrap_or_default();
            under_way.push(begin(engine, member, part, which, false));
        }
    }
}

fn begin(engine: &Arc<Engine>, member: MemberId, part: Part, which: Which, of_slots: bool) -> BoxFuture<'static, Done> {
    let (engine, began) = (Arc::clone(engine), engine.now().as_nanos());
    Box::pin(async move { Done { member, of_slots, began, round: send::renew(&engine, part, which).await } })
}

/// Runs one round at all servers.
pub(crate) async fn round(engine: &Arc<Engine>, which: Which) -> Round {
    let parts = collect(engine, which, |_, _| true).into_values();
    at_once(parts.map(|part| send::renew(engine, part, which))).await
}

async fn at_once(parts: impl Iterator<Item: Future<Output = Round>>) -> Round {
    let mut parts: FuturesUnordered<_> = parts.collect();
    let mut round = Round::default();
    while let Some(part) = parts.next().await {
        round += part;
    }
    round
}

fn collect(engine: &Engine, which: Which, is_meant: impl Fn(&Hold, Placement) -> bool) -> BTreeMap<MemberId, Part> {
    let now = engine.now();
    let mut parts: BTreeMap<MemberId, Part> = BTreeMap::new();
    for hold in engine.holds.collect(|book| which.includes(book, now, engine.options.watchdog)) {
        let placement = engine.topology.placement(hold.name());
        if is_meant(&hold, placement) {
            parts.entry(placement.member).or_default().push((placement, hold));
        }
    }
    parts
}
