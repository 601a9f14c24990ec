//! The deadlines of a queue: how they are reckoned, and what moves them.

use super::{Alive, JAVA_LEASE, LONG, MS, Model, double, ours};

/// A waiter is refreshed every 2.2 s at the least.
const SILENT: i64 = 4_000;

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

impl Model {
    /// 16ths of a second.
    fn tick(&self) -> i64 {
        self.now * 2 / 125
    }

    /// Whole milliseconds, and when that was said: never at 0. One that is too far away says nothing of that.
    fn stamped(&self, due: i64) -> i64 {
        let stamp = if due < MS << 42 { (self.tick() % 4096).max(1) } else { 0 };
        double(due.div_euclid(MS) * MS + stamp)
    }

    /// What is left until a deadline, in 4096ths too.
    pub(super) fn until(&self, due: i64) -> i64 {
        due - self.now * MS
    }

    /// Whole ms until the deadline of a waiter that has one.
    pub fn ms_until(&self, owner: &str) -> Option<i64> {
        self.due.get(owner).map(|due| self.until(*due).div_euclid(MS))
    }

    /// For how long one of ours may be silent still.
    pub(super) fn life(&self, due: i64) -> i64 {
        if due % MS == 0 {
            return self.until(due);
        }
        let ticks = (self.tick() - due.rem_euclid(MS)).rem_euclid(4096);
        // A time that seems to come is of now.
        let ticks = if ticks > 3072 { 0 } else { ticks };
        self.wait.max(SILENT) * MS - ticks * 125 * (MS / 2)
    }

    /// True of one of ours that says nothing of when it was set, and is far away.
    pub(super) fn is_vague(&self, owner: &str, due: i64) -> bool {
        ours(owner) && due % MS == 0 && self.until(due) > self.wait * MS
    }

    /// The deadline of one with so much room.
    pub(super) fn deadline(&self, room: i64) -> i64 {
        self.stamped((self.now + self.wait) * MS + room)
    }

    /// A place's deadline less that of the place ahead.
    pub(super) fn gap(&self, place: usize) -> Option<i64> {
        let ahead = self.queue.get(place.checked_sub(1)?)?;
        Some(self.due.get(&self.queue[place])? - self.due.get(ahead)?)
    }

    /// The room that one at the end of the queue needs.
    pub(super) fn room(&self) -> i64 {
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
    pub(super) fn nearer(&mut self, from: usize, by: i64, least: Option<i64>, gone: Option<i64>) {
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

    /// Takes a waiter out; its deadline.
    pub(super) fn remove(&mut self, owner: &str) -> Option<i64> {
        if let Some(place) = self.queue.iter().position(|other| other == owner) {
            self.queue.remove(place);
        }
        self.own.registered.remove(owner);
        self.due.remove(owner)
    }

    /// One that waits has the lock now.
    pub(super) fn advance(&mut self, owner: &str) {
        let gone = self.remove(owner);
        self.nearer(0, self.wait * MS, Some((self.now + JAVA_LEASE) * MS), gone);
    }

    /// When the lease of now is over.
    pub(super) fn lease_over(&self) -> i64 {
        (self.now + self.left().max(0)) * MS
    }

    /// True where all that have a place are waiters of ours for this lock.
    pub(super) fn only_ours(&self) -> bool {
        let places = [self.queue.len(), self.own.registered.len(), self.due.len()];
        places == [places[0]; 3]
    }

    /// Where all that wait are ours, wait for this lock, live and need no room: sets the deadlines of those who are alive. Who
    /// stands in the queue then, and for how many ms nobody's deadline ends.
    pub(super) fn set_own(&mut self, alive: &[Alive]) -> Option<(Vec<String>, i64)> {
        let first = *self.due.values().min()?;
        let (last, last_owner) = self.due.iter().map(|(owner, due)| (*due, owner)).max()?;
        let looks = self.now % 16_000 < 4_000 || !ours(last_owner);
        let quick = !alive.is_empty()
            && self.only_ours()
            && first > self.now * MS
            // One of Java's says nothing of when it was set.
            && first % MS != 0
            && !(looks && (last >= (self.now + self.wait + 1) * MS || last % MS == 0));
        quick.then(|| {
            let due = self.deadline(0);
            let there: Vec<_> =
                alive.iter().map(|one| one.owner.clone()).filter(|owner| self.due.contains_key(owner)).collect();
            for owner in &there {
                self.due.insert(owner.clone(), due);
            }
            (there, first / MS - self.now)
        })
    }

    /// Sets the deadlines; who stands in the queue then.
    pub(super) fn set(&mut self, alive: &[Alive]) -> Vec<String> {
        let old = self.due.clone();
        // The waits of Java ahead; the deadline of the one ahead as it was, and as it is or what stands for it.
        let (mut java, mut was, mut ahead) = (Ahead::default(), None, None);
        let mut standing: Vec<String> = Vec::new();
        for owner in self.queue.clone() {
            if standing.contains(&owner) {
                // Of an owner that stands twice, the first place counts.
                let second = self.queue.iter().rposition(|other| *other == owner).unwrap();
                self.queue.remove(second);
                continue;
            }
            let due = old.get(&owner).copied();
            let known = alive.iter().rev().find(|other| other.owner == owner);
            let new = match (known, due) {
                (None, Some(due)) if ours(&owner) && self.life(due) <= 0 => {
                    let place = self.queue.iter().position(|other| *other == owner).unwrap();
                    self.queue.remove(place);
                    self.own.registered.remove(&owner);
                    (was, ahead) = (Some(due), ahead.or_else(|| Some(self.lease_over())));
                    continue;
                }
                (None, Some(due)) if !java.java && self.is_vague(&owner, due) => self.deadline(0),
                (None, Some(due)) if ours(&owner) => due,
                (Some(Alive { last: last @ 1.., .. }), Some(due)) => {
                    let had = (due.div_euclid(MS) - last - self.wait) * MS;
                    self.deadline(java.room(self.wait, Some(had)))
                }
                (known, due) if known.is_some() || (ours(&owner) && due.is_none()) => {
                    self.deadline(java.room(self.wait, None))
                }
                (_, due) => {
                    let gap = due.zip(was).map(|(due, was)| due - was);
                    java.add(gap, due.map(|due| self.until(due)));
                    match (gap, due, ahead) {
                        (Some(gap), _, Some(ahead)) => ahead + gap,
                        (_, Some(due), _) => due,
                        (_, None, Some(ahead)) => ahead + LONG * MS,
                        (_, None, None) => (self.now + self.wait) * MS,
                    }
                }
            };
            self.due.insert(owner.clone(), new);
            standing.push(owner);
            (was, ahead) = (due, Some(new));
        }
        self.due.retain(|owner, _| standing.contains(owner));
        let known = |owner: &&String| ours(owner) || alive.iter().any(|one| one.owner == **owner);
        if self.own.registered.len() > standing.iter().filter(known).count() {
            self.own.registered.retain(|owner, _| standing.contains(owner));
        }
        standing
    }
}
