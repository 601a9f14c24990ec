//! The renewal scheduler: keeps the leases of watched holds running, in batches, all in flight together.
//!
//! Each server has rounds of its own, so that one that is away holds up nothing at the others: every third of the watchdog, and
//! at once when its connection comes back or slots come to it. Errors are retried at a tenth of that until the lease's own
//! end; one bad entry never stops the others.
//!
//! Holds with an explicit lease are not renewed. After a reconnect, a promotion or a slot move the server may not have them, so they are
//! *confirmed*: the same scripts run with a lease of 0, which leaves the lease as it is.

mod batch;

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
use super::ledger::Book;
use crate::topology::{MemberId, Placement};
pub(crate) use batch::at_positions;

/// How a round went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Round {
    pub(crate) renewed: usize,
    pub(crate) failed: usize,
    pub(crate) lost: usize,
    /// The error of the last renewal that failed.
    pub(crate) cause: Option<Arc<str>>,
}

impl Round {
    /// Counts one more that failed.
    fn fails(&mut self, cause: &str) {
        self.failed += 1;
        self.cause = Some(Arc::from(cause));
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

/// Selects which watched holds a round renews. A regular round also keeps up long explicit leases that others may cut short. `Held` and
/// `Unconfirmed` also confirm holds that nobody renews.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Which {
    All,
    /// `All`, and holds with an explicit lease, because the server that answers for them may be another one now.
    Held,
    /// Those that were not renewed a moment ago.
    Due,
    /// Those, and all that were not renewed since that moment, in ns of the local clock: then another server had come to answer for them.
    Unconfirmed(u64),
    /// Those with less left than a regular round leaves to any: locks that were passed on for a short first lease.
    Short,
}

/// A hold, and where its lock lives: read once, because names may move meanwhile.
#[derive(Clone)]
struct Placed {
    placement: Placement,
    hold: Arc<Hold>,
    /// True when the hold is confirmed and its lease left as it is.
    only_confirms: bool,
}

/// What is to be confirmed at once.
#[derive(Debug, Default)]
pub(crate) struct Kick {
    kicked: Mutex<Kicked>,
    notify: Notify,
}

#[derive(Debug, Default)]
struct Kicked {
    /// Servers that are back after a break.
    members: BTreeSet<MemberId>,
    /// Slots that have come to another server.
    slots: BTreeSet<u16>,
}

impl Which {
    /// True when holds that nobody renews are confirmed too.
    const fn confirms(self) -> bool {
        matches!(self, Self::Held | Self::Unconfirmed(_))
    }
}

impl Kick {
    /// Has the holds at this server renewed.
    pub(crate) fn renew_at(&self, member: MemberId) {
        self.kicked.lock().members.insert(member);
        self.notify.notify_one();
    }

    /// Has the holds of these slots renewed.
    pub(crate) fn renew_slots(&self, slots: &[u16]) {
        self.kicked.lock().slots.extend(slots);
        self.notify.notify_one();
    }

    /// What there is to confirm, once there is something, and not before that moment.
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

/// So long slots that move one after the other are gathered: all holds are looked through for those in them.
const QUIET: Duration = Duration::from_millis(10);

/// When the rounds of one server are.
struct Rounds {
    due: Instant,
    /// When the next one is due that spares none.
    regular: Instant,
    has_failed: bool,
    /// When slots that have come there are asked for again, because that has failed, whatever became of a round beside it.
    retry: Option<Instant>,
    /// One is under way.
    is_busy: bool,
    is_kicked: bool,
    /// When what it holds was to be confirmed, as long as that has failed: in ns of the local clock.
    unconfirmed: Option<u64>,
}

/// A round at one server; `of_slots`: of what has come there only.
struct Done {
    member: MemberId,
    of_slots: bool,
    /// When it began, in ns of the local clock.
    began: u64,
    round: Round,
}

type UnderWay = FuturesUnordered<BoxFuture<'static, Done>>;

/// Renews until the client closes. Holds the engine only while a round is under way.
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
                    // It may have come just now; one that is gone again is forgotten above.
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

    /// Has all confirmed, at this moment in ns of the local clock.
    fn kick(&mut self, now: u64) {
        (self.is_kicked, self.unconfirmed) = (true, Some(now));
    }

    /// When the next one begins.
    fn next(&self) -> Instant {
        self.retry.map_or(self.due, |retry| retry.min(self.due))
    }

    fn end(&mut self, done: &Done, period: Duration, jitter: impl FnOnce(Duration) -> Duration) {
        let failed = done.round.failed > 0;
        let mut pause = if failed { (period / 10).max(Duration::from_millis(20)) } else { period };
        // Clients that started together shall not renew together for ever.
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

    /// Which holds the round renews that begins now.
    ///
    /// A round that repeats failures spares holds that were renewed a moment ago, unless that was at another server; a regular one spares
    /// none, so that a loss is noticed within a period whenever it happens, and is due once a period whatever fails meanwhile.
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

/// Begins the rounds that are due.
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

/// A round at one server, of these holds.
fn begin(
    engine: &Arc<Engine>,
    member: MemberId,
    part: Vec<Placed>,
    which: Which,
    of_slots: bool,
) -> BoxFuture<'static, Done> {
    let (engine, began) = (Arc::clone(engine), engine.now().as_nanos());
    Box::pin(async move { Done { member, of_slots, began, round: batch::renew(&engine, part, which).await } })
}

/// Renews watched holds, at all servers.
pub(crate) async fn round(engine: &Arc<Engine>, which: Which) -> Round {
    let parts = collect(engine, which, |_, _| true).into_values();
    let mut parts: FuturesUnordered<_> = parts.map(|part| batch::renew(engine, part, which)).collect();
    let mut round = Round::default();
    while let Some(part) = parts.next().await {
        round += part;
    }
    round
}

/// The holds of a round, by the server where each lives.
fn collect(
    engine: &Engine,
    which: Which,
    is_meant: impl Fn(&Hold, Placement) -> bool,
) -> BTreeMap<MemberId, Vec<Placed>> {
    let now = engine.now();
    let is_leased = |book: &Book| !book.is_watched() && book.lasts(now.as_nanos());
    let due = (now - engine.options.watchdog / 6).as_nanos();
    let short = (now + engine.options.watchdog / 2).as_nanos();
    let holds = engine.holds.collect(|book| match which {
        Which::All => book.is_watched() || book.lasts(short),
        Which::Held => book.is_watched() || is_leased(book),
        Which::Due => book.is_watched() && book.renewed_at() <= due,
        Which::Unconfirmed(since) => {
            book.is_watched() && book.renewed_at() <= due.max(since) || is_leased(book) && book.confirmed_at() <= since
        }
        Which::Short => book.is_watched() && book.watched() <= short,
    });
    let mut parts: BTreeMap<MemberId, Vec<Placed>> = BTreeMap::new();
    for hold in holds {
        let placement = engine.topology.placement(hold.name());
        if is_meant(&hold, placement) {
            parts.entry(placement.member).or_default().push(Placed { placement, hold, only_confirms: false });
        }
    }
    parts
}
