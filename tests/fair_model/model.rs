//! The queue as the protocol describes it, in plain Rust.

mod java;

use std::collections::BTreeMap;

/// Redisson's wait of one that has none of its own.
pub const LONG: i64 = 300_000;

/// Deadlines are in 4096ths of a millisecond: a score of the servers has no finer ones, and none of it is lost.
pub const MS: i64 = 4096;

/// What a lock that was just taken may be held for.
pub const JAVA_LEASE: i64 = 30_000;

/// A waiter is refreshed once a second.
const SILENT: i64 = 4_000;

#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Nil,
    Int(i64),
    Text(String),
    List(Vec<Reply>),
}

use Reply::{Int, List, Nil};

#[derive(Clone, Debug, PartialEq)]
pub struct Hold {
    pub owner: String,
    pub count: i64,
    pub end: i64,
}

#[derive(Clone, Debug)]
pub struct Model {
    pub now: i64,
    pub wait: i64,
    pub first_lease: i64,
    pub hold: Option<Hold>,
    pub queue: Vec<String>,
    /// In 4096ths of a ms, like all that is reckoned with them.
    pub due: BTreeMap<String, i64>,
}

pub fn ours(owner: &str) -> bool {
    owner.as_bytes().get(14) == Some(&b'8')
}

/// What those of Java ahead will take off those behind them.
#[derive(Default)]
struct Ahead {
    java: bool,
    /// The waits that can be told.
    sum: i64,
    /// What the others may be, from and to.
    low: i64,
    high: i64,
    /// What they may take off beyond their waits: a tiny one may be of seconds.
    beyond: i64,
}

impl Ahead {
    /// One more. `gap`: to the one ahead of it.
    fn add(&mut self, gap: Option<i64>, left: Option<i64>) {
        const MOST: i64 = LONG * MS;
        self.java = true;
        match (gap, left) {
            (Some(gap @ 0..), _) => {
                self.sum += gap;
                self.beyond += if gap < 1000 * MS { gap * 1000 } else { 0 };
            }
            (Some(_), _) => {
                self.high += MOST;
                self.beyond += JAVA_LEASE * MS;
            }
            (None, left) => {
                let low = match left {
                    Some(left) if left > MOST / 2 && left < MOST + 2 * JAVA_LEASE * MS => MOST,
                    Some(left) => left.max(0),
                    None => MOST,
                };
                self.beyond += if low < (JAVA_LEASE + 1000) * MS { JAVA_LEASE * MS } else { 0 };
                self.low += low;
                self.high += low.max(MOST);
            }
        }
    }

    fn room(&self, wait: i64, had: Option<i64>) -> i64 {
        if !self.java {
            return 0;
        }
        let unknown = (had.unwrap_or(0) - self.sum).max(self.low).min(self.high);
        let beyond = self.beyond.min((JAVA_LEASE - wait) * MS);
        (self.sum + unknown.max(beyond)).max(SILENT / 2 * MS)
    }
}

/// Scores are doubles: those beyond 2^41 ms, which only what somebody spoilt comes to, lose what is finest.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
fn double(due: i64) -> i64 {
    due as f64 as i64
}

impl Model {
    pub fn new(now: i64, wait: i64, first_lease: i64) -> Self {
        Self { now, wait, first_lease, hold: None, queue: Vec::new(), due: BTreeMap::new() }
    }

    pub fn left(&self) -> i64 {
        self.hold.as_ref().map_or(-2, |hold| hold.end - self.now)
    }

    pub fn holds(&self, owner: &str) -> i64 {
        self.hold.as_ref().filter(|hold| hold.owner == owner).map_or(0, |hold| hold.count)
    }

    /// All there is, as the servers tell it.
    pub fn state(&self) -> Reply {
        let text = |owner: &String| Reply::Text(owner.clone());
        let hash = self.hold.iter().flat_map(|hold| [text(&hold.owner), Int(hold.count)]).collect();
        let due = self.due.iter().flat_map(|(owner, due)| [text(owner), Int(*due)]).collect();
        List(vec![List(hash), Int(self.left()), List(self.queue.iter().map(text).collect()), List(due)])
    }

    pub fn pass(&mut self, ms: i64) {
        self.now += ms;
        self.hold.take_if(|hold| hold.end <= self.now);
    }

    /// 16ths of a second.
    fn tick(&self) -> i64 {
        self.now * 2 / 125
    }

    /// Whole milliseconds, and when that was said.
    fn stamped(&self, due: i64) -> i64 {
        double(due.div_euclid(MS) * MS + self.tick() % 4096)
    }

    /// What is left until a deadline, in 4096ths too.
    fn until(&self, due: i64) -> i64 {
        due - self.now * MS
    }

    pub fn round(&mut self) {
        self.due.values_mut().for_each(|due| *due = double(*due));
    }

    /// Whole ms until the deadline of a waiter that has one.
    pub fn ms_until(&self, owner: &str) -> Option<i64> {
        self.due.get(owner).map(|due| self.until(*due).div_euclid(MS))
    }

    /// For how long one of ours may be silent still.
    fn life(&self, due: i64) -> i64 {
        let ticks = (self.tick() - due.rem_euclid(MS)).rem_euclid(4096);
        // A time that seems to come is of now.
        let ticks = if ticks > 3072 { 0 } else { ticks };
        self.wait.max(SILENT) * MS - ticks * 125 * (MS / 2)
    }

    /// The deadline of one with so much room.
    fn deadline(&self, room: i64) -> i64 {
        self.stamped((self.now + self.wait) * MS + room)
    }

    /// A place's deadline less that of the place ahead.
    fn gap(&self, place: usize) -> Option<i64> {
        let ahead = self.queue.get(place.checked_sub(1)?)?;
        Some(self.due.get(&self.queue[place])? - self.due.get(ahead)?)
    }

    /// The room that one at the end of the queue needs.
    fn room(&self) -> i64 {
        let (mut ahead, mut had) = (Ahead::default(), 0);
        for (place, owner) in self.queue.iter().enumerate() {
            let left = self.due.get(owner).map(|due| self.until(*due));
            let gap = self.gap(place);
            match left {
                _ if !ours(owner) => {
                    ahead.add(gap, left);
                    had += gap.unwrap_or(0).max(0);
                }
                Some(left) => had = left - self.wait * MS,
                None => {}
            }
        }
        ahead.room(self.wait, Some(had))
    }

    /// Java's waiters from a place on, up to one of ours, move by what the one ahead of them took with it; the first is
    /// not moved below `least`, nor any other more than it. Where that one was the head, the first is moved to as far from
    /// `least` as it was from it, at the furthest.
    fn nearer(&mut self, from: usize, by: i64, least: Option<i64>, gone: Option<i64>) {
        let (mut by, mut least, mut gone) = (by, least, gone);
        for owner in self.queue.iter().skip(from).take_while(|owner| !ours(owner)) {
            if let Some(due) = self.due.get_mut(owner) {
                if let (Some(least), Some(gone)) = (least, gone.take()) {
                    by = by.max(*due - least - (*due - gone).max(0));
                }
                by = least.take().map_or(by, |least| by.min(*due - least));
                *due -= by;
            }
        }
    }

    /// Its deadline.
    fn drop_head(&mut self) -> Option<i64> {
        let owner = self.queue.remove(0);
        self.due.remove(&owner)
    }

    /// The head has the lock now.
    fn advance(&mut self) {
        let gone = self.drop_head();
        self.nearer(0, self.wait * MS, Some((self.now + JAVA_LEASE) * MS), gone);
    }

    /// When the lease of now is over.
    fn lease_over(&self) -> i64 {
        (self.now + self.left().max(0)) * MS
    }

    /// The head once those out of date and the dead are gone.
    fn head(&mut self) -> Option<String> {
        while let Some(owner) = self.queue.first().cloned() {
            match self.due.get(&owner) {
                Some(due) if self.until(*due) <= 0 || (ours(&owner) && self.life(*due) <= 0) => {
                    let gone = self.drop_head();
                    if ours(&owner) {
                        self.nearer(0, 0, Some(self.lease_over()), gone);
                    }
                }
                Some(_) => return Some(owner),
                None => {
                    self.due.insert(owner.clone(), self.deadline(0));
                    return Some(owner);
                }
            }
        }
        self.due.clear();
        None
    }

    /// The free lock goes to a head of ours, for no longer than it may live; one of Java's is told only. Whether anybody
    /// is there.
    fn serve(&mut self) -> bool {
        let Some(owner) = self.head() else { return false };
        if ours(&owner) {
            let due = self.due[&owner];
            let most = self.until(due).min(self.life(due)) / MS;
            let lease = self.first_lease.min(most).max(1);
            self.advance();
            // The rig tells what is left in steps of 100 ms.
            self.hold = Some(Hold { owner, count: 1, end: self.now + (lease + 99) / 100 * 100 });
        }
        true
    }

    fn busy(&self) -> Reply {
        List(vec![Int(self.left()), Int(self.now)])
    }

    pub fn acquire(&mut self, owner: &str, lease: i64, want: i64, turn: u8) -> Reply {
        let (end, now) = (self.now + lease, self.now);
        if let Some(hold) = self.hold.as_mut().filter(|hold| hold.owner == owner) {
            if turn == 2 && want <= 1 {
                // Its first lease becomes its own, longer or shorter; a longer promise stands.
                if hold.end < end || hold.end - now <= self.first_lease {
                    hold.end = end;
                }
                return Int(-2);
            }
            hold.count = if want == 0 { hold.count + 1 } else { want };
            hold.end = hold.end.max(end);
            return Nil;
        }
        if want > 1 {
            return Int(-3);
        }
        let first = match self.queue.first() {
            Some(first) if first != owner => self.head(),
            first => first.cloned(),
        };
        if self.hold.is_none() {
            let mine = first.as_deref() == Some(owner);
            if mine || (first.is_none() && turn != 2) {
                if mine {
                    self.advance();
                }
                self.hold = Some(Hold { owner: owner.into(), count: 1, end });
                return Nil;
            }
            if first.is_some() {
                self.serve();
            }
        }
        if turn == 2 && !self.due.contains_key(owner) {
            if !self.queue.iter().any(|other| other == owner) {
                return Int(-4);
            }
            self.due.insert(owner.into(), self.deadline(self.room()));
        }
        if turn == 1 && !self.due.contains_key(owner) {
            let crowded = self.queue.last().is_some_and(|last| {
                // Behind one of ours that needs no room nobody does.
                !ours(last) || self.due.get(last).is_some_and(|due| self.until(*due) >= (self.wait + 1) * MS)
            });
            let room = if crowded { self.room() } else { 0 };
            self.due.insert(owner.into(), self.deadline(room));
            self.queue.push(owner.into());
        }
        self.busy()
    }

    pub fn release(&mut self, owner: &str, left: i64, lease: i64) -> Reply {
        let waited = !self.queue.is_empty();
        let Some(hold) = &mut self.hold else {
            if waited {
                self.serve();
            }
            return Nil;
        };
        if hold.owner != owner {
            return Reply::Text(hold.owner.clone());
        }
        let left = if left < 0 { hold.count - 1 } else { left };
        if left > 0 {
            (hold.count, hold.end) = (left, self.now + lease);
            return Int(left);
        }
        self.hold = None;
        Int(if waited && self.serve() { -1 } else { 0 })
    }

    pub fn force(&mut self) -> Reply {
        let held = self.hold.take().is_some();
        if !self.queue.is_empty() {
            self.serve();
        }
        Int(held.into())
    }

    pub fn leave(&mut self, owner: &str, most: i64, lease: i64) -> Reply {
        let mut reply = Nil;
        if most >= 0 && self.holds(owner) > most {
            match &mut self.hold {
                Some(hold) if most > 0 => (hold.count, hold.end) = (most, self.now + lease),
                hold => *hold = None,
            }
            reply = Int(most);
        }
        let waited = !self.queue.is_empty();
        while let Some(place) = self.queue.iter().rposition(|other| other == owner) {
            let by = if place == 0 { Some(self.wait * MS) } else { self.gap(place) };
            let least = (place == 0).then(|| self.lease_over());
            self.queue.remove(place);
            let gone = self.due.get(owner).copied().filter(|_| place == 0);
            self.nearer(place, by.unwrap_or(0), least, gone);
        }
        self.due.remove(owner);
        if waited && self.hold.is_none() {
            if self.serve() && reply == Int(0) {
                reply = Int(-1);
            }
        } else if waited && self.queue.is_empty() {
            self.due.clear();
        }
        reply
    }

    /// `alive`: waiters, each with the time of its last answer (0: none).
    pub fn refresh(&mut self, alive: &[(String, i64)]) -> Reply {
        let old = self.due.clone();
        // Of an owner that stands twice, the first place counts.
        let mut seen = Vec::new();
        self.queue.retain(|owner| {
            let first = !seen.contains(owner);
            seen.push(owner.clone());
            first
        });
        // The waits of Java ahead; the deadline of the one ahead that stays, or of what stands for it.
        let (mut java, mut ahead) = (Ahead::default(), None);
        let mut dead = Vec::new();
        for (place, owner) in self.queue.iter().enumerate() {
            let due = old.get(owner).copied();
            let gap = place.checked_sub(1).and_then(|before| Some(due? - old.get(&self.queue[before])?));
            let new = if ours(owner) {
                match (alive.iter().rev().find(|(other, _)| other == owner), due) {
                    (None, Some(due)) if self.life(due) <= 0 => {
                        dead.push(owner.clone());
                        ahead = ahead.or_else(|| Some(self.lease_over()));
                        continue;
                    }
                    (None, Some(due)) => due,
                    (Some((_, last @ 1..)), Some(due)) => {
                        let had = (due.div_euclid(MS) - last - self.wait) * MS;
                        self.deadline(java.room(self.wait, Some(had)))
                    }
                    (_, _) => self.deadline(java.room(self.wait, None)),
                }
            } else {
                java.add(gap, due.map(|due| self.until(due)));
                match (gap, due, ahead) {
                    (Some(gap), _, Some(ahead)) => ahead + gap,
                    (_, Some(due), _) => due,
                    (_, None, Some(ahead)) => ahead + LONG * MS,
                    (_, None, None) => (self.now + self.wait) * MS,
                }
            };
            if Some(new) != due {
                self.due.insert(owner.clone(), new);
            }
            ahead = Some(new);
        }
        self.queue.retain(|owner| !dead.contains(owner));
        let standing = self.queue.clone();
        self.due.retain(|owner, _| standing.contains(owner));
        self.head();
        let left = self.left();
        let served = self.hold.is_none() && self.serve();
        let mut out = vec![Int(self.now), Int(served.into()), Int(left)];
        out.extend(alive.iter().map(|(owner, _)| match self.holds(owner) {
            0 => Int(standing.contains(owner).into()),
            _ => Int(self.left().max(2)),
        }));
        List(out)
    }
}
