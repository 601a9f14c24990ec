//! Counts of what was done, and the violations.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use distlock::Error;
use parking_lot::Mutex;

/// The number of violations that the report lists. One is enough to fail.
const TOLD: usize = 20;

#[derive(Default)]
struct Counts {
    done: BTreeMap<String, u64>,
    wrong: Vec<String>,
}

#[derive(Default)]
pub struct Tally(Mutex<Counts>);

impl Tally {
    pub fn count(&self, what: &str) {
        self.add(what, 1);
    }

    pub fn add(&self, what: &str, count: u64) {
        let mut counts = self.0.lock();
        match counts.done.get_mut(what) {
            Some(n) => *n += count,
            None => drop(counts.done.insert(what.to_owned(), count)),
        }
    }

    /// Records a violation.
    pub fn violation(&self, what: String) {
        println!("WRONG: {}", what.chars().take(300).collect::<String>());
        let wrong = &mut self.0.lock().wrong;
        if wrong.len() < TOLD {
            wrong.push(what);
        }
    }

    /// Records an error. An error that the faults do not explain is a violation.
    pub fn error(&self, of: &str, error: &Error) {
        let kind = match error {
            Error::Closed => "closed",
            Error::RuntimeGone => "runtime gone",
            Error::Connection { .. } => "no connection",
            Error::Timeout { .. } => "timeout",
            Error::NoQuorum { .. } => "no quorum",
            Error::Lost { .. } => "lost",
            Error::NotHeld { .. } => "not held",
            Error::ReleasePending { .. } => "release pending",
            error if error.is_retryable() => "retryable",
            error => return self.violation(format!("{of}: {error}")),
        };
        self.count(&format!("error: {kind}"));
    }

    pub fn wrong(&self) -> Vec<String> {
        self.0.lock().wrong.clone()
    }

    /// Returns the kinds that were never held. A kind that is never held would hide its bugs.
    pub fn idle(&self) -> Vec<String> {
        let counts = self.0.lock();
        let sections = |kind: &str| counts.done.get(&format!("section: {kind}")).copied().unwrap_or(0);
        let idle = crate::kinds::Kind::ALL.iter().filter(|kind| sections(kind.name()) == 0);
        idle.map(|kind| format!("nobody ever had a lock of kind {}", kind.name())).collect()
    }

    fn sum(&self, prefix: &str) -> u64 {
        let counts = self.0.lock();
        counts.done.iter().filter(|(what, _)| what.starts_with(prefix)).map(|(_, count)| count).sum()
    }

    pub fn line(&self) -> String {
        let [sections, faults, errors] = ["section:", "fault:", "error:"].map(|prefix| self.sum(prefix));
        format!("{sections} sections, {faults} faults, {errors} errors that faults explain")
    }

    pub fn report(&self, took: Duration) -> String {
        let mut text = String::new();
        for (what, count) in &self.0.lock().done {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{what:<28} {count:>10}");
        }
        let rate = self.sum("section:") as f64 / took.as_secs_f64();
        let _ = writeln!(text, "{}: {rate:.0} sections/s", self.line());
        text
    }
}
