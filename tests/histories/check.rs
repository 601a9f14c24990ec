//! What a history has to be like.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use distlock_support::slot_of;

use crate::resource::{Event, Why};

/// No replica is promoted earlier where its primary is silent, so what happens before that happens at the old primary; in µs.
pub(crate) const PROMOTED_AFTER: u64 = 500_000;

/// An old primary that goes on has heard of the new one after so long, in µs; answers until then may be its own.
const HEARD_AFTER: u64 = 1_000_000;

/// Who stayed from when to when, in the order of coming.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub(crate) name: String,
    pub(crate) id: String,
    pub(crate) token: u64,
    pub(crate) entered: u64,
    pub(crate) ended: u64,
    pub(crate) why: Why,
    /// Its places in the history.
    from: usize,
    to: usize,
}

impl Section {
    /// True where it was told that its lock is lost.
    pub(crate) fn is_lost(&self) -> bool {
        self.why != Why::Done
    }

    /// The process that it was in.
    pub(crate) fn process(&self) -> &str {
        self.id.split(':').next().unwrap_or_default()
    }
}

/// A primary that was away, or was asked to be no more.
#[derive(Clone, Debug)]
pub(crate) struct Failover {
    pub(crate) at: u64,
    /// No replica had taken its place before that: what was granted was granted by the old primary.
    pub(crate) promoted: u64,
    /// When the first sentinel told of it.
    pub(crate) switched: Option<u64>,
    /// When the old primary went on, as one; it may grant something before it hears of the new one.
    pub(crate) resumed: Option<u64>,
    pub(crate) slots: Vec<RangeInclusive<u16>>,
}

impl Failover {
    fn is_before_resumed(&self, section: &Section) -> bool {
        section.entered < self.resumed.unwrap_or(u64::MAX)
    }

    fn concerns(&self, name: &str) -> bool {
        let slot = slot_of(name);
        self.slots.iter().any(|range| range.contains(&slot))
    }
}

/// Two that were inside at once.
#[derive(Clone, Debug)]
pub(crate) struct Overlap {
    pub(crate) first: Section,
    pub(crate) second: Section,
    /// One of them has a number that was given out anew: a primary did not know of a grant.
    pub(crate) is_explained: bool,
    /// Whose grant the new primary does not know; either's where that cannot be told.
    pub(crate) strangers: Vec<Stranger>,
}

/// Somebody whose grant the new primary does not know.
#[derive(Clone, Debug)]
pub(crate) struct Stranger {
    pub(crate) section: Section,
    /// When the new primary first answered the process; None where it had not before the section ended.
    pub(crate) answered: Option<u64>,
    /// When it first answered anybody.
    pub(crate) answered_anybody: Option<u64>,
    /// When the first sentinel told of it, or this one came in, where that was later.
    pub(crate) switched: Option<u64>,
}

/// All who came, in their order.
pub(crate) fn sections(history: &[Event]) -> Vec<Section> {
    let mut all: Vec<Section> = Vec::new();
    let mut inside = HashMap::new();
    for (place, event) in history.iter().enumerate() {
        match event {
            Event::Enter { name, section, token, at, .. } => {
                inside.insert(section.clone(), all.len());
                let (name, id) = (name.clone(), section.clone());
                let (entered, ended) = (*at, u64::MAX);
                all.push(Section {
                    name,
                    id,
                    token: *token,
                    entered,
                    ended,
                    why: Why::Done,
                    from: place,
                    to: usize::MAX,
                });
            }
            Event::Leave { section, why, ended } => {
                let section = &mut all[inside.remove(section).expect("who leaves has come")];
                (section.why, section.ended, section.to) = (*why, *ended, place);
            }
        }
    }
    all
}

/// All who were inside at once with somebody who came later.
pub(crate) fn overlaps(sections: &[Section], failovers: &[Failover]) -> Vec<Overlap> {
    let mut names: HashMap<&str, Vec<&Section>> = HashMap::new();
    for section in sections {
        names.entry(&section.name).or_default().push(section);
    }
    let mut found = Vec::new();
    for same in names.values() {
        for (n, first) in same.iter().enumerate() {
            let behind = &same[n + 1..];
            for (m, second) in behind.iter().enumerate().take_while(|(_, second)| second.from < first.to) {
                let failover = failovers.iter().rfind(|one| one.at < second.entered && one.concerns(&first.name));
                // What a primary grants that knows of the first one has a larger number; and so has the first one, where its
                // primary knows of all before it.
                let is_anew = same[..n].iter().any(|earlier| earlier.token >= first.token);
                let is_known = !is_anew && behind[..=m].iter().all(|later| later.token > first.token);
                let is_explained = failover.is_some() && !is_known;
                let strangers = strangers(first, second, failover, sections);
                found.push(Overlap { first: (*first).clone(), second: (*second).clone(), is_explained, strangers });
            }
        }
    }
    found
}

/// Whose grant the new primary does not know, of two.
fn strangers(first: &Section, second: &Section, failover: Option<&Failover>, all: &[Section]) -> Vec<Stranger> {
    let Some(failover) = failover else { return Vec::new() };
    let from = failover.promoted;
    let is_before = |section: &Section| failover.is_before_resumed(section);
    // What was granted when the old primary was away was granted by the new one.
    let candidates = match (first.entered < from, is_before(first), is_before(second)) {
        (true, ..) => vec![first],
        (false, true, false) => vec![second],
        _ => vec![first, second],
    };
    candidates.into_iter().map(|section| stranger(section, failover, all)).collect()
}

/// When the new primary answered, by who came in there while this one was inside.
fn stranger(section: &Section, failover: &Failover, all: &[Section]) -> Stranger {
    let heard = failover.resumed.map_or(u64::MAX, |resumed| resumed + HEARD_AFTER);
    let is_new = |one: &Section| failover.is_before_resumed(one) || one.entered > heard;
    let there = |one: &&Section| one.entered > failover.promoted && is_new(one) && failover.concerns(&one.name);
    let answers = all.iter().filter(there).filter(|one| one.entered < section.ended);
    let answered = |own: bool| {
        let who = answers.clone().filter(|one| !own || one.process() == section.process());
        who.map(|one| one.entered.max(section.entered)).min()
    };
    let switched = failover.switched.map(|switched| switched.max(section.entered));
    Stranger { section: section.clone(), answered: answered(true), answered_anybody: answered(false), switched }
}

/// All who were told, behind a failover, that their locks are lost, whether or not somebody else was inside.
pub(crate) fn told(sections: &[Section], failovers: &[Failover]) -> Vec<Stranger> {
    let lost = sections.iter().filter(|section| section.is_lost());
    lost.filter_map(|section| {
        let failover = failovers.iter().rfind(|one| one.at < section.ended && one.concerns(&section.name))?;
        Some(stranger(section, failover, sections))
    })
    .collect()
}

/// How often a number came that was not larger than all before it.
pub(crate) fn repeated(history: &[Event]) -> usize {
    history.iter().filter(|event| matches!(event, Event::Enter { token, largest, .. } if token <= largest)).count()
}

#[test]
fn overlaps_are_found_and_explained_by_numbers_that_are_given_out_anew() {
    let enter = |name: &str, section: &str, token, at| {
        let (name, section) = (name.to_owned(), section.to_owned());
        Event::Enter { name, section, token, largest: 6, at }
    };
    let leave = |section: &str, ended| Event::Leave { section: section.to_owned(), why: Why::Gone, ended };
    let failover_of =
        |at, resumed| Failover { at, promoted: at + PROMOTED_AFTER, switched: None, resumed, slots: vec![0..=16_383] };
    let failover = |at| [failover_of(at, None)];
    let apart = [enter("x", "1:0", 7, 1), leave("1:0", 2), enter("x", "2:0", 8, 3), leave("2:0", 4)];
    assert!(overlaps(&sections(&apart), &failover(0)).is_empty());
    let others = [enter("x", "1:0", 7, 1), enter("y", "2:0", 8, 2), leave("1:0", 3), leave("2:0", 4)];
    assert!(overlaps(&sections(&others), &failover(0)).is_empty());

    let late = 2 * PROMOTED_AFTER;
    let together = |token| {
        let anew = [enter("y", "2:0", 1, late), enter("y", "1:1", 1, late + 3), enter("x", "2:1", token, late + 5)];
        let ends = [leave("1:0", late + 9), leave("2:1", late + 9), leave("1:1", late + 9), leave("2:0", late + 9)];
        [&[enter("x", "1:0", 7, 1)], &anew[..], &ends[..]].concat()
    };
    for (token, at, is_explained) in [(7, 2, true), (8, 2, false), (7, late + 7, false)] {
        let found = overlaps(&sections(&together(token)), &failover(at));
        let [both, x] = &found[..] else { panic!("{found:?}") };
        let (x, y) = if x.first.name == "x" { (x, both) } else { (both, x) };
        assert_eq!((x.is_explained, &*y.first.name), (is_explained, "y"), "{token} {at}");
        if at == 2 {
            let [stranger] = &x.strangers[..] else { panic!("{x:?}") };
            assert_eq!(
                (&*stranger.section.id, stranger.answered, stranger.answered_anybody),
                ("1:0", Some(late + 3), Some(late))
            );
        }
    }
    // Somebody else had the number in between, and has gone.
    let between = [enter("x", "1:0", 7, 1), enter("x", "3:0", 7, 5), leave("3:0", 6), enter("x", "2:0", 8, 8)];
    let found = overlaps(&sections(&between), &failover(2));
    assert!(found.len() == 2 && found.iter().all(|overlap| overlap.is_explained), "{found:?}");
    // The old primary goes on, and grants what the new one has granted.
    let stale =
        [enter("x", "1:0", 7, late), enter("x", "2:0", 7, late + 20), leave("2:0", late + 30), leave("1:0", late + 40)];
    let resumed = failover_of(2, Some(late + 10));
    let found = overlaps(&sections(&stale), &[resumed]);
    assert!(
        found[0].is_explained && found[0].strangers.len() == 1 && found[0].strangers[0].section.id == "2:0",
        "{found:?}"
    );
    let earlier = [enter("x", "3:0", 7, late - 5), leave("3:0", late - 4)];
    let growing = [enter("x", "1:0", 7, late + 20), enter("x", "2:0", 8, late + 21), leave("1:0", late + 30)];
    let growing_alone = overlaps(&sections(&growing), &failover(2));
    assert!(!growing_alone[0].is_explained, "{growing_alone:?}");
    let found = overlaps(&sections(&[&earlier[..], &growing[..]].concat()), &failover(2));
    assert!(found[0].is_explained, "{found:?}");
    assert_eq!(repeated(&[enter("x", "1:0", 6, 1), enter("x", "1:1", 7, 2)]), 1);
}
