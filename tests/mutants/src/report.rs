//! The table of mutants.

use std::time::Instant;

use crate::list::Mutant;
use crate::outcome::Outcome;

pub(crate) struct Report {
    began: Instant,
    /// Column widths of names and mechanisms.
    widths: (usize, usize),
    caught: usize,
    missed: Vec<String>,
}

impl Report {
    pub(crate) fn begin(mutants: &[Mutant]) -> Self {
        let widest = |width: fn(&Mutant) -> usize| mutants.iter().map(width).max().unwrap_or(0);
        let widths = (widest(|mutant| mutant.name.len()), widest(|mutant| mutant.mechanism.len()));
        println!(
            "\n{:names$}  {:kinds$}  build  tests  caught by",
            "mutant",
            "mechanism",
            names = widths.0,
            kinds = widths.1
        );
        Self { began: Instant::now(), widths, caught: 0, missed: Vec::new() }
    }

    pub(crate) fn row(&mut self, mutant: &Mutant, outcome: &Outcome) {
        let (name, mechanism) = (&mutant.name, &mutant.mechanism);
        let (names, kinds) = self.widths;
        let (build, tests) = (outcome.build_took.as_secs(), outcome.tests_took.as_secs());
        println!("{name:names$}  {mechanism:kinds$}  {build:3} s  {tests:3} s  {}", outcome.by);
        if outcome.is_caught {
            self.caught += 1;
        } else {
            self.missed.push(format!(
                "{name}: {}\n    rule: {}\n    tests: {}",
                outcome.by,
                mutant.breaks,
                mutant.tests()
            ));
        }
    }

    /// Prints the sums. Returns true if every mutant was caught.
    pub(crate) fn end(&self) -> bool {
        println!("\n{} mutants in {} s", self.caught + self.missed.len(), self.began.elapsed().as_secs());
        for missed in &self.missed {
            println!("{missed}");
        }
        println!("{} passed, {} failed", self.caught, self.missed.len());
        self.missed.is_empty()
    }
}

pub(crate) fn print_list(mutants: &[Mutant]) {
    for mutant in mutants {
        let Mutant { name, mechanism, file, breaks, .. } = mutant;
        println!("{name}\n    {mechanism}, {file}\n    breaks: {breaks}\n    found by: cargo test {}", mutant.tests());
    }
}
