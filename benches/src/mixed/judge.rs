//! Sections, their overlaps, and the pauses between them.

use crate::events::{Kind, Turn};

/// The faults of one process. Times are on the monotonic clock, in ns.
#[derive(Clone, Debug, Default)]
pub struct Fate {
    pub killed: Option<u64>,
    /// Start and end of each freeze.
    pub freezes: Vec<(u64, u64)>,
}

impl Fate {
    /// Whether the process was frozen at some moment of this span.
    pub fn was_frozen(&self, from: u64, to: u64) -> bool {
        self.freezes.iter().any(|(start, thaw)| *start < to && from < *thaw)
    }
}

/// A span in which a process certainly held the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    pub from: u64,
    pub to: u64,
    /// Whether only readers may overlap it.
    pub reads: bool,
}

impl Section {
    /// Returns the span of a turn that certainly held the lock, if any.
    ///
    /// - An open turn ends at the kill of its process, or else at `seen_until`.
    /// - A turn that entered before a freeze ends at the start of that freeze, because its lease may end during it.
    /// - A turn that waited during a freeze has none: the lock may have been granted and lost during the freeze.
    pub fn of(turn: &Turn, fate: &Fate, seen_until: u64) -> Option<Self> {
        let from = turn.entered?;
        if fate.was_frozen(turn.asked, from) {
            return None;
        }
        let end = turn.left.or(fate.killed).unwrap_or(seen_until);
        let freeze = fate.freezes.iter().map(|(start, _)| *start).find(|start| (from..end).contains(start));
        let to = freeze.unwrap_or(end);
        (from < to).then_some(Self { from, to, reads: turn.kind == Kind::Read })
    }
}

/// Returns all pairs of sections that overlap and are not both of readers.
pub fn overlaps(sections: &[Section]) -> Vec<(Section, Section)> {
    let mut sorted = sections.to_vec();
    sorted.sort_by_key(|section| section.from);
    let mut found = Vec::new();
    for (at, one) in sorted.iter().enumerate() {
        let during = sorted[at + 1..].iter().take_while(|other| other.from < one.to);
        found.extend(during.filter(|other| !(one.reads && other.reads)).map(|other| (*one, *other)));
    }
    found
}

/// Returns the longest time between `from` and `to` without any section.
pub fn longest_pause(sections: &[Section], from: u64, to: u64) -> u64 {
    let mut sorted = sections.to_vec();
    sorted.sort_by_key(|section| section.from);
    let (mut covered, mut longest) = (from, 0);
    for section in sorted {
        longest = longest.max(section.from.min(to).saturating_sub(covered));
        covered = covered.max(section.to);
    }
    longest.max(to.saturating_sub(covered))
}

/// Returns the smallest value that at least this share of the sorted values does not exceed. 0 if there is no value.
pub fn percentile(sorted: &[u64], share: f64) -> u64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().unwrap_or(0)
}

/// Returns `part / whole`, or 0 for nothing of nothing.
pub fn share(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: u64 = 1_000;

    const fn alone(from: u64, to: u64) -> Section {
        Section { from, to, reads: false }
    }

    const fn reads(from: u64, to: u64) -> Section {
        Section { from, to, reads: true }
    }

    const fn turn(asked: u64, entered: Option<u64>, left: Option<u64>) -> Turn {
        Turn { kind: Kind::Exclusive, asked, entered, left }
    }

    #[test]
    fn overlap_is_found_in_any_order() {
        let (one, two) = (alone(10, 20), alone(19, 30));
        assert_eq!(overlaps(&[two, one]), [(one, two)]);
        let within = alone(12, 13);
        assert_eq!(overlaps(&[one, within]), [(one, within)]);
    }

    #[test]
    fn long_section_overlaps_all_sections_within() {
        assert_eq!(overlaps(&[alone(0, 100), alone(10, 20), alone(30, 40)]).len(), 2);
    }

    #[test]
    fn sections_that_touch_do_not_overlap() {
        assert_eq!(overlaps(&[alone(10, 20), alone(20, 30)]), []);
    }

    #[test]
    fn overlap_of_reader_and_writer_is_found_but_not_of_readers() {
        let (one, two, writer) = (reads(10, 30), reads(15, 40), alone(35, 50));
        assert_eq!(overlaps(&[one, two, writer]), [(two, writer)]);
    }

    #[test]
    fn open_turn_ends_at_kill_or_end_of_run() {
        let open = turn(1, Some(10), None);
        let killed = Fate { killed: Some(25), ..Fate::default() };
        assert_eq!(Section::of(&open, &killed, NEVER), Some(alone(10, 25)));
        assert_eq!(Section::of(&open, &Fate::default(), NEVER), Some(alone(10, NEVER)));
        assert_eq!(Section::of(&turn(1, Some(10), Some(20)), &killed, NEVER), Some(alone(10, 20)));
        assert_eq!(Section::of(&turn(1, None, None), &killed, NEVER), None);
    }

    #[test]
    fn freeze_cuts_holding_turn_and_hides_waiting_turn() {
        let fate = Fate { killed: None, freezes: vec![(20, 40)] };
        assert_eq!(Section::of(&turn(1, Some(10), Some(50)), &fate, NEVER), Some(alone(10, 20)));
        assert_eq!(Section::of(&turn(15, Some(45), Some(50)), &fate, NEVER), None);
        assert_eq!(Section::of(&turn(1, Some(10), Some(15)), &fate, NEVER), Some(alone(10, 15)));
        assert_eq!(Section::of(&turn(41, Some(45), Some(50)), &fate, NEVER), Some(alone(45, 50)));
    }

    #[test]
    fn read_turn_gives_shared_section() {
        let read = Turn { kind: Kind::Read, ..turn(1, Some(2), Some(3)) };
        assert_eq!(Section::of(&read, &Fate::default(), NEVER), Some(reads(2, 3)));
    }

    #[test]
    fn longest_pause_is_found_at_start_between_or_at_end() {
        let sections = [alone(40, 50), alone(20, 30), reads(22, 35)];
        assert_eq!(longest_pause(&sections, 0, 60), 20);
        assert_eq!(longest_pause(&sections, 19, 52), 5);
        assert_eq!(longest_pause(&sections, 19, 80), 30);
        assert_eq!(longest_pause(&[], 10, 60), 50);
    }

    #[test]
    fn sections_outside_measurement_do_not_shorten_pause() {
        assert_eq!(longest_pause(&[alone(0, 5), alone(90, 95)], 10, 60), 50);
        assert_eq!(longest_pause(&[alone(0, 30), alone(50, 95)], 10, 60), 20);
    }

    #[test]
    fn percentiles_are_values_of_the_list() {
        let values: Vec<u64> = (1..=100).collect();
        assert_eq!([0.5, 0.99, 1.0].map(|share| percentile(&values, share)), [50, 99, 100]);
        assert_eq!(percentile(&[7], 0.5), 7);
        assert_eq!(percentile(&[], 0.5), 0);
    }

    #[test]
    fn share_is_fraction_of_total_and_zero_for_zero_total() {
        assert!((share(1, 4) - 0.25).abs() < 1e-9);
        assert!(share(0, 0).abs() < 1e-9);
    }
}
