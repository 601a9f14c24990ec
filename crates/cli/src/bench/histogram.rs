//! A histogram of durations with a fixed size and a relative error of 3 %.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Number of buckets of each power of two.
const PARTS: u64 = 32;
/// Values of 64 bits have 59 powers of two above the first 32 values.
const BUCKETS: usize = 60 * 32;

/// Durations in microseconds. Threads may record at the same time.
#[derive(Debug)]
pub(super) struct Histogram {
    buckets: Vec<AtomicU64>,
    max: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(), max: AtomicU64::new(0) }
    }
}

/// The bucket of a value. Values below 32 have their own buckets.
fn bucket(value: u64) -> usize {
    let index = if value < PARTS {
        value
    } else {
        // The five bits behind the highest one select the part.
        let shift = u64::from(value.ilog2()) - 5;
        (shift + 1) * PARTS + ((value >> shift) & (PARTS - 1))
    };
    usize::try_from(index).unwrap_or(BUCKETS - 1)
}

/// The lowest and the highest value of a bucket.
fn bounds(bucket: usize) -> (u64, u64) {
    let index = bucket as u64;
    if index < PARTS {
        return (index, index);
    }
    let shift = index / PARTS - 1;
    let lowest = (PARTS + index % PARTS) << shift;
    (lowest, lowest + ((1 << shift) - 1))
}

impl Histogram {
    pub(super) fn record(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.buckets[bucket(micros)].fetch_add(1, Ordering::Relaxed);
        self.max.fetch_max(micros, Ordering::Relaxed);
    }

    /// The filled buckets, each with its number of values.
    fn filled(&self) -> impl Iterator<Item = (usize, u64)> {
        let counts = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed));
        counts.enumerate().filter(|(_, count)| *count > 0)
    }

    pub(super) fn count(&self) -> u64 {
        self.filled().map(|(_, count)| count).sum()
    }

    pub(super) fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }

    /// `percent` % of the values are at most this. 0 for an empty histogram.
    pub(super) fn percentile(&self, percent: u64) -> u64 {
        let rank = (self.count() * percent).div_ceil(100).max(1);
        let mut seen = 0;
        let found = self.filled().find(|(_, count)| {
            seen += count;
            seen >= rank
        });
        found.map_or(0, |(bucket, _)| bounds(bucket).1.min(self.max()))
    }

    /// The number of values from 2^n to 2^(n + 1) - 1, by n. The value 0 counts as 1.
    pub(super) fn powers(&self) -> BTreeMap<u32, u64> {
        let mut powers = BTreeMap::new();
        for (bucket, count) in self.filled() {
            *powers.entry(bounds(bucket).0.max(1).ilog2()).or_insert(0) += count;
        }
        powers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_within_the_bounds_of_its_bucket() {
        let near = (0..64).flat_map(|n| [(1_u64 << n) - 1, 1 << n, (1 << n) + 1, (1 << n) / 3 * 4]);
        for value in near.chain(0..5_000).chain([u64::MAX]) {
            let (lowest, highest) = bounds(bucket(value));
            assert!((lowest..=highest).contains(&value), "{value} in {lowest}..={highest}");
            assert!(highest - lowest <= lowest / 32, "{lowest}..={highest}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_exact_to_three_percent() {
        let histogram = Histogram::default();
        for micros in 1..=1_000 {
            histogram.record(Duration::from_micros(micros));
        }
        for (percent, exact) in [(50, 500), (90, 900), (99, 990), (100, 1_000)] {
            let found = histogram.percentile(percent);
            assert!((exact..=exact + exact / 32).contains(&found), "p{percent}: {found}");
        }
        assert_eq!((histogram.count(), histogram.max()), (1_000, 1_000));
    }

    #[test]
    fn powers_count_each_value_once() {
        let histogram = Histogram::default();
        for micros in [0, 1, 2, 3, 64, 127, 128] {
            histogram.record(Duration::from_micros(micros));
        }
        assert_eq!(histogram.powers(), BTreeMap::from([(0, 2), (1, 2), (6, 2), (7, 1)]));
    }

    #[test]
    fn empty_histogram_has_no_values() {
        let histogram = Histogram::default();
        assert_eq!((histogram.count(), histogram.percentile(50), histogram.max()), (0, 0, 0));
        assert!(histogram.powers().is_empty());
    }
}
