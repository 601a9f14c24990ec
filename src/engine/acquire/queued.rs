//! The wait for a lock whose waiters queue in Redis. Each waiter has a channel of its own, its inbox.

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

struct QueueWait<'a> {
    request: &'a Request,
    attempts: Attempts<'a>,
    /// True until the first call of `pause_before_asking`.
    is_first: bool,
    has_asked_beside: bool,
}

impl Request {
    pub(super) async fn queue_up(&mut self) -> Result<Option<Grant>> {
        let (mut doubt, mut patience, mut has_seen_busy) = (None, Patience::new(self.patience), false);
        loop {
            let mut awaited =
                QueueWait { request: self, attempts: Attempts::new(self), is_first: true, has_asked_beside: false };
            let attempts = &mut awaited.attempts;
            (attempts.doubt, attempts.patience, attempts.has_seen_busy) = (doubt.take(), patience, has_seen_busy);
            // A fresh owner without an inbox tries once before it enters the registry and subscribes. If the lock is
            // free, neither is needed.
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
            // The queue entry is gone and needs no undo. An attempt without a reply may need an undo (`old`).
            let (old, number) = (attempts.displaced(), attempts.target.number);
            self.engine.check_open()?;
            if self.deadline.is_over() {
                return attempts.give_up();
            }
            (patience, has_seen_busy) = (attempts.patience, attempts.has_seen_busy);
            drop(attempts);
            tracing::debug!(lock.name = %self.protocol.name().as_written, "lost its place in the queue, and takes another");
            if self.fresh {
                // A message that grants the lock to the old owner may still arrive, so the acquire continues as a new
                // owner.
                (self.owner, self.inbox, self.number) = (self.engine.owner(), None, 0);
            } else {
                // The undo must not run now, because it would also remove this owner's next queue entry.
                doubt = old;
                // A changed number means that the first hold was granted, but was released as `Failed::spent`.
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
        // Another task waits as the same owner. If the owner holds the lock already, this task re-enters it.
        self.attempts.manner.queueing = Queueing::Ask;
        if let Some(grant) = self.attempts.ask().await? {
            return Ok(Beside::Done(grant));
        }
        self.attempts.manner.queueing = Queueing::Join;
        if self.attempts.found == Found::Gone {
            // The hold to re-enter is gone, but the owner may have others.
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
            // The queue entry is older than the subscription to the inbox. So the waiter first subscribes, then asks
            // what happened in between. A failed attempt is retried after its usual pause.
            let is_entered = self.attempts.is_queued() && !waiter.is_listening();
            return (is_entered || self.attempts.is_failing()).then_some(pause);
        }
        let confirmed = steady && !woken && !pause.news.is_of_failure() && self.is_confirmed();
        confirmed.then_some(pause)
    }

    async fn ask(&mut self, waiter: &mut Waiter, listening: bool) -> Result<Asked<Grant>> {
        if let Some(grant) = self.attempts.ask().await? {
            // The inbox may be reused only if no message for this owner can arrive later: the lock was never passed on
            // to the owner, or that message has arrived.
            let clear = waiter.has_heard() || (listening && self.attempts.found == Found::Usual);
            if clear && !grant.hold.book().doubted() {
                let _ = grant.hold.inbox.set(Arc::clone(waiter.name()));
            }
            return Ok(Asked::Done(grant));
        }
        if self.attempts.found == Found::Displaced {
            return Ok(Asked::Displaced);
        }
        let mut pause = self.attempts.pause();
        if !listening {
            // Without messages, only an attempt shows that the lock was passed on to this waiter. The waiter must
            // notice that within `fair_grace`.
            pause.most = pause.most.min(self.request.engine.options.fair_grace / 2);
        }
        Ok(Asked::Busy(pause))
    }
}

impl QueueWait<'_> {
    /// True if the server has confirmed the queue entry recently, so there is no need to ask.
    fn is_confirmed(&self) -> bool {
        let engine = &self.request.engine;
        let now = engine.now();
        let confirmed = self.attempts.entry.as_ref().map(|queued| queued.entry.entry().confirmed());
        confirmed.is_some_and(|confirmed| now.since(confirmed) < engine.options.poll_cap)
    }

    /// Returns the lock if the server has passed it on to a fresh owner without an explicit lease or a lock delay. In
    /// all other cases the waiter asks: an owner that others use needs a reply in order with its other commands, and
    /// only an attempt sets an explicit lease or a delay.
    fn passed(&mut self, waiter: &Waiter) -> Option<Grant> {
        let passed = waiter.passed()?;
        let (request, attempts) = (self.request, &mut self.attempts);
        let engine = &request.engine;
        let entry = attempts.entry.as_ref()?.entry.entry();
        // In the strict modes the waiter asks: replicas may not have the grant yet, but acknowledge the waiter's
        // command.
        let is_usual = request.fresh && request.lease.is_none() && request.delay.is_zero();
        if engine.options.acks.is_strict() || !is_usual || engine.check_open().is_err() {
            return None;
        }
        let since = passed.since.unwrap_or_else(|| entry.confirmed());
        let until = valid_until(since, passed.lease.min(engine.options.watchdog));
        // The next beat (`engine/queue.rs`) renews the lease. If a beat is in flight, the renewal takes up to two
        // beats. The lease must last that long.
        if until.since(engine.now()) < engine.options.beat() * 2 {
            return None;
        }
        let doubted = attempts.doubt.is_some();
        let grant = attempts.target.granted(None, since, until, doubted);
        attempts.disarm_all();
        if engine.check_open().is_err() {
            // The drop of `grant` releases the hold, as in `Attempt::open`.
            return None;
        }
        engine.queues.note_passed();
        if !doubted && waiter.has_heard() {
            let _ = grant.hold.inbox.set(Arc::clone(waiter.name()));
        }
        Some(grant)
    }
}
