//! Checks the tests: plants deliberate defects (mutants) in a copy of the repository, one at a time, and demands that a
//! test fails for each.
//!
//! 1. Reads the list, `tests/mutants/mutants.toml`.
//! 2. Copies the tracked files to `target/mutants/tree`. Unchanged files keep their times, so that a second run builds
//!    little.
//! 3. The control: runs the tests of the chosen mutants on the unchanged copy. They must pass.
//! 4. For each mutant: changes one file, builds, runs the mutant's tests, restores the file. The mutant is *caught* if
//!    a test fails. A run that does not end within its limit counts as caught only if the list says `hangs = true`. A
//!    mutant that does not compile counts as not caught.
//! 5. Prints a row for each mutant and the sums. The output of each run is in `target/mutants/logs`.

mod cargo;
mod list;
mod outcome;
mod report;
mod tree;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use crate::cargo::{Cargo, Ran};
use crate::list::{Mutant, Target};
use crate::outcome::Outcome;
use crate::report::Report;
use crate::tree::Tree;

/// Errors are texts for the user.
pub(crate) type Result<T> = std::result::Result<T, String>;

const USAGE: &str = "usage: distlock-mutants [--list] [--source DIR] [--target DIR] [NAME...]

Without names: all mutants of tests/mutants/mutants.toml.
  --list        print the mutants and run nothing
  --source DIR  the repository whose tracked files are copied; default: the current directory. The list of mutants is always
                read from the current directory
  --target DIR  where the copy is built; target/mutants unless said";

/// Time limit of the tests of a mutant with `hangs = true`: three times the control, plus this.
const HANGS_AFTER: Duration = Duration::from_secs(120);

/// The same for all other mutants. Above `LIMIT` of the bed, so that a test that waits forever fails with its own
/// message first.
const ENDS_WITHIN: Duration = Duration::from_secs(1000);

struct Args {
    only_list: bool,
    source: PathBuf,
    target: PathBuf,
    names: Vec<String>,
}

impl Args {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let (source, target) = (PathBuf::from("."), PathBuf::from("target/mutants"));
        let mut args = Self { only_list: false, source, target, names: Vec::new() };
        while let Some(word) = words.next() {
            let mut value = || words.next().map(PathBuf::from).ok_or_else(|| format!("{word} needs a value\n{USAGE}"));
            match word.as_str() {
                "--list" => args.only_list = true,
                "--source" => args.source = value()?,
                "--target" => args.target = value()?,
                option if option.starts_with('-') => return Err(format!("unknown option {option}\n{USAGE}")),
                _ => args.names.push(word),
            }
        }
        Ok(args)
    }
}

fn main() -> ExitCode {
    match Args::parse(std::env::args().skip(1)).and_then(|args| run(&args)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("mutants: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<bool> {
    let mutants = list::choose(list::read(Path::new("tests/mutants/mutants.toml"))?, &args.names)?;
    if args.only_list {
        report::print_list(&mutants);
        return Ok(true);
    }
    let tree = Tree::copy(&args.source, &args.target.join("tree"))?;
    for mutant in &mutants {
        tree.check(mutant)?;
    }
    let cargo = Cargo::new(tree.root(), &args.target)?;
    let took = control(&cargo, &mutants)?;
    let mut report = Report::begin(&mutants);
    for mutant in &mutants {
        let limit = took.get(&mutant.target()).copied().unwrap_or_default() * 3;
        let limit = limit + if mutant.hangs { HANGS_AFTER } else { ENDS_WITHIN };
        let planted = tree.plant(mutant)?;
        let ran = cargo.test(&mutant.name, &mutant.target(), mutant.filters(), limit);
        planted.restore()?;
        report.row(mutant, &Outcome::of(&ran?, mutant.hangs));
    }
    Ok(report.end())
}

/// Runs the tests of all mutants on the unchanged tree, one run for each test target. Returns how long each took.
fn control(cargo: &Cargo, mutants: &[Mutant]) -> Result<BTreeMap<Target, Duration>> {
    let mut filters: BTreeMap<Target, Vec<&str>> = BTreeMap::new();
    for mutant in mutants {
        let known = filters.entry(mutant.target()).or_default();
        known.extend(mutant.filters().iter().map(String::as_str));
    }
    let mut took = BTreeMap::new();
    for (target, filters) in filters {
        let name = format!("control {}", target.name());
        let ran = cargo.test(&name, &target, &filters, Duration::from_secs(1800))?;
        check_control(&target, &filters, &ran)?;
        println!("{name}: {} passed in {} s", ran.passed.len(), ran.tests_took.as_secs());
        took.insert(target, ran.tests_took);
    }
    Ok(took)
}

/// Asserts that the control passed, and that each filter matches a test.
fn check_control(target: &Target, filters: &[&str], ran: &Ran) -> Result<()> {
    let log = ran.log.display();
    if !ran.is_built {
        return Err(format!("{} does not build on the unchanged tree: see {log}", target.name()));
    }
    if !ran.succeeded {
        return Err(format!("{} fails on the unchanged tree ({}): see {log}", target.name(), ran.failed.join(", ")));
    }
    let is_empty = |filter: &&&str| !ran.passed.iter().any(|test| test.contains(**filter));
    match filters.iter().find(is_empty) {
        Some(filter) => Err(format!("no test of {} is called {filter:?}", target.name())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    /// With a lower limit, a test that waits forever would be an unfinished run, and not a failed test.
    #[test]
    fn time_limit_of_run_is_above_limit_of_bed() {
        let bed = include_str!("../../bed/src/lib.rs");
        let limit =
            bed.split_once("const LIMIT: Duration = Duration::from_secs(").and_then(|(_, rest)| rest.split_once(')'));
        let limit: u64 = limit.expect("the bed has a LIMIT in seconds").0.parse().unwrap();
        assert!(super::ENDS_WITHIN.as_secs() > limit, "the bed's LIMIT is {limit} s");
    }
}
