//! Suspends of the machine: the clock of deadlines goes on, timers stand still. What was due meanwhile would be late by as long
//! as that took.
//!
//! One task a client compares both clocks, once a second, and has everybody look at the clock anew when they have parted.
//! Were each to look for itself, a hundred thousand guards that are watched would be woken a hundred thousand times a second.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::Engine;
use crate::topology::MemberListener as _;
use crate::world::Moment;

/// How long after a suspend it is found, at the most.
pub(crate) const LOOK: Duration = Duration::from_secs(1);

/// By how much the clocks may have parted unnoticed: they are read one after the other.
const SLACK: Duration = Duration::from_millis(20);

/// The clock of deadlines and that of timers, as they stood together.
struct Clocks {
    moment: Moment,
    instant: Instant,
}

impl Clocks {
    /// True when timers have fallen behind, by what has come together since that was last so.
    fn have_parted(&mut self, moment: Moment, instant: Instant) -> bool {
        let (real, timed) = (moment.since(self.moment), instant.saturating_duration_since(self.instant));
        let parted = real > timed + SLACK;
        if parted || real < timed {
            *self = Self { moment, instant };
        }
        parted
    }
}

/// Looks for suspends until the client closes. Holds the engine only for a look.
pub(crate) async fn run(engine: Weak<Engine>, mut closing: watch::Receiver<bool>) {
    let mut clocks: Option<Clocks> = None;
    loop {
        {
            let Some(engine) = engine.upgrade() else { return };
            let (moment, instant) = (engine.now(), Instant::now());
            if clocks.get_or_insert(Clocks { moment, instant }).have_parted(moment, instant) {
                tracing::debug!("timers stood still for a while: the machine was suspended");
                engine.resumed();
            }
        }
        tokio::select! {
            biased;
            _ = closing.wait_for(|closing| *closing) => return,
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

impl Engine {
    /// Whoever sleeps until a moment is to look at the clock anew. Connections may not have outlived the suspend: as after a
    /// break of theirs, whoever waits looks for itself, and whatever is held is confirmed.
    fn resumed(self: &Arc<Self>) {
        for hold in self.holds.collect(|_| true) {
            hold.changed.notify_waiters();
        }
        for member in self.topology.members() {
            self.registry.reconnected(member);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_part_when_timers_fall_behind_be_it_little_by_little() {
        let began = Instant::now();
        let (real, timed) = (|ms: u64| Moment::from_nanos(ms * 1_000_000), |ms| began + Duration::from_millis(ms));
        let mut clocks = Clocks { moment: real(0), instant: timed(0) };
        assert!(!clocks.have_parted(real(1_000), timed(1_000)));
        assert!(clocks.have_parted(real(2_100), timed(2_000)) && !clocks.have_parted(real(3_100), timed(3_000)));
        assert!(!clocks.have_parted(real(4_110), timed(4_000)) && clocks.have_parted(real(5_121), timed(5_000)));
        // Timers that are ahead, as a test's may be: what comes after that counts from there.
        assert!(!clocks.have_parted(real(5_121), timed(60_000)) && !clocks.have_parted(real(6_121), timed(61_000)));
        assert!(clocks.have_parted(real(7_142), timed(62_000)));
    }
}
