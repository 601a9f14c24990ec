//! The figures of a run, from the turns of all its processes.

use serde::Serialize;

use crate::args::{Args, Flavour, Fleet, Language};
use crate::events::{Kind, Turn};
use crate::judge::{self, Fate, Section};

/// Number of failures that are printed for each run.
const SHOWN: usize = 3;

/// Everything that is known of one process after its run.
pub struct Life {
    pub language: Language,
    pub fate: Fate,
    pub turns: Vec<Turn>,
    pub failures: Vec<String>,
}

/// Everything that is known of a run. Times are on the monotonic clock, in ns.
pub struct Observed {
    pub fleet: Fleet,
    pub seed: u64,
    /// Start and end of the measurement.
    pub from: u64,
    pub to: u64,
    /// When the last loop ended, or when the parent stopped waiting for it.
    pub seen_until: u64,
    /// Calls of scripts during the measurement.
    pub scripts: u64,
    pub freezes: usize,
    pub lives: Vec<Life>,
}

/// Figures of a run, or the worst figures of several runs.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub fleet: Fleet,
    /// `None`: the worst of several runs.
    pub seed: Option<u64>,
    pub sections_per_s: f64,
    /// All workers, then each language, then each language's reads and writes.
    pub groups: Vec<Group>,
    /// Longest time in which no process was inside the lock.
    pub pause_ms: f64,
    pub scripts_per_section: f64,
    pub overlaps: usize,
    pub deaths: usize,
    pub freezes: usize,
    /// Acquires and releases that failed, such as releases of a lock that was lost.
    pub failures: usize,
    /// Workers that did not get the lock after the measurement.
    pub unfinished: usize,
}

/// Sections and waits of some workers.
#[derive(Clone, Debug, Serialize)]
pub struct Group {
    /// `None`: both.
    pub language: Option<Language>,
    /// `None`: all.
    pub kind: Option<Kind>,
    pub sections: usize,
    /// Share of all sections of the run.
    pub share: f64,
    /// The same relative to the share of the processes. Only for a language of the mixed fleet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relative_share: Option<f64>,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub worst_ms: f64,
}

impl Observed {
    pub fn print_some_failures(&self) {
        let all = self.lives.iter().flat_map(|life| life.failures.iter().map(|text| (life.language, text)));
        for (language, text) in all.take(SHOWN) {
            eprintln!("a failure of {}: {text}", language.name());
        }
    }

    pub fn row(&self, args: &Args) -> Row {
        let seconds = (self.to - self.from) as f64 / 1e9;
        let groups = self.groups(args);
        let sections = groups.first().map_or(0, |all| all.sections);
        let spans = self
            .lives
            .iter()
            .flat_map(|life| life.turns.iter().filter_map(|turn| Section::of(turn, &life.fate, self.seen_until)));
        let spans: Vec<Section> = spans.collect();
        let overlaps = judge::overlaps(&spans);
        for (one, other) in overlaps.iter().take(SHOWN) {
            eprintln!("an overlap: {one:?}, {other:?}");
        }
        Row {
            fleet: self.fleet,
            seed: Some(self.seed),
            sections_per_s: sections as f64 / seconds,
            groups,
            pause_ms: ms(judge::longest_pause(&spans, self.from, self.to)),
            scripts_per_section: self.scripts as f64 / sections.max(1) as f64,
            overlaps: overlaps.len(),
            deaths: self.lives.iter().filter(|life| life.fate.killed.is_some()).count(),
            freezes: self.freezes,
            failures: self.lives.iter().map(|life| life.failures.len()).sum(),
            unfinished: self.lives.iter().map(|life| self.unfinished(life)).sum(),
        }
    }

    fn groups(&self, args: &Args) -> Vec<Group> {
        let present = |language: &Language| self.lives.iter().any(|life| life.language == *language);
        let languages: Vec<Language> = Language::ALL.into_iter().filter(present).collect();
        let mut keys = vec![(None, None)];
        keys.extend(languages.iter().map(|language| (Some(*language), None)));
        if args.flavour == Flavour::Rw {
            let kinds = |language| [Kind::Read, Kind::Write].map(|kind| (Some(language), Some(kind)));
            keys.extend(languages.iter().copied().flat_map(kinds));
        }
        let all = self.sections(None, None);
        let group = |(language, kind)| {
            let sections = self.sections(language, kind);
            let share = judge::share(sections, all);
            let java = judge::share(self.fleet.java_of(args.processes), args.processes);
            let even = language.map(|language| if language == Language::Java { java } else { 1.0 - java });
            let relative = even.filter(|_| self.fleet == Fleet::Mixed && kind.is_none()).map(|even| share / even);
            let waits = self.waits(language, kind);
            let [p50_ms, p99_ms, worst_ms] = [0.5, 0.99, 1.0].map(|share| ms(judge::percentile(&waits, share)));
            Group { language, kind, sections, share, relative_share: relative, p50_ms, p99_ms, worst_ms }
        };
        keys.into_iter().map(group).collect()
    }

    fn turns(&self, language: Option<Language>, kind: Option<Kind>) -> impl Iterator<Item = (&Life, &Turn)> {
        let lives = self.lives.iter().filter(move |life| language.is_none_or(|language| life.language == language));
        let turns = lives.flat_map(|life| life.turns.iter().map(move |turn| (life, turn)));
        turns.filter(move |(_, turn)| kind.is_none_or(|kind| turn.kind == kind))
    }

    fn is_measured(&self, time: u64) -> bool {
        (self.from..self.to).contains(&time)
    }

    /// Counts the completed sections that were entered during the measurement.
    fn sections(&self, language: Option<Language>, kind: Option<Kind>) -> usize {
        let inside = |turn: &Turn| turn.left.is_some() && turn.entered.is_some_and(|entered| self.is_measured(entered));
        self.turns(language, kind).filter(|(_, turn)| inside(turn)).count()
    }

    /// Returns the waits that began during the measurement, sorted. An unfinished wait counts until the end. Waits
    /// that a kill ended, and waits during a freeze of the same process, are left out.
    fn waits(&self, language: Option<Language>, kind: Option<Kind>) -> Vec<u64> {
        let waits = self.turns(language, kind).filter_map(|(life, turn)| {
            let end = match turn.entered {
                Some(entered) => entered,
                None if life.fate.killed.is_some() => return None,
                None => self.seen_until,
            };
            let counts = self.is_measured(turn.asked) && !life.fate.was_frozen(turn.asked, end);
            counts.then(|| end - turn.asked)
        });
        let mut waits: Vec<u64> = waits.collect();
        waits.sort_unstable();
        waits
    }

    fn unfinished(&self, life: &Life) -> usize {
        let waits = life.turns.iter().filter(|turn| turn.entered.is_none());
        if life.fate.killed.is_some() { 0 } else { waits.count() }
    }
}

impl Row {
    /// Returns the worse value of each figure of two runs of the same fleet.
    pub fn worse(&self, other: &Self) -> Self {
        let groups = self.groups.iter().zip(&other.groups).map(|(one, two)| one.worse(two));
        Self {
            fleet: self.fleet,
            seed: None,
            sections_per_s: self.sections_per_s.min(other.sections_per_s),
            groups: groups.collect(),
            pause_ms: self.pause_ms.max(other.pause_ms),
            scripts_per_section: self.scripts_per_section.max(other.scripts_per_section),
            overlaps: self.overlaps.max(other.overlaps),
            deaths: self.deaths.max(other.deaths),
            freezes: self.freezes.max(other.freezes),
            failures: self.failures.max(other.failures),
            unfinished: self.unfinished.max(other.unfinished),
        }
    }
}

impl Group {
    fn worse(&self, other: &Self) -> Self {
        Self {
            language: self.language,
            kind: self.kind,
            sections: self.sections.min(other.sections),
            share: self.share.min(other.share),
            relative_share: self.relative_share.zip(other.relative_share).map(|(one, two)| one.min(two)),
            p50_ms: self.p50_ms.max(other.p50_ms),
            p99_ms: self.p99_ms.max(other.p99_ms),
            worst_ms: self.worst_ms.max(other.worst_ms),
        }
    }
}

const fn ms(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    const MS: u64 = 1_000_000;

    fn turn(kind: Kind, asked: u64, entered: Option<u64>, left: Option<u64>) -> Turn {
        let at = |ms: u64| ms * MS;
        Turn { kind, asked: at(asked), entered: entered.map(at), left: left.map(at) }
    }

    fn life(language: Language, killed: Option<u64>, turns: Vec<Turn>) -> Life {
        let fate = Fate { killed: killed.map(|at| at * MS), freezes: Vec::new() };
        Life { language, fate, turns, failures: Vec::new() }
    }

    fn row(flavour: &str, lives: Vec<Life>) -> Row {
        let args = Args::parse_from(["mixed", "--flavour", flavour]);
        let (from, to, seen_until) = (100 * MS, 1100 * MS, 2000 * MS);
        let (fleet, seed, scripts, freezes) = (Fleet::Mixed, 7, 6, 0);
        Observed { fleet, seed, from, to, seen_until, scripts, freezes, lives }.row(&args)
    }

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-6, "{found}, not {expected}");
    }

    #[test]
    fn figures_count_only_sections_within_measurement() {
        let x = Kind::Exclusive;
        let java = vec![
            turn(x, 50, Some(60), Some(70)),
            turn(x, 100, Some(110), Some(120)),
            turn(x, 1090, Some(1120), Some(1130)),
        ];
        let ours = vec![turn(x, 100, Some(130), Some(150)), turn(x, 150, Some(160), Some(170))];
        let row = row("fair", vec![life(Language::Java, None, java), life(Language::Ours, None, ours)]);
        let sections: Vec<usize> = row.groups.iter().map(|group| group.sections).collect();
        assert_eq!(sections, [3, 1, 2]);
        near(row.groups[1].share, 1.0 / 3.0);
        near(row.groups[2].relative_share.expect("of a mixed fleet"), 4.0 / 3.0);
        near(row.sections_per_s, 3.0);
        near(row.scripts_per_section, 2.0);
        near(row.groups[1].worst_ms, 30.0);
        near(row.groups[2].p50_ms, 10.0);
        near(row.pause_ms, 930.0);
        assert_eq!((row.overlaps, row.deaths, row.unfinished), (0, 0, 0));
    }

    #[test]
    fn wait_of_killed_waiter_is_ignored_and_of_stuck_waiter_lasts_to_end() {
        let x = Kind::Exclusive;
        let killed = vec![turn(x, 100, None, None)];
        let stuck = vec![turn(x, 200, None, None)];
        let row = row("fair", vec![life(Language::Java, Some(900), killed), life(Language::Ours, None, stuck)]);
        near(row.groups[1].worst_ms, 0.0);
        near(row.groups[2].worst_ms, 1800.0);
        assert_eq!((row.deaths, row.unfinished), (1, 1));
    }

    #[test]
    fn reads_and_writes_have_their_own_groups() {
        let java = vec![turn(Kind::Read, 100, Some(110), Some(150)), turn(Kind::Write, 150, Some(170), Some(180))];
        let ours = vec![turn(Kind::Read, 100, Some(120), Some(160)), turn(Kind::Read, 165, Some(175), Some(176))];
        let row = row("rw", vec![life(Language::Java, None, java), life(Language::Ours, None, ours)]);
        let sections: Vec<usize> = row.groups.iter().map(|group| group.sections).collect();
        // All; Java, ours; Java's reads and writes; our reads and writes.
        assert_eq!(sections, [4, 2, 2, 1, 1, 2, 0]);
        assert_eq!(row.overlaps, 1);
    }

    #[test]
    fn worst_row_has_worst_value_of_each_figure() {
        let runs = [(110, 50), (300, 10)].map(|(entered, length)| {
            let turns = vec![turn(Kind::Exclusive, 100, Some(entered), Some(entered + length))];
            row("fair", vec![life(Language::Ours, None, turns)])
        });
        let worst = runs[0].worse(&runs[1]);
        near(worst.groups[0].worst_ms, 200.0);
        near(worst.pause_ms, 940.0);
        assert_eq!(worst.seed, None);
    }
}
