//! The clock of one server, estimated from its replies. A command with a *last moment* needs this clock: once the
//! server's time is later, the command must have no effect.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crate::config::millis;
use crate::world::Moment;

/// Offset of a server's time of day from the local clock, in ms. The offset is a lower bound. So if a moment of the
/// server has passed by this estimate, it has really passed.
#[derive(Debug)]
pub(crate) struct ServerClock {
    ahead: AtomicI64,
    /// When the offset was learned, in ms of the local clock.
    learnt: AtomicI64,
}

impl Default for ServerClock {
    fn default() -> Self {
        Self { ahead: AtomicI64::new(UNKNOWN), learnt: AtomicI64::new(0) }
    }
}

const UNKNOWN: i64 = i64::MIN;

/// Time for which a learned offset is used, in ms. After that, the clocks may have drifted, or another server may have
/// the address.
const BELIEVED: i64 = 60_000;

/// Times of day that are accepted, in ms. A server's reply is untrusted input.
const SENSIBLE: std::ops::Range<i64> = 1..1 << 52;

impl ServerClock {
    /// Notes the time `at` of the server, from a reply that arrived at `now`.
    pub(crate) fn learn(&self, at: i64, now: Moment) {
        if SENSIBLE.contains(&at) {
            // `ahead` is stored first, so that no reader sees the new `learnt` with the old offset.
            self.ahead.store(at.saturating_sub(local(now)), Ordering::Relaxed);
            self.learnt.store(local(now), Ordering::Release);
        }
    }

    pub(crate) fn is_known(&self, now: Moment) -> bool {
        self.time(now).is_some()
    }

    /// The server's time in ms, if known. The estimate is at most one round trip too early.
    pub(crate) fn time(&self, now: Moment) -> Option<i64> {
        Some(self.last(now, Duration::ZERO)).filter(|at| *at != 1)
    }

    /// Returns the last moment of a command that is sent at `sent` and may take `within`, in ms of the server's time.
    /// While the server's time is unknown, the result is a moment long past. The command then does nothing, and its
    /// reply contains the server's time.
    pub(crate) fn last(&self, sent: Moment, within: Duration) -> i64 {
        let age = local(sent).saturating_sub(self.learnt.load(Ordering::Acquire));
        match self.ahead.load(Ordering::Relaxed) {
            UNKNOWN => 1,
            _ if age > BELIEVED => 1,
            ahead => local(sent).saturating_add(ahead).saturating_add(millis(within)).max(1),
        }
    }
}

fn local(now: Moment) -> i64 {
    i64::try_from(now.as_nanos() / 1_000_000).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_moment_is_in_server_time_and_past_while_time_is_unknown() {
        let clock = ServerClock::default();
        let at = |ms: u64| Moment::from_nanos(ms * 1_000_000);
        assert_eq!(clock.last(at(5_000), Duration::from_secs(3)), 1, "unknown");
        // The reply took up to 40 ms to arrive, so the server's clock may be that much further.
        clock.learn(1_000_000, at(5_040));
        assert_eq!(clock.last(at(5_040), Duration::from_secs(3)), 1_003_000);
        assert_eq!(clock.last(at(6_040), Duration::from_secs(3)), 1_004_000);
        assert_eq!(clock.last(at(6_040), Duration::MAX), i64::MAX);
        assert_eq!(clock.last(at(66_000), Duration::from_secs(3)), 1, "learnt too long ago");
        for odd in [i64::MIN, -1, 0, i64::MAX] {
            clock.learn(odd, at(5_040));
            assert_eq!(clock.last(at(5_040), Duration::from_secs(3)), 1_003_000, "{odd}");
        }
    }
}
