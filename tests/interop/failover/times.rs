//! The times that a failover costs, and their summary.

use std::time::Duration;

#[derive(Default)]
pub(super) struct Cost {
    /// The longest time without an acquire.
    pub(super) gap: Times,
    /// Time from the promotion to the acquires of locks whose leases ended while there was no primary.
    pub(super) ended: Times,
    /// Time from a release at the new primary to the acquires of waiters that waited since before the failover.
    pub(super) released: Times,
}

/// Returns start and end of the longest interval between two successive times.
pub(super) fn longest(mut had: Vec<u64>) -> (u64, u64) {
    had.sort_unstable();
    let gaps = had.windows(2).map(|two| (two[0], two[1]));
    gaps.max_by_key(|(from, to)| to - from).expect("several locks")
}

#[derive(Debug, Default)]
pub(super) struct Times(Vec<u64>);

impl Times {
    pub(super) fn note(&mut self, from: u64, to: u64) {
        self.0.push(to.saturating_sub(from));
    }

    fn at(&self, part: f64) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let last = sorted.len() - 1;
        Duration::from_nanos(sorted[((last as f64) * part).ceil() as usize])
    }

    pub(super) fn median(&self) -> Duration {
        self.at(0.5)
    }

    pub(super) fn worst(&self) -> Duration {
        self.at(1.0)
    }

    pub(super) fn tell(&self, what: &str) {
        println!(
            "{what}: {} times, median {:?}, p99 {:?}, worst {:?}",
            self.0.len(),
            self.median(),
            self.at(0.99),
            self.worst()
        );
    }
}
