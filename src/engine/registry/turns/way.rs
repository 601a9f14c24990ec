//! A way: the pause in which this process yields to others, and the result that the next way uses. Terms: `turns.rs`.

use std::time::Duration;

use crate::world::Moment;

/// The result of the last finished way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Learnt {
    /// Number of turns that other processes took.
    pub(super) turns: u64,
    /// Number of other clients that received the release's message.
    pub(super) receivers: u64,
    /// Time of the next trial.
    pub(super) trial: Moment,
    /// Pause between the last trial and the next one.
    pub(super) pause: Duration,
}

impl Learnt {
    /// Number of turns to wait for after a release with this number of other receivers. Receivers that are new since
    /// the last way count as competitors.
    pub(super) fn expected(&self, receivers: u64, now: Moment) -> u64 {
        if now >= self.trial { receivers } else { self.turns + receivers.saturating_sub(self.receivers) }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    /// The message count (`Turns::heard`) once the message of this process's own release has arrived.
    pub(super) own: u64,
    /// The message count after all expected turns; `u64::MAX` if messages do not count turns.
    pub(super) until: u64,
    /// The message count once other processes have taken as many turns as in the last way.
    pub(super) known: u64,
    pub(super) receivers: u64,
    /// True if this way waits for all receivers.
    pub(super) is_trial: bool,
    /// When the last message arrived, or the way began.
    pub(super) since: Moment,
    /// For how long this process yields after `since`.
    pub(super) length: Duration,
    /// When the way ends, even if messages keep arriving.
    pub(super) end: Moment,
}

impl Way {
    /// A way of fixed length, which counts no messages.
    pub(super) fn timed(now: Moment, length: Duration) -> Self {
        let (own, until, known, receivers, is_trial) = (u64::MAX, u64::MAX, 0, 0, true);
        Self { own, until, known, receivers, is_trial, since: now, length, end: now + length }
    }

    pub(super) const fn counts_messages(&self) -> bool {
        self.until != u64::MAX
    }

    /// For how long this process waits for the next message. Doubled while fewer turns were taken than in the last way,
    /// because a process that has not taken its turn yet may itself be yielding. `heard`: the message count.
    pub(super) fn length_after(&self, heard: u64) -> Duration {
        if heard < self.known { 2 * self.length } else { self.length }
    }
}
