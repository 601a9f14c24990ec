//! The queue as the protocol describes it, in plain Rust.

mod holds;
mod java;

use std::collections::BTreeMap;

pub use holds::Hold;

/// Redisson's wait of one that has none of its own.
pub const LONG: i64 = 300_000;

/// Deadlines are in 4096ths of a millisecond: a score of the servers has no finer ones, and none of it is lost.
pub const MS: i64 = 4096;

/// What a lock that was just taken may be held for.
pub const JAVA_LEASE: i64 = 30_000;

/// Registered waiters outlive their last refresh by so much.
const REGISTERED: i64 = 60_000;

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

/// An acquire.
#[derive(Clone, Debug)]
pub struct Ask {
    pub owner: String,
    pub lease: i64,
    /// '' = the only one that this owner will ever have.
    pub hold: String,
    /// A hold that must be there still; '' = none.
    pub earlier: String,
    /// Its last moment; 0 = none.
    pub last: i64,
    pub alone: bool,
    pub turn: u8,
    pub nonce: String,
}

/// A release; as part of leaving, too.
#[derive(Clone, Debug)]
pub struct Give {
    pub owner: String,
    pub hold: String,
    pub lease: i64,
    /// How many holds the caller has left; -1 = unknown.
    pub mine: i64,
}

/// A waiter of ours that is named in a refresh.
#[derive(Clone, Debug)]
pub struct Alive {
    pub owner: String,
    /// The time of its last answer; 0 = none.
    pub last: i64,
    pub nonce: String,
}

/// What a lock has to itself: the other names with its queue have their own.
#[derive(Clone, Debug, Default)]
pub struct Own {
    pub hold: Option<Hold>,
    /// The waiters of ours, and what they are registered by.
    pub registered: BTreeMap<String, String>,
    /// When that is over.
    forgotten: i64,
}

#[derive(Clone, Debug)]
pub struct Model {
    pub now: i64,
    pub wait: i64,
    pub first_lease: i64,
    /// The lock.
    pub own: Own,
    /// Another one with the same queue.
    pub twin: Own,
    pub queue: Vec<String>,
    /// In 4096ths of a ms, like all that is reckoned with them.
    pub due: BTreeMap<String, i64>,
    /// Whom the last act told what.
    said: Vec<(String, String)>,
}

/// As the servers' texts are read: what is a number is one.
pub fn word(text: &str) -> Reply {
    text.parse().map_or_else(|_| Reply::Text(text.into()), Int)
}

impl Own {
    fn pass(&mut self, now: i64) {
        self.hold.take_if(|hold| hold.end <= now);
        if self.forgotten <= now {
            self.registered.clear();
        }
    }

    /// The hash, what is left of it, and the waiters with what is left of those.
    fn state(&self, now: i64) -> [Reply; 4] {
        let hash = self.hold.iter().flat_map(|hold| {
            let list = hold.list().map(|list| [word(&format!("{}:holds", hold.owner)), word(&list)]);
            [word(&hold.owner), Int(hold.count)].into_iter().chain(list.into_iter().flatten())
        });
        let waiters = self.registered.iter().flat_map(|(owner, nonce)| [word(owner), word(nonce)]).collect();
        let kept = if self.registered.is_empty() { -2 } else { self.forgotten - now };
        [List(hash.collect()), Int(self.left(now)), List(waiters), Int(kept)]
    }

    fn left(&self, now: i64) -> i64 {
        self.hold.as_ref().map_or(-2, |hold| hold.end - now)
    }

    fn mine(&mut self, owner: &str) -> Option<&mut Hold> {
        self.hold.as_mut().filter(|hold| hold.owner == owner)
    }
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
        Self {
            now,
            wait,
            first_lease,
            own: Own::default(),
            twin: Own::default(),
            queue: Vec::new(),
            due: BTreeMap::new(),
            said: Vec::new(),
        }
    }

    pub fn left(&self) -> i64 {
        self.own.left(self.now)
    }

    /// What this owner has.
    pub fn held(&self, owner: &str) -> Option<&Hold> {
        self.own.hold.as_ref().filter(|hold| hold.owner == owner)
    }

    pub fn holds(&self, owner: &str) -> i64 {
        self.held(owner).map_or(0, |hold| hold.count)
    }

    /// All there is, and who was told what, as the servers tell it.
    pub fn state(&self) -> Reply {
        let queue = self.queue.iter().map(|owner| word(owner)).collect();
        let due = self.due.iter().flat_map(|(owner, due)| [word(owner), Int(*due)]).collect();
        let said = self.said.iter().flat_map(|(owner, message)| [word(owner), word(message)]).collect();
        let locks = [&self.own, &self.twin].into_iter().flat_map(|own| own.state(self.now));
        List([List(queue), List(due), List(said)].into_iter().chain(locks).collect())
    }

    pub fn pass(&mut self, ms: i64) {
        self.now += ms;
        self.own.pass(self.now);
        self.twin.pass(self.now);
        self.said.clear();
    }

    /// One act, at the lock or at its twin.
    pub fn act(&mut self, twin: bool, act: impl FnOnce(&mut Self) -> Reply) -> Reply {
        self.said.clear();
        self.swap(twin);
        let reply = act(self);
        self.due.values_mut().for_each(|due| *due = double(*due));
        self.swap(twin);
        reply
    }

    /// Which lock it is that things are done to.
    pub fn swap(&mut self, twin: bool) {
        if twin {
            std::mem::swap(&mut self.own, &mut self.twin);
        }
    }

    fn tell(&mut self, owner: &str, message: impl Into<String>) {
        self.said.push((owner.into(), message.into()));
    }

    pub fn register(&mut self, owner: &str, nonce: &str) {
        self.own.registered.insert(owner.into(), nonce.into());
        self.own.forgotten = self.now + REGISTERED;
    }

    /// Where one of ours is known by something else already, that stays.
    fn register_anew(&mut self, owner: &str, nonce: &str) {
        if !self.own.registered.contains_key(owner) {
            self.register(owner, nonce);
        }
    }

    /// The answer to what comes after its last moment.
    fn too_late(&self, last: i64) -> Option<Reply> {
        (last != 0 && self.now > last).then(|| List(vec![Int(-7), Int(self.now)]))
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

    /// Takes a waiter out; its deadline.
    fn remove(&mut self, owner: &str) -> Option<i64> {
        if let Some(place) = self.queue.iter().position(|other| other == owner) {
            self.queue.remove(place);
        }
        self.own.registered.remove(owner);
        self.due.remove(owner)
    }

    /// One that waits has the lock now.
    fn advance(&mut self, owner: &str) {
        let gone = self.remove(owner);
        self.nearer(0, self.wait * MS, Some((self.now + JAVA_LEASE) * MS), gone);
    }

    /// When the lease of now is over.
    fn lease_over(&self) -> i64 {
        (self.now + self.left().max(0)) * MS
    }

    /// The first that waits for this lock, once those out of date and the dead are gone.
    fn head(&mut self) -> Option<String> {
        let mut from = 0;
        while let Some(owner) = self.queue.get(from).cloned() {
            let short = self.deadline(0);
            let due = *self.due.entry(owner.clone()).or_insert(short);
            if self.until(due) <= 0 || (ours(&owner) && self.life(due) <= 0) {
                let gone = self.remove(&owner);
                if ours(&owner) && from == 0 {
                    self.nearer(0, 0, Some(self.lease_over()), gone);
                }
                self.tell(&owner, "0");
            } else if ours(&owner) && !self.own.registered.contains_key(&owner) {
                from += 1;
            } else {
                return Some(owner);
            }
        }
        if from == 0 {
            self.due.clear();
            self.own.registered.clear();
        }
        None
    }

    /// The free lock goes to a head that is registered, for no longer than it may live, and the message says what it is
    /// registered by; any other is told only. Whether anybody is there.
    fn serve(&mut self) -> bool {
        let Some(owner) = self.head() else { return false };
        let Some(nonce) = self.own.registered.get(&owner).cloned() else {
            self.tell(&owner, "0");
            return true;
        };
        let due = self.due[&owner];
        // Java's deadlines do not say when they were set.
        let most = if ours(&owner) { self.until(due).min(self.life(due)) } else { self.until(due) }.div_euclid(MS);
        let lease = self.first_lease.min(most.max(1));
        self.advance(&owner);
        // The rig tells what is left in steps of 100 ms.
        let end = self.now + (lease + 99) / 100 * 100;
        self.own.hold = Some(Hold::first(&owner, nonce.strip_prefix('!').unwrap_or_default(), end));
        self.tell(&owner, format!("{lease} {nonce}"));
        true
    }

    fn busy(&self) -> Reply {
        List(vec![Int(self.left()), Int(self.now)])
    }

    pub fn acquire(&mut self, ask: &Ask) -> Reply {
        if let Some(late) = self.too_late(ask.last).filter(|_| !ask.hold.is_empty()) {
            return late;
        }
        let owner = ask.owner.as_str();
        let (end, now, first_lease) = (self.now + ask.lease, self.now, self.first_lease);
        if let Some(hold) = self.own.mine(owner) {
            let counted = hold.counted(&ask.hold);
            if ask.turn == 2 && ask.hold.is_empty() && !hold.has("-") {
                // Given back since: what there is was taken later.
                return Int(-4);
            }
            if counted && ask.turn == 2 {
                // Its first lease becomes its own, longer, or once shorter; a longer promise stands.
                let first = ask.lease < first_lease && hold.confirm(&ask.hold);
                if hold.end < end || first && hold.end - now <= first_lease && hold.count == 1 {
                    hold.end = end;
                }
                return Int(-2);
            }
            if !counted {
                if ask.alone {
                    return Int(-6);
                }
                if !hold.has(&ask.earlier) {
                    return Int(-3);
                }
                hold.add(&ask.hold);
            }
            hold.end = hold.end.max(end);
            return Nil;
        }
        if !ask.earlier.is_empty() {
            return Int(-3);
        }
        let elsewhere = ask.turn != 2 && ours(owner) && !self.own.registered.contains_key(owner);
        let first = match self.queue.first() {
            Some(first) if first != owner || elsewhere => self.head(),
            first => first.cloned(),
        };
        if self.own.hold.is_none() {
            let mine = first.as_deref() == Some(owner);
            if mine || (first.is_none() && ask.turn != 2) {
                if mine {
                    self.advance(owner);
                }
                self.own.hold = Some(Hold::first(owner, &ask.hold, end));
                return Nil;
            }
            if first.is_some() {
                self.serve();
            }
        }
        if ask.turn == 2 && !self.due.contains_key(owner) {
            if !self.stands(owner) {
                if self.own.registered.get(owner) == Some(&ask.nonce) {
                    self.own.registered.remove(owner);
                }
                return Int(-4);
            }
            self.due.insert(owner.into(), self.deadline(self.room()));
        }
        if let Some(late) = self.too_late(ask.last).filter(|_| ask.turn == 1) {
            return late;
        }
        if ask.turn == 1 && !self.due.contains_key(owner) {
            let crowded = self.queue.last().is_some_and(|last| {
                // Behind one of ours that needs no room nobody does.
                !ours(last) || self.due.get(last).is_some_and(|due| self.until(*due) >= (self.wait + 1) * MS)
            });
            let room = if crowded { self.room() } else { 0 };
            self.due.insert(owner.into(), self.deadline(room));
            self.queue.push(owner.into());
        }
        if ask.turn > 0 {
            self.register_anew(owner, &ask.nonce);
        }
        self.busy()
    }

    fn stands(&self, owner: &str) -> bool {
        self.queue.iter().any(|other| other == owner)
    }

    /// Gives back what is named, if it is there: how many are left.
    fn give(&mut self, give: &Give) -> Option<i64> {
        let now = self.now;
        let hold = self.own.mine(&give.owner)?;
        let mut rest = hold.without(&give.hold)?;
        let left = rest.count;
        if left == 0 {
            self.own.hold = None;
        } else {
            // Where others hold as this owner no lease becomes shorter.
            let end = now + give.lease;
            rest.end = rest.end.max(end);
            *hold = rest;
        }
        Some(left)
    }

    pub fn release(&mut self, give: &Give, last: i64) -> Reply {
        let waited = !self.queue.is_empty();
        if let Some(hold) = self.own.hold.as_ref().filter(|hold| hold.owner == give.owner && give.hold == "*") {
            if let Some(id) = hold.which() {
                return List(vec![Int(-8), word(id)]);
            }
            if let Some(late) = self.too_late(last) {
                return late;
            }
        }
        match self.own.hold.as_ref().map(|hold| (hold.owner.clone(), hold.count)) {
            None => {
                if waited {
                    self.serve();
                }
                Nil
            }
            Some((owner, _)) if owner != give.owner => word(&owner),
            Some((_, count)) => {
                let Some(left) = self.give(give) else { return List(vec![Int(-2), Int(count)]) };
                let served = i64::from(left == 0 && waited && self.serve());
                Int(if left > 0 { left } else { -served })
            }
        }
    }

    pub fn force(&mut self, last: i64) -> Reply {
        if let Some(late) = self.too_late(last) {
            return late;
        }
        let held = self.own.hold.take().is_some();
        if !self.queue.is_empty() {
            self.serve();
        }
        Int(held.into())
    }

    pub fn leave(&mut self, give: &Give, nonce: &str) -> Reply {
        let owner = give.owner.as_str();
        let mut reply = self.give(give).map_or(Nil, Int);
        if self.own.registered.get(owner).is_some_and(|other| other == nonce) {
            while let Some(place) = self.queue.iter().rposition(|other| other == owner) {
                let by = if place == 0 { Some(self.wait * MS) } else { self.gap(place) };
                let least = (place == 0).then(|| self.lease_over());
                self.queue.remove(place);
                let gone = self.due.get(owner).copied().filter(|_| place == 0);
                self.nearer(place, by.unwrap_or(0), least, gone);
            }
            self.due.remove(owner);
            self.own.registered.remove(owner);
        }
        if self.queue.is_empty() {
            self.due.clear();
            self.own.registered.clear();
        } else if self.own.hold.is_none() && self.serve() && reply == Int(0) {
            reply = Int(-1);
        }
        reply
    }

    /// Sets the deadlines; who stands in the queue then.
    fn set(&mut self, alive: &[Alive]) -> Vec<String> {
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
        standing
    }

    /// `alive`: the waiters that it names.
    pub fn refresh(&mut self, alive: &[Alive]) -> Reply {
        let standing = self.set(alive);
        for one in alive.iter().filter(|one| standing.contains(&one.owner)) {
            self.register_anew(&one.owner, &one.nonce);
        }
        if !alive.is_empty() {
            self.own.forgotten = self.now + REGISTERED;
        }
        self.head();
        let left = self.left();
        let served = self.own.hold.is_none() && self.serve();
        let mut out = vec![Int(self.now), Int(served.into()), Int(left)];
        out.extend(alive.iter().map(|one| match self.own.hold.as_ref().filter(|hold| hold.owner == one.owner) {
            None => Int(standing.contains(&one.owner).into()),
            // Others may be in as its owner.
            Some(hold) => {
                let id = one.nonce.split_once(['!', '=']).map_or("-", |(_, id)| id);
                Int(if hold.has(id) { self.left().max(2) } else { 0 })
            }
        }));
        List(out)
    }
}
