//! Checks that sections do not overlap, and that fencing tokens ascend. A section counts only if its guard reported
//! held at the end, because then the lock was held all the time.

use std::collections::{BTreeMap, HashMap};

use parking_lot::Mutex;

/// The longest section that is checked, in ns. The limit keeps the search for overlaps short.
pub const LONGEST: u64 = 1_000_000_000;

/// The time for which a section is kept, in ns. A child's section that arrives later than this no longer matters.
const KEPT: u64 = 30_000_000_000;

/// A time span inside a lock, in ns of the machine's monotonic clock, which all processes share.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    pub from: u64,
    pub to: u64,
    /// False for a reader.
    pub alone: bool,
    /// The token of a fenced lock.
    pub token: Option<u64>,
}

/// The recent sections by name.
#[derive(Default)]
pub struct History(Mutex<HashMap<String, BTreeMap<u64, Section>>>);

impl History {
    /// Adds a section. Returns the violation, if there is one.
    pub fn add(&self, name: &str, section: Section) -> Option<String> {
        let mut names = self.0.lock();
        let sections = names.entry(name.to_owned()).or_default();
        let near = sections.range(section.from.saturating_sub(LONGEST)..=section.to);
        let mut wrong = None;
        for (_, other) in near {
            let together = other.from < section.to && section.from < other.to;
            if together && (other.alone || section.alone) {
                wrong = Some(format!("{name}: two inside at once: {other:?}, {section:?}"));
            }
        }
        let token = |section: &Section| section.token.unwrap_or(0);
        if section.token.is_some() {
            let before = sections.range(..section.from).next_back().map(|(_, other)| token(other));
            let after = sections.range(section.from + 1..).next().map(|(_, other)| token(other));
            let me = token(&section);
            if before.is_some_and(|before| before >= me) || after.is_some_and(|after| after <= me) {
                wrong = Some(format!("{name}: tokens do not ascend: {before:?}, {me}, {after:?}"));
            }
        }
        sections.insert(section.from, section);
        while sections.first_key_value().is_some_and(|(from, _)| from + KEPT < section.from) {
            sections.pop_first();
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn section(from: u64, to: u64, alone: bool, token: Option<u64>) -> Section {
        Section { from, to, alone, token }
    }

    #[test]
    fn history_finds_overlapping_exclusive_sections() {
        let history = History::default();
        assert_eq!(history.add("x", section(10, 20, true, None)), None);
        assert_eq!(history.add("x", section(20, 30, true, None)), None);
        assert_eq!(history.add("y", section(15, 25, true, None)), None);
        assert!(history.add("x", section(19, 21, false, None)).is_some());
        assert_eq!(history.add("r", section(10, 20, false, None)), None);
        assert_eq!(history.add("r", section(15, 25, false, None)), None);
        assert!(history.add("r", section(12, 13, true, None)).is_some());
    }

    #[test]
    fn history_finds_tokens_that_do_not_increase() {
        let history = History::default();
        assert_eq!(history.add("x", section(10, 20, true, Some(5))), None);
        assert_eq!(history.add("x", section(30, 40, true, Some(7))), None);
        assert_eq!(history.add("x", section(21, 29, true, Some(6))), None);
        assert!(history.add("x", section(50, 60, true, Some(7))).is_some());
        assert!(history.add("x", section(1, 2, true, Some(6))).is_some());
    }
}
