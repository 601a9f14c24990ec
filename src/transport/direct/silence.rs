//! When a connection for commands is taken for dead.

use std::time::Duration;

use tokio::time::Instant;

/// So many commands in a row must have run out of time.
const TIMEOUTS_TOLERATED: usize = 2;

/// What is known of a connection's silence. Two commands that were sent together are one sign of it: a connection that has answered
/// while they were under way is slow, not dead.
#[derive(Debug)]
pub(super) struct Silence {
    /// Since the last answer that came in time.
    timeouts: usize,
    since: Instant,
}

impl Silence {
    /// A connection that has just been made, or has answered in time. A late answer says nothing: where one is missing for good,
    /// all behind it come too late.
    pub(super) const fn heard(now: Instant) -> Self {
        Self { timeouts: 0, since: now }
    }

    /// So many commands more have run out of time, each after `timeout`. True when the connection is to be taken for dead.
    pub(super) fn is_dead(&mut self, timeouts: usize, timeout: Duration, now: Instant) -> bool {
        self.timeouts += timeouts;
        timeouts > 0 && self.timeouts >= TIMEOUTS_TOLERATED && now.saturating_duration_since(self.since) >= timeout
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(300);

    #[test]
    fn two_timeouts_of_a_silent_connection_end_it() {
        let now = Instant::now();
        let mut silence = Silence::heard(now);
        assert!(!silence.is_dead(1, TIMEOUT, now + TIMEOUT));
        assert!(silence.is_dead(1, TIMEOUT, now + TIMEOUT));
        assert!(Silence::heard(now).is_dead(2, TIMEOUT, now + TIMEOUT), "a busy one is found out at once");
    }

    #[test]
    fn one_that_answers_between_is_slow() {
        let now = Instant::now();
        let mut silence = Silence::heard(now);
        assert!(!silence.is_dead(5, TIMEOUT, now + TIMEOUT / 2), "they were sent before it answered others");
        assert!(!silence.is_dead(0, TIMEOUT, now + TIMEOUT * 2), "nothing more was asked");
        assert!(silence.is_dead(1, TIMEOUT, now + TIMEOUT * 2));
        silence = Silence::heard(now + TIMEOUT * 3);
        assert!(!silence.is_dead(1, TIMEOUT, now + TIMEOUT * 4));
    }
}
