//! The simulator's only source of randomness: SplitMix64, with one stream per purpose. A seed gives the same numbers in
//! every version.

use std::time::Duration;

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{RngCore as _, SeedableRng as _};

#[derive(Clone, Debug)]
pub(super) struct Random(SplitMix64);

impl Default for Random {
    fn default() -> Self {
        Self::new(0, 0)
    }
}

impl Random {
    /// Returns the stream `lane` of a seed.
    pub(super) fn new(seed: u64, lane: u64) -> Self {
        let mut mixed = Self(SplitMix64::seed_from_u64(seed ^ lane.wrapping_mul(0xd6e8_feb8_6659_fd93)));
        mixed.next();
        mixed
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a number below `n`, which must not be 0.
    pub(super) fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n as u64).unwrap_or_default()
    }

    /// Returns true with this probability. Draws nothing at 0, so that a disabled fault changes no other decision.
    pub(super) fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && ((self.next() >> 11) as f64) < probability * 9_007_199_254_740_992.0
    }

    /// Returns a span in `[low, high]`. Draws nothing if both are equal.
    pub(super) fn between(&mut self, low: Duration, high: Duration) -> Duration {
        let width = u64::try_from(high.saturating_sub(low).as_nanos()).unwrap_or(u64::MAX - 1);
        if width == 0 { low } else { low + Duration::from_nanos(self.next() % (width + 1)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_and_lane_give_same_numbers_and_others_differ() {
        let take = |seed, lane| {
            let mut random = Random::new(seed, lane);
            [random.next(), random.next()]
        };
        assert_eq!(take(1, 1), take(1, 1));
        assert_ne!(take(1, 1), take(1, 2));
        assert_ne!(take(1, 1), take(2, 1));
    }

    /// Any later version must replay the run of a seed.
    #[test]
    fn seed_always_gives_same_numbers() {
        let mut random = Random::new(1, 2);
        assert_eq!([random.next(), random.next()], [0x4a61_6d4c_d9d6_95d7, 0x729e_1bbd_e29f_30d8]);
    }

    #[test]
    fn chance_follows_its_probability() {
        let mut random = Random::new(3, 0);
        assert!((0..1000).all(|_| random.chance(1.0)));
        assert!(!(0..1000).any(|_| random.chance(0.0)));
        let half = (0..10_000).filter(|_| random.chance(0.5)).count();
        assert!((4_500..5_500).contains(&half), "{half}");
    }
}
