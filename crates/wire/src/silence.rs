//! Decides when a connection for commands is dead.

use std::time::Duration;

use tokio::time::Instant;

/// Number of timeouts in a row after which a silent connection is dead.
const TIMEOUTS_TOLERATED: usize = 2;

/// Silence of a connection. The connection is dead if at least two commands in a row timed out, and the last answer in
/// time is at least one command timeout ago. A connection that answered any command in time within the last command
/// timeout is slow, not dead, even if many commands time out together.
#[derive(Debug)]
pub(super) struct Silence {
    /// Number of timeouts since the last answer in time.
    timeouts: usize,
    /// When the last answer in time arrived, or the connection came up.
    since: Instant,
}

impl Silence {
    /// A connection that is new, or has answered in time. Late answers do not count. Answers are assigned to commands
    /// in order, so after one lost answer a useless connection still seems to answer late.
    pub(super) const fn heard(now: Instant) -> Self {
        Self { timeouts: 0, since: now }
    }

    /// Counts commands that ran out of time, each after `timeout`. Returns true if the connection is dead.
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
    fn silent_connection_is_dead_after_two_timeouts() {
        let now = Instant::now();
        let mut silence = Silence::heard(now);
        assert!(!silence.is_dead(1, TIMEOUT, now + TIMEOUT));
        assert!(silence.is_dead(1, TIMEOUT, now + TIMEOUT));
        assert!(Silence::heard(now).is_dead(2, TIMEOUT, now + TIMEOUT), "a busy one is found out at once");
    }

    #[test]
    fn connection_that_answers_between_timeouts_is_slow() {
        let now = Instant::now();
        let mut silence = Silence::heard(now);
        assert!(!silence.is_dead(5, TIMEOUT, now + TIMEOUT / 2), "they were sent before it answered others");
        assert!(!silence.is_dead(0, TIMEOUT, now + TIMEOUT * 2), "nothing more was asked");
        assert!(silence.is_dead(1, TIMEOUT, now + TIMEOUT * 2));
        silence = Silence::heard(now + TIMEOUT * 3);
        assert!(!silence.is_dead(1, TIMEOUT, now + TIMEOUT * 4));
    }
}
