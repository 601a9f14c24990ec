//! The time in which others are let first, and what a process learns from it.

use std::time::Duration;

use crate::world::Moment;

/// The result of the last finished way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Learnt {
    /// Number of turns that the others took, and number of receivers besides this process.
    pub(super) turns: u64,
    pub(super) receivers: u64,
    /// When the next trial is due, and its distance from the last one.
    pub(super) trial: Moment,
    pub(super) pause: Duration,
}

impl Learnt {
    /// Number of turns to wait for, with this number of other receivers. New receivers count as competitors.
    pub(super) fn expected(&self, receivers: u64, now: Moment) -> u64 {
        if now >= self.trial { receivers } else { self.turns + receivers.saturating_sub(self.receivers) }
    }
}

/// The time in which others are let first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    /// The message count once this process's own release has been heard.
    pub(super) own: u64,
    /// The message count after all expected turns; `u64::MAX` if messages do not count turns.
    pub(super) until: u64,
    /// The message count after as many turns as were taken last time.
    pub(super) known: u64,
    /// Number of other receivers, and whether this way waits for all of them.
    pub(super) receivers: u64,
    pub(super) is_trial: bool,
    /// When the last release was heard, and for how long the lock is left alone from then on.
    pub(super) since: Moment,
    pub(super) length: Duration,
    /// When the way ends, however many messages arrive.
    pub(super) end: Moment,
}

impl Way {
    /// How long the lock may stay free after this number of messages. Twice as long while fewer turns were taken than
    /// last time: a process whose turn is missing may itself be waiting for others.
    pub(super) fn length_after(&self, heard: u64) -> Duration {
        if heard < self.known { 2 * self.length } else { self.length }
    }
}
