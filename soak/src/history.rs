//! Who was inside when. A section counts only if its guard still said held at the end: then it was held all along.

use std::collections::{BTreeMap, HashMap};

use parking_lot::Mutex;

/// Longer sections are left out: so overlaps are looked for among few.
pub const LONGEST: u64 = 1_000_000_000;

/// A child's sections arrive later than this only when it does not matter any more.
const KEPT: u64 = 30_000_000_000;

/// A stay inside, in ns of the machine's monotonic clock, which all processes share.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    pub from: u64,
    pub to: u64,
    /// False for readers.
    pub alone: bool,
    /// Of a fenced lock.
    pub token: Option<u64>,
}

/// The sections of the last moments, by name.
#[derive(Default)]
pub struct History(Mutex<HashMap<String, BTreeMap<u64, Section>>>);

impl History {
    /// Adds one; what is wrong with it.
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
    fn finds_two_inside_at_once() {
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
    fn finds_tokens_that_do_not_ascend() {
        let history = History::default();
        assert_eq!(history.add("x", section(10, 20, true, Some(5))), None);
        assert_eq!(history.add("x", section(30, 40, true, Some(7))), None);
        assert_eq!(history.add("x", section(21, 29, true, Some(6))), None);
        assert!(history.add("x", section(50, 60, true, Some(7))).is_some());
        assert!(history.add("x", section(1, 2, true, Some(6))).is_some());
    }
}
