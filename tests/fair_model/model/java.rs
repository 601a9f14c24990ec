//! Redisson's behaviour, as in `java.lua`.

use super::Reply::{self, Int, Nil};
use super::{Hold, MS, Model};

impl Model {
    fn java_purge(&mut self) {
        while self.queue.first().and_then(|owner| self.due.get(owner)).is_some_and(|due| *due <= self.now * MS) {
            // Redisson does not know our registrations.
            let owner = self.queue.remove(0);
            self.due.remove(&owner);
        }
    }

    /// An attempt of Java, which queues if it is `long`.
    pub fn java_try(&mut self, owner: &str, lease: i64, wait: i64, long: bool) -> Reply {
        self.java_purge();
        let end = self.now + lease;
        if self.own.hold.is_none() && self.queue.first().is_none_or(|first| first == owner) {
            if !self.queue.is_empty() {
                self.queue.remove(0);
            }
            self.due.remove(owner);
            self.due.values_mut().for_each(|due| *due -= wait * MS);
            self.own.hold = Some(Hold::first(owner, "", end));
            return Nil;
        }
        if let Some(hold) = self.own.mine(owner) {
            (hold.count, hold.end) = (hold.count + 1, end);
            return Nil;
        }
        if !long {
            return Int(1);
        }
        if self.due.contains_key(owner) {
            return Int(self.left().max(0));
        }
        let last = self.queue.last().filter(|last| *last != owner).and_then(|last| self.due.get(last));
        let left = last.map_or(self.left() * MS, |due| self.until(*due));
        self.due.insert(owner.into(), left + (wait + self.now) * MS);
        self.queue.push(owner.into());
        // Redis truncates numbers in replies towards zero.
        Int(left / MS)
    }

    pub fn java_unlock(&mut self, owner: &str, lease: i64) -> Reply {
        self.java_purge();
        match &mut self.own.hold {
            Some(hold) if hold.owner != owner => return Nil,
            Some(hold) if hold.count > 1 => {
                // Redisson ignores the listed ids.
                (hold.count, hold.end) = (hold.count - 1, self.now + lease);
                return Int(0);
            }
            hold => *hold = None,
        }
        if let Some(first) = self.queue.first().cloned() {
            self.tell(&first, "0");
        }
        Int(1)
    }

    pub fn java_fail(&mut self, owner: &str, wait: i64) -> Reply {
        let place = self.queue.iter().position(|other| other == owner).unwrap_or(self.queue.len());
        for other in self.queue.iter().skip(place + 1) {
            *self.due.entry(other.clone()).or_default() -= wait * MS;
        }
        self.due.remove(owner);
        self.queue.retain(|other| other != owner);
        Nil
    }
}
