//! The wait for a lock whose waiters stand in a queue in Redis, each by itself: each has a channel of its own, its inbox.

use std::sync::Arc;
use std::time::Duration;

use super::Request;
use super::attempts::{Attempts, Found};
use crate::engine::hold::{Grant, valid_until};
use crate::engine::ledger::Entry as _;
use crate::engine::protocol::Queueing;
use crate::engine::registry::{HeldAs, Waiter};
use crate::engine::wait::{self, Asked, Awaited, Beside, Patience, Pause, Waited};
use crate::error::Result;

/// The turn in a queue in Redis, as what somebody waits for.
struct QueueWait<'a> {
    request: &'a Request,
    attempts: Attempts<'a>,
    /// True when the next attempt would be the first since the waiter entered the queue of this process.
    is_first: bool,
    /// True when an attempt was made before the turn.
    has_asked_beside: bool,
}

impl Request {
    /// Waits in the queue until the lock is ours or the wait is over.
    pub(super) async fn queue_up(&mut self) -> Result<Option<Grant>> {
        let (mut doubt, mut patience, mut has_seen_busy) = (None, Patience::new(self.patience), false);
        loop {
            let mut awaited =
                QueueWait { request: self, attempts: Attempts::new(self), is_first: true, has_asked_beside: false };
            let attempts = &mut awaited.attempts;
            (attempts.doubt, attempts.patience, attempts.has_seen_busy) = (doubt.take(), patience, has_seen_busy);
            // A fresh owner that waits for the first time needs a queue entry only if the lock is not free.
            if self.fresh && self.inbox.is_none() {
                if let Some(grant) = attempts.ask().await? {
                    return Ok(Some(grant));
                }
                if self.deadline.is_over() {
                    return attempts.give_up();
                }
            }
            let inbox = attempts.entry.as_ref().map(|queued| Arc::clone(queued.entry.entry().inbox()));
            let inbox = inbox.or_else(|| self.inbox.clone());
            let inbox = inbox.unwrap_or_else(|| self.protocol.name().inbox(self.owner.text()));
            let mut waiter = self.engine.registry.enter(&inbox, None);
            waiter.expects(&attempts.target.nonce);
            let waited = wait::wait(&self.engine, &self.deadline, &mut waiter, &mut awaited).await?;
            let mut attempts = awaited.attempts;
            match waited {
                Waited::Done(grant) => {
                    waiter.acquired(&grant.hold, self.engine.now(), HeldAs::Alone);
                    return Ok(Some(grant));
                }
                Waited::Over => return attempts.give_up(),
                Waited::Silent => return attempts.give_up_unanswered(),
                Waited::Displaced => {}
            }
            // The entry leaves nothing to undo, but perhaps an attempt does whose reply was lost.
            let (old, number) = (attempts.displaced(), attempts.target.number);
            self.engine.check_open()?;
            if self.deadline.is_over() {
                return attempts.give_up();
            }
            (patience, has_seen_busy) = (attempts.patience, attempts.has_seen_busy);
            drop(attempts);
            tracing::debug!(lock.name = %self.protocol.name().as_written, "lost its place in the queue, and takes another");
            if self.fresh {
                // A message that the old owner was passed the lock may be on its way still.
                (self.owner, self.inbox, self.number) = (self.engine.owner(), None, 0);
            } else {
                // Undone now, it would take the next queue entry along.
                doubt = old;
                // The hold of another number came too late, and was given back.
                self.holds_nothing &= number == self.number;
                self.number = number;
            }
        }
    }
}

impl Awaited for QueueWait<'_> {
    type Output = Grant;

    async fn ask_beside(&mut self, _waiter: &mut Waiter) -> Result<Beside<Grant>> {
        if std::mem::replace(&mut self.has_asked_beside, true) {
            return Ok(Beside::Wait(Duration::MAX));
        }
        // Another task waits as the same owner. If that holds the lock already, this one comes in again.
        self.attempts.manner.queueing = Queueing::Ask;
        if let Some(grant) = self.attempts.ask().await? {
            return Ok(Beside::Done(grant));
        }
        self.attempts.manner.queueing = Queueing::Join;
        if self.attempts.found == Found::Gone {
            // The hold beside which it was to come in is gone, and there may be others.
            self.has_asked_beside = false;
            return Ok(Beside::Wait(self.attempts.pause().most));
        }
        Ok(Beside::Wait(Duration::MAX))
    }

    fn received(&mut self, waiter: &Waiter) -> Option<Grant> {
        self.passed(waiter)
    }

    fn pause_before_asking(&mut self, waiter: &Waiter, woken: bool, steady: bool) -> Option<Pause> {
        let pause = self.attempts.pause();
        if std::mem::take(&mut self.is_first) {
            // The entry was made before anybody listened: what has happened since is found out by asking, once messages come
            // in. An attempt that failed is made again as any other.
            let is_entered = self.attempts.is_queued() && !waiter.is_listening();
            return (is_entered || self.attempts.is_failing()).then_some(pause);
        }
        let confirmed = steady && !woken && !pause.news.is_of_failure() && self.is_confirmed();
        confirmed.then_some(pause)
    }

    async fn ask(&mut self, waiter: &mut Waiter, listening: bool) -> Result<Asked<Grant>> {
        if let Some(grant) = self.attempts.ask().await? {
            // No message for this owner can come later: either the lock was never passed on to it, or that message is here.
            let clear = waiter.has_heard() || (listening && self.attempts.found == Found::Usual);
            if clear && !grant.hold.book().doubted() {
                let _ = grant.hold.inbox.set(Arc::clone(waiter.name()));
            }
            return Ok(Asked::Done(grant));
        }
        if self.attempts.found == Found::Displaced {
            return Ok(Asked::Displaced);
        }
        Ok(Asked::Busy(self.attempts.pause()))
    }
}

impl QueueWait<'_> {
    /// True when the server has confirmed the queue entry not long ago, so that there is no need to ask.
    fn is_confirmed(&self) -> bool {
        let engine = &self.request.engine;
        let now = engine.now();
        let confirmed = self.attempts.entry.as_ref().map(|queued| queued.entry.entry().confirmed());
        confirmed.is_some_and(|confirmed| now.since(confirmed) < engine.options.poll_cap)
    }

    /// The lock, if the server has passed it on to this waiter. Only to an owner that nobody else knows, for as long as
    /// the watchdog keeps it; any other owner asks, and gets its answer in order with its other commands.
    fn passed(&mut self, waiter: &Waiter) -> Option<Grant> {
        let passed = waiter.passed()?;
        let (request, attempts) = (self.request, &mut self.attempts);
        let engine = &request.engine;
        let entry = attempts.entry.as_ref()?.entry.entry();
        // Nor where replicas have to have it: they may not know yet that it was passed on. Asking, it is acknowledged.
        if engine.options.acks.is_strict() || !request.fresh || request.lease.is_some() || engine.check_open().is_err()
        {
            return None;
        }
        let since = passed.since.unwrap_or_else(|| entry.confirmed());
        let until = valid_until(since, passed.lease.min(engine.options.watchdog));
        // The next beat renews it, which may have to wait for one that is under way, and the lease has to last until the answer.
        if until.since(engine.now()) < engine.options.beat() * 2 {
            return None;
        }
        let doubted = attempts.doubt.is_some();
        let grant = attempts.target.granted(None, since, until, doubted);
        attempts.disarm_all();
        if engine.check_open().is_err() {
            // Closing ends the holds that it finds in the table; a hold that is granted after that is given back.
            return None;
        }
        engine.queues.note_passed();
        if !doubted && waiter.has_heard() {
            let _ = grant.hold.inbox.set(Arc::clone(waiter.name()));
        }
        Some(grant)
    }
}
