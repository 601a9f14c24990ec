//! Detects suspends of the machine. During a suspend, the clock of deadlines (`Moment`) keeps running, but the clock of
//! timers (`Instant`) stops. So every timer fires late by the length of the suspend.
//!
//! One task per client compares the two clocks once a second. If the clocks have diverged, the task wakes all guards
//! and waiters, which read the clock of deadlines again.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::Engine;
use crate::topology::MemberListener as _;
use crate::world::Moment;

/// A suspend is noticed within this time.
pub(crate) const LOOK: Duration = Duration::from_secs(1);

/// Tolerated difference between the clocks.
const SLACK: Duration = Duration::from_millis(20);

/// Longest time for reading both clocks. A slower reading is discarded, because a preempted thread would look like a
/// suspend.
const READING: Duration = Duration::from_millis(5);

/// The clock of deadlines and the clock of timers, read at the same time.
#[derive(Clone, Copy)]
struct Clocks {
    moment: Moment,
    instant: Instant,
}

impl Clocks {
    /// Reads both clocks. None if too much time passed between the readings.
    fn read(moment: impl FnOnce() -> Moment, instant: impl Fn() -> Instant) -> Option<Self> {
        let (before, moment, instant) = (instant(), moment(), instant());
        (instant.saturating_duration_since(before) <= READING).then_some(Self { moment, instant })
    }

    /// True if timers have fallen behind. Small differences add up from call to call.
    fn have_diverged(&mut self, now: Self) -> bool {
        let (real, timed) = (now.moment.since(self.moment), now.instant.saturating_duration_since(self.instant));
        let parted = real > timed + SLACK;
        if parted || real < timed {
            *self = now;
        }
        parted
    }
}

/// Detects suspends until the client closes. Keeps the engine alive only during a check.
pub(crate) async fn run(engine: Weak<Engine>, mut closing: watch::Receiver<bool>) {
    let mut clocks: Option<Clocks> = None;
    loop {
        {
            let Some(engine) = engine.upgrade() else { return };
            // If all ten readings are discarded, the next check is in a second.
            let now = (0..10).find_map(|_| Clocks::read(|| engine.now(), Instant::now));
            if now.is_some_and(|now| clocks.get_or_insert(now).have_diverged(now)) {
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
    /// Wakes all tasks that sleep until a deadline. Connections may not have survived the suspend. So, as after a
    /// reconnect, every waiter is woken and every hold is confirmed.
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
    use std::cell::Cell;

    use super::*;

    #[test]
    fn clocks_part_when_timers_fall_behind_suddenly_or_gradually() {
        let began = Instant::now();
        let at = |real: u64, timed: u64| Clocks {
            moment: Moment::from_nanos(real * 1_000_000),
            instant: began + Duration::from_millis(timed),
        };
        let mut clocks = at(0, 0);
        assert!(!clocks.have_diverged(at(1_000, 1_000)));
        assert!(clocks.have_diverged(at(2_100, 2_000)) && !clocks.have_diverged(at(3_100, 3_000)));
        assert!(!clocks.have_diverged(at(4_110, 4_000)) && clocks.have_diverged(at(5_121, 5_000)));
        // Timers may be ahead, for example in a test. Later differences are measured from that state.
        assert!(!clocks.have_diverged(at(5_121, 60_000)) && !clocks.have_diverged(at(6_121, 61_000)));
        assert!(clocks.have_diverged(at(7_142, 62_000)));
    }

    /// On a busy machine, the thread may be preempted between the two readings, which is no suspend.
    #[test]
    fn interrupted_reading_is_not_a_suspend() {
        let began = Instant::now();
        let passed = Cell::new(0);
        let read = |interrupted: u64| {
            let moment = || {
                let moment = Moment::from_nanos(passed.get() * 1_000_000);
                passed.set(passed.get() + interrupted);
                moment
            };
            Clocks::read(moment, || began + Duration::from_millis(passed.get()))
        };
        let mut clocks = read(0).expect("a reading without a pause");
        for interrupted in [0, 1, 30, 0, 4_000, 2, 0] {
            passed.set(passed.get() + 1_000);
            let parted = read(interrupted).is_some_and(|now| clocks.have_diverged(now));
            assert!(!parted, "interrupted for {interrupted} ms, {} ms in", passed.get());
        }
    }
}
