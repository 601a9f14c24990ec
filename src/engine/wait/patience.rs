//! For how long an acquire goes on in the face of errors that pass.

use std::time::Duration;

/// So many grants that come too late are chance.
const CHANCE: u32 = 4;

/// What an acquire has met with. Times are counted from its beginning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    most: Duration,
    /// Since when attempts fail.
    failing: Option<Duration>,
    /// How many have failed since.
    failures: u32,
    /// When the lock was first granted too late to be of use, and how often it was. Other answers in between are no better
    /// news.
    late: Option<(Duration, u32)>,
    /// When the lock was first granted without the replicas that have to know of it.
    undone: Option<Duration>,
}

impl Patience {
    /// `most`: for how long it goes on.
    pub(crate) const fn new(most: Duration) -> Self {
        Self { most, failing: None, failures: 0, late: None, undone: None }
    }

    /// A server has answered.
    pub(crate) const fn answered(&mut self) {
        (self.failing, self.failures) = (None, 0);
    }

    /// How many attempts have failed since the last answer.
    pub(crate) const fn failures(&self) -> u32 {
        self.failures
    }

    /// Another attempt has failed. True when that is enough.
    pub(crate) fn failed(&mut self, now: Duration) -> bool {
        self.failures += 1;
        let since = *self.failing.get_or_insert(now);
        now.saturating_sub(since) >= self.most
    }

    /// The lock was granted too late to be of use. True when that is enough.
    pub(crate) fn came_late(&mut self, now: Duration) -> bool {
        let (first, before) = self.late.unwrap_or((now, 0));
        self.late = Some((first, before + 1));
        let often = before >= CHANCE && now.saturating_sub(first) >= self.most;
        self.failed(now) || often
    }

    /// The lock was granted, but not acknowledged, and is undone. True when that is enough. What is answered in between is no better news:
    /// others who try hold the lock for a moment each.
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
