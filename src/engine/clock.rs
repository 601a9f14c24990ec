//! Commands that must have no effect after their last moment, which is told in the time of the server that they go to.

use std::time::Duration;

use super::Engine;
use crate::error::{Error, Result};
use crate::names::LockName;
use crate::topology::{MemberClock, ServerClock};
use crate::world::Moment;

/// What clocks may run apart by while one is believed (0.08 %, more than a daemon that slews them does), and be read wrongly.
const MARGIN: Duration = Duration::from_millis(50);

impl Engine {
    /// The clock of the server where a name lives now. What a reply tells is another matter: it is about the server that gave
    /// it ([`Answered::clock`]).
    ///
    /// [`Answered::clock`]: crate::topology::Answered
    pub(crate) fn clock(&self, name: &LockName) -> MemberClock {
        self.topology.clock(name)
    }
}

/// How often a command is sent again that the server found too late: its clock becomes known by that.
const TRIES: u32 = 3;

/// A command that the server found too late, so far.
#[derive(Debug, Default)]
pub(crate) struct Refusals(u32);

impl Refusals {
    /// Once more, and the server said what time it is. An error when that does not help.
    pub(crate) fn add(&mut self, clock: &ServerClock, at: i64, now: Moment) -> Result<()> {
        clock.learn(at, now);
        self.0 += 1;
        if self.0 <= TRIES {
            return Ok(());
        }
        let message = "the server finds every command too late: its clock jumps, or commands take too long to reach it";
        Err(Error::Connection { message: message.into(), outcome_unknown: false, source: None })
    }
}

/// From when on a command that was sent at `sent` with a last moment so much later can have no effect any more.
pub(crate) fn harmless_from(sent: Moment, within: Duration) -> Moment {
    sent + within + within / 100 + MARGIN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_harmless_some_time_after_its_last_moment() {
        let at = |ms: u64| Moment::from_nanos(ms * 1_000_000);
        assert!(harmless_from(at(5_040), Duration::from_secs(3)) > at(8_040));
    }
}
