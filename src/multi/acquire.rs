//! One acquire of a multi lock.
//!
//! 1. Request all locks that are not held yet at once: where possible by scripts that acquire many names (module
//!    `ask`), otherwise by one command for each lock.
//! 2. If all are granted, combine their guards into one.
//! 3. All callers use the same order of the locks. If some are busy, keep the locks before the first busy lock in this
//!    order, and release the rest.
//! 4. Wait for the busy lock. If it stays busy for a random time between [`HOLD`] and twice [`HOLD`], release all other
//!    locks, and wait without holding any.
//! 5. Once the busy lock is granted, go to 1.
//!
//! After a temporary error, all locks are released. After a pause the acquire starts over, with a fresh owner unless
//! the user gave an owner.

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::Arc;
use std::time::Duration;

use futures::stream::FuturesUnordered;

use super::{HOLD, MultiLock};
use crate::acquire::Acquire;
use crate::engine::wait::{Deadline, Patience, pause};
use crate::error::{Error, Lost, Result};
use crate::group::{self, PAUSES, are_silent, ask, deadline, how, missing, patience};
use crate::guard::{Guard, Held, enough};
use crate::lock::DistLock;
use crate::owner::Owner;
use crate::runtime::standstill::within;

mod ask;

use ask::Answers;

/// The guards of the held locks, by the index of the lock.
type Got = BTreeMap<usize, Guard>;

/// The outcome of the whole acquire, or `Continue` to request the locks that are not held yet.
type Step = ControlFlow<Option<Guard>>;

/// The owner of the current attempt, and the locks that this owner has held.
struct Asker<'a> {
    locks: &'a [Arc<dyn DistLock>],
    given: Option<Owner>,
    owner: Owner,
    /// Locks that this owner has held before. Their releases may still be in flight. A script of many names would take
    /// a hold whose release is in flight for its own grant, and the release would then remove this hold. So each of
    /// these locks is acquired by a command of its own.
    past: HashSet<usize>,
}

impl<'a> Asker<'a> {
    fn new(locks: &'a [Arc<dyn DistLock>], given: Option<Owner>) -> Self {
        let owner = given.clone().unwrap_or_else(|| group::owner(locks));
        Self { locks, given, owner, past: HashSet::new() }
    }

    /// Switches to a fresh owner, which has no past locks, unless the user gave the owner.
    fn renew(&mut self) {
        *self = Self::new(self.locks, self.given.take());
    }
}

/// An acquire in progress.
struct Acquiring<'a> {
    lock: &'a MultiLock,
    asked: &'a Acquire,
    deadline: &'a Deadline,
    asker: Asker<'a>,
    got: Got,
    /// True if scripts of many names may be used.
    together: bool,
    patience: Patience,
    /// The latest failure since a busy lock was last found.
    last: Option<Error>,
    has_seen_busy: bool,
}

impl MultiLock {
    pub(super) async fn carry_out(&self, asked: Acquire) -> Result<Option<Guard>> {
        asked.check()?;
        asked.check_no_lock_delay("multi")?;
        self.check()?;
        let deadline = &deadline(&self.locks, &asked);
        let asker = Asker::new(&self.locks, asked.owner.clone().or_else(Owner::current));
        let acquiring = Acquiring {
            lock: self,
            asked: &asked,
            deadline,
            got: Got::new(),
            together: asker.given.is_none(),
            asker,
            patience: Patience::new(patience(&self.locks)),
            last: None,
            has_seen_busy: false,
        };
        acquiring.run().await
    }
}

impl Acquiring<'_> {
    async fn run(mut self) -> Result<Option<Guard>> {
        loop {
            let waited_for = self.got.len();
            let (asker, got) = (&self.asker, &mut self.got);
            let step = match self.lock.ask_all(self.asked, asker, got, self.together, self.deadline).await {
                Ok(Answers::All) => self.combine(waited_for).await?,
                Ok(Answers::Busy(at)) => self.wait_for(at).await?,
                // This return drops `got`, which releases the locks in the background. An earlier error is more useful
                // than the end of the wait.
                Ok(Answers::RanOut) => return self.last.take().map_or_else(|| self.ran_out(), Err),
                Err(error) => self.failed(error).await?,
            };
            if let Break(outcome) = step {
                return Ok(outcome);
            }
        }
    }

    /// The result at the end of the wait: None if another holder was seen, else an error.
    fn ran_out(&self) -> Result<Option<Guard>> {
        if self.has_seen_busy { Ok(None) } else { Err(missing(&self.lock.locks)) }
    }

    /// Releases everything after an error, and pauses before the next attempt.
    async fn failed(&mut self, error: Error) -> Result<Step> {
        let deadline = self.deadline;
        self.release_grants(0).await;
        if self.together && (error.crosses_slots() || error.denies_key()) {
            // Names of several slots need separate commands in a cluster behind a proxy. A login may have the right to
            // each name, but not to all of them in one command.
            self.together = false;
            self.asker.renew();
            return Ok(Continue(()));
        }
        // If this error is only a timeout at the end of the wait, an earlier error is more useful.
        let cut_off = matches!(error, Error::Timeout { .. }) && deadline.is_over();
        if self.has_seen_busy && self.last.is_none() && self.is_cut_off(&error).await {
            return Ok(Break(None));
        }
        let error = self.last.take().filter(|_| cut_off).unwrap_or(error);
        self.last = Some(error.clone());
        let pause = pause(&**deadline.world(), PAUSES, self.patience.failures());
        let now = deadline.elapsed();
        let enough = if error.is_too_late() { self.patience.reply_was_late(now) } else { self.patience.failed(now) };
        if deadline.is_over() || enough || !error.is_retryable() {
            return Err(error);
        }
        tokio::time::sleep(deadline.at_most(pause)).await;
        self.asker.renew();
        Ok(Continue(()))
    }

    /// Combines the guards of all locks into one guard, unless a lock was lost in the meantime. `waited_for`: the
    /// number of locks that were already held before the last requests, including the lock that was waited for.
    async fn combine(&mut self, waited_for: usize) -> Result<Step> {
        if let (Some(lease), true) = (self.asked.lease, waited_for > 0) {
            self.extend(lease).await?;
        }
        let size = self.lock.locks.len();
        let guards = std::mem::take(&mut self.got).into_values().collect();
        let held = Held::new(Arc::clone(&self.lock.name), self.asker.owner.clone(), size, size, guards);
        if held.is_held() {
            return Ok(Break(Some(Guard::of(held))));
        }
        // A member was lost in the meantime: release the rest, and start over.
        let deadline = self.deadline;
        let too_slow = matches!(held.why_lost(), Error::Lost { why: Lost::Expired, .. });
        // A release that takes longer continues in the background.
        let _ = tokio::time::timeout(deadline.at_most(HOLD), held.release_grants()).await;
        if too_slow && (self.patience.reply_was_late(deadline.elapsed()) || deadline.is_over()) {
            return Err(Error::too_late());
        }
        if deadline.is_over() {
            return self.ran_out().map(Break);
        }
        self.asker.renew();
        Ok(Continue(()))
    }

    /// Extends the leases of all locks, because locks that were held during the wait for another lock have used up a
    /// part of their leases.
    async fn extend(&self, lease: Duration) -> Result<()> {
        let older = self.got.values().map(|guard| guard.extending(lease)).collect::<FuturesUnordered<_>>();
        let extended = enough(older, self.lock.locks.len(), true);
        let left = self.deadline.left_to_answer().unwrap_or(Duration::MAX);
        match within(left, extended).await {
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                tracing::debug!(lock.name = %self.lock.name, %error, "lost a lock while waiting for the others");
            }
            None => return Err(missing(&self.lock.locks)),
        }
        Ok(())
    }

    /// Returns true if this error is a timeout, the wait is over, and no server is silent.
    async fn is_cut_off(&self, error: &Error) -> bool {
        let is_timeout = matches!(error, Error::Timeout { .. }) && self.deadline.is_over();
        is_timeout && !are_silent(&self.lock.locks, 0, self.deadline).await
    }

    /// Waits for the first busy lock. Keeps the locks before it for a while, and releases the rest.
    async fn wait_for(&mut self, busy: usize) -> Result<Step> {
        self.patience.answered();
        (self.last, self.has_seen_busy) = (None, true);
        if self.deadline.is_over() {
            return Ok(Break(None));
        }
        self.release_grants(busy).await;
        match self.wait_at(busy).await {
            Ok(true) => {}
            Ok(false) => return Ok(Break(None)),
            // A busy lock was seen in this acquire, so the end of the wait is not an error.
            Err(error) if self.is_cut_off(&error).await => return Ok(Break(None)),
            Err(error) => return Err(error),
        }
        // A lock whose lease ended during the wait for another lock is requested again.
        let past = &mut self.asker.past;
        self.got.retain(|at, guard| {
            let held = guard.is_held();
            if !held {
                past.insert(*at);
            }
            held
        });
        if self.got.is_empty() {
            self.asker.renew();
        }
        Ok(Continue(()))
    }

    /// Waits at one lock: first while holding the locks before it, later without holding any. Returns false if the
    /// wait has ended.
    async fn wait_at(&mut self, at: usize) -> Result<bool> {
        let deadline = self.deadline;
        // The releases before this wait may have used up the time.
        while !deadline.is_over() {
            let holds = !self.got.is_empty();
            let mut how = how(&self.asker.owner, self.asked, deadline);
            how.wait =
                if holds { Some(deadline.at_most(HOLD + deadline.world().jitter(HOLD))) } else { deadline.left() };
            let (_, outcome) = ask(&self.lock.locks[at], at, how).await;
            match outcome {
                Ok(Some(guard)) => {
                    self.got.insert(at, guard);
                    return Ok(true);
                }
                Ok(None) if deadline.is_over() => return Ok(false),
                Ok(None) => {}
                // This wait was shorter than the time for retries, so the error is not final.
                Err(error) if holds && error.is_retryable() && !deadline.is_over() => {}
                Err(error) => return Err(error),
            }
            self.release_grants(0).await;
            // A fresh owner may acquire all other locks by scripts of many names.
            self.asker.renew();
        }
        Ok(false)
    }

    /// Releases the locks from index `from` on, so that others find them free.
    async fn release_grants(&mut self, from: usize) {
        let back = self.got.split_off(&from);
        self.asker.past.extend(back.keys());
        let all: Vec<_> = back.into_values().map(Guard::unlocking).collect();
        if !all.is_empty() {
            let _ = tokio::time::timeout(self.deadline.at_most(HOLD), futures::future::join_all(all)).await;
        }
    }
}
