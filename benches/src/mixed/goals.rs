//! The goals of a mixed fleet, as ratios.

use std::fmt::Write as _;

use serde::Serialize;

use crate::args::{Fleet, Language};
use crate::figures::Row;

/// The ratios of one mixed run. 1.0 is the goal of each.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Goal {
    /// `None`: the lowest ratios of several runs.
    pub seed: Option<u64>,
    /// Throughput of the mixed fleet, relative to the mean of the two other fleets with the same seed. `None` if one
    /// of them was not measured.
    pub throughput: Option<f64>,
    /// Share of all sections, relative to the share of the processes.
    pub java_share: f64,
    pub our_share: f64,
}

/// Returns the ratios of each mixed run, and after several runs also the lowest.
pub fn goals(runs: &[Row]) -> Vec<Goal> {
    let mixed = runs.iter().filter(|row| row.fleet == Fleet::Mixed);
    let mut goals: Vec<Goal> = mixed.map(|row| goal(row, runs)).collect();
    let lowest = goals.iter().cloned().reduce(|one, two| Goal {
        seed: None,
        throughput: one.throughput.zip(two.throughput).map(|(one, two)| one.min(two)),
        java_share: one.java_share.min(two.java_share),
        our_share: one.our_share.min(two.our_share),
    });
    if goals.len() > 1 {
        goals.extend(lowest);
    }
    goals
}

fn goal(mixed: &Row, runs: &[Row]) -> Goal {
    let rate = |fleet| {
        let row = runs.iter().find(|row| row.fleet == fleet && row.seed == mixed.seed)?;
        Some(row.sections_per_s)
    };
    let pure = rate(Fleet::Java).zip(rate(Fleet::Ours)).map(|(java, ours)| java.midpoint(ours));
    let share = |language| {
        let group = mixed.groups.iter().find(|group| group.language == Some(language) && group.kind.is_none());
        group.and_then(|group| group.relative_share).unwrap_or(0.0)
    };
    Goal {
        seed: mixed.seed,
        throughput: pure.map(|pure| mixed.sections_per_s / pure),
        java_share: share(Language::Java),
        our_share: share(Language::Ours),
    }
}

pub fn text(goals: &[Goal]) -> String {
    let mut text = String::new();
    for goal in goals {
        let run = goal.seed.map_or_else(|| "lowest".to_owned(), |seed| format!("seed {seed}"));
        let rate = goal.throughput.map_or_else(String::new, |ratio| format!("{ratio:.2} of the pure fleets' mean; "));
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "mixed, {run}: {rate}share relative to even: Java {:.2}, ours {:.2}",
            goal.java_share, goal.our_share
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Group;

    fn row(fleet: Fleet, seed: u64, rate: f64, java: f64) -> Row {
        let group = |language, share| Group {
            language: Some(language),
            kind: None,
            sections: 0,
            share,
            relative_share: (fleet == Fleet::Mixed).then_some(2.0 * share),
            p50_ms: 0.0,
            p99_ms: 0.0,
            worst_ms: 0.0,
        };
        Row {
            fleet,
            seed: Some(seed),
            sections_per_s: rate,
            groups: vec![group(Language::Java, java), group(Language::Ours, 1.0 - java)],
            pause_ms: 0.0,
            scripts_per_section: 0.0,
            overlaps: 0,
            deaths: 0,
            freezes: 0,
            failures: 0,
            unfinished: 0,
        }
    }

    #[test]
    fn throughput_is_compared_with_mean_of_same_seed() {
        let runs = [
            row(Fleet::Java, 1, 100.0, 1.0),
            row(Fleet::Ours, 1, 300.0, 0.0),
            row(Fleet::Mixed, 1, 150.0, 0.25),
            row(Fleet::Java, 2, 100.0, 1.0),
            row(Fleet::Ours, 2, 100.0, 0.0),
            row(Fleet::Mixed, 2, 120.0, 0.75),
        ];
        let goal = |seed, throughput, java_share, our_share| Goal { seed, throughput, java_share, our_share };
        let expected =
            [goal(Some(1), Some(0.75), 0.5, 1.5), goal(Some(2), Some(1.2), 1.5, 0.5), goal(None, Some(0.75), 0.5, 0.5)];
        assert_eq!(goals(&runs), expected);
    }

    #[test]
    fn throughput_goal_is_unknown_without_both_pure_fleets() {
        let goals = goals(&[row(Fleet::Ours, 1, 300.0, 0.0), row(Fleet::Mixed, 1, 150.0, 0.5)]);
        assert_eq!(goals.len(), 1);
        assert_eq!(goals[0].throughput, None);
    }
}
