//! Counts of a run, and their report.

use std::fmt::Write as _;
use std::sync::Mutex;
use std::time::Duration;

use distlock::Flavour;
use serde_json::{Value, json};

use super::histogram::Histogram;

/// Length of the longest bar.
const BAR: u64 = 40;

/// The parameters of a run, and its length.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) flavour: Flavour,
    pub(super) tasks: u32,
    pub(super) contended: bool,
    pub(super) took: Duration,
    pub(super) servers: usize,
}

/// Counts of all tasks.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) acquires: Histogram,
    pub(super) releases: Histogram,
    /// The number of errors, and the text of the first error.
    failures: Mutex<(u64, Option<String>)>,
}

impl Tally {
    pub(super) fn fail(&self, error: &distlock::Error) {
        if let Ok(mut failures) = self.failures.lock() {
            failures.0 += 1;
            failures.1.get_or_insert_with(|| error.to_string());
        }
    }

    fn failures(&self) -> (u64, Option<String>) {
        self.failures.lock().map(|failures| failures.clone()).unwrap_or_default()
    }

    pub(super) fn errors(&self) -> u64 {
        self.failures().0
    }
}

/// Microseconds in a unit that suits their size.
fn time(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros} us"),
        1_000..1_000_000 => format!("{:.2} ms", micros as f64 / 1e3),
        _ => format!("{:.2} s", micros as f64 / 1e6),
    }
}

/// Pairs of acquire and release per second.
fn rate(run: &Run, tally: &Tally) -> f64 {
    tally.releases.count() as f64 / run.took.as_secs_f64()
}

pub(super) fn text(run: &Run, tally: &Tally) -> String {
    let mut out = String::new();
    let mut line = |text: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{text}");
    };
    let Run { flavour, tasks, servers, took, .. } = run;
    let names = if run.contended { "one lock for all" } else { "a lock each" };
    line(&format!("{flavour}, {tasks} tasks, {names}, {:.1} s, servers: {servers}", took.as_secs_f64()));
    line(&format!("\n{:10}{:>11}{:>11}{:>11}{:>11}", "", "p50", "p90", "p99", "max"));
    for (title, times) in [("acquire", &tally.acquires), ("release", &tally.releases)] {
        let [p50, p90, p99] = [50, 90, 99].map(|percent| time(times.percentile(percent)));
        line(&format!("{title:10}{p50:>11}{p90:>11}{p99:>11}{:>11}", time(times.max())));
    }
    let powers = tally.acquires.powers();
    let longest = powers.values().copied().max().unwrap_or(1);
    line("\nacquires by duration");
    if let (Some((first, _)), Some((last, _))) = (powers.first_key_value(), powers.last_key_value()) {
        for power in *first..=*last {
            let count = powers.get(&power).copied().unwrap_or(0);
            let bar = "#".repeat(usize::try_from((count * BAR).div_ceil(longest)).unwrap_or(0));
            line(format!("{:>11} {count:>9} {bar}", time(1 << power)).trim_end());
        }
    }
    let (errors, first) = tally.failures();
    line(&format!("\n{} pairs of acquire and release, {:.0} a second", tally.releases.count(), rate(run, tally)));
    line(&format!("{errors} errors{}", first.map(|text| format!("; the first: {text}")).unwrap_or_default()));
    out
}

pub(super) fn json(run: &Run, tally: &Tally) -> Value {
    let times = |times: &Histogram| {
        json!({
            "count": times.count(),
            "p50": times.percentile(50),
            "p90": times.percentile(90),
            "p99": times.percentile(99),
            "max": times.max(),
        })
    };
    let (errors, first) = tally.failures();
    json!({
        "flavour": run.flavour.as_str(),
        "tasks": run.tasks,
        "contended": run.contended,
        "seconds": run.took.as_secs_f64(),
        "pairs": tally.releases.count(),
        "pairs_per_second": rate(run, tally),
        "acquire": times(&tally.acquires),
        "release": times(&tally.releases),
        "errors": errors,
        "first_error": first,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_has_percentiles_bars_and_throughput() {
        let tally = Tally::default();
        for micros in [100, 120, 130, 1_500] {
            tally.acquires.record(Duration::from_micros(micros));
            tally.releases.record(Duration::from_micros(20));
        }
        let (flavour, took) = (Flavour::Fair, Duration::from_secs(2));
        let run = Run { flavour, tasks: 4, contended: true, took, servers: 1 };
        let text = text(&run, &tally);
        assert!(text.starts_with("fair, 4 tasks, one lock for all, 2.0 s, servers: 1\n"), "{text}");
        assert!(text.contains("\nrelease         20 us      20 us      20 us      20 us\n"), "{text}");
        assert!(text.contains(&format!("\n      64 us         2 {}\n", "#".repeat(40))), "{text}");
        assert!(text.contains("\n     256 us         0\n"), "{text}");
        assert!(text.contains("\n4 pairs of acquire and release, 2 a second\n0 errors\n"), "{text}");
        let json = json(&run, &tally);
        assert_eq!((&json["pairs"], &json["acquire"]["max"]), (&json!(4), &json!(1_500)));
    }
}
