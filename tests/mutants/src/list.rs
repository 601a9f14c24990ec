//! The list of mutants.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::Result;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mutant {
    pub(crate) name: String,
    /// The page of docs/ that promises the rule.
    pub(crate) mechanism: String,
    pub(crate) breaks: String,
    pub(crate) file: String,
    /// The code to replace, exactly once in the file.
    pub(crate) find: String,
    pub(crate) replace: String,
    /// Arguments of `cargo test`: one target, then filters.
    tests: Vec<String>,
    /// True if the defect makes a test hang. Without it, a run that reaches its time limit does not count as caught.
    #[serde(default)]
    pub(crate) hangs: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    Lib,
    /// A test target of tests/.
    Test(String),
}

impl Target {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Lib => "lib",
            Self::Test(name) => name,
        }
    }

    /// Cargo arguments that select the target. Both kinds build the crate with the same features, so that it is built
    /// once.
    pub(crate) fn args(&self) -> Vec<&str> {
        match self {
            Self::Lib => {
                vec![
                    "-p",
                    "distlock",
                    "--features",
                    "metrics,redisson-yaml,rustls,rustls-ring,unstable-transport",
                    "--lib",
                ]
            }
            Self::Test(name) => {
                vec!["-p", "distlock-tests", "--features", "metrics,redisson-yaml,rustls", "--test", name]
            }
        }
    }

    /// Splits the arguments into the target and the filters.
    fn split(tests: &[String]) -> Option<(Self, &[String])> {
        match tests {
            [lib, filters @ ..] if lib == "--lib" => Some((Self::Lib, filters)),
            [test, name, filters @ ..] if test == "--test" => Some((Self::Test(name.clone()), filters)),
            _ => None,
        }
    }
}

impl Mutant {
    pub(crate) fn target(&self) -> Target {
        // `read` has checked the arguments.
        Target::split(&self.tests).map_or(Target::Lib, |(target, _)| target)
    }

    /// Filters for the names of the tests that may detect the mutant.
    pub(crate) fn filters(&self) -> &[String] {
        Target::split(&self.tests).map_or(&[], |(_, filters)| filters)
    }

    pub(crate) fn tests(&self) -> String {
        self.tests.join(" ")
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    mutant: Vec<Mutant>,
}

/// Reads the list, sorted by test binary, which needs the fewest builds.
pub(crate) fn read(path: &Path) -> Result<Vec<Mutant>> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let List { mutant: mut mutants } = toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut names = BTreeSet::new();
    for mutant in &mutants {
        if !names.insert(&mutant.name) {
            return Err(format!("there are two mutants called {}", mutant.name));
        }
        if Target::split(&mutant.tests).is_none_or(|(_, filters)| filters.is_empty()) {
            return Err(format!("{}: tests are --lib or --test NAME, and filters", mutant.name));
        }
    }
    mutants.sort_by_key(Mutant::target);
    Ok(mutants)
}

pub(crate) fn choose(mutants: Vec<Mutant>, names: &[String]) -> Result<Vec<Mutant>> {
    if let Some(unknown) = names.iter().find(|name| mutants.iter().all(|mutant| mutant.name != **name)) {
        return Err(format!("there is no mutant {unknown}; --list prints them"));
    }
    let is_chosen = |mutant: &Mutant| names.is_empty() || names.contains(&mutant.name);
    Ok(mutants.into_iter().filter(is_chosen).collect())
}
