//! The deadlines of a queue: how they are computed, and what moves them.

use super::{Alive, JAVA_LEASE, LONG, MS, Model, double, ours};

/// Minimum time in ms without a refresh before a waiter counts as dead. Waiters are refreshed at least every 2.7 s.
const SILENT: i64 = 4_000;

/// The time by which the Java waiters ahead will reduce the deadlines behind them.
#[derive(Default)]
struct Ahead {
    java: bool,
    /// Sum of the known waits.
    sum: i64,
    /// Lower and upper bound of the unknown waits.
    low: i64,
    high: i64,
    /// Possible reduction beyond their waits: a tiny wait in ms may really be in seconds.
    beyond: i64,
}

impl Ahead {
    /// Adds a waiter. `gap`: the distance to the deadline ahead of it. `left`: the rest of its own deadline.
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
    /// The time in 16ths of a second.
    fn tick(&self) -> i64 {
        self.now * 2 / 125
    }

    /// A deadline in whole ms, with the time when it was set as its fraction. The fraction is never 0. A deadline
    /// too far away has no fraction.
    fn stamped(&self, due: i64) -> i64 {
        let stamp = if due < MS << 42 { (self.tick() % 4096).max(1) } else { 0 };
        double(due.div_euclid(MS) * MS + stamp)
    }

    /// The rest of a deadline, in 4096ths of a ms.
    pub(super) fn until(&self, due: i64) -> i64 {
        due - self.now * MS
    }

    /// Whole ms until a waiter's deadline.
    pub fn ms_until(&self, owner: &str) -> Option<i64> {
        self.due.get(owner).map(|due| self.until(*due).div_euclid(MS))
    }

    /// The time for which a waiter of ours may still be silent.
    pub(super) fn life(&self, due: i64) -> i64 {
        if due % MS == 0 {
            return self.until(due);
        }
        let ticks = (self.tick() - due.rem_euclid(MS)).rem_euclid(4096);
        // A time in the future counts as now.
        let ticks = if ticks > 3072 { 0 } else { ticks };
        self.wait.max(SILENT) * MS - ticks * 125 * (MS / 2)
    }

    /// True for a far deadline of ours that does not encode when it was set.
    pub(super) fn is_vague(&self, owner: &str, due: i64) -> bool {
        ours(owner) && due % MS == 0 && self.until(due) > self.wait * MS
    }

    /// The deadline of a waiter of ours with this room.
    pub(super) fn deadline(&self, room: i64) -> i64 {
        self.stamped((self.now + self.wait) * MS + room)
    }

    /// The difference between the deadlines of a place and of the place ahead.
    pub(super) fn gap(&self, place: usize) -> Option<i64> {
        let ahead = self.queue.get(place.checked_sub(1)?).filter(|_| !self.is_told(place - 1))?;
        Some(self.due.get(&self.queue[place])? - self.due.get(ahead)?)
    }

    /// True for a Java head whose deadline was brought forward by a message. Its distance to the next deadline says
    /// nothing.
    pub fn is_told(&self, place: usize) -> bool {
        let near = |owner: &String| self.due.get(owner).is_some_and(|due| self.until(*due) <= self.grace * MS);
        place == 0 && self.queue.first().is_some_and(|owner| !ours(owner) && near(owner))
    }

    /// The room of a new waiter at the end of the queue.
    pub(super) fn room(&self) -> i64 {
        let (mut ahead, mut had) = (Ahead::default(), 0);
        for (place, owner) in self.queue.iter().enumerate() {
            let left = self.due.get(owner).map(|due| self.until(*due));
            let gap = self.gap(place);
            match left {
                _ if !ours(owner) => {
                    let left = left.filter(|_| !self.is_told(place));
                    let is_behind = place > 0 && self.is_told(place - 1);
                    ahead.add(gap, if is_behind { left.map(|left| left.min(LONG * MS)) } else { left });
                    had += gap.unwrap_or(0).max(0);
                }
                Some(left) => had = left - self.wait * MS,
                None => {}
            }
        }
        ahead.room(self.wait, Some(had))
    }

    /// The waiter ahead leaves: reduces the deadlines of Java's waiters from a place on, up to the first waiter of
    /// ours. The first deadline is not reduced below `least`, and the others by no more than the first. If the leaving
    /// waiter was the head with deadline `gone`, the first keeps at most its distance to `gone`, now counted from
    /// `least`.
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

    /// Removes a waiter, and returns its deadline.
    pub(super) fn remove(&mut self, owner: &str) -> Option<i64> {
        if let Some(place) = self.queue.iter().position(|other| other == owner) {
            self.queue.remove(place);
        }
        self.own.registered.remove(owner);
        self.due.remove(owner)
    }

    /// Removes a waiter because it gets the lock.
    pub(super) fn advance(&mut self, owner: &str) {
        let gone = self.remove(owner);
        self.nearer(0, self.wait * MS, Some((self.now + JAVA_LEASE) * MS), gone);
    }

    /// The end of the current lease.
    pub(super) fn lease_over(&self) -> i64 {
        (self.now + self.left().max(0)) * MS
    }

    /// True if all waiters in the queue are ours and wait for this lock.
    pub(super) fn only_ours(&self) -> bool {
        let places = [self.queue.len(), self.own.registered.len(), self.due.len()];
        places == [places[0]; 3]
    }

    /// The fast path of a refresh: if all waiters are ours, wait for this lock, live and need no room, sets the
    /// deadlines of those in `alive`. Returns which of them are in the queue, and for how many ms no deadline ends.
    pub(super) fn set_own(&mut self, alive: &[Alive]) -> Option<(Vec<String>, i64)> {
        let first = *self.due.values().min()?;
        let (last, last_owner) = self.due.iter().map(|(owner, due)| (*due, owner)).max()?;
        let looks = self.now % 16_000 < 4_000 || !ours(last_owner);
        let quick = !alive.is_empty()
            && self.only_ours()
            && first > self.now * MS
            // A deadline of Java does not encode when it was set.
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

    /// Sets the deadlines, and returns the owners in the queue.
    pub(super) fn set(&mut self, alive: &[Alive]) -> Vec<String> {
        let old = self.due.clone();
        let told = self.queue.first().filter(|_| self.is_told(0)).cloned();
        // The waits of Java ahead, the old deadline of the waiter ahead, and its new deadline or a replacement.
        let (mut java, mut was, mut ahead, mut is_behind) = (Ahead::default(), None, None, false);
        let mut standing: Vec<String> = Vec::new();
        for owner in self.queue.clone() {
            if standing.contains(&owner) {
                // If an owner is in the queue twice, the first place counts.
                let second = self.queue.iter().rposition(|other| *other == owner).unwrap();
                self.queue.remove(second);
                is_behind = false;
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
                    is_behind = false;
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
                    let left = due.filter(|_| told.as_ref() != Some(&owner)).map(|due| self.until(due));
                    java.add(gap, if is_behind { left.map(|left| left.min(LONG * MS)) } else { left });
                    match (gap, due, ahead) {
                        (Some(gap), _, Some(ahead)) => ahead + gap,
                        (_, Some(due), _) => due,
                        (_, None, Some(ahead)) => ahead + LONG * MS,
                        (_, None, None) => (self.now + self.wait) * MS,
                    }
                }
            };
            self.due.insert(owner.clone(), new);
            standing.push(owner.clone());
            is_behind = told.as_ref() == Some(&owner);
            (was, ahead) = (due.filter(|_| !is_behind), Some(new));
        }
        self.due.retain(|owner, _| standing.contains(owner));
        let known = |owner: &&String| ours(owner) || alive.iter().any(|one| one.owner == **owner);
        if self.own.registered.len() > standing.iter().filter(known).count() {
            self.own.registered.retain(|owner, _| standing.contains(owner));
        }
        standing
    }
}
