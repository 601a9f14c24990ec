//! The only waiting loop in the crate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tracing::Instrument as _;

mod attempt;
pub(crate) mod batch;
mod queued;
mod seek;

use super::Engine;
use super::hold::Grant;
use super::names::LockName;
use super::protocol::{Protocol, Turn};
use super::registry::{Nap, Place, Until, Win};
use super::transport::Moment;
use crate::error::Result;
use crate::lock::{Acquire, State};
use crate::owner::Owner;
pub(crate) use attempt::GRACE;
use attempt::Tried;
use seek::{Found, Pace, Seek};

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
    /// True when the owner must hold nothing yet.
    alone: bool,
    /// True when it is known to hold nothing.
    new: bool,
    /// The number of the hold that is to be acquired; 0 where the owner will never have another.
    number: u64,
    /// With a queue in Redis: where the owner is told that its turn has come.
    station: Option<Arc<LockName>>,
    began: Moment,
    /// For how long the acquire that this is a part of had waited before.
    waited: Duration,
    until: Option<Moment>,
    /// True when the wait ran out while an attempt was under way: that is no error.
    ran_out: AtomicBool,
}

/// Acquires as told; None when the wait ran out. On the client's runtime, wherever the caller is.
pub(crate) async fn acquire(engine: &Arc<Engine>, protocol: &Arc<dyn Protocol>, how: Acquire) -> Result<Option<Grant>> {
    let home = engine.home();
    if home.is_here() {
        let mut seeking = std::pin::pin!(seek(engine, protocol, how));
        return std::future::poll_fn(|context| home.poll(seeking.as_mut(), context)).await;
    }
    let (engine, protocol) = (Arc::clone(engine), Arc::clone(protocol));
    home.bring(async move { seek(&engine, &protocol, how).await }).await
}

async fn seek(engine: &Arc<Engine>, protocol: &Arc<dyn Protocol>, how: Acquire) -> Result<Option<Grant>> {
    how.check()?;
    protocol.name().check()?;
    engine.check_open()?;
    let began = engine.now();
    let given = how.owner.or_else(Owner::current);
    let fresh = given.is_none();
    if let Some(owner) = &given {
        // Who gave it may give it again: it is nobody else's, and not kept for others.
        owner.reveal();
    }
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
    // An owner that is used again needs an id for its hold: what was sent for the one before may come in late.
    let listed = !fresh || station.is_some();
    let mut wish = Wish {
        engine: Arc::clone(engine),
        protocol: Arc::clone(protocol),
        owner,
        lease: how.lease,
        fresh,
        alone: how.alone,
        new: fresh || how.new,
        number: if listed { engine.hold_number() } else { 0 },
        station,
        began,
        waited: how.waited,
        until,
        ran_out: AtomicBool::new(false),
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
    let outcome = match seeking.instrument(span).await {
        // What has come of it is undone.
        Err(_) if wish.ran_out.load(Ordering::Relaxed) => Ok(None),
        outcome => outcome,
    };
    if wish.may_meet_itself() && matches!(outcome, Ok(Some(_))) {
        wish.call();
    }
    wish.tell(&outcome);
    outcome
}

impl Wish {
    /// Asks once, past everybody who waits.
    async fn once(&self) -> Result<Option<Grant>> {
        // A part of an acquire that has waited for long enough lets nobody go first any more. To a shared lock, which has no
        // queue, the turn says no more than that.
        let shared = self.protocol.is_shared() && !self.waited.is_zero();
        let turn = if shared && self.waited >= self.engine.options.hold_back { Turn::Stay } else { Turn::Once };
        loop {
            match self.bounded(self.attempt(&self.target(), false, turn)).await {
                Ok(Tried::Held(grant) | Tried::Passed(grant)) => return Ok(Some(grant)),
                Ok(
                    Tried::Busy(_)
                    | Tried::Standing(_)
                    | Tried::Marked(..)
                    | Tried::Displaced
                    | Tried::Met
                    | Tried::HeldBack,
                ) => {
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
        if !self.new {
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
        let may_hand = self.fresh && self.lease.is_none() && !shared && !self.protocol.numbers();
        let win = if shared {
            Win::Shared
        } else if may_hand {
            Win::Passable
        } else {
            Win::Alone
        };
        let mut place = self.engine.registry.enter(self.protocol.name(), may_hand.then(|| self.protocol.flavour()));
        if self.may_meet_itself() {
            place.name(&self.owner);
        }
        while !place.has_turn() {
            self.engine.check_open()?;
            let joins = place.joins();
            // Its owner may have come in since it asked, by another acquire.
            let again = !joins && self.is_in();
            let held_back = seek.held_back();
            let mut rest = Duration::MAX;
            if joins || again || (held_back == Some(Duration::ZERO) && place.is_held_back()) {
                if let Some(grant) = seek.ask().await? {
                    place.won(&grant.hold, self.engine.now(), win);
                    return Ok(Some(grant));
                }
                if again {
                    rest = seek.nap;
                } else if joins {
                    place.rejoin();
                    continue;
                } else {
                    // Not even so: somebody else holds it.
                    place.note_held_back(false);
                    continue;
                }
            }
            let held_back = held_back.filter(|left| !left.is_zero()).unwrap_or(Duration::MAX).min(rest);
            let nap = place.nap(self.left(held_back), Until::Turn).await;
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
        // The one before may have left before it looked.
        let mut heard = place.is_woken();
        let mut looks = 0;
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
            if let Some(backoff) = self.protocol.backoff().filter(|_| !seek.is_failing()) {
                seek.nap = seek.nap.min(backoff.rest(looks, self.engine.random()));
                looks = looks.saturating_add(1);
            } else if !seek.is_failing() && !listening {
                // Until messages come in it polls, at the end of the lease at the latest.
                let due = self.engine.now() + seek.nap.min(options.poll_cap / 10);
                place.listen(self.left(due.since(self.engine.now()))).await;
                if place.is_listening() {
                    // A release may have slipped in between.
                    continue;
                }
                seek.nap = due.since(self.engine.now());
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

    /// True when others may wait as its owner, and may come in beside it, or it beside them.
    fn may_meet_itself(&self) -> bool {
        !self.new && !self.alone
    }

    /// True when its owner holds what lets it in: by another acquire.
    fn is_in(&self) -> bool {
        let holds = |name: &Arc<LockName>| self.engine.holds.is_relied_on(&(Arc::clone(name), self.owner.clone()));
        // Who writes may read.
        let other = || self.protocol.other().filter(|_| self.protocol.is_shared());
        self.may_meet_itself() && (holds(self.protocol.name()) || other().is_some_and(holds))
    }

    /// It came in: so may those who wait as the same owner.
    fn call(&self) {
        let registry = &self.engine.registry;
        if self.protocol.queue().is_some() {
            return registry.wake(&self.protocol.name().station(self.owner.text()));
        }
        registry.call(self.protocol.name(), &self.owner);
        if let Some(other) = self.protocol.other().filter(|_| !self.protocol.is_shared()) {
            registry.call(other, &self.owner);
        }
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
    let reply = engine.ask(protocol.name(), protocol.state()).await?;
    let (ttl, holders) = protocol.stated(reply)?;
    Ok(State { holders, remaining: u64::try_from(ttl).ok().map(Duration::from_millis) })
}
