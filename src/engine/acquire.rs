//! The only waiting loop in the crate.

use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument as _;

mod queued;
mod seek;

use super::Engine;
use super::hold::{Grant, Hold, Target, lease_until, valid_until};
use super::ledger::{End, Entry as _};
use super::names::LockName;
use super::protocol::{Attempt, Count, Protocol, Turn};
use super::queue::Stand;
use super::reaper::Finished;
use super::registry::{Nap, Place, Until, Win};
use super::release;
use super::transport::Moment;
use crate::config::millis;
use crate::error::{Error, Result, Step};
use crate::lock::{Acquire, State};
use crate::owner::Owner;
use seek::{Found, Pace, Seek};

/// How long a reply may come after the end of the wait and still count: success beats the deadline.
const GRACE: Duration = Duration::from_millis(15);

/// The pause between attempts that nothing but impatience asks for.
const FLOOR: Duration = Duration::from_millis(10);

/// What an acquire wants.
struct Wish {
    engine: Arc<Engine>,
    protocol: Arc<dyn Protocol>,
    owner: Owner,
    /// None: the watchdog's.
    lease: Option<Duration>,
    /// True when the owner was made for this acquire, so that another one will do as well.
    fresh: bool,
    /// With a queue in Redis: where the owner is told that its turn has come.
    station: Option<Arc<LockName>>,
    began: Moment,
    until: Option<Moment>,
}

/// What one attempt brought.
enum Tried {
    Held(Grant),
    /// As `Held`: the server had passed it on before.
    Passed(Grant),
    Busy(Option<u64>),
    /// Busy, and the owner has a place in the queue.
    Standing(Placed),
    /// Busy, and the owner has left a mark that it waits.
    Marked(Option<u64>, Undo),
    /// Others are to come first.
    HeldBack,
    /// The owner's earlier hold is ending: ask again.
    Gone,
    /// The owner's place in the queue is lost.
    Displaced,
}

/// A place in a queue in Redis.
struct Placed {
    stand: Stand,
    undo: Undo,
}

/// A failed attempt. When it may have been carried out, dropping this has it undone.
struct Failed {
    error: Error,
    doubt: Option<Undo>,
    /// True when another attempt might count a second time.
    last: bool,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self { error, doubt: None, last: false }
    }
}

/// An acquire that may have happened unseen, or a place in a queue. Undone when dropped, unless it was found out, or used,
/// meanwhile.
struct Undo {
    target: Arc<Target>,
    armed: bool,
    /// False for a place or a mark that is known: it is given up, and no copy of a command may come after it.
    doubted: bool,
    /// True for a mark.
    marks: bool,
}

impl Undo {
    fn new(target: &Arc<Target>, doubted: bool) -> Self {
        Self { target: Arc::clone(target), armed: true, doubted, marks: false }
    }

    /// For a mark in Redis, which closing takes back too.
    fn mark(target: &Arc<Target>) -> Self {
        target.engine.queues.mark(target);
        Self { target: Arc::clone(target), armed: true, doubted: false, marks: true }
    }

    fn settle(undo: &mut Option<Self>) {
        if let Some(mut undo) = undo.take() {
            undo.armed = false;
        }
    }

    /// Left again, by a later attempt: the one mark stays.
    fn keep(mark: &mut Option<Self>, again: Self) {
        // First the old one goes off the list of marks, then the new one comes onto it.
        Self::settle(mark);
        again.target.engine.queues.mark(&again.target);
        *mark = Some(again);
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        if self.marks {
            self.target.engine.queues.unmark(&self.target);
        }
        if self.armed {
            release::undo(Arc::clone(&self.target), self.doubted);
        }
    }
}

/// Acquires as told; None when the wait ran out.
pub(crate) async fn acquire(engine: &Arc<Engine>, protocol: &Arc<dyn Protocol>, how: Acquire) -> Result<Option<Grant>> {
    how.check()?;
    protocol.name().check()?;
    engine.check_open()?;
    let began = engine.now();
    let given = how.owner.or_else(Owner::current);
    let fresh = given.is_none();
    let until = how.wait.map(|wait| began + wait);
    let once = how.wait == Some(Duration::ZERO);
    let queues = !once && protocol.queue().is_some();
    let (owner, station) = match given {
        Some(owner) => (owner, None),
        None => match queues.then(|| engine.registry.spare(protocol.name())).flatten() {
            Some((owner, station)) => (owner, Some(station)),
            None => (engine.owner(), None),
        },
    };
    let mut wish = Wish {
        engine: Arc::clone(engine),
        protocol: Arc::clone(protocol),
        owner,
        lease: how.lease,
        fresh,
        station,
        began,
        until,
    };
    let name = &protocol.name().plain;
    let span = tracing::debug_span!("acquire", lock.name = %name, lock.flavour = protocol.flavour());
    let seeking = async {
        if once {
            wish.once().await
        } else if queues {
            wish.queue_up().await
        } else {
            wish.wait().await
        }
    };
    let outcome = seeking.instrument(span).await;
    wish.tell(&outcome);
    outcome
}

impl Wish {
    /// Asks once, past everybody who waits.
    async fn once(&self) -> Result<Option<Grant>> {
        loop {
            match self.bounded(self.attempt(&self.target(), false, Turn::Once)).await {
                Ok(Tried::Held(grant) | Tried::Passed(grant)) => return Ok(Some(grant)),
                Ok(Tried::Busy(_) | Tried::Standing(_) | Tried::Marked(..) | Tried::Displaced | Tried::HeldBack) => {
                    return Ok(None);
                }
                // A release of the same owner is under way: it is not held now.
                Ok(Tried::Gone) => tokio::time::sleep(Duration::from_millis(1)).await,
                Err(failed) => return Err(failed.error),
            }
        }
    }

    async fn wait(&self) -> Result<Option<Grant>> {
        let mut seek = Seek::new(self);
        if !self.fresh {
            // Who holds the lock already must not queue behind those who wait for it; an answer tells whether it does.
            loop {
                if let Some(grant) = seek.ask().await? {
                    return Ok(Some(grant));
                }
                if !seek.is_failing() {
                    break;
                }
                tokio::time::sleep(self.left(seek.nap)).await;
                if self.is_over() {
                    return seek.give_up();
                }
            }
        }
        let shared = self.protocol.is_shared();
        let may_hand = self.fresh && self.lease.is_none() && !shared;
        let win = if shared {
            Win::Shared
        } else if may_hand {
            Win::Passable
        } else {
            Win::Alone
        };
        let mut place = self.engine.registry.enter(self.protocol.name(), may_hand);
        while !place.has_turn() {
            self.engine.check_open()?;
            let joins = place.joins();
            let patience = seek.patience();
            if joins || (patience == Some(Duration::ZERO) && place.is_held_back()) {
                if let Some(grant) = seek.ask().await? {
                    place.won(&grant.hold, self.engine.now(), win);
                    return Ok(Some(grant));
                }
                if joins {
                    place.rejoin();
                } else {
                    // Not even so: somebody else holds it.
                    place.note_held_back(false);
                }
                continue;
            }
            let patience = patience.filter(|left| !left.is_zero()).unwrap_or(Duration::MAX);
            let nap = place.nap(self.left(patience), Until::Turn).await;
            if nap == Nap::Over && self.is_over() {
                return seek.give_up();
            }
        }
        let granted = self.contend(&mut place, &mut seek).await?;
        if let Some(grant) = &granted {
            place.won(&grant.hold, self.engine.now(), win);
        }
        Ok(granted)
    }

    /// Speaks to Redis until the lock is ours or the wait is over.
    async fn contend(&self, place: &mut Place, seek: &mut Seek<'_>) -> Result<Option<Grant>> {
        let options = &self.engine.options;
        let mut pace = Pace::new(self.began);
        let mut heard = false;
        loop {
            place.give_way().await;
            if let Some(grant) = place.handed().filter(|grant| grant.until().is_some()) {
                return Ok(Some(grant));
            }
            self.engine.check_open()?;
            let listening = place.is_listening();
            let now = self.engine.now();
            // What this process passes on is not announced: a message means that somebody else changed something.
            if let Some(left) = place.held_here(now).filter(|_| !heard) {
                seek.nap = left.min(options.poll_cap);
            } else {
                pace.spend(now);
                if let Some(grant) = seek.ask().await? {
                    return Ok(Some(grant));
                }
                if self.protocol.is_shared() {
                    place.note_held_back(seek.found == Found::HeldBack);
                }
            }
            place.sit();
            if !seek.is_failing() && !listening {
                place.listen(self.left(options.subscribe_timeout)).await;
                if place.is_listening() {
                    // A release may have slipped in between.
                    continue;
                }
                seek.nap = seek.nap.min(options.poll_cap / 10);
            }
            // After a failure, the news that a connection is back cuts the pause short.
            let nap = place.nap(self.left(seek.nap), Until::Message).await;
            heard = nap == Nap::Woken;
            if heard && !pace.allows(self.engine.now()) {
                place.nap(self.left(FLOOR + self.engine.jitter(FLOOR)), Until::Handed).await;
            }
            if self.is_over() {
                return match place.handed() {
                    Some(grant) => Ok(Some(grant)),
                    None => seek.give_up(),
                };
            }
        }
    }

    /// What attempts are made for.
    fn target(&self) -> Arc<Target> {
        let hold = Hold::new(Arc::clone(&self.protocol), self.owner.clone());
        if self.fresh { Target::fresh(&self.engine, hold) } else { Target::reserve(&self.engine, hold) }
    }

    /// One attempt, to be carried through whatever becomes of the caller.
    fn attempt(&self, target: &Arc<Target>, doubted: bool, turn: Turn) -> Finished<Result<Tried, Failed>> {
        let (target, lease, station) = (Arc::clone(target), self.lease, self.station.clone());
        Finished::new(&self.engine.reaper, async move {
            let Target { engine, hold, .. } = &*target;
            let _order = hold.order.lock().await;
            let protocol = &hold.protocol;
            let span = lease.unwrap_or(engine.options.watchdog);
            let (before, rest) = {
                let book = hold.book();
                // A release queued for the order behind us comes first: it ends this hold.
                if book.is_closed() || book.end().is_some() || (book.is_idle() && book.count() > 0) {
                    return Ok(Tried::Gone);
                }
                (book.count(), Moment::from_nanos(book.until_all()))
            };
            let sent = engine.now();
            // Coming in again never shortens what the holds before it were promised.
            let alone = before == 0 || protocol.leases_apart();
            let armed = if alone { span } else { span.max(lease_until(sent, rest)) };
            let count = if hold.owner.is_shared() { Count::ByOne } else { Count::Exactly(before + 1) };
            let call = protocol.acquire(&hold.owner, millis(armed), count, turn);
            let waits = turn != Turn::Once;
            let queues = waits && protocol.queue().is_some();
            let stands = waits && release::waits_in_redis(protocol);
            let undo = || (count != Count::ByOne || stands).then(|| Undo::new(&target, true));
            let reply = engine.topology.node(protocol.name()).run(call).await.map_err(|fault| {
                let doubt = if fault.in_doubt() { undo() } else { None };
                let last = fault.in_doubt() && count == Count::ByOne;
                Failed { error: Error::from_fault(&fault, &protocol.name().plain), doubt, last }
            })?;
            // Nobody knows what stands behind a reply that no script of ours gives.
            let odd = |error| Failed { error, doubt: undo(), last: true };
            let attempt = protocol.acquired(reply).map_err(odd)?;
            match attempt {
                Attempt::Held | Attempt::Passed => {}
                Attempt::Busy(ttl, at) if before == 0 && queues => {
                    let undo = Undo::new(&target, false);
                    let station = station.unwrap_or_else(|| protocol.name().station(hold.owner.text()));
                    let stand = engine.queues.stand(&target, station, sent, at);
                    if let Some(ttl) = ttl.filter(|ttl| Duration::from_millis(*ttl) < engine.options.beat()) {
                        engine.queues.look_in(protocol, engine.now(), ttl);
                    }
                    // Closing gives up the places that it finds; what comes in behind it is given up here.
                    engine.check_open()?;
                    return Ok(Tried::Standing(Placed { stand, undo }));
                }
                Attempt::Busy(ttl, _) if before == 0 && stands => {
                    let mark = Undo::mark(&target);
                    // Closing takes back the marks that it finds; what comes in behind it is taken back here.
                    engine.check_open()?;
                    return Ok(Tried::Marked(ttl, mark));
                }
                Attempt::Busy(ttl, _) if before == 0 => return Ok(Tried::Busy(ttl)),
                Attempt::HeldBack if before == 0 => return Ok(Tried::HeldBack),
                Attempt::Deadlock if before == 0 => {
                    let error = Error::WouldDeadlock { name: Arc::clone(&protocol.name().plain) };
                    return Err(Failed { error, doubt: None, last: true });
                }
                Attempt::Displaced if before == 0 => return Ok(Tried::Displaced),
                Attempt::Gone if before == 0 => return Err(odd(Error::odd_reply("acquire", &attempt))),
                Attempt::Busy(..) | Attempt::Gone | Attempt::Displaced | Attempt::HeldBack | Attempt::Deadlock => {
                    engine.lose(hold, End::Gone);
                    return Ok(Tried::Gone);
                }
            }
            let until = valid_until(sent, span);
            let level = engine.holds.open(hold.key(), hold, |book| {
                if doubted {
                    book.doubt();
                }
                book.open(book.count() + 1, lease.map(nanos), sent.as_nanos(), until.as_nanos())
            });
            let grant = Grant::new(Arc::clone(engine), Arc::clone(hold), level);
            // Closing ends what it finds in the table; what comes in behind it is given back here.
            engine.check_open()?;
            if grant.until().is_none() {
                // Came too late to be of use. Dropped, it is released.
                drop(grant);
                let message = "the reply took longer than the lease".into();
                return Err(Error::Connection { message, outcome_unknown: false, source: None }.into());
            }
            Ok(if attempt == Attempt::Passed { Tried::Passed(grant) } else { Tried::Held(grant) })
        })
    }

    /// Waits for an attempt until shortly after the end of the wait; the attempt itself goes on if need be.
    async fn bounded(&self, attempt: Finished<Result<Tried, Failed>>) -> Result<Tried, Failed> {
        let most = self.engine.options.command_timeout;
        let left = match self.until {
            None => return attempt.await,
            Some(until) if until == self.began => most,
            Some(until) => until.since(self.engine.now()) + GRACE,
        };
        // A command ends by itself; only those of an owner that was given may have others before them.
        if self.fresh && left >= most {
            return attempt.await;
        }
        tokio::time::timeout(left, attempt).await.unwrap_or(Err(Error::Timeout { step: Step::Command }.into()))
    }

    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| self.engine.now() >= until)
    }

    /// What is left of the wait, `most` at the most.
    fn left(&self, most: Duration) -> Duration {
        self.until.map_or(most, |until| until.since(self.engine.now()).min(most))
    }

    /// How long to sleep on a busy lock: until its lease ends, but never without bound and never not at all.
    fn nap(&self, ttl: Option<u64>) -> Duration {
        let cap = self.engine.options.poll_cap;
        match ttl {
            None => cap,
            Some(0) => Duration::from_millis(1) + self.engine.jitter(Duration::from_millis(4)),
            Some(ms) => (Duration::from_millis(ms) + Duration::from_millis(1)).min(cap),
        }
    }

    fn tell(&self, outcome: &Result<Option<Grant>>) {
        let waited = self.engine.now().since(self.began);
        let flavour = self.protocol.flavour();
        let name = &self.protocol.name().plain;
        match outcome {
            Ok(Some(grant)) => {
                super::metrics::acquired(flavour, waited);
                tracing::debug!(lock.name = %name, lock.flavour = flavour, owner = grant.hold.owner.text(), ?waited, "acquired");
            }
            Ok(None) if self.until.is_some_and(|until| until <= self.began) => {
                super::metrics::busy(flavour);
                tracing::debug!(lock.name = %name, lock.flavour = flavour, "busy");
            }
            Ok(None) => {
                super::metrics::timed_out(flavour, waited);
                tracing::debug!(lock.name = %name, lock.flavour = flavour, ?waited, "wait ran out");
            }
            Err(error) => {
                super::metrics::failed(flavour);
                tracing::debug!(lock.name = %name, lock.flavour = flavour, %error, "acquire failed");
            }
        }
    }
}

/// Asks the primary who holds a lock.
pub(crate) async fn state(engine: &Arc<Engine>, protocol: &Arc<dyn Protocol>) -> Result<State> {
    protocol.name().check()?;
    engine.check_open()?;
    let reply = engine.topology.node(protocol.name()).run(protocol.state()).await;
    let reply = reply.map_err(|fault| Error::from_fault(&fault, &protocol.name().plain))?;
    let (ttl, holders) = protocol.stated(reply)?;
    Ok(State { holders, remaining: u64::try_from(ttl).ok().map(Duration::from_millis) })
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
