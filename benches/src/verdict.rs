//! The targets, and whether the measured rows meet them.

mod judge;

use crate::report::Row;
use crate::subject::Who;
use judge::Judge;

/// A target and its result, or a comparison without a target.
#[derive(Clone, Debug)]
pub struct Verdict {
    pub passed: bool,
    pub target: bool,
    pub text: String,
}

impl Verdict {
    pub const fn missed(&self) -> bool {
        self.target && !self.passed
    }

    pub const fn word(&self) -> &'static str {
        match (self.passed, self.target) {
            (true, true) => "pass",
            (false, true) => "MISS",
            (true, false) => "     ahead",
            (false, false) => "     behind",
        }
    }
}

/// Judges the rows against the targets.
pub fn verdicts(rows: &[Row]) -> Vec<Verdict> {
    let mut list = Vec::new();
    for row in rows {
        let group = |ours: &&Row| (ours.bench, ours.processes, ours.tasks) == (row.bench, row.processes, row.tasks);
        let Some(ours) = rows.iter().filter(group).find(|ours| ours.subject == Who::Distlock) else { continue };
        Judge { rows, row, ours, list: &mut list }.judge();
    }
    list
}
