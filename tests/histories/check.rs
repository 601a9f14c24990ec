//! Checks of a history.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use distlock_support::slot_of;

use crate::resource::{Event, Why};

/// One section inside a lock, from entry to exit. Sections are in order of entry.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub(crate) name: String,
    #[expect(dead_code, reason = "shown by failures")]
    pub(crate) id: String,
    pub(crate) token: u64,
    /// The largest token that had entered before.
    largest: u64,
    pub(crate) entered: u64,
    pub(crate) ended: u64,
    pub(crate) why: Why,
    /// Positions of entry and exit in the history.
    from: usize,
    to: usize,
}

impl Section {
    /// True if the guard's lease ended before the entry was recorded, because the process paused in between.
    fn is_void(&self) -> bool {
        self.ended < self.entered
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Failover {
    pub(crate) at: u64,
    pub(crate) slots: Vec<RangeInclusive<u16>>,
}

impl Failover {
    fn concerns(&self, name: &str) -> bool {
        let slot = slot_of(name);
        self.slots.iter().any(|range| range.contains(&slot))
    }
}

/// Two sections inside one lock at the same time.
#[derive(Clone, Debug)]
pub(crate) struct Overlap {
    pub(crate) first: Section,
    pub(crate) second: Section,
    /// True if repeated tokens show that a primary did not know an earlier grant.
    pub(crate) is_explained: bool,
}

impl Overlap {
    pub(crate) fn lasted(&self) -> Duration {
        let [first, second] = [&self.first, &self.second];
        Duration::from_micros(first.ended.min(second.ended).saturating_sub(first.entered.max(second.entered)))
    }
}

pub(crate) fn sections(history: &[Event]) -> Vec<Section> {
    let mut all: Vec<Section> = Vec::new();
    let mut inside = HashMap::new();
    for (place, event) in history.iter().enumerate() {
        match event {
            Event::Enter { name, section, token, largest, at } => {
                inside.insert(section.clone(), all.len());
                let (name, id, token, largest, entered) = (name.clone(), section.clone(), *token, *largest, *at);
                let (ended, why, from, to) = (u64::MAX, Why::Done, place, usize::MAX);
                all.push(Section { name, id, token, largest, entered, ended, why, from, to });
            }
            Event::Leave { section, why, ended } => {
                let section = &mut all[inside.remove(section).expect("a section enters before it leaves")];
                (section.why, section.ended, section.to) = (*why, *ended, place);
            }
        }
    }
    all
}

/// Every pair of sections that were inside one lock at the same time. They overlap by their order in the history and
/// by their own times, because the record of an exit may arrive late.
pub(crate) fn overlaps(sections: &[Section], failovers: &[Failover]) -> Vec<Overlap> {
    let mut names: HashMap<&str, Vec<&Section>> = HashMap::new();
    for section in sections.iter().filter(|section| !section.is_void()) {
        names.entry(&section.name).or_default().push(section);
    }
    let mut found = Vec::new();
    for same in names.values() {
        for (n, first) in same.iter().enumerate() {
            let behind = &same[n + 1..];
            let inside = behind.iter().enumerate().take_while(|(_, second)| second.from < first.to);
            for (m, second) in inside.filter(|(_, second)| second.entered <= first.ended) {
                let is_behind_a_failover =
                    failovers.iter().any(|one| one.at < second.entered && one.concerns(&first.name));
                // A primary that knows the first grant issues larger tokens. The first grant's own token is larger than
                // earlier tokens if its primary knew all earlier grants.
                let is_repeated = same[..n].iter().any(|earlier| earlier.token >= first.token);
                let is_known = !is_repeated && behind[..=m].iter().all(|later| later.token > first.token);
                let is_explained = is_behind_a_failover && !is_known;
                found.push(Overlap { first: (*first).clone(), second: (*second).clone(), is_explained });
            }
        }
    }
    found
}

/// Number of tokens that were not larger than all tokens before them.
pub(crate) fn repeated(sections: &[Section]) -> usize {
    sections.iter().filter(|section| !section.is_void() && section.token <= section.largest).count()
}

#[test]
fn overlaps_are_found_and_explained_by_repeated_tokens() {
    let enter = |name: &str, section: &str, token, at| {
        let (name, section) = (name.to_owned(), section.to_owned());
        Event::Enter { name, section, token, largest: 6, at }
    };
    let leave = |section: &str, ended| Event::Leave { section: section.to_owned(), why: Why::Gone, ended };
    let failover = |at| [Failover { at, slots: vec![0..=16_383] }];
    let explained = |history: &[Event], at: u64| -> Vec<bool> {
        overlaps(&sections(history), &failover(at)).iter().map(|overlap| overlap.is_explained).collect()
    };
    let apart = [enter("x", "1:0", 7, 1), leave("1:0", 2), enter("x", "2:0", 8, 3), leave("2:0", 4)];
    assert!(explained(&apart, 0).is_empty());
    let other_names = [enter("x", "1:0", 7, 1), enter("y", "2:0", 8, 2), leave("1:0", 3), leave("2:0", 4)];
    assert!(explained(&other_names, 0).is_empty());
    let late_note = [enter("x", "1:0", 7, 1), enter("x", "2:0", 8, 3), leave("1:0", 2), leave("2:0", 4)];
    assert!(explained(&late_note, 0).is_empty());
    // Token of the second section, time of the failover, and whether it explains the overlap.
    for (token, at, is_explained) in [(7, 2, true), (8, 2, false), (7, 7, false)] {
        let history = [enter("x", "1:0", 7, 1), enter("x", "2:0", token, 5), leave("1:0", 9), leave("2:0", 9)];
        assert_eq!(explained(&history, at), [is_explained], "{token} {at}");
    }
    // In between, a third section with the first section's token entered and exited.
    let between = [enter("x", "1:0", 7, 1), enter("x", "3:0", 7, 5), leave("3:0", 6), enter("x", "2:0", 8, 8)];
    assert_eq!(explained(&between, 2), [true, true]);
    let earlier = [enter("x", "3:0", 7, 3), leave("3:0", 4)];
    let growing = [enter("x", "1:0", 7, 20), enter("x", "2:0", 8, 21), leave("1:0", 30)];
    assert_eq!(explained(&growing, 2), [false]);
    assert_eq!(explained(&[&earlier[..], &growing[..]].concat(), 2), [true]);
    assert_eq!(repeated(&sections(&[enter("x", "1:0", 6, 1), enter("x", "1:1", 7, 2)])), 1);
    let late_entry = [enter("x", "2:0", 8, 5), enter("x", "1:0", 6, 6), leave("1:0", 4), leave("2:0", 9)];
    assert!(explained(&late_entry, 0).is_empty());
    assert_eq!(repeated(&sections(&late_entry)), 0);
}
