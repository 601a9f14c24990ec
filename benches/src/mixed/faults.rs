//! The plan of faults: when a process is killed or frozen, and the language of each victim.

use std::time::Duration;

use distlock_support::Numbers;

use crate::args::{Args, Fleet, Kill, Language};

/// Length of a freeze: longer than `fair_wait` (5 s) and the default of `--watchdog` (3 s).
pub const FREEZE: Duration = Duration::from_secs(7);

/// Faults happen only in this part of the measurement, so that the fleet has time to recover from the last fault.
const PART: f64 = 0.9;

/// A fault that is planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Time since the start of the measurement.
    pub after: Duration,
    pub victim: Language,
}

/// Returns the faults of a run, in their order. Equal parts of the measurement have one fault each, at a random moment.
pub fn plan(args: &Args, fleet: Fleet, seed: u64) -> Vec<Fault> {
    if args.kill == Kill::None {
        return Vec::new();
    }
    let mut numbers = Numbers::lane(seed, 1);
    let part = args.length().mul_f64(PART) / args.kills.max(1) as u32;
    (0..args.kills as u32)
        .map(|number| {
            let after = part * number + part.mul_f64(numbers.fraction());
            let drawn = numbers.of(&Language::ALL);
            let victim = match (fleet, args.kill) {
                (Fleet::Java, _) | (Fleet::Mixed, Kill::Java) => Language::Java,
                (Fleet::Ours, _) | (Fleet::Mixed, Kill::Ours) => Language::Ours,
                (Fleet::Mixed, _) => drawn,
            };
            Fault { after, victim }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn plan_of(words: &[&str], fleet: Fleet) -> Vec<Fault> {
        plan(&Args::parse_from([&["mixed", "--seconds", "100", "--kills", "20"], words].concat()), fleet, 1)
    }

    fn victims(plan: &[Fault]) -> usize {
        plan.iter().filter(|fault| fault.victim == Language::Java).count()
    }

    #[test]
    fn faults_are_spread_over_the_run() {
        let plan = plan_of(&[], Fleet::Mixed);
        assert_eq!(plan.len(), 20);
        for (number, fault) in plan.iter().enumerate() {
            let part = Duration::from_millis(4500);
            assert!((part * number as u32..=part * (number as u32 + 1)).contains(&fault.after), "{number}: {fault:?}");
        }
    }

    #[test]
    fn victim_language_is_chosen_by_option_or_seed() {
        assert_eq!(victims(&plan_of(&["--kill", "java"], Fleet::Mixed)), 20);
        assert_eq!(victims(&plan_of(&["--kill", "ours"], Fleet::Mixed)), 0);
        assert!((1..20).contains(&victims(&plan_of(&[], Fleet::Mixed))));
        assert_eq!(plan_of(&["--kill", "none"], Fleet::Mixed), []);
    }

    #[test]
    fn single_language_fleet_has_victims_of_that_language() {
        assert_eq!(victims(&plan_of(&["--kill", "ours"], Fleet::Java)), 20);
        assert_eq!(victims(&plan_of(&["--kill", "java"], Fleet::Ours)), 0);
    }
}
