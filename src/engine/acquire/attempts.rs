//! The attempts of one acquire, and the state kept between them: the last error, undos, the queue entry.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Request;
use super::attempt::{Failed, InQueue, Manner, Tried};
use super::undo::Undo;
use crate::engine::hold::{Grant, Hold, Target};
use crate::engine::protocol::Queueing;
use crate::engine::wait::{News, Patience, Pause};
use crate::error::{Error, Result};
use crate::topology::Placement;

/// Longest pause before a retry at the name's new server. The pause is random, because all waiters of the name retry
/// then.
const ELSEWHERE: Duration = Duration::from_millis(10);

pub(super) struct Attempts<'a> {
    request: &'a Request,
    pub(super) target: Arc<Target>,
    pause_for: Duration,
    /// Undo of an earlier attempt that may have run. A retry uses the same owner and hold id, so the server counts the
    /// acquire once.
    pub(super) doubt: Option<Undo>,
    /// Undo of the mark in Redis that shows that this owner waits.
    mark: Option<Undo>,
    /// How the next attempt is made. The first attempt does not ask for the remaining lease, unless the waiter already
    /// receives messages.
    pub(super) manner: Manner,
    /// True if the current holder's release will be announced by a message.
    pub(super) announced: bool,
    pub(super) entry: Option<InQueue>,
    pub(super) found: Found,
    pub(super) patience: Patience,
    failed: Option<Error>,
    /// True once an answer reported that another owner holds the lock or is ahead in the queue.
    pub(super) has_seen_busy: bool,
    /// True if the last busy answer reported a Java client as the holder.
    pub(super) by_java: bool,
}

/// A finding of the last attempt that changes how the waiter continues. [`Tried`] describes the last three variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// None of the following: the lock was acquired, another owner holds the lock, or the attempt failed.
    Usual,
    /// An earlier hold of the owner is ending or gone.
    Gone,
    Passed,
    Displaced,
    HeldBack,
}

impl<'a> Attempts<'a> {
    pub(super) fn new(request: &'a Request) -> Self {
        let pause_for = request.engine.options.poll_cap;
        Self {
            request,
            target: request.target(),
            pause_for,
            doubt: None,
            mark: None,
            manner: Manner { queueing: Queueing::Join, gives_way: true, looks: false },
            // If a lock was acquired by `SET`, only a refusal with `Manner::looks` says whether its release will be
            // announced.
            announced: request.protocol.backoff().is_none() || request.protocol.nature().by_set,
            entry: None,
            found: Found::Usual,
            patience: Patience::new(request.patience),
            failed: None,
            has_seen_busy: false,
            by_java: false,
        }
    }

    /// Makes one attempt. If it does not succeed, [`Attempts::pause`] says how to wait for the next one.
    pub(super) async fn ask(&mut self) -> Result<Option<Grant>> {
        self.found = Found::Usual;
        let held_back = self.held_back();
        if held_back == Some(Duration::ZERO) {
            // This reader has yielded to waiting writers for `max_reader_delay`, and no longer yields.
            self.manner.gives_way = false;
        }
        let asked_at = self.placement();
        let tried = self.attempt().await;
        self.manner.looks = true;
        match tried {
            Ok(tried) => Ok(self.note_reply(tried, held_back)),
            Err(failed) => self.note_failure(failed, asked_at).map(|()| None),
        }
    }

    fn placement(&self) -> Placement {
        self.request.engine.topology.placement(self.request.protocol.name())
    }

    async fn attempt(&self) -> std::result::Result<Tried, Failed> {
        let request = self.request;
        // Admission limits only newcomers. An owner that has a queue entry or holds the lock must not wait for
        // admission, because other waiters may wait for that owner.
        let joins = self.manner.queueing == Queueing::Join && self.entry.is_none() && !request.is_in();
        let admitted = if joins { request.admitted().await? } else { None };
        request.bounded(request.attempt(&self.target, self.doubt.is_some(), self.manner, admitted)).await
    }

    fn note_reply(&mut self, tried: Tried, held_back: Option<Duration>) -> Option<Grant> {
        let request = self.request;
        if !matches!(tried, Tried::Gone) {
            // A lost queue entry is no evidence of a holder.
            self.has_seen_busy |= !matches!(tried, Tried::Displaced);
            self.failed = None;
            self.patience.answered();
        }
        match tried {
            Tried::Held(grant) => {
                self.disarm_all();
                return Some(grant);
            }
            Tried::Passed(grant) => {
                self.found = Found::Passed;
                self.disarm_all();
                return Some(grant);
            }
            Tried::Queued(queued) => {
                self.pause_for = request.engine.options.poll_cap;
                self.entered(queued);
            }
            Tried::Marked(busy, mark) => {
                self.by_java = busy.by_java;
                self.pause_for = request.until_free(busy.ttl);
                Undo::replace_mark(&mut self.mark, mark);
            }
            Tried::HeldBack => {
                self.found = Found::HeldBack;
                self.pause_for = held_back.unwrap_or(Duration::MAX).min(request.engine.options.poll_cap);
            }
            Tried::Displaced => {
                self.found = Found::Displaced;
            }
            Tried::OwnerTaken => {
                // The drop of the old value undoes the queue entry.
                self.entry = None;
                self.found = Found::Displaced;
            }
            Tried::Busy(busy) => {
                self.announced = busy.announced;
                self.by_java = busy.by_java;
                self.pause_for = request.until_free(busy.ttl);
            }
            Tried::Gone => {
                // The release of the earlier hold may still be in flight. So even for a fresh owner, the next attempt
                // uses the entry in the table of holds, and waits for that release.
                let hold = Hold::new(Arc::clone(&request.protocol), request.owner.clone());
                let (number, nonce) = (self.target.number, self.target.nonce.clone());
                self.target = Target::reserve(&request.engine, hold, number, nonce);
                self.pause_for = Duration::from_millis(1);
                self.found = Found::Gone;
            }
        }
        None
    }

    /// Handles a failed attempt. Returns an error if the acquire ends.
    fn note_failure(
        &mut self,
        Failed { error, doubt, would_repeat, spent, cut_off }: Failed,
        asked_at: Placement,
    ) -> Result<()> {
        let request = self.request;
        if spent {
            // The release of the spent hold also covers a late copy of the acquire.
            self.doubt.take().into_iter().for_each(Undo::disarm);
            let hold = Hold::new(Arc::clone(&request.protocol), request.owner.clone());
            self.target = request.target_of(hold, request.engine.hold_number());
        }
        match doubt {
            Some(undo) if self.doubt.is_none() => self.doubt = Some(undo),
            Some(known) => known.disarm(),
            None => {}
        }
        if self.doubt.is_some() {
            // An earlier attempt may have joined the queue, so retries keep its place.
            self.manner.queueing = Queueing::Stay;
        }
        if cut_off {
            // The error of an earlier attempt says more than "cut off". Without an earlier error, the wait has run out
            // if another holder was seen.
            let earlier = self.failed.take();
            let ran_out = earlier.is_none() && self.has_seen_busy;
            request.ran_out.store(ran_out, Ordering::Relaxed);
            return Err(earlier.unwrap_or(error));
        }
        self.pause_for = if self.placement() != asked_at {
            // The name has moved to another server. Retry there soon.
            ELSEWHERE - request.engine.jitter(ELSEWHERE * 9 / 10)
        } else if matches!(error, Error::Replicas { .. }) {
            // Too few replicas acknowledged the grant. A full pause gives time to undo the grant, and lets other
            // waiters acquire.
            request.engine.pause(self.patience.failures().max(1))
        } else {
            request.engine.pause(self.patience.failures())
        };
        let now = request.deadline.elapsed();
        let enough = match error {
            Error::Replicas { .. } => self.patience.grant_was_undone(now),
            _ if error.is_too_late() => self.patience.reply_was_late(now),
            _ => self.patience.failed(now),
        };
        if would_repeat || enough || !error.is_retryable() || request.deadline.is_over() {
            return Err(error);
        }
        self.failed = Some(error);
        Ok(())
    }

    /// Remaining time in which this reader yields to waiting writers. None if this is not a read lock.
    pub(super) fn held_back(&self) -> Option<Duration> {
        let engine = &self.request.engine;
        let left = || engine.options.max_reader_delay.saturating_sub(self.request.deadline.waited());
        self.request.protocol.nature().is_shared().then(left)
    }

    pub(super) const fn news(&self) -> News {
        if self.is_failing() { News::Connection } else { News::Announced }
    }

    pub(super) const fn pause(&self) -> Pause {
        let news = if matches!(self.failed, Some(Error::Replicas { .. })) { News::Undone } else { self.news() };
        Pause { most: self.pause_for, news }
    }

    pub(super) fn is_queued(&self) -> bool {
        self.entry.is_some()
    }

    /// Records that the server has confirmed the owner's queue entry.
    pub(super) fn entered(&mut self, queued: InQueue) {
        self.manner.queueing = Queueing::Stay;
        if let Some(InQueue { undo, .. }) = self.entry.replace(queued) {
            // The new value is for the same entry, so the old undo must not run.
            undo.disarm();
        }
    }

    /// Forgets the queue entry, which is gone. Returns the undo of an attempt in doubt, if there is one.
    pub(super) fn displaced(&mut self) -> Option<Undo> {
        if let Some(InQueue { undo, .. }) = self.entry.take() {
            undo.disarm();
        }
        self.doubt.take()
    }

    /// Cancels all undos. Called once the lock is held: the queue entry is gone by then.
    pub(super) fn disarm_all(&mut self) {
        let entry = self.entry.take().map(|InQueue { undo, .. }| undo);
        [self.doubt.take(), self.mark.take(), entry].into_iter().flatten().for_each(Undo::disarm);
    }

    pub(super) const fn is_failing(&self) -> bool {
        self.failed.is_some()
    }

    /// Ends the wait. Returns an error if the last attempt failed, or if no other holder was seen.
    pub(super) fn give_up(&mut self) -> Result<Option<Grant>> {
        match self.failed.take() {
            Some(error) => Err(error),
            None if self.has_seen_busy => Ok(None),
            None => Err(self.request.engine.topology.missing(self.request.protocol.name())),
        }
    }

    /// Ends the wait while the server is silent. Always returns an error.
    pub(super) fn give_up_unanswered(&mut self) -> Result<Option<Grant>> {
        let missing = || self.request.engine.topology.missing(self.request.protocol.name());
        Err(self.failed.take().unwrap_or_else(missing))
    }
}

impl Request {
    /// Pause while the lock is busy: until the holder's lease ends, but at most `poll_cap` and at least 1 ms.
    fn until_free(&self, ttl: Option<u64>) -> Duration {
        let cap = self.engine.options.poll_cap;
        match ttl {
            None => cap,
            Some(0) => Duration::from_millis(1) + self.engine.jitter(Duration::from_millis(4)),
            Some(ms) => (Duration::from_millis(ms) + Duration::from_millis(1)).min(cap),
        }
    }
}
