//! Limits how long an acquire retries after transient errors.

use std::time::Duration;

/// Up to this many late grants may be chance.
const CHANCE: u32 = 4;

/// The failures of an acquire so far. Times count from the start of the acquire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    most: Duration,
    /// Start of the current run of failures.
    failing: Option<Duration>,
    failures: u32,
    /// Time of the first grant that came too late, and the number of such grants. Other answers in between do not reset
    /// this.
    late: Option<(Duration, u32)>,
    /// Time of the first grant that too few replicas acknowledged.
    undone: Option<Duration>,
}

impl Patience {
    pub(crate) const fn new(most: Duration) -> Self {
        Self { most, failing: None, failures: 0, late: None, undone: None }
    }

    pub(crate) const fn answered(&mut self) {
        (self.failing, self.failures) = (None, 0);
    }

    pub(crate) const fn failures(&self) -> u32 {
        self.failures
    }

    /// Counts a failure. True if the acquire must give up.
    pub(crate) fn failed(&mut self, now: Duration) -> bool {
        self.failures += 1;
        let since = *self.failing.get_or_insert(now);
        now.saturating_sub(since) >= self.most
    }

    /// Counts a grant that came too late to use. True if the acquire must give up.
    pub(crate) fn reply_was_late(&mut self, now: Duration) -> bool {
        let (first, before) = self.late.unwrap_or((now, 0));
        self.late = Some((first, before + 1));
        let often = before >= CHANCE && now.saturating_sub(first) >= self.most;
        self.failed(now) || often
    }

    /// Counts a grant that too few replicas acknowledged, so that it is undone. True if the acquire must give up. Busy
    /// answers in between do not reset this, because other clients also hold the lock for a moment until their own
    /// grants are undone.
    pub(crate) fn grant_was_undone(&mut self, now: Duration) -> bool {
        let first = *self.undone.get_or_insert(now);
        self.failed(now) || now.saturating_sub(first) >= self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn patience_ends_after_its_time_without_an_answer() {
        let mut patience = Patience::new(s(10));
        assert!(!patience.failed(s(100)) && !patience.failed(s(109)) && patience.failures() == 2);
        patience.answered();
        assert!(!patience.failed(s(110)) && patience.failures() == 1);
        assert!(!patience.failed(s(119)) && patience.failed(s(120)));
    }

    #[test]
    fn patience_ends_after_its_time_of_undone_grants_despite_answers() {
        let mut patience = Patience::new(s(10));
        for at in [1, 5, 10] {
            assert!(!patience.grant_was_undone(s(at)));
            patience.answered();
        }
        assert!(patience.grant_was_undone(s(11)));
    }

    #[test]
    fn patience_ends_after_enough_late_grants_despite_answers() {
        let mut patience = Patience::new(s(10));
        for at in 1..=4 {
            assert!(!patience.reply_was_late(s(at * 100)), "a few are chance");
            patience.answered();
        }
        assert!(patience.reply_was_late(s(500)));
        let mut patience = Patience::new(s(10));
        for at in 1..=9 {
            assert!(!patience.reply_was_late(s(at)), "not for long enough");
            patience.answered();
        }
        assert!(patience.reply_was_late(s(11)));
    }
}
