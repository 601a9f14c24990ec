//! The time and random numbers that a client uses. A simulator provides its own.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use rand::RngCore as _;
use rand::rngs::OsRng;

/// A point on a clock that never steps and that keeps running during suspend (`CLOCK_BOOTTIME`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

/// A duration in whole nanoseconds.
pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

impl Moment {
    /// Returns the moment `nanos` nanoseconds after the clock's zero.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds since the clock's zero.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time from `earlier` to `self`; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanos(span)))
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;

    fn sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(span)))
    }
}

/// A clock and a source of random numbers.
pub trait World: fmt::Debug + Send + Sync {
    /// Returns the current moment on the clock of deadlines.
    fn now(&self) -> Moment;

    /// Returns an unpredictable random number. Identities and nonces are made of such numbers.
    fn random(&self) -> u64;
}

impl dyn World + '_ {
    /// A random number from 0 to 1.
    pub(crate) fn fraction(&self) -> f64 {
        (self.random() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A random duration below `most`.
    pub(crate) fn jitter(&self, most: Duration) -> Duration {
        most.mul_f64(self.fraction())
    }
}

/// The machine's clock, which keeps running during suspend, and its source of random numbers.
#[derive(Debug)]
pub(crate) struct Machine;

#[cfg(target_os = "linux")]
const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
// On macOS this clock keeps running during suspend.
#[cfg(not(target_os = "linux"))]
const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;

impl World for Machine {
    fn now(&self) -> Moment {
        let time = rustix::time::clock_gettime(CLOCK);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
        Moment::from_nanos(seconds * 1_000_000_000 + nanos)
    }

    fn random(&self) -> u64 {
        OsRng.next_u64()
    }
}
