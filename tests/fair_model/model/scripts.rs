//! The behaviour of our scripts.

use super::Reply::{self, Int, List, Nil};
use super::{Alive, Ask, Give, Hold, MS, Model, REGISTERED, ours, word};

/// The id in a registration; None if its hold is not listed.
fn listed(nonce: &str) -> Option<&str> {
    nonce.split_once(['!', '=']).map(|(_, id)| id)
}

/// True if other tasks may hold the lock as the owner of this registration.
pub fn is_shared(nonce: &str) -> bool {
    nonce.is_empty() || listed(nonce).is_some()
}

/// An acquire by the owner that holds the lock.
fn acquire_again(hold: &mut Hold, ask: &Ask, now: i64, first_lease: i64) -> Reply {
    let end = now + ask.lease;
    let counted = hold.counted(&ask.hold);
    if ask.turn == 2 && ask.hold.is_empty() && !hold.has("-") {
        // The hold was released in between. The existing holds were acquired later.
        return Int(-4);
    }
    if counted && ask.turn == 2 {
        // A longer lease always replaces the first lease, a shorter lease only once. Holds with a longer lease keep it.
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
    Nil
}

impl Model {
    /// The first waiter for this lock, after expired and dead waiters are removed.
    fn head(&mut self) -> Option<String> {
        let mut from = 0;
        while let Some(owner) = self.queue.get(from).cloned() {
            let short = self.deadline(0);
            let due = self.due.get(&owner).copied().filter(|due| !self.is_vague(&owner, *due)).unwrap_or(short);
            self.due.insert(owner.clone(), due);
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

    /// Serves the head of a free lock. A registered head gets the lock, for at most its remaining life, and a message
    /// with its registration. A Java head gets a message, and its deadline becomes the grace time. Returns 0 if there
    /// is no head, 2 if the head must acquire within the grace time, and otherwise 1.
    fn serve(&mut self) -> i64 {
        let Some(owner) = self.head() else { return 0 };
        let due = self.due[&owner];
        let Some(nonce) = self.own.registered.get(&owner).cloned() else {
            self.tell(&owner, "0");
            if self.queue.first() == Some(&owner) {
                self.due.insert(owner, due.min((self.now + self.grace) * MS));
            }
            return 2;
        };
        let must_confirm = !self.only_ours() || self.absent.contains(&owner);
        // Java's deadlines do not show when they were set.
        let most = if ours(&owner) { self.until(due).min(self.life(due)) } else { self.until(due) }.div_euclid(MS);
        let lease = if must_confirm { self.first_lease.min(self.grace) } else { self.first_lease }.min(most.max(1));
        self.advance(&owner);
        // The rig reads leases in steps of 100 ms.
        let end = self.now + (lease + 99) / 100 * 100;
        self.own.hold = Some(Hold::first(&owner, listed(&nonce).unwrap_or_default(), end));
        self.tell(&owner, format!("{lease} {nonce}"));
        if must_confirm { 2 } else { 1 }
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
            return acquire_again(hold, ask, now, first_lease);
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
        self.join_queue(ask)
    }

    /// The rest of a refused acquire: its place in the queue, and its registration.
    fn join_queue(&mut self, ask: &Ask) -> Reply {
        let owner = ask.owner.as_str();
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
                // Behind a waiter of ours without room, no room is needed.
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

    pub fn stands(&self, owner: &str) -> bool {
        self.queue.iter().any(|other| other == owner)
    }

    /// Releases the named holds that exist, and returns the number of remaining holds. `mine`: the caller's remaining
    /// holds. The caller's lease applies only if no other holds remain. With '' it never applies.
    fn give(&mut self, give: &Give, mine: &str) -> Option<i64> {
        let now = self.now;
        let hold = self.own.mine(&give.owner)?;
        let mut rest = hold.without(&give.hold)?;
        let left = rest.count;
        if left == 0 {
            self.own.hold = None;
        } else {
            // If other tasks hold the lock as this owner, the lease is not shortened.
            let end = now + give.lease;
            let decides = !mine.is_empty() && rest.are_all(mine);
            rest.end = if decides { end } else { rest.end.max(end) };
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
                let mine = if self.too_late(last).is_some() { "" } else { &give.mine };
                let Some(left) = self.give(give, mine) else { return List(vec![Int(-2), Int(count)]) };
                Int(if left > 0 || !waited { left } else { -self.serve() })
            }
        }
    }

    pub fn force(&mut self, last: i64) -> Reply {
        if let Some(late) = self.too_late(last) {
            return late;
        }
        let held = self.own.hold.take().is_some();
        let served = if self.queue.is_empty() { 0 } else { self.serve() };
        if served > 0 { List(vec![Int(held.into()), Int(served)]) } else { Int(held.into()) }
    }

    pub fn leave(&mut self, give: &Give, nonce: &str) -> Reply {
        let owner = give.owner.as_str();
        let mut reply = self.give(give, "").map_or(Nil, Int);
        if self.own.registered.get(owner).is_some_and(|other| other == nonce) {
            let only_ours = self.only_ours();
            while let Some(place) = self.queue.iter().rposition(|other| other == owner) {
                let by = if place == 0 { Some(self.wait * MS) } else { self.gap(place) };
                let least = (place == 0).then(|| self.lease_over());
                self.queue.remove(place);
                if only_ours {
                    continue;
                }
                let gone = self.due.get(owner).copied().filter(|_| place == 0);
                self.nearer(place, by.unwrap_or(0), least, gone);
            }
            self.due.remove(owner);
            self.own.registered.remove(owner);
        }
        if self.queue.is_empty() {
            self.due.clear();
            self.own.registered.clear();
        } else if self.own.hold.is_none() {
            let served = self.serve();
            if reply == Int(0) || reply == Nil && served > 0 {
                reply = Int(-served);
            }
        }
        reply
    }

    /// `alive`: the waiters in the refresh.
    pub fn refresh(&mut self, alive: &[Alive]) -> Reply {
        let own = self.set_own(alive);
        let reads_all = own.is_none();
        let (standing, quiet) = own.unwrap_or_else(|| (self.set(alive), 0));
        if reads_all || self.now % 16_000 < 4_000 {
            for one in alive.iter().filter(|one| standing.contains(&one.owner)) {
                self.register_anew(&one.owner, &one.nonce);
            }
            if !alive.is_empty() {
                self.own.forgotten = self.now + REGISTERED;
            }
        }
        if reads_all {
            self.head();
        }
        let left = self.left();
        let served = if self.own.hold.is_none() { self.serve() } else { 0 };
        let mut out = vec![Int(self.now), Int(served), Int(left), Int(quiet)];
        let is_shared = alive.iter().any(|one| is_shared(&one.nonce));
        if !reads_all && standing.len() == alive.len() && served == 0 && !is_shared {
            out.push(Int(1));
            return List(out);
        }
        let each = alive.iter().map(|one| match self.own.hold.as_ref().filter(|hold| hold.owner == one.owner) {
            None => Int(standing.contains(&one.owner).into()),
            // Other tasks may hold the lock as this owner.
            Some(hold) => Int(if hold.has(listed(&one.nonce).unwrap_or("-")) { self.left().max(2) } else { 0 }),
        });
        out.push(List(each.collect()));
        List(out)
    }
}
