//! Checks of a history of permits.

use std::collections::HashMap;

use super::record::Event;
use crate::resource::Why;

/// Permits in one guard, from the grant to the release or the loss. Sections are in order of their grants.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    /// The life of the process, and a number.
    id: String,
    permits: u32,
    began: u64,
    /// `u64::MAX`: the section has not ended.
    pub(crate) ended: u64,
    /// `None`: its process was killed inside, or the section has not ended.
    pub(crate) why: Option<Why>,
    /// Positions of begin and end in the history.
    from: usize,
    to: usize,
}

impl Section {
    /// True if the permits were lost, or their process killed, before the grant was recorded.
    fn is_void(&self) -> bool {
        self.ended < self.began
    }
}

pub(crate) fn sections(history: &[Event]) -> Vec<Section> {
    let (mut all, mut inside, mut lives) = (Vec::<Section>::new(), HashMap::new(), HashMap::new());
    for (place, event) in history.iter().enumerate() {
        match event {
            Event::Take { section, permits, at, until } => {
                inside.insert(section, (all.len(), *until));
                let (id, permits, began, ended) = (section.clone(), *permits, *at, u64::MAX);
                all.push(Section { id, permits, began, ended, why: None, from: place, to: usize::MAX });
            }
            Event::End { section, why, ended } => {
                let (n, _) = inside.remove(section).expect("a section begins before it ends");
                (all[n].why, all[n].ended, all[n].to) = (Some(*why), *ended, place);
            }
            Event::Dead { life, at } => {
                lives.insert(*life, *at);
            }
        }
    }
    // A killed process tells no end. It may also have lost the permits just before, so only the first lease counts.
    for (n, until) in inside.into_values() {
        let life = all[n].id.split(':').next().and_then(|life| life.parse::<u64>().ok());
        if let Some(killed) = life.and_then(|life| lives.get(&life)) {
            all[n].ended = until.min(*killed);
        }
    }
    all
}

/// The largest number of permits that were held at one moment, and the sections that held them.
///
/// Sections overlap by their order in the history and by their own times, because the record of an end may arrive late.
pub(crate) fn largest(sections: &[Section]) -> (u32, Vec<Section>) {
    let (mut inside, mut largest) = (Vec::<&Section>::new(), (0, Vec::new()));
    for section in sections.iter().filter(|section| !section.is_void()) {
        inside.retain(|other| section.from < other.to && section.began <= other.ended);
        inside.push(section);
        let held = inside.iter().map(|one| one.permits).sum::<u32>();
        if held > largest.0 {
            largest = (held, inside.iter().copied().cloned().collect());
        }
    }
    largest
}

fn take(section: &str, permits: u32, at: u64) -> Event {
    Event::Take { section: section.to_owned(), permits, at, until: at + 100 }
}

fn end(section: &str, why: Why, ended: u64) -> Event {
    Event::End { section: section.to_owned(), why, ended }
}

#[test]
fn holder_of_one_permit_too_many_is_found() {
    let most = |history: &[Event]| {
        let (permits, by) = largest(&sections(history));
        (permits, by.into_iter().map(|section| section.id).collect::<Vec<_>>().join(" "))
    };
    let found = |permits: u32, by: &str| (permits, by.to_owned());
    let five = [take("1:0", 3, 1), take("2:0", 2, 2), end("1:0", Why::Done, 3), end("2:0", Why::Done, 3)];
    assert_eq!(most(&five), found(5, "1:0 2:0"));
    // One more permit, granted while both others are held, and then after both have ended.
    let six = [&five[..2], &[take("3:0", 1, 3)], &five[2..]].concat();
    assert_eq!(most(&six), found(6, "1:0 2:0 3:0"));
    let after_both = [&five[..3], &[take("3:0", 1, 4)], &five[3..]].concat();
    assert_eq!(most(&after_both), found(5, "1:0 2:0"));
    // A loss is recorded late. Its own time decides.
    for (ended, right) in [(2, found(3, "1:0")), (5, found(6, "1:0 2:0"))] {
        let history = [take("1:0", 3, 1), take("2:0", 3, 3), end("1:0", Why::Expired, ended)];
        assert_eq!(most(&history), right, "{ended}");
    }
    // Permits that were lost before their grant was recorded.
    let late_grant = [take("1:0", 3, 9), take("2:0", 3, 10), end("1:0", Why::Expired, 8)];
    assert_eq!(most(&late_grant), found(3, "2:0"));
}

#[test]
fn killed_process_holds_its_permits_until_it_died() {
    let most = |history: &[Event]| largest(&sections(history)).0;
    let dead = |life, at| Event::Dead { life, at };
    // The process that died, when, and how many permits were held when the second section began at 5.
    for (life, at, permits) in [(1, 4, 3), (1, 5, 6), (11, 4, 6)] {
        let history = [take("1:0", 3, 1), dead(life, at), take("2:0", 3, 5)];
        assert_eq!(most(&history), permits, "{life} {at}");
    }
    assert_eq!(most(&[take("1:0", 3, 1), take("2:0", 3, 105), dead(1, 110)]), 3, "its lease had ended");
    assert_eq!(most(&[dead(1, 4), take("1:0", 3, 5), take("2:0", 3, 6)]), 3, "its grant was recorded late");
}
