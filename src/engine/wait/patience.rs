//! Limits how long an acquire retries after transient errors.

use std::time::Duration;

/// This many grants that come too late may be chance.
const CHANCE: u32 = 4;

/// The failures of an acquire so far. Times count from its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    most: Duration,
    /// Start of the current run of failures.
    failing: Option<Duration>,
    failures: u32,
    /// First grant that came too late, and the number of such grants. Other answers in between do not reset this.
    late: Option<(Duration, u32)>,
    /// First grant that too few replicas acknowledged.
    undone: Option<Duration>,
}

impl Patience {
    /// `most`: how long to retry.
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
    pub(crate) fn came_late(&mut self, now: Duration) -> bool {
        let (first, before) = self.late.unwrap_or((now, 0));
        self.late = Some((first, before + 1));
        let often = before >= CHANCE && now.saturating_sub(first) >= self.most;
        self.failed(now) || often
    }

    /// Counts a grant that was not acknowledged, and is undone. True if the acquire must give up. Busy answers in
    /// between do not reset this, because other clients that try hold the lock for a moment each.
    pub(crate) fn came_undone(&mut self, now: Duration) -> bool {
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
    fn it_ends_after_its_time_without_an_answer() {
        let mut patience = Patience::new(s(10));
        assert!(!patience.failed(s(100)) && !patience.failed(s(109)) && patience.failures() == 2);
        patience.answered();
        assert!(!patience.failed(s(110)) && patience.failures() == 1);
        assert!(!patience.failed(s(119)) && patience.failed(s(120)));
    }

    #[test]
    fn grants_that_are_undone_are_enough_after_its_time_whatever_is_answered_between() {
        let mut patience = Patience::new(s(10));
        for at in [1, 5, 10] {
            assert!(!patience.came_undone(s(at)));
            patience.answered();
        }
        assert!(patience.came_undone(s(11)));
    }

    #[test]
    fn grants_that_come_too_late_count_whatever_is_answered_between() {
        let mut patience = Patience::new(s(10));
        for at in 1..=4 {
            assert!(!patience.came_late(s(at * 100)), "a few are chance");
            patience.answered();
        }
        assert!(patience.came_late(s(500)));
        let mut patience = Patience::new(s(10));
        for at in 1..=9 {
            assert!(!patience.came_late(s(at)), "not for long enough");
            patience.answered();
        }
        assert!(patience.came_late(s(11)));
    }
}
