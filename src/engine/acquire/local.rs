//! The wait for a lock whose waiters queue in this process. Usually only the first waiter, the contender, talks to
//! Redis.

use std::time::Duration;

use super::Request;
use super::attempts::{Attempts, Found};
use crate::engine::hold::Grant;
use crate::engine::protocol::Sharing;
use crate::engine::registry::{HeldAs, Waiter};
use crate::engine::wait::{self, Asked, Awaited, Beside, GRACE, News, Pause, Waited};
use crate::error::Result;

struct LockWait<'a> {
    request: &'a Request,
    attempts: Attempts<'a>,
    /// Number of pauses that the lock's back-off has limited so far.
    looks: u32,
}

impl Request {
    pub(super) async fn wait(&self) -> Result<Option<Grant>> {
        let mut awaited = LockWait { request: self, attempts: Attempts::new(self), looks: 0 };
        if !self.holds_nothing {
            // A given owner may hold the lock already. It must not queue behind waiters that wait for its own release,
            // so it tries before it queues.
            let attempts = &mut awaited.attempts;
            let mut closing = self.engine.closing();
            loop {
                self.engine.check_open()?;
                if let Some(grant) = attempts.ask().await? {
                    return Ok(Some(grant));
                }
                if !attempts.is_failing() && attempts.found != Found::Gone {
                    break;
                }
                tokio::select! {
                    () = tokio::time::sleep(self.deadline.at_most(attempts.pause().most)) => {}
                    _ = closing.wait_for(|closing| *closing) => {}
                }
                if self.deadline.is_over() {
                    return attempts.give_up();
                }
            }
        }
        let nature = self.protocol.nature();
        let may_hand_over = self.fresh && self.lease.is_none() && !nature.is_shared() && !nature.fenced;
        // A lock delay belongs to one acquire.
        let may_hand_over = may_hand_over && self.delay.is_zero();
        let held_as = match nature.sharing {
            Sharing::Shared => HeldAs::Shared,
            Sharing::Counted if may_hand_over => HeldAs::Counted,
            Sharing::Alone if may_hand_over => HeldAs::MayHandOver,
            Sharing::Counted | Sharing::Alone => HeldAs::Alone,
        };
        let takes = may_hand_over.then(|| self.protocol.takes());
        let mut waiter = self.engine.registry.enter(self.protocol.name(), takes);
        if self.others_may_wait_as_owner() {
            waiter.sit_as(&self.owner);
        }
        match wait::wait(&self.engine, &self.deadline, &mut waiter, &mut awaited).await? {
            Waited::Done(grant) => {
                waiter.acquired(&grant.hold, self.engine.now(), held_as);
                Ok(Some(grant))
            }
            Waited::Silent => awaited.attempts.give_up_unanswered(),
            Waited::Over | Waited::Displaced => {
                let is_known = awaited.attempts.has_seen_busy || awaited.attempts.is_failing();
                if !is_known && !waiter.knows_busy(self.deadline.began()) {
                    // A busy reply to the contender counts until `GRACE` after the wait. A wait shorter than a timer
                    // tick has not requested an attempt yet.
                    waiter.request_look(self.deadline.began());
                    tokio::time::sleep(GRACE).await;
                }
                awaited.attempts.has_seen_busy |= waiter.knows_busy(self.deadline.began());
                awaited.attempts.give_up()
            }
        }
    }
}

impl LockWait<'_> {
    /// The pause before the next attempt. If the release is not announced, the lock's back-off limits the pause.
    fn backed_off(&mut self, pause: Pause) -> Pause {
        let request = self.request;
        let unannounced = !self.attempts.announced && !pause.news.is_of_failure();
        let Some(backoff) = request.protocol.backoff().filter(|_| unannounced) else { return pause };
        let looks = self.looks;
        self.looks = looks.saturating_add(1);
        Pause { most: pause.most.min(backoff.pause(looks, request.engine.random())), news: News::Never }
    }
}

impl Awaited for LockWait<'_> {
    type Output = Grant;

    async fn ask_beside(&mut self, waiter: &mut Waiter) -> Result<Beside<Grant>> {
        let joins = waiter.joins();
        // Since the last attempt, the owner may have acquired the lock through another acquire.
        let again = !joins && self.request.is_in();
        let held_back = self.attempts.held_back();
        let mut most = held_back.filter(|left| !left.is_zero()).unwrap_or(Duration::MAX);
        if joins || again || (held_back == Some(Duration::ZERO) && waiter.is_held_back()) {
            if let Some(grant) = self.attempts.ask().await? {
                return Ok(Beside::Done(grant));
            }
            if again {
                most = most.min(self.attempts.pause().most);
            } else if joins {
                waiter.rejoin();
                return Ok(Beside::Again);
            } else {
                // The server refused although this waiter no longer yields, so another owner holds the lock.
                waiter.note_held_back(false);
                return Ok(Beside::Again);
            }
        }
        // The contender attempts rarely. So each waiter behind the contender requests an attempt after half of its own
        // wait, early enough for a reply.
        if let Some(left) = self.request.deadline.left_to_half() {
            if left.is_zero() {
                waiter.request_look(self.request.deadline.began());
            } else {
                most = most.min(left);
            }
        }
        Ok(Beside::Wait(most))
    }

    fn received(&mut self, waiter: &Waiter) -> Option<Grant> {
        waiter.handed().filter(|grant| grant.until().is_some())
    }

    fn pause_before_asking(&mut self, waiter: &Waiter, woken: bool, _steady: bool) -> Option<Pause> {
        // Permits: the last busy answer is still valid. Locks: this process may hand the lock over to this waiter. After
        // a wake-up, another client may have changed the lock.
        let (engine, is_counted) = (&self.request.engine, self.request.protocol.nature().is_counted());
        let left = if is_counted { waiter.busy_for(engine.now()) } else { waiter.held_here(engine.now()) };
        let left = left.filter(|_| !woken)?;
        self.attempts.has_seen_busy |= is_counted;
        let pause = Pause { most: left.min(engine.options.poll_cap), news: self.attempts.news() };
        Some(self.backed_off(pause))
    }

    async fn ask(&mut self, waiter: &mut Waiter, listening: bool) -> Result<Asked<Grant>> {
        // A waiter that listens already makes no second attempt after a subscribe, so this attempt must report the
        // lease.
        self.attempts.manner.looks |= listening;
        // If this attempt is cut off, a holder that any contender of this process saw during this wait counts.
        self.attempts.has_seen_busy |= waiter.knows_busy(self.request.deadline.began());
        if let Some(grant) = self.attempts.ask().await? {
            return Ok(Asked::Done(grant));
        }
        if !self.attempts.is_failing() && self.attempts.found != Found::Gone {
            waiter.note_busy();
            if std::mem::take(&mut self.attempts.by_java) {
                waiter.note_java();
            }
            if self.request.protocol.backoff().is_some() {
                waiter.note_other_holder();
            }
        }
        if self.request.protocol.nature().is_shared() {
            waiter.note_held_back(self.attempts.found == Found::HeldBack);
        }
        let pause = self.attempts.pause();
        if listening && self.request.protocol.nature().is_counted() && !self.attempts.is_failing() {
            waiter.note_busy_until(self.request.engine.now() + pause.most);
        }
        Ok(Asked::Busy(self.backed_off(pause)))
    }
}
