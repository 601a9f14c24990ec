//! Reads the reply to an attempt, and updates the owner's book.

use std::time::Duration;

use super::{Attempt, Before, Failed, InQueue, Tried};
use crate::engine::acquire::undo::Undo;
use crate::engine::hold::{Grant, Target, valid_until};
use crate::engine::ledger::End;
use crate::engine::ledger::Entry as _;
use crate::engine::protocol::{Answer, Busy, MUST_CONFIRM, Queueing};
use crate::engine::release;
use crate::error::{Deadlock, Error};
use crate::world::Moment;

impl Attempt {
    /// This attempt may have passed a fair lock on to the head of its queue, which must confirm in time. If so,
    /// schedules a check of the lock.
    pub(super) fn check_if_passed_on(&self, busy: &Busy) {
        let (engine, protocol) = (&self.target.engine, self.protocol());
        if let Some(grace) = protocol.queue().map(|queue| queue.lease_of(MUST_CONFIRM))
            && busy.ttl.is_some_and(|ttl| ttl <= grace)
        {
            engine.queues.check_passed(protocol, MUST_CONFIRM, engine.now());
        }
    }

    /// Reads the refusal of an acquire by an owner that held nothing.
    pub(super) fn read_refusal(&self, answer: Answer, before: &Before, sent: Moment) -> Result<Tried, Failed> {
        let protocol = self.protocol();
        let waits = self.manner.queueing != Queueing::Ask;
        match answer {
            Answer::Busy(busy) if waits && protocol.queue().is_some() => {
                let queued = self.keep_entry(busy, sent)?;
                Ok(Tried::Queued(queued))
            }
            Answer::Busy(busy) if waits && release::waits_in_redis(protocol) => {
                let mark = Undo::mark(&self.target);
                // A shutdown removes only the marks that it finds. A later mark is removed here, by the drop of `mark`.
                self.target.engine.check_open()?;
                Ok(Tried::Marked(busy, mark))
            }
            Answer::Busy(busy) => {
                self.check_if_passed_on(&busy);
                Ok(Tried::Busy(busy))
            }
            Answer::HeldBack => Ok(Tried::HeldBack),
            Answer::Displaced => Ok(Tried::Displaced),
            Answer::Deadlock if self.used_again => Ok(Tried::OwnerTaken),
            // No other acquire knows this owner, so the hold comes from an earlier attempt that is being undone.
            Answer::Deadlock if self.fresh => {
                Ok(Tried::Busy(Busy { ttl: None, at: 0, announced: true, by_java: false }))
            }
            Answer::Deadlock => {
                Err(self.deadlock(if self.not_reentrant { Deadlock::NotReentrant } else { Deadlock::Upgrade }))
            }
            answer => self.read_loss(&answer, before),
        }
    }

    /// Registers the owner's queue entry, so that each beat (`engine/queue.rs`) refreshes it.
    pub(super) fn keep_entry(&self, Busy { ttl, at, .. }: Busy, sent: Moment) -> Result<InQueue, Failed> {
        let Target { engine, hold, .. } = &*self.target;
        let undo = Undo::new(&self.target, false);
        let known = self.inbox.clone().or_else(|| engine.queues.inbox_of(&self.target));
        let inbox = known.unwrap_or_else(|| hold.name().inbox(hold.owner.text()));
        let entry = engine.queues.keep_entry(&self.target, inbox, sent, at);
        if let Some(ttl) = ttl.filter(|ttl| Duration::from_millis(*ttl) < engine.options.beat()) {
            engine.queues.check_in(self.protocol(), engine.now(), ttl);
        }
        // A shutdown undoes only the entries that it finds. A later entry is undone here, by the drop of `undo`.
        engine.check_open()?;
        Ok(InQueue { entry, undo })
    }

    /// Handles the answer that the owner's earlier holds are gone.
    pub(super) fn read_loss(&self, answer: &Answer, before: &Before) -> Result<Tried, Failed> {
        let Target { engine, hold, .. } = &*self.target;
        match (answer, before.last) {
            // Another client released the newest hold. The owner's other holds may still exist.
            (Answer::Gone, Some(earlier)) => {
                engine.lose_holds(hold, &[earlier]);
            }
            (Answer::Gone, None) => return Err(self.odd(Error::odd_reply("acquire", answer))),
            _ => engine.lose(hold, End::Gone),
        }
        Ok(Tried::Gone)
    }

    /// Enters the hold into the book, and returns its grant.
    pub(super) fn open(&self, sent: Moment) -> Result<Grant, Failed> {
        let engine = &self.target.engine;
        let until = valid_until(sent, self.lease.unwrap_or(engine.options.watchdog));
        let grant = self.target.granted(self.lease, sent, until, self.doubted);
        // A shutdown ends only the holds that it finds in the table. A later hold is released here, by the drop of
        // `grant`.
        engine.check_open()?;
        if grant.until().is_none() {
            // The grant arrived after the end of its lease. This drop releases the hold.
            drop(grant);
            return Err(Failed { spent: true, ..Error::too_late().into() });
        }
        // Only now, because the name need not stay closed after a grant that nobody received.
        self.target.hold.book().delay_by(self.delay);
        Ok(grant)
    }
}
