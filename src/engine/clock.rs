//! Commands that have no effect after their *last moment*, a time of the server that runs them.

use std::time::Duration;

use super::Engine;
use crate::error::{Error, Result};
use crate::names::LockName;
use crate::runtime::standstill::within;
use crate::topology::{Answered, MemberClock, ServerClock};
use crate::transport::script::Script;
use crate::transport::{Call, Reply};
use crate::world::Moment;

static TIME: Script = Script::bare("engine/time", "TIME");

/// Error allowed for a server's clock: its drift while a reading is valid (0.08 % of 60 s, more than a daemon that
/// slews clocks causes), and the error of the reading.
const MARGIN: Duration = Duration::from_millis(50);

impl Engine {
    /// The clock of the server where a name lives now. For the time in a reply, use [`Answered::clock`] instead,
    /// because another server may have replied.
    ///
    /// [`Answered::clock`]: crate::topology::Answered
    pub(crate) fn clock(&self, name: &LockName) -> MemberClock {
        self.topology.clock(name)
    }

    /// Queries the time of a name's server, unless the time is known. A reply is ignored if it takes longer than a
    /// quarter of the command timeout, or arrives after a standstill of this process: a late reply would set the last
    /// moments of commands too early.
    ///
    /// # Cost
    ///
    /// None if the time is known. Otherwise one command and one round trip.
    pub(crate) async fn learn_time(&self, name: &LockName) {
        if self.clock(name).is_known(self.now()) {
            return;
        }
        let call = |_: &ServerClock| Call { script: &TIME, keys: 0, words: Vec::new() };
        let (asked, limit) = (self.now(), self.options.command_timeout / 4);
        let answered = within(limit, self.topology.run_timed(name, call)).await;
        let now = self.now();
        if let Some(Ok(Answered { reply, clock, .. })) = answered
            && let Some(at) = time_of(&reply)
            && now.since(asked) <= limit
        {
            clock.learn(at, now);
        }
    }
}

/// Converts the reply to `TIME` (seconds and microseconds) to ms.
fn time_of(reply: &Reply) -> Option<i64> {
    let Reply::List(parts) = reply else { return None };
    let number = |part: &Reply| match part {
        Reply::Int(number) => Some(*number),
        Reply::Text(text) => std::str::from_utf8(text).ok()?.parse::<i64>().ok(),
        _ => None,
    };
    let [seconds, micros] = parts.as_slice() else { return None };
    number(seconds)?.checked_mul(1_000)?.checked_add(number(micros)? / 1_000)
}

/// Maximum number of retries of a command that arrived too late. The client learns the server's clock from each
/// refusal.
const TRIES: u32 = 3;

/// Number of times that the server refused a command as too late.
#[derive(Debug, Default)]
pub(crate) struct Refusals(u32);

impl Refusals {
    /// Counts a refusal and learns the server's time from it. Returns an error after [`TRIES`] retries.
    pub(crate) fn add(&mut self, clock: &ServerClock, at: i64, now: Moment) -> Result<()> {
        clock.learn(at, now);
        self.0 += 1;
        if self.0 <= TRIES {
            return Ok(());
        }
        let message =
            "the server refuses every command as too late: its clock jumps, or commands take too long to reach it";
        Err(Error::connection(message, false, None))
    }
}

/// Time from which a command that was sent at `sent` can no longer have an effect. `within`: time from `sent` to its
/// last moment.
pub(crate) fn harmless_from(sent: Moment, within: Duration) -> Moment {
    sent + within + within / 100 + MARGIN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_time_is_read_unless_reply_is_malformed() {
        let text = |text: &'static str| Reply::Text(bytes::Bytes::from_static(text.as_bytes()));
        let list = |parts: Vec<Reply>| time_of(&Reply::List(parts));
        assert_eq!(list(vec![text("1795775948"), text("557999")]), Some(1_795_775_948_557));
        assert_eq!(list(vec![Reply::Int(3), Reply::Int(999)]), Some(3_000));
        let far = Reply::Int(i64::MAX);
        for odd in
            [vec![], vec![text("1")], vec![text("x"), text("1")], vec![far, text("1")], vec![Reply::Nil, text("1")]]
        {
            assert_eq!(list(odd.clone()), None, "{odd:?}");
        }
        assert_eq!(time_of(&Reply::Nil), None);
    }

    #[test]
    fn command_becomes_harmless_a_margin_after_its_last_moment() {
        let at = |ms: u64| Moment::from_nanos(ms * 1_000_000);
        assert!(harmless_from(at(5_040), Duration::from_secs(3)) > at(8_040));
    }
}
