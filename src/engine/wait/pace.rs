//! The rate of attempts, and pauses that grow.

use std::time::Duration;

use crate::world::{Moment, World};

/// Shortest interval between attempts in the long run.
pub(crate) const FLOOR: Duration = Duration::from_millis(10);

/// Number of attempts that may follow each other without a pause.
const BURST: u32 = 64;

/// A token bucket: allows [`BURST`] attempts at once, then one per [`FLOOR`]. Protects the server from the attempts
/// that a flood of messages causes.
pub(super) struct Pace {
    left: u32,
    at: Moment,
}

impl Pace {
    pub(super) const fn new(began: Moment) -> Self {
        Self { left: BURST, at: began }
    }

    fn refill(&mut self, now: Moment) {
        let gained = now.since(self.at).as_nanos() / FLOOR.as_nanos();
        if gained > 0 {
            self.left = self.left.saturating_add(u32::try_from(gained).unwrap_or(BURST)).min(BURST);
            self.at = now;
        }
    }

    pub(super) fn spend(&mut self, now: Moment) {
        self.refill(now);
        self.left = self.left.saturating_sub(1);
    }

    pub(super) fn allows(&mut self, now: Moment) -> bool {
        self.refill(now);
        self.left > 0
    }
}

/// A duration that doubles each time, from `first` up to `most`.
pub(crate) fn grown((first, most): (Duration, Duration), times: u32) -> Duration {
    first.saturating_mul(1 << times.min(16)).min(most)
}

/// The pause after this many failures: [`grown`], with half of it random.
pub(crate) fn pause(world: &dyn World, spans: (Duration, Duration), failures: u32) -> Duration {
    let full = grown(spans, failures);
    full / 2 + world.jitter(full / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::Machine;

    #[test]
    fn pace_allows_a_burst_and_then_one_attempt_per_floor() {
        let at = |ms: u64| Moment::from_nanos(ms * 1_000_000);
        let mut pace = Pace::new(at(0));
        for n in 0..BURST {
            assert!(pace.allows(at(0)), "{n}");
            pace.spend(at(0));
        }
        assert!(!pace.allows(at(9)) && pace.allows(at(10)));
        pace.spend(at(10));
        assert!(!pace.allows(at(19)) && pace.allows(at(20)));
        for _ in 0..BURST {
            assert!(pace.allows(at(100_000)));
            pace.spend(at(100_000));
        }
        assert!(!pace.allows(at(100_009)), "no more than a burst is saved up");
    }

    #[test]
    fn pauses_double_up_to_the_maximum() {
        let ms = Duration::from_millis;
        for (failures, least, most) in [(0, 50, 100), (1, 100, 200), (2, 200, 400), (3, 250, 500), (40, 250, 500)] {
            let pause = pause(&Machine, (ms(100), ms(500)), failures);
            assert!(pause >= ms(least) && pause <= ms(most), "{failures}: {pause:?}");
        }
    }
}
