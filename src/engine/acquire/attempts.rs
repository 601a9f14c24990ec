//! One acquire's attempts, across errors and doubts.

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

/// How long an attempt that failed at a server waits, at the most, that the name has left: some others do at the same time.
const ELSEWHERE: Duration = Duration::from_millis(10);

/// One acquire's attempts, across errors and doubts.
pub(super) struct Attempts<'a> {
    request: &'a Request,
    pub(super) target: Arc<Target>,
    /// For how long to sleep before the next attempt.
    pause_for: Duration,
    /// An earlier attempt that may have happened unseen. The same owner asks again, which changes nothing if it had.
    pub(super) doubt: Option<Undo>,
    /// The mark in Redis that says that this owner waits.
    mark: Option<Undo>,
    /// How the next one is made. The first of a waiter that does not know of others just asks for the lock.
    pub(super) manner: Manner,
    /// True when the release of whoever holds the lock will be announced.
    pub(super) announced: bool,
    /// The queue entry, if there is one.
    pub(super) entry: Option<InQueue>,
    pub(super) found: Found,
    pub(super) patience: Patience,
    /// Why the last attempt failed, if it did.
    failed: Option<Error>,
    /// True once an answer said that another owner has the lock, or is ahead of this one.
    pub(super) has_seen_busy: bool,
}

/// What the last attempt found that decides how it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing special: the lock is had, or somebody else holds it.
    Usual,
    /// An earlier hold of the owner is ending, or gone: the next attempt takes another.
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
            // A lock that is taken by `SET` says only in a later look whether its release will be announced.
            announced: request.protocol.backoff().is_none() || request.protocol.nature().by_set,
            entry: None,
            found: Found::Usual,
            patience: Patience::new(request.patience),
            failed: None,
            has_seen_busy: false,
        }
    }

    /// Makes one attempt. Where it brings nothing, [`Attempts::pause`] says how to wait for the next.
    pub(super) async fn ask(&mut self) -> Result<Option<Grant>> {
        let request = self.request;
        let placement = || request.engine.topology.placement(request.protocol.name());
        let asked_at = placement();
        self.found = Found::Usual;
        let held_back = self.held_back();
        if held_back == Some(Duration::ZERO) {
            // Held back for long enough: the waiters of the other half do not come first any more.
            self.manner.gives_way = false;
        }
        // Whoever has come before stands behind nobody who only comes: others may wait for it.
        let joins = self.manner.queueing == Queueing::Join && self.entry.is_none() && !request.is_in();
        let admitted = if joins { request.admitted().await } else { Ok(None) };
        let tried = match admitted {
            Ok(admitted) => {
                let attempt = request.attempt(&self.target, self.doubt.is_some(), self.manner, admitted);
                request.bounded(attempt).await
            }
            Err(failed) => Err(failed),
        };
        self.manner.looks = true;
        if tried.as_ref().is_ok_and(|tried| !matches!(tried, Tried::Gone)) {
            // A lost place in the queue says nothing of a holder.
            self.has_seen_busy |= !matches!(tried, Ok(Tried::Displaced));
            self.failed = None;
            self.patience.answered();
        }
        match tried {
            Ok(Tried::Held(grant)) => {
                self.disarm_all();
                return Ok(Some(grant));
            }
            Ok(Tried::Passed(grant)) => {
                self.found = Found::Passed;
                self.disarm_all();
                return Ok(Some(grant));
            }
            Ok(Tried::Queued(queued)) => {
                self.pause_for = request.engine.options.poll_cap;
                self.entered(queued);
            }
            Ok(Tried::Marked(busy, mark)) => {
                self.pause_for = request.until_free(busy.ttl);
                Undo::replace_mark(&mut self.mark, mark);
            }
            Ok(Tried::HeldBack) => {
                self.found = Found::HeldBack;
                self.pause_for = held_back.unwrap_or(Duration::MAX).min(request.engine.options.poll_cap);
            }
            Ok(Tried::Displaced) => {
                self.found = Found::Displaced;
            }
            Ok(Tried::OwnerTaken) => {
                // Its queue entry is given up.
                self.entry = None;
                self.found = Found::Displaced;
            }
            Ok(Tried::Busy(busy)) => {
                self.announced = busy.announced;
                self.pause_for = request.until_free(busy.ttl);
            }
            Ok(Tried::Gone) => {
                // The release of an earlier hold may still be under way, so that even a fresh owner is in the table.
                let hold = Hold::new(Arc::clone(&request.protocol), request.owner.clone());
                let (number, nonce) = (self.target.number, self.target.nonce.clone());
                self.target = Target::reserve(&request.engine, hold, number, nonce);
                self.pause_for = Duration::from_millis(1);
                self.found = Found::Gone;
            }
            Err(Failed { error, doubt, would_repeat, spent, cut_off }) => {
                if spent {
                    // The release of that hold also looks for the copy that was in doubt.
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
                    // The owner may have a queue entry unseen.
                    self.manner.queueing = Queueing::Stay;
                }
                if cut_off {
                    // The failure of an earlier attempt says more than this error. Without one, the wait has run out if another holder
                    // was seen.
                    let earlier = self.failed.take();
                    let ran_out = earlier.is_none() && self.has_seen_busy;
                    request.ran_out.store(ran_out, Ordering::Relaxed);
                    return Err(earlier.unwrap_or(error));
                }
                self.pause_for = if placement() != asked_at {
                    // It was asked of a server that has lost the name meanwhile: the other one is there.
                    ELSEWHERE - request.engine.jitter(ELSEWHERE * 9 / 10)
                } else if matches!(error, Error::Replicas { .. }) {
                    // It is undone by then, and whoever else waits has had its chance.
                    request.engine.pause(self.patience.failures().max(1))
                } else {
                    request.engine.pause(self.patience.failures())
                };
                let now = request.deadline.elapsed();
                let enough = match error {
                    Error::Replicas { .. } => self.patience.came_undone(now),
                    _ if error.is_too_late() => self.patience.came_late(now),
                    _ => self.patience.failed(now),
                };
                if would_repeat || enough || !error.is_retryable() || request.deadline.is_over() {
                    return Err(error);
                }
                self.failed = Some(error);
            }
        }
        Ok(None)
    }

    /// For how long the waiters of the other half may still come first. None where the lock has no halves.
    pub(super) fn held_back(&self) -> Option<Duration> {
        let engine = &self.request.engine;
        let left = || engine.options.hold_back.saturating_sub(self.request.deadline.waited());
        self.request.protocol.nature().shared.then(left)
    }

    /// What cuts a wait short in which nothing is asked.
    pub(super) const fn news(&self) -> News {
        if self.is_failing() { News::Connection } else { News::Announced }
    }

    /// How to wait for the next attempt.
    pub(super) const fn pause(&self) -> Pause {
        let news = if matches!(self.failed, Some(Error::Replicas { .. })) { News::Undone } else { self.news() };
        Pause { most: self.pause_for, news }
    }

    /// True when the owner has a queue entry.
    pub(super) fn is_queued(&self) -> bool {
        self.entry.is_some()
    }

    /// The server says that the owner stands in the queue.
    pub(super) fn entered(&mut self, queued: InQueue) {
        self.manner.queueing = Queueing::Stay;
        if let Some(InQueue { undo, .. }) = self.entry.replace(queued) {
            // It is the same entry, confirmed.
            undo.disarm();
        }
    }

    /// The queue entry is gone, and nothing is held. Returns the attempt that may be carried out late.
    pub(super) fn displaced(&mut self) -> Option<Undo> {
        if let Some(InQueue { undo, .. }) = self.entry.take() {
            undo.disarm();
        }
        self.doubt.take()
    }

    /// The lock is held: there is nothing to undo, and no queue entry any more.
    pub(super) fn disarm_all(&mut self) {
        let entry = self.entry.take().map(|InQueue { undo, .. }| undo);
        [self.doubt.take(), self.mark.take(), entry].into_iter().flatten().for_each(Undo::disarm);
    }

    pub(super) const fn is_failing(&self) -> bool {
        self.failed.is_some()
    }

    /// The wait is over. An error if the last attempt failed, or if no other holder was seen.
    pub(super) fn give_up(&mut self) -> Result<Option<Grant>> {
        match self.failed.take() {
            Some(error) => Err(error),
            None if self.has_seen_busy => Ok(None),
            None => Err(self.request.engine.topology.missing(self.request.protocol.name())),
        }
    }

    /// As `give_up`, at a silent server.
    pub(super) fn give_up_unanswered(&mut self) -> Result<Option<Grant>> {
        let missing = || self.request.engine.topology.missing(self.request.protocol.name());
        Err(self.failed.take().unwrap_or_else(missing))
    }
}

impl Request {
    /// How long to sleep on a busy lock: until its lease ends, but never without bound and never not at all.
    fn until_free(&self, ttl: Option<u64>) -> Duration {
        let cap = self.engine.options.poll_cap;
        match ttl {
            None => cap,
            Some(0) => Duration::from_millis(1) + self.engine.jitter(Duration::from_millis(4)),
            Some(ms) => (Duration::from_millis(ms) + Duration::from_millis(1)).min(cap),
        }
    }
}
