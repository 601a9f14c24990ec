//! Judges a mutant by its test run.

use std::time::Duration;

use crate::cargo::Ran;

pub(crate) struct Outcome {
    pub(crate) is_caught: bool,
    /// The tests that failed or hung, or why no test detected the mutant.
    pub(crate) by: String,
    pub(crate) build_took: Duration,
    pub(crate) tests_took: Duration,
}

/// Maximum number of tests that a row names.
const NAMED: usize = 3;

impl Outcome {
    /// `may_hang`: a test that does not end counts as failed.
    pub(crate) fn of(ran: &Ran, may_hang: bool) -> Self {
        let log = ran.log.display();
        let hung: Vec<String> = ran.hung.iter().map(|test| format!("{test} (hung)")).collect();
        let is_caught = !ran.failed.is_empty() || (may_hang && !hung.is_empty());
        let by = if is_caught {
            let hung = if may_hang { hung } else { Vec::new() };
            some_of(&[&ran.failed[..], &hung].concat())
        } else if !ran.is_built {
            format!("BROKEN: does not compile, see {log}")
        } else if ran.succeeded {
            format!("NOT CAUGHT: {} tests passed", ran.passed.len())
        } else if ran.timed_out {
            let tests = if hung.is_empty() { "no test ran for over a minute".to_owned() } else { some_of(&hung) };
            format!("DID NOT END: {tests}; nothing has failed, see {log}")
        } else {
            format!("NOT CAUGHT: the tests ended without a failed one, see {log}")
        };
        let (build_took, tests_took) = (ran.build_took, ran.tests_took);
        Self { is_caught, by, build_took, tests_took }
    }
}

fn some_of(tests: &[String]) -> String {
    let named = tests.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    match tests.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timed_out(failed: &[&str], hung: &[&str]) -> Ran {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Ran {
            log: "x.log".into(),
            is_built: true,
            passed: Vec::new(),
            failed: names(failed),
            hung: names(hung),
            succeeded: false,
            timed_out: true,
            build_took: Duration::ZERO,
            tests_took: Duration::ZERO,
        }
    }

    #[test]
    fn hung_test_catches_mutant_only_if_listed_as_hanging() {
        let slow = Outcome::of(&timed_out(&[], &["a::b"]), false);
        assert!(!slow.is_caught && slow.by.starts_with("DID NOT END: a::b (hung)"), "{}", slow.by);
        let hangs = Outcome::of(&timed_out(&[], &["a::b"]), true);
        assert!(hangs.is_caught && hangs.by == "a::b (hung)", "{}", hangs.by);
        let unseen = Outcome::of(&timed_out(&[], &[]), true);
        assert!(!unseen.is_caught && unseen.by.starts_with("DID NOT END"), "{}", unseen.by);
        let failed = Outcome::of(&timed_out(&["a::c"], &["a::b"]), false);
        assert!(failed.is_caught && failed.by == "a::c", "{}", failed.by);
    }
}
