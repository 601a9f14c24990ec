//! The state of one read-write lock in Redis, with its expiries.

use std::collections::BTreeMap;
use std::fmt;

/// Two of ours and one of Java's.
pub const OWNERS: usize = 3;
pub const JAVA: usize = 2;

/// Largest difference between two readings of a clock in whole milliseconds.
const SLACK: i64 = 3;

/// A time in ms that lies between two bounds: when a command ran, or a time derived from that.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    pub lo: i64,
    pub hi: i64,
}

impl Span {
    pub const fn at(ms: i64) -> Self {
        Self { lo: ms, hi: ms }
    }

    pub const fn plus(self, other: Self) -> Self {
        Self { lo: self.lo + other.lo, hi: self.hi + other.hi }
    }

    pub fn max(self, other: Self) -> Self {
        Self { lo: self.lo.max(other.lo), hi: self.hi.max(other.hi) }
    }

    fn takes(self, seen: i64) -> bool {
        self.lo - SLACK <= seen && seen <= self.hi + SLACK
    }

    /// An expiry that a script read and set again at `t`: later by the time that the script was held up in between.
    pub const fn set_again(self, t: Self) -> Self {
        Self { lo: self.lo, hi: self.hi + t.hi - t.lo }
    }

    /// True if this is certainly before the other.
    pub const fn before(self, other: Self) -> bool {
        self.hi + SLACK < other.lo
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.lo)?;
        if self.hi > self.lo { write!(f, "+{}", self.hi - self.lo) } else { Ok(()) }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Half {
    Read,
    Write,
}

#[derive(Clone, Default, PartialEq)]
pub struct State {
    pub mode: Option<Half>,
    pub reads: [i64; OWNERS],
    pub writes: [i64; OWNERS],
    /// Expiry of the hash, if there is one.
    pub end: Span,
    /// By owner and number.
    pub covers: BTreeMap<(usize, i64), Span>,
    /// Other possible ends of a cover; `None` means that it may be missing. Either two times were too close to tell
    /// which is later, or the client did not know the server's time.
    pub either: Vec<((usize, i64), Option<Span>)>,
}

impl State {
    /// The longest cover of a reader; `None` if it is dead or does not read.
    pub fn covered(&self, who: usize) -> Option<Span> {
        (1..=self.reads[who]).filter_map(|n| self.covers.get(&(who, n)).copied()).reduce(Span::max)
    }

    /// The longest cover of any reader.
    pub fn live(&self) -> Option<Span> {
        (0..OWNERS).filter_map(|who| self.covered(who)).reduce(Span::max)
    }

    pub fn free(&mut self) {
        (self.mode, self.reads, self.writes, self.end) = (None, [0; OWNERS], [0; OWNERS], Span::default());
    }

    /// Removes what has expired.
    pub fn pass(&mut self, now: i64) {
        self.covers.retain(|_, end| end.hi > now);
        if self.mode.is_some() && self.end.hi <= now {
            self.free();
        }
    }

    pub fn ends(&self) -> impl Iterator<Item = Span> {
        self.covers.values().copied().chain(self.mode.map(|_| self.end))
    }

    /// Describes the first difference from the state that was seen.
    pub fn unlike(&self, seen: &Self) -> Option<String> {
        if (self.mode, self.reads, self.writes) != (seen.mode, seen.reads, seen.writes) {
            return Some("the fields".into());
        }
        if self.mode.is_some() && !self.end.takes(seen.end.lo) {
            return Some(format!("the end of the hash: {:?}, not {:?}", seen.end, self.end));
        }
        for key in self.covers.keys().chain(seen.covers.keys()) {
            let (end, seen) = (self.covers.get(key), seen.covers.get(key));
            let fits = |end: Option<&Span>| match (end, seen) {
                (Some(end), Some(seen)) => end.takes(seen.lo),
                (end, seen) => end == seen,
            };
            if !fits(end) && !self.either.iter().any(|(other, end)| other == key && fits(end.as_ref())) {
                return Some(format!("the end of cover {key:?}: {seen:?}, not {end:?}"));
            }
        }
        None
    }

    /// The same with every expiry widened by so many ms.
    pub fn widened(&self, by: i64) -> Self {
        let mut wide = self.clone();
        for end in wide.covers.values_mut().chain([&mut wide.end]) {
            *end = Span { lo: end.lo - by, hi: end.hi + by };
        }
        wide
    }

    /// The same with times relative to `zero`.
    pub fn since(&self, zero: i64) -> Self {
        let mut told = self.clone();
        let back = Span::at(-zero);
        for end in told.covers.values_mut() {
            *end = end.plus(back);
        }
        if told.mode.is_some() {
            told.end = told.end.plus(back);
        }
        told
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(mode) = self.mode else { return write!(f, "free {:?}", self.covers) };
        write!(f, "{mode:?} r{:?} w{:?} until {:?} {:?}", self.reads, self.writes, self.end, self.covers)?;
        if self.either.is_empty() { Ok(()) } else { write!(f, " or {:?}", self.either) }
    }
}
