//! How fast attempts may follow each other.

use std::time::Duration;

use crate::world::{Moment, World};

/// The pause between attempts that nothing but impatience asks for.
pub(crate) const FLOOR: Duration = Duration::from_millis(10);

/// The burst of wake-ups answered at once.
const BURST: u32 = 64;

/// Answers a burst of wake-ups at once, and after that one every [`FLOOR`]: a flood of messages is no reason to flood
/// the server.
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

    /// An attempt is made.
    pub(super) fn spend(&mut self, now: Moment) {
        self.refill(now);
        self.left = self.left.saturating_sub(1);
    }

    /// True when another attempt may follow at once.
    pub(super) fn allows(&mut self, now: Moment) -> bool {
        self.refill(now);
        self.left > 0
    }
}

/// A span that doubles every time: the first, and the longest.
pub(crate) fn grown((first, most): (Duration, Duration), times: u32) -> Duration {
    first.saturating_mul(1 << times.min(16)).min(most)
}

/// The pause after so many failures, of which the first lasts `first`, the longest `most`; half of it is random.
pub(crate) fn pause(world: &dyn World, spans: (Duration, Duration), failures: u32) -> Duration {
    let full = grown(spans, failures);
    full / 2 + world.jitter(full / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::Machine;

    #[test]
    fn a_burst_is_answered_and_then_one_every_floor() {
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
    fn pauses_double_up_to_the_longest() {
        let ms = Duration::from_millis;
        for (failures, least, most) in [(0, 50, 100), (1, 100, 200), (2, 200, 400), (3, 250, 500), (40, 250, 500)] {
            let pause = pause(&Machine, (ms(100), ms(500)), failures);
            assert!(pause >= ms(least) && pause <= ms(most), "{failures}: {pause:?}");
        }
    }
}
