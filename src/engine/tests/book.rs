//! Compares a book (the record of one hold's guards and leases) with a simple model, over random histories.

use std::collections::BTreeMap;

use distlock_support::Numbers;

use crate::engine::ledger::{Book, Cap, End};

const WATCHDOG: u64 = 30_000;

#[derive(Clone, Copy, Debug)]
enum Event {
    Open { now: u64, id: u32, lease: Option<u64>, until: u64 },
    Close { id: u32 },
    Renewed { now: u64, until: u64 },
    Rearmed { now: u64, sent: u64 },
    Extended { now: u64, id: u32, lease: u64, until: u64 },
    Capped { id: u32, until: u64 },
    Uncapped { now: u64, id: u32 },
    Ended { end: End },
    CountedDown,
}

/// The model's state after a history: the lease, end and cap of each guard, and the end of the watchdog's lease
/// (`watched`).
#[derive(Default)]
struct Reading {
    guards: BTreeMap<u32, (Option<u64>, u64, u64)>,
    watched: u64,
    count: u32,
    tenure: u32,
    end: Option<End>,
    lost: Vec<u32>,
}

impl Reading {
    fn of(history: &[Event]) -> Self {
        let mut reading = Self::default();
        for event in history {
            reading.read(*event);
        }
        reading
    }

    fn is_watched(&self) -> bool {
        self.end.is_none() && self.guards.values().any(|(lease, ..)| lease.is_none())
    }

    fn end(&mut self, end: End) {
        if self.end.is_none() {
            self.end = Some(end);
            self.lost = self.guards.keys().copied().collect();
        }
    }

    fn read(&mut self, event: Event) {
        match event {
            Event::Open { now, id, lease, until } => {
                self.tenure += u32::from(self.count == 0);
                self.count += 1;
                if lease.is_none() {
                    let watched = self.watched;
                    let over = self.guards.values_mut().filter(|(lease, ..)| lease.is_none() && watched <= now);
                    over.for_each(|(.., cap)| *cap = (*cap).min(watched));
                }
                self.guards.insert(id, (lease, until, u64::MAX));
                if lease.is_none() {
                    self.watched = self.watched.max(until);
                }
            }
            Event::Close { id } => drop(self.guards.remove(&id)),
            Event::Renewed { now, until } if self.is_watched() => {
                if now < self.watched {
                    self.watched = self.watched.max(until);
                } else {
                    self.end(End::Expired);
                }
            }
            Event::Renewed { .. } => {}
            Event::Rearmed { now, sent } => {
                if self.is_watched() && self.watched > now {
                    self.watched = self.watched.max(sent + WATCHDOG);
                }
                for (lease, until, _) in self.guards.values_mut().filter(|(_, until, _)| *until > now) {
                    *until = (*until).max(lease.map_or(0, |lease| sent + lease));
                }
            }
            Event::Extended { now, id, lease, until } if self.until(id).is_some_and(|until| until > now) => {
                self.guards.entry(id).and_modify(|guard| *guard = (Some(lease), until, u64::MAX));
            }
            Event::Extended { .. } => {}
            Event::Capped { id, until } => {
                self.guards.entry(id).and_modify(|(.., cap)| *cap = (*cap).min(until));
            }
            Event::Uncapped { now, id } => {
                self.guards.entry(id).and_modify(|(.., cap)| {
                    if *cap > now {
                        *cap = u64::MAX;
                    }
                });
            }
            Event::Ended { end } => self.end(end),
            Event::CountedDown => self.count = self.count.saturating_sub(1),
        }
    }

    fn until(&self, id: u32) -> Option<u64> {
        let (lease, until, cap) = self.guards.get(&id).filter(|_| self.end.is_none())?;
        Some(if lease.is_none() { self.watched } else { *until }.min(*cap))
    }

    fn latest(&self, but: Option<u32>) -> u64 {
        let others = self.guards.iter().filter(|(id, _)| Some(**id) != but);
        others.map(|(_, (lease, until, _))| if lease.is_none() { self.watched } else { *until }).max().unwrap_or(0)
    }
}

/// The random choices for one change.
struct Chance {
    before: Reading,
    now: u64,
    /// The send time of the command whose reply arrives now.
    sent: u64,
    id: u32,
    lease: u64,
}

impl Chance {
    /// Draws a guard, the time of its command, and a lease.
    fn draw(history: &[Event], dice: &mut Numbers, now: u64) -> Self {
        let before = Reading::of(history);
        let sent = now.saturating_sub(dice.below(2_000));
        let id = before.guards.len().checked_sub(1).map(|last| dice.below(last as u64 + 1) as usize);
        let id = id.and_then(|nth| before.guards.keys().nth(nth).copied()).unwrap_or(99);
        let lease = [5, 1_000, 60_000][dice.below(3) as usize];
        Self { before, now, sent, id, lease }
    }

    /// Makes a random change to the book. Returns `None` if nothing changed.
    fn change(&self, book: &mut Book, dice: &mut Numbers) -> Option<Event> {
        let &Self { ref before, now, sent, id, lease } = self;
        Some(match dice.below(12) {
            0..=2 => self.open(book, dice),
            3 | 4 => {
                assert_eq!(book.close(id).is_some(), before.guards.contains_key(&id));
                Event::Close { id }
            }
            5 | 6 => {
                let in_time = book.renewed(now, sent, sent + WATCHDOG);
                assert_eq!(in_time, !before.is_watched() || now < before.watched);
                if !in_time {
                    book.finish(End::Expired);
                }
                Event::Renewed { now, until: sent + WATCHDOG }
            }
            7 => {
                book.rearmed(now, sent, |lease| sent + lease, WATCHDOG);
                Event::Rearmed { now, sent }
            }
            8 => {
                let held = before.until(id).is_some_and(|until| until > now);
                assert_eq!(book.extended(now, id, lease, sent + lease), held);
                Event::Extended { now, id, lease, until: sent + lease }
            }
            9 => {
                book.capped(id, Cap { until: sent + lease, lease });
                Event::Capped { id, until: sent + lease }
            }
            10 if dice.below(2) == 0 => {
                book.uncapped(now, id, Cap::NONE);
                Event::Uncapped { now, id }
            }
            10 if dice.below(4) == 0 => {
                let end = [End::Expired, End::Gone, End::Closed][dice.below(3) as usize];
                assert_eq!(book.finish(end), before.end.is_none() && !before.guards.is_empty());
                Event::Ended { end }
            }
            10 => return self.refute(book, dice),
            _ => {
                assert_eq!(book.counted_down(before.tenure), before.count <= 1);
                Event::CountedDown
            }
        })
    }

    /// Opens a guard with the drawn lease, or with the watchdog's.
    fn open(&self, book: &mut Book, dice: &mut Numbers) -> Event {
        let &Self { ref before, now, sent, .. } = self;
        let lease = (dice.below(2) == 0).then_some(self.lease);
        let until = sent + lease.unwrap_or(WATCHDOG);
        let id = book.open(now, 0, lease, sent, until);
        assert!(!before.guards.contains_key(&id));
        Event::Open { now, id, lease, until }
    }

    /// Reports the answer "not held" about this tenure or the previous one. A tenure is the time from an owner's first
    /// hold to its last release.
    fn refute(&self, book: &mut Book, dice: &mut Numbers) -> Option<Event> {
        let before = &self.before;
        let tenure = before.tenure.saturating_sub(dice.below(4).min(1) as u32);
        let news = book.refuted(tenure);
        assert_eq!(news, tenure == before.tenure && before.end.is_none() && !before.guards.is_empty());
        news.then_some(Event::Ended { end: End::Gone })
    }
}

/// Makes a random change to the book, and records it.
fn step(book: &mut Book, history: &mut Vec<Event>, dice: &mut Numbers, now: &mut u64) {
    *now += [0, 1, 900, 11_000, 40_000][dice.below(5) as usize];
    let chance = Chance::draw(history, dice, *now);
    history.extend(chance.change(book, dice));
}

fn agree(book: &Book, history: &[Event]) {
    let reading = Reading::of(history);
    assert_eq!((book.count(), book.tenure(), book.end()), (reading.count, reading.tenure, reading.end));
    assert_eq!((book.is_idle(), book.is_watched()), (reading.guards.is_empty(), reading.is_watched()));
    assert_eq!((book.watched(), book.until_all()), (reading.watched, reading.latest(None)));
    let leases = reading.guards.values().map(|(lease, ..)| lease.unwrap_or(WATCHDOG));
    assert_eq!(book.lease_left(WATCHDOG), leases.max().unwrap_or(WATCHDOG));
    let opened = history.iter().filter(|event| matches!(event, Event::Open { .. })).count();
    for id in 0..=opened as u32 {
        assert_eq!(book.until(id), reading.until(id), "guard {id}");
        assert_eq!(book.until_others(id), reading.latest(Some(id)));
        assert_eq!(book.lease(id), reading.guards.get(&id).and_then(|(lease, ..)| *lease));
        assert_eq!(book.end_of(id), reading.end.filter(|_| reading.lost.contains(&id)));
    }
}

/// Invariants of one step that do not need the model.
fn follows(event: Event, now: u64, before: &[Option<u64>], book: &Book) {
    for (id, before) in (0..).zip(before) {
        let after = book.until(id);
        let lowered = matches!(event, Event::Extended { id: of, .. } | Event::Capped { id: of, .. } if of == id);
        match (before, after) {
            (None, Some(_)) => assert!(matches!(event, Event::Open { id: new, .. } if new == id), "guard {id} revived"),
            (Some(before), Some(after)) => {
                assert!(after >= *before || lowered, "guard {id} shortened");
                assert!(after <= *before || *before > now, "guard {id} revived");
            }
            (_, None) => {}
        }
    }
}

#[test]
fn book_agrees_with_model_over_random_histories() {
    let mut ended = [0_u32; 3];
    for seed in 0..1_000 {
        let (mut book, mut history, mut dice, mut now) = (Book::default(), Vec::new(), Numbers::new(seed), 100_000);
        for _ in 0..40 {
            let before: Vec<_> = (0..41).map(|id| book.until(id)).collect();
            let known = history.len();
            let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                step(&mut book, &mut history, &mut dice, &mut now);
                if let Some(event) = history.get(known) {
                    follows(*event, now, &before, &book);
                }
                agree(&book, &history);
            }));
            assert!(checked.is_ok(), "seed {seed}, at {now}: {history:#?}");
        }
        if let Some(end) = book.end() {
            ended[end as usize] += 1;
        }
    }
    // The histories contain every kind of end.
    assert!(ended.iter().all(|count| *count > 30) && ended.iter().sum::<u32>() < 970, "{ended:?}");
}

#[test]
fn released_guard_is_not_lost_and_expired_hold_is_not_renewed() {
    let mut book = Book::default();
    let (released, kept) = (book.open(0, 1, None, 0, 100), book.open(0, 2, None, 0, 100));
    assert!(book.close(released).is_some() && book.close(released).is_none());
    assert!(!book.renewed(100, 99, 199), "at the very end it is over");
    assert_eq!(book.lose_over(99), [0_u64; 0]);
    assert_eq!(book.lose_over(100), [2]);
    assert!(!book.finish(End::Expired), "told already");
    assert_eq!((book.until(kept), book.end_of(kept), book.end_of(released)), (None, Some(End::Expired), None));
    assert!(book.renewed(100, 99, 199), "not watched any more, so there is nothing to be late for");
    assert_eq!(book.until(kept), None);
    assert!(!book.finish(End::Gone), "the first end is the end");
    assert_eq!(book.end(), Some(End::Expired));
}

#[test]
fn reply_applies_only_to_the_tenure_of_its_command() {
    let mut book = Book::default();
    let first = book.open(0, 1, None, 0, 100);
    let asked = book.tenure();
    book.close(first);
    assert!(!book.is_refuted());
    assert!(!book.refuted(asked), "being released: no news to anybody");
    assert!(book.is_refuted(), "but nothing to hand over");
    assert!(book.counted_down(asked));
    let second = book.open(50, 1, None, 50, 150);
    assert!(!book.refuted(asked) && !book.is_refuted());
    assert!(!book.counted_down(asked), "nor does a release of then count down what was acquired since");
    assert_eq!((book.until(second), book.count()), (Some(150), 1));
    // A re-entry and a hand-over do not begin a new tenure.
    let asked = book.tenure();
    let third = book.open(60, 2, Some(10), 60, 70);
    book.close(second);
    assert!(!book.counted_down(asked));
    assert!(book.refuted(asked));
    assert_eq!((book.end_of(third), book.end_of(second)), (Some(End::Gone), None));
}
