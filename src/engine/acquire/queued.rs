//! The waiting loop of flavours that keep their queue in Redis: every waiter stands in it itself, and is told at a channel
//! of its own.

use std::sync::Arc;
use std::time::Duration;

use super::seek::{Found, Pace, Seek};
use super::{FLOOR, Wish};
use crate::engine::hold::{Grant, valid_until};
use crate::engine::ledger::Entry as _;
use crate::engine::names::LockName;
use crate::engine::patience::Patience;
use crate::engine::protocol::Turn;
use crate::engine::registry::{Nap, Place, Until, Win};
use crate::error::Result;

/// What waiting at one place brought.
enum Stood {
    Held(Grant),
    /// The wait is over.
    Over,
    /// The place is lost, to be taken anew.
    Displaced,
}

impl Wish {
    /// Waits in the queue until the lock is ours or the wait is over.
    pub(super) async fn queue_up(&mut self) -> Result<Option<Grant>> {
        let (mut doubt, mut patience) = (None, Patience::new(self.engine.patience()));
        loop {
            let mut seek = Seek::new(self);
            (seek.doubt, seek.patience) = (doubt.take(), patience);
            // Alone and for the first time, a place is needed only if the lock is not free.
            if self.fresh && self.station.is_none() {
                if let Some(grant) = seek.ask().await? {
                    return Ok(Some(grant));
                }
                if self.is_over() {
                    return seek.give_up();
                }
            }
            let station = seek.place.as_ref().map(|placed| Arc::clone(placed.stand.standing().station()));
            let station = station.or_else(|| self.station.clone());
            let station = station.unwrap_or_else(|| self.protocol.name().station(self.owner.text()));
            let mut place = self.engine.registry.enter(&station, None);
            place.expects(&seek.target.nonce);
            match self.stand(&mut place, &mut seek, &station).await? {
                Stood::Held(grant) => {
                    place.won(&grant.hold, self.engine.now(), Win::Alone);
                    return Ok(Some(grant));
                }
                Stood::Over => return seek.give_up(),
                Stood::Displaced => {}
            }
            // Nothing is left to be undone of the place, but perhaps of an attempt whose reply was lost.
            let (old, number) = (seek.displaced(), seek.target.number);
            patience = seek.patience;
            drop(seek);
            self.engine.check_open()?;
            if self.is_over() {
                return Ok(None);
            }
            tracing::debug!(lock.name = %self.protocol.name().plain, "lost its place in the queue, and takes another");
            if self.fresh {
                // A message that the old owner was passed the lock may be on its way still.
                (self.owner, self.station, self.number) = (self.engine.owner(), None, 0);
            } else {
                // Undone now, the place that is taken next would be lost with it.
                doubt = old;
                // One that came too late may have been given back.
                self.new &= number == self.number;
                self.number = number;
            }
        }
    }

    async fn stand(&self, place: &mut Place, seek: &mut Seek<'_>, station: &Arc<LockName>) -> Result<Stood> {
        if !place.has_turn() {
            // Another task waits as the same owner. If that holds the lock already, this one comes in again.
            seek.turn = Turn::Once;
            if let Some(grant) = seek.ask().await? {
                return Ok(Stood::Held(grant));
            }
            seek.turn = Turn::Join;
        }
        while !place.has_turn() {
            self.engine.check_open()?;
            if place.nap(self.left(Duration::MAX), Until::Turn).await == Nap::Over {
                return Ok(Stood::Over);
            }
        }
        let mut pace = Pace::new(self.began);
        // A place that was taken before anybody listened: what has happened since is found out by asking.
        let mut ask = !seek.is_standing() || place.is_listening();
        loop {
            self.engine.check_open()?;
            let listening = place.is_listening();
            if listening {
                place.sit();
            }
            if ask {
                pace.spend(self.engine.now());
                if let Some(grant) = seek.ask().await? {
                    // No message for this owner may come later: it was never passed the lock, or the message is here.
                    let clear = place.has_heard() || (listening && seek.found == Found::Nothing);
                    if clear && !grant.hold.book().doubted() {
                        let _ = grant.hold.station.set(Arc::clone(station));
                    }
                    return Ok(Stood::Held(grant));
                }
                if seek.found == Found::Displaced {
                    return Ok(Stood::Displaced);
                }
            }
            place.sit();
            if !seek.is_failing() && !listening {
                let due = self.engine.now() + seek.nap.min(self.engine.options.poll_cap / 10);
                place.listen(self.left(due.since(self.engine.now()))).await;
                if self.is_over() {
                    return Ok(self.passed(place, seek, station).map_or(Stood::Over, Stood::Held));
                }
                if place.is_listening() {
                    // It may have been passed the lock before.
                    ask = true;
                    continue;
                }
                seek.nap = due.since(self.engine.now());
            }
            loop {
                let nap = place.nap(self.left(seek.nap), Until::Message).await;
                if let Some(grant) = self.passed(place, seek, station) {
                    return Ok(Stood::Held(grant));
                }
                if self.is_over() {
                    return Ok(Stood::Over);
                }
                // Messages that have come in only since then may be missing one.
                let heard = listening && place.is_listening();
                if nap == Nap::Woken || seek.is_failing() || !heard || !self.is_confirmed(seek) {
                    break;
                }
            }
            ask = true;
            if !pace.allows(self.engine.now()) {
                place.nap(self.left(FLOOR + self.engine.jitter(FLOOR)), Until::Handed).await;
            }
        }
    }

    /// True when the server has said of late that the place is kept: no need to ask.
    fn is_confirmed(&self, seek: &Seek<'_>) -> bool {
        let now = self.engine.now();
        let confirmed = seek.place.as_ref().map(|placed| placed.stand.standing().confirmed());
        confirmed.is_some_and(|confirmed| now.since(confirmed) < self.engine.options.poll_cap)
    }

    /// The lock, if the server has passed it on to this waiter. Only to an owner that nobody else knows, for as long as
    /// the watchdog keeps it; any other asks, and is told in order with its other commands.
    fn passed(&self, place: &Place, seek: &mut Seek<'_>, station: &Arc<LockName>) -> Option<Grant> {
        let passed = place.passed()?;
        let engine = &self.engine;
        let standing = seek.place.as_ref()?.stand.standing();
        if !self.fresh || self.lease.is_some() || engine.check_open().is_err() {
            return None;
        }
        let since = passed.since.unwrap_or_else(|| standing.confirmed());
        let until = valid_until(since, passed.lease.min(engine.options.watchdog));
        if until.since(engine.now()) < engine.options.beat() {
            return None;
        }
        let hold = Arc::clone(&seek.target.hold);
        let doubted = seek.doubt.is_some();
        let level = engine.holds.open(hold.key(), &hold, |book| {
            if doubted {
                book.doubt(seek.target.number);
            }
            book.open(engine.now().as_nanos(), seek.target.number, None, since.as_nanos(), until.as_nanos())
        });
        let grant = Grant::new(Arc::clone(engine), Arc::clone(&hold), level);
        seek.settle();
        if engine.check_open().is_err() {
            // Closing ends what it finds in the table; what comes in behind it is given back.
            return None;
        }
        engine.queues.passed();
        if !doubted && place.has_heard() {
            let _ = hold.station.set(Arc::clone(station));
        }
        Some(grant)
    }
}
