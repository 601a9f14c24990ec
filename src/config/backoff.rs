//! Growing pauses.

use std::time::Duration;

use crate::error::{Error, Result};

/// Pauses between two polls of a waiter: of a spin lock, or of a plain lock that another library holds. Each pause is
/// shortened at random by up to a half, so that waiters that started together do not poll together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    first: Duration,
    times: f64,
    most: Duration,
}

impl Backoff {
    /// Returns pauses that grow from `first` to `most`, by the factor `times`.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if a pause is shorter than 100 µs or longer than a day, if `most` is shorter than `first`,
    /// or if `times` is below 1.
    pub fn exponential(first: Duration, times: f64, most: Duration) -> Result<Self> {
        if first < Duration::from_micros(100)
            || most < first
            || most > Duration::from_secs(86_400)
            || times.is_nan()
            || times < 1.0
        {
            return Err(Error::config(format!(
                "a back-off from {first:?} to {most:?} by {times} cannot be: at least 100 µs, not below that, up to a day, \
                 by a factor of at least 1"
            )));
        }
        Ok(Self { first, times, most })
    }

    /// [`exponential`](Self::exponential) without the checks.
    pub(crate) const fn of(first: Duration, times: f64, most: Duration) -> Self {
        Self { first, times, most }
    }

    /// Returns pauses of one length.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the pause is shorter than 100 µs or longer than a day.
    pub fn constant(pause: Duration) -> Result<Self> {
        Self::exponential(pause, 1.0, pause)
    }

    /// The pause after `looks` polls. `random`: from 0 to 1.
    pub(crate) fn pause(self, looks: u32, random: f64) -> Duration {
        let full = self.first.as_secs_f64() * self.times.powi(i32::try_from(looks).unwrap_or(i32::MAX));
        let full = full.min(self.most.as_secs_f64());
        Duration::from_secs_f64(full * (1.0 - random / 2.0))
    }
}

impl Default for Backoff {
    /// Redisson's: from 1 ms to 128 ms, doubled each time.
    fn default() -> Self {
        Self { first: Duration::from_millis(1), times: 2.0, most: Duration::from_millis(128) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_maximum_and_jitter_shortens_them() {
        let ms = Duration::from_millis;
        let backoff = Backoff::exponential(ms(10), 3.0, ms(100)).unwrap();
        // Redisson's testExponentialBackoff: 10, 30, 90, 100, 100.
        let full: Vec<_> = (0..5).map(|looks| backoff.pause(looks, 0.0)).collect();
        assert_eq!(full, [10, 30, 90, 100, 100].map(ms));
        assert_eq!(backoff.pause(u32::MAX, 0.0), ms(100));
        assert_eq!(backoff.pause(0, 1.0), ms(5));
        let constant = Backoff::constant(ms(30)).unwrap();
        assert_eq!(
            [constant.pause(0, 0.0), constant.pause(9, 0.0), constant.pause(9, 0.5)],
            [ms(30), ms(30), ms(30) * 3 / 4]
        );
        assert_eq!(Backoff::default().pause(20, 0.0), ms(128));
        for odd in [
            Backoff::constant(Duration::ZERO),
            Backoff::constant(Duration::MAX),
            Backoff::exponential(ms(2), 2.0, ms(1)),
            Backoff::exponential(ms(1), 0.5, ms(2)),
            Backoff::exponential(ms(1), f64::NAN, ms(2)),
        ] {
            assert!(matches!(odd, Err(Error::Config { .. })), "{odd:?}");
        }
    }
}
