//! Pseudo-random numbers, the same in every run with the same seed.

use std::time::Duration;

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{RngCore as _, SeedableRng as _};

/// A generator of numbers. Its algorithm must not change, because seeds in tests and in failure reports stand for its
/// numbers.
#[derive(Clone, Debug)]
pub struct Numbers(SplitMix64);

impl Numbers {
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::seed_from_u64(seed))
    }

    /// The numbers of stream `lane` of this seed. A seed's streams are independent.
    #[must_use]
    pub fn lane(seed: u64, lane: u64) -> Self {
        let mut numbers = Self::new(seed ^ lane.wrapping_mul(0xa076_1d64_78bd_642f));
        numbers.any();
        numbers
    }

    pub fn any(&mut self) -> u64 {
        self.0.next_u64()
    }

    pub fn below(&mut self, most: u64) -> u64 {
        self.any() % most
    }

    /// A number from 0 to 1.
    pub fn fraction(&mut self) -> f64 {
        (self.any() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A duration from `low` to `high` milliseconds.
    pub fn between(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_micros(low * 1000 + self.below((high - low) * 1000 + 1))
    }

    /// True with probability 1/`n`.
    pub fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values of the reference implementation, splitmix64.c.
    #[test]
    fn seed_always_gives_same_numbers() {
        let mut numbers = Numbers::new(1_477_776_061_723_855_037);
        let first = [1_985_237_415_132_408_290, 2_979_275_885_539_914_483, 13_511_426_838_097_143_398];
        assert_eq!(first.map(|_| numbers.any()), first);
    }
}
