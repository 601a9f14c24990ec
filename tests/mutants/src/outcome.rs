//! What the tests say of a mutant.

use std::time::Duration;

use crate::cargo::Ran;

/// What became of a mutant.
pub(crate) struct Outcome {
    pub(crate) is_caught: bool,
    /// The tests that failed or hung, or why nothing has caught it.
    pub(crate) by: String,
    pub(crate) build_took: Duration,
    pub(crate) tests_took: Duration,
}

/// So many tests are named in a row.
const NAMED: usize = 3;

impl Outcome {
    pub(crate) fn of(ran: &Ran) -> Self {
        let hung = ran.hung.iter().map(|test| format!("{test} (hung)"));
        let caught_by: Vec<String> = ran.failed.iter().cloned().chain(hung).collect();
        let log = ran.log.display();
        let by = if !caught_by.is_empty() {
            some_of(&caught_by)
        } else if !ran.is_built {
            format!("BROKEN: does not compile, see {log}")
        } else if ran.succeeded {
            format!("NOT CAUGHT: {} tests passed", ran.passed.len())
        } else if ran.timed_out {
            format!("NOT CAUGHT: the time was up, and no test had failed or hung, see {log}")
        } else {
            format!("NOT CAUGHT: the tests ended without a failed one, see {log}")
        };
        let (build_took, tests_took) = (ran.build_took, ran.tests_took);
        Self { is_caught: !caught_by.is_empty(), by, build_took, tests_took }
    }
}

/// The first of these tests, and how many more there are.
fn some_of(tests: &[String]) -> String {
    let named = tests.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    match tests.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}
