//! The data on the screen of `top`, without a terminal and without servers.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::keys::{Found, Language};

/// At most this many locks are kept in memory.
pub const MOST: usize = 10_000;
/// The rate of changes is an average over this many looks.
const LOOKS: usize = 10;

/// A lock.
#[derive(Clone, Debug)]
pub struct Row {
    pub name: String,
    /// The lock when it was last seen held.
    pub found: Found,
    /// When that was.
    pub seen: Instant,
    /// When this holder was first seen.
    since: Instant,
    /// Looks in a row that found the lock free.
    pub free: usize,
    /// Changes of holder between two looks. Only locks on the screen are looked at, so the list is empty for others.
    looks: VecDeque<(Instant, i64)>,
    /// The pass of the scan that last found the lock.
    pass: u64,
}

impl Row {
    fn new(found: Found, prefix: &str, pass: u64, now: Instant) -> Self {
        let name = found.name(prefix);
        Self { name, found, seen: now, since: now, free: 0, looks: VecDeque::new(), pass }
    }

    /// The rest of the lease in ms, counted down since the last look. `None` = no end.
    pub fn ttl(&self, now: Instant) -> Option<i64> {
        self.found.ttl.map(|ms| (ms - millis(now - self.seen)).max(0))
    }

    /// Time in ms since this holder was first seen. It may have held the lock before.
    pub fn age(&self, now: Instant) -> i64 {
        millis(now - self.since)
    }

    /// Changes of holder per second. For fenced locks, the fencing counter shows every change. For other locks, at most
    /// one change for each look counts.
    pub fn rate(&self, now: Instant) -> f64 {
        let Some((first, _)) = self.looks.front() else { return 0.0 };
        let changes: i64 = self.looks.iter().skip(1).map(|(_, changes)| changes).sum();
        let seconds = (now - *first).as_secs_f64();
        if seconds > 0.0 { changes as f64 / seconds } else { 0.0 }
    }

    pub fn language(&self) -> Option<Language> {
        self.found.language()
    }

    /// Notes that the lock was found held. Returns the number of changes since it was last seen.
    fn update(&mut self, found: Found, now: Instant) -> i64 {
        let acquires = match (self.found.number, found.number) {
            (Some(before), Some(after)) if found.holder.is_some() => (after - before).max(0),
            _ => 0,
        };
        let is_other = self.found.holder != found.holder;
        if is_other {
            self.since = now;
        }
        (self.found, self.seen, self.free) = (found, now, 0);
        acquires.max(i64::from(is_other))
    }

    fn note(&mut self, changes: i64, now: Instant) {
        self.looks.push_back((now, changes));
        if self.looks.len() > LOOKS {
            self.looks.pop_front();
        }
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// The order of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    Waiters,
    Changes,
    Age,
    Lease,
    Name,
}

impl Sort {
    const fn next(self) -> Self {
        match self {
            Self::Waiters => Self::Changes,
            Self::Changes => Self::Age,
            Self::Age => Self::Lease,
            Self::Lease => Self::Name,
            Self::Name => Self::Waiters,
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiters => "waiters",
            Self::Changes => "changes",
            Self::Age => "age",
            Self::Lease => "lease",
            Self::Name => "name",
        }
    }
}

/// Everything that the screen shows.
#[derive(Debug)]
pub struct Model {
    prefix: String,
    rows: HashMap<Bytes, Row>,
    pub sort: Sort,
    pub filter: String,
    /// True while the user types the filter.
    pub is_typing: bool,
    offset: usize,
    /// Number of rows that the screen has room for.
    height: usize,
    pass: u64,
    /// When this pass of the scan began.
    began: Instant,
    /// Number of keys in this pass of the scan so far.
    pub looked: u64,
    /// Number of keys in the last whole pass.
    pub keys: Option<u64>,
    /// True if locks were left out, because [`MOST`] are known.
    pub left_out: bool,
    /// Why the last look failed.
    pub error: Option<String>,
}

impl Model {
    pub fn new(prefix: &str, now: Instant) -> Self {
        Self {
            prefix: prefix.to_owned(),
            rows: HashMap::new(),
            sort: Sort::Waiters,
            filter: String::new(),
            is_typing: false,
            offset: 0,
            height: 0,
            pass: 1,
            began: now,
            looked: 0,
            keys: None,
            left_out: false,
            error: None,
        }
    }

    /// A page of the scan: `looked` keys, and these locks among them.
    pub fn scanned(&mut self, found: Vec<Found>, looked: u64, now: Instant) {
        self.error = None;
        self.looked += looked;
        for lock in found {
            let (pass, is_full) = (self.pass, self.rows.len() >= MOST);
            if let Some(row) = self.rows.get_mut(&lock.key) {
                row.pass = pass;
                // Counted with the last look, because the next look will find the row up to date.
                let changes = row.update(lock, now);
                if let Some(last) = row.looks.back_mut() {
                    last.1 += changes;
                }
            } else if is_full {
                self.left_out = true;
            } else {
                self.rows.insert(lock.key.clone(), Row::new(lock, &self.prefix, pass, now));
            }
        }
    }

    /// The scan has seen all keys once. Locks that nothing has seen held since the pass began are forgotten, except
    /// locks on the screen: [`looked_at`](Self::looked_at) forgets these.
    pub fn pass_ended(&mut self, now: Instant) {
        let (pass, began) = (self.pass, self.began);
        self.rows.retain(|_, row| {
            let is_on_screen = row.looks.back().is_some_and(|(at, _)| *at >= began);
            row.pass == pass || row.seen >= began || is_on_screen
        });
        (self.keys, self.looked, self.pass, self.began) = (Some(self.looked), 0, pass + 1, now);
        self.left_out &= self.rows.len() >= MOST;
    }

    /// A look at these keys found these locks held.
    pub fn looked_at(&mut self, keys: &[Bytes], found: Vec<Found>, now: Instant) {
        self.error = None;
        let mut held: HashMap<Bytes, Found> = found.into_iter().map(|lock| (lock.key.clone(), lock)).collect();
        for key in keys {
            let Some(row) = self.rows.get_mut(key) else { continue };
            let changes = match held.remove(key) {
                Some(lock) => row.update(lock, now),
                None => {
                    row.free += 1;
                    0
                }
            };
            row.note(changes, now);
            if row.free > LOOKS {
                self.rows.remove(key);
            }
        }
    }

    /// The rows on the screen, in order.
    pub fn visible(&self, now: Instant) -> Vec<&Row> {
        let mut rows: Vec<&Row> = self.rows.values().filter(|row| row.name.contains(&self.filter)).collect();
        rows.sort_by(|one, other| {
            let by_name = || one.name.cmp(&other.name);
            let by = |key: &dyn Fn(&Row) -> i64| Reverse(key(one)).cmp(&Reverse(key(other))).then_with(by_name);
            match self.sort {
                Sort::Waiters => by(&|row| row.found.waiters),
                Sort::Changes => other.rate(now).total_cmp(&one.rate(now)).then_with(by_name),
                Sort::Age => by(&|row| row.age(now)),
                // The lease that ends first.
                Sort::Lease => by(&|row| -row.ttl(now).unwrap_or(i64::MAX)),
                Sort::Name => by_name(),
            }
        });
        rows.into_iter().skip(self.offset).take(self.height).collect()
    }

    /// The keys of the rows on the screen.
    pub fn on_screen(&self, now: Instant) -> Vec<Bytes> {
        self.visible(now).into_iter().map(|row| row.found.key.clone()).collect()
    }

    /// Number of known locks, and of locks that match the filter.
    pub fn sizes(&self) -> (usize, usize) {
        (self.rows.len(), self.rows.values().filter(|row| row.name.contains(&self.filter)).count())
    }

    /// Sets how many rows the screen has room for.
    pub fn resize(&mut self, height: usize) {
        self.height = height;
        self.scroll(0);
    }

    /// Moves the window over the rows.
    pub fn scroll(&mut self, rows: isize) {
        let last = self.sizes().1.saturating_sub(self.height);
        self.offset = self.offset.saturating_add_signed(rows).min(last);
    }

    /// Moves the window by whole screens.
    pub fn page(&mut self, pages: isize) {
        self.scroll(pages * isize::try_from(self.height).unwrap_or(0));
    }

    pub fn next_sort(&mut self) {
        (self.sort, self.offset) = (self.sort.next(), 0);
    }

    /// Changes the filter: adds this letter, or removes the last one.
    pub fn type_letter(&mut self, letter: Option<char>) {
        match letter {
            Some(letter) => self.filter.push(letter),
            None => {
                self.filter.pop();
            }
        }
        self.offset = 0;
    }
}
