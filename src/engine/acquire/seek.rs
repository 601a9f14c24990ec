//! One acquire's attempts, across errors and doubts, and their pace.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::attempt::{Failed, Placed, Tried, Undo};
use super::{FLOOR, Wish};
use crate::engine::hold::{Grant, Hold, Target};
use crate::engine::patience::Patience;
use crate::engine::protocol::Turn;
use crate::engine::transport::Moment;
use crate::error::{Error, Result};

/// The burst of wake-ups answered at once.
const BURST: u32 = 64;

/// One acquire's attempts, across errors and doubts.
pub(super) struct Seek<'a> {
    wish: &'a Wish,
    pub(super) target: Arc<Target>,
    /// How long to sleep before the next attempt.
    pub(super) nap: Duration,
    /// An earlier attempt that may have happened unseen. The same owner asks again, which changes nothing if it had.
    pub(super) doubt: Option<Undo>,
    /// A mark in Redis that this waits.
    mark: Option<Undo>,
    pub(super) turn: Turn,
    /// The place in a queue in Redis.
    pub(super) place: Option<Placed>,
    pub(super) found: Found,
    pub(super) patience: Patience,
    /// Why the last attempt failed, if it did.
    failed: Option<Error>,
}

/// What the last attempt found out about others in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    Passed,
    Displaced,
    HeldBack,
}

impl<'a> Seek<'a> {
    pub(super) fn new(wish: &'a Wish) -> Self {
        let nap = wish.engine.options.poll_cap;
        Self {
            wish,
            target: wish.target(),
            nap,
            doubt: None,
            mark: None,
            turn: Turn::Join,
            place: None,
            found: Found::Nothing,
            patience: Patience::new(wish.engine.patience()),
            failed: None,
        }
    }

    /// Makes one attempt. Sets `nap` when it brings nothing.
    pub(super) async fn ask(&mut self) -> Result<Option<Grant>> {
        let wish = self.wish;
        self.found = Found::Nothing;
        let held_back = self.held_back();
        if held_back == Some(Duration::ZERO) {
            // Long enough: those who wait for the other half are not let go first any more.
            self.turn = Turn::Stay;
        }
        let tried = wish.bounded(wish.attempt(&self.target, self.doubt.is_some(), self.turn)).await;
        if tried.as_ref().is_ok_and(|tried| !matches!(tried, Tried::Gone)) {
            self.failed = None;
            self.patience.answered();
        }
        match tried {
            Ok(Tried::Held(grant)) => {
                self.settle();
                return Ok(Some(grant));
            }
            Ok(Tried::Passed(grant)) => {
                self.found = Found::Passed;
                self.settle();
                return Ok(Some(grant));
            }
            Ok(Tried::Standing(placed)) => {
                self.nap = wish.engine.options.poll_cap;
                self.stand(placed);
            }
            Ok(Tried::Marked(ttl, mark)) => {
                self.nap = wish.nap(ttl);
                Undo::keep(&mut self.mark, mark);
            }
            Ok(Tried::HeldBack) => {
                self.found = Found::HeldBack;
                self.nap = held_back.unwrap_or(FLOOR).min(wish.engine.options.poll_cap);
            }
            Ok(Tried::Displaced) => {
                self.found = Found::Displaced;
            }
            Ok(Tried::Met) => {
                // Given up.
                self.place = None;
                self.found = Found::Displaced;
            }
            Ok(Tried::Busy(ttl)) => {
                self.nap = wish.nap(ttl);
            }
            Ok(Tried::Gone) => {
                // Even a fresh owner is known by now: its release may still be under way.
                let hold = Hold::new(Arc::clone(&wish.protocol), wish.owner.clone());
                let (number, nonce) = (self.target.number, self.target.nonce.clone());
                self.target = Target::reserve(&wish.engine, hold, number, nonce);
                self.nap = Duration::from_millis(1);
            }
            Err(Failed { error, doubt, last, spent, cut_off }) => {
                if spent {
                    // Its release looks for what was in doubt.
                    Undo::settle(&mut self.doubt);
                    let hold = Hold::new(Arc::clone(&wish.protocol), wish.owner.clone());
                    self.target = wish.target_of(hold, wish.engine.hold_number());
                }
                match doubt {
                    Some(undo) if self.doubt.is_none() => self.doubt = Some(undo),
                    mut known => Undo::settle(&mut known),
                }
                if self.doubt.is_some() {
                    // It may have a place unseen.
                    self.turn = Turn::Stay;
                }
                if cut_off {
                    // It says less than the one before it that failed; where none did, the wait has run out.
                    let earlier = self.failed.take();
                    wish.ran_out.store(earlier.is_none(), Ordering::Relaxed);
                    return Err(earlier.unwrap_or(error));
                }
                self.nap = wish.engine.pause(self.patience.failures());
                let now = wish.engine.now().since(wish.began);
                let enough = if spent { self.patience.came_late(now) } else { self.patience.failed(now) };
                if last || enough || !error.is_retryable() || wish.is_over() {
                    return Err(error);
                }
                self.failed = Some(error);
            }
        }
        Ok(None)
    }

    /// For how long this lets those go first who wait for the other half. None where there is no such thing.
    pub(super) fn held_back(&self) -> Option<Duration> {
        let engine = &self.wish.engine;
        let waited = || engine.now().since(self.wish.began) + self.wish.waited;
        let left = || engine.options.hold_back.saturating_sub(waited());
        self.wish.protocol.is_shared().then(left)
    }

    /// True when this has a place in the queue.
    pub(super) fn is_standing(&self) -> bool {
        self.place.is_some()
    }

    /// The place is confirmed.
    pub(super) fn stand(&mut self, placed: Placed) {
        self.turn = Turn::Stay;
        if let Some(Placed { undo, .. }) = self.place.replace(placed) {
            // The same place, confirmed.
            Undo::settle(&mut Some(undo));
        }
    }

    /// The place is gone, and nothing is held. Returns what may come in late.
    pub(super) fn displaced(&mut self) -> Option<Undo> {
        if let Some(Placed { undo, .. }) = self.place.take() {
            Undo::settle(&mut Some(undo));
        }
        self.doubt.take()
    }

    /// The lock is held: there is nothing to undo, and no place any more.
    pub(super) fn settle(&mut self) {
        Undo::settle(&mut self.doubt);
        Undo::settle(&mut self.mark);
        if let Some(Placed { undo, .. }) = self.place.take() {
            Undo::settle(&mut Some(undo));
        }
    }

    pub(super) fn is_failing(&self) -> bool {
        self.failed.is_some()
    }

    /// The wait is over. Only what is known is told as busy.
    pub(super) fn give_up(&mut self) -> Result<Option<Grant>> {
        self.failed.take().map_or(Ok(None), Err)
    }
}

/// Answers a burst of wake-ups at once, and after that one every [`FLOOR`]: a flood of messages is no reason to flood
/// the server.
pub(super) struct Pace {
    left: u32,
    at: Moment,
}

impl Pace {
    pub(super) fn new(began: Moment) -> Self {
        Self { left: BURST, at: began }
    }

    fn refill(&mut self, now: Moment) {
        let gained = now.since(self.at).as_nanos() / FLOOR.as_nanos();
        if gained > 0 {
            self.left = self.left.saturating_add(u32::try_from(gained).unwrap_or(BURST)).min(BURST);
            self.at = now;
        }
    }

    pub(super) fn spend(&mut self, now: Moment) {
        self.refill(now);
        self.left = self.left.saturating_sub(1);
    }

    pub(super) fn allows(&mut self, now: Moment) -> bool {
        self.refill(now);
        self.left > 0
    }
}
