//! The end of a sequence: every live waiter gets the lock, and nothing is left.

use std::collections::BTreeSet;

use super::acts::give;
use super::{GIVEN, JAVA, LEASE, OURS, STRANGERS, Story};

impl Story<'_> {
    pub(super) fn end(&mut self) {
        let mut left: BTreeSet<_> =
            OURS.iter().flatten().copied().filter(|owner| self.waiting.contains_key(owner)).collect();
        // All other waiters die.
        self.waiting.retain(|owner, _| OURS.as_flattened().contains(owner));
        for _ in 0..2 {
            self.refresh_ours();
            let standing: BTreeSet<&String> = self.model.queue.iter().collect();
            let scored: BTreeSet<&String> = self.model.due.keys().collect();
            if standing != scored {
                self.fail("queue and deadlines differ after a refresh");
            }
        }
        for _ in 0..60 {
            if let Some(hold) = self.model.own.hold.clone() {
                left.remove(hold.owner.as_str());
                match JAVA.iter().find(|owner| **owner == hold.owner) {
                    Some(owner) => drop(self.java("unlock", owner, 30_000, 0)),
                    None => self.release_any(&hold.owner),
                }
            }
            if left.is_empty() && self.model.own.hold.is_none() {
                break;
            }
            for owner in left.clone() {
                if !self.model.stands(owner) && self.model.holds(owner) == 0 {
                    let ask = self.ask(owner, 30_000, String::new(), 1);
                    self.acquire(owner, ask);
                }
            }
            // The places of heads that never retry expire.
            let head = self.model.queue.first().cloned();
            if let Some(head) = head.filter(|_| self.model.own.hold.is_none()) {
                match JAVA.iter().find(|owner| **owner == head && self.java_waiting.contains_key(**owner)) {
                    Some(owner) => self.java_long(owner, 30_000),
                    None => self.shift(self.model.ms_until(&head).unwrap().max(0) / 100 * 100 + 100),
                }
            }
            self.refresh_ours();
        }
        if !left.is_empty() {
            self.fail(&format!("{left:?} never had the lock"));
        }
    }

    /// Releases any hold of an owner.
    fn release_any(&mut self, owner: &str) {
        let holds = [&self.model.own.hold, &self.model.twin.hold];
        let hold = holds.into_iter().flatten().find(|hold| hold.owner == owner);
        let words = hold.and_then(|hold| hold.which()).unwrap_or("*").to_owned();
        self.release(&give(owner, &words, 30_000), 0);
    }

    /// True if nobody holds the lock or waits for it.
    fn over(&self) -> bool {
        let own = &self.model.own;
        self.model.queue.is_empty() && own.hold.is_none() && own.registered.is_empty()
    }

    pub(super) fn leave_all(&mut self) {
        let is_dead = |owner: &str| !self.waiting.contains_key(owner) && !self.java_waiting.contains_key(owner);
        let someone_dead = self.model.queue.iter().any(|owner| is_dead(owner));
        for owner in [OURS.as_flattened(), STRANGERS.as_flattened(), &[GIVEN]].concat() {
            self.give_up(owner, 30_000);
            while self.model.holds(owner) > 0 || self.model.twin.hold.as_ref().is_some_and(|hold| hold.owner == owner) {
                self.release_any(owner);
            }
        }
        for owner in JAVA {
            if let Some((_, wait)) = self.java_waiting.get(owner).copied() {
                self.java("fail", owner, 30_000, wait);
            }
            while self.model.holds(owner) > 0 {
                self.java("unlock", owner, 30_000, 0);
            }
        }
        if someone_dead || self.spoilt || !self.over() {
            for _ in 0..50 {
                let last = self.model.due.keys().filter_map(|owner| self.model.ms_until(owner)).max();
                self.shift(last.unwrap_or(0).max(LEASE) / 100 * 100 + 100);
                self.refresh_ours();
                if self.over() {
                    break;
                }
            }
        }
        if !(self.over() && self.model.due.is_empty()) {
            self.fail("something is left behind");
        }
    }
}
