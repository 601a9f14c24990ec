//! The rules that hold after every step.

use super::{LEASE, Story, stranger};
use crate::model::{LONG, Model, ours};

impl Story<'_> {
    pub(super) fn check(&mut self, before: &Model, step: &str) {
        if self.model.left() == -1 {
            self.fail("a lock without end");
        }
        self.check_order(before, step);
        self.check_places(step);
        self.count_stale(before, step);
        if !self.spoilt {
            self.check_deadlines(step);
        }
    }

    /// Checks that the lock is granted in the order of the queue.
    fn check_order(&self, before: &Model, step: &str) {
        let winner = self.model.own.hold.as_ref().map(|hold| hold.owner.clone());
        let had = before.own.hold.as_ref().map(|hold| hold.owner.clone());
        if let Some(winner) = &winner
            && (had.as_ref() != Some(winner) || step == "force")
            && !self.spoilt
        {
            for ahead in before.queue.iter().take_while(|owner| *owner != winner) {
                let left = before.ms_until(ahead).unwrap_or(i64::MAX);
                let alive =
                    self.waiting.get(ahead.as_str()).is_some_and(|waiter| !waiter.guessed) && !self.silent(ahead);
                // A waiter for the twin does not count.
                let alive = alive && !stranger(ahead);
                let java = !ours(ahead) && left > self.model.wait && !step.starts_with("refresh");
                if alive || java {
                    self.fail(&format!("{winner} passed {ahead}"));
                }
            }
        }
    }

    /// Checks that no live waiter loses its place or its registration.
    fn check_places(&mut self, step: &str) {
        for winner in [&self.model.own, &self.model.twin].into_iter().filter_map(|own| own.hold.as_ref()) {
            self.waiting.remove(winner.owner.as_str());
            self.java_waiting.remove(winner.owner.as_str());
        }
        let lost: Vec<_> = self.waiting.keys().copied().filter(|owner| !self.model.stands(owner)).collect();
        for owner in lost {
            let waiter = self.waiting.remove(owner).unwrap();
            if !waiter.guessed && !self.spoilt && !step.contains(owner) && !self.silent(owner) {
                self.fail(&format!("{owner} was alive and lost its place"));
            }
        }
        for owner in self.waiting.keys() {
            let own = if stranger(owner) { &self.model.twin } else { &self.model.own };
            if !own.registered.contains_key(*owner) && !self.spoilt && !self.silent(owner) {
                self.fail(&format!("{owner} is alive and not registered"));
            }
        }
    }

    /// Counts the room of departed Java waiters, each with the longest wait. Room is kept until no Java waiter is
    /// ahead.
    fn count_stale(&mut self, before: &Model, step: &str) {
        let gone = before.queue.iter().filter(|owner| !ours(owner) && !self.model.stands(owner)).count();
        self.stale += i64::try_from(gone).unwrap() * LONG;
        let known = |owner: &String| ours(owner) && self.waiting.contains_key(owner.as_str());
        if step == "refresh all" && before.queue.iter().all(|owner| ours(owner)) && self.model.queue.iter().all(known) {
            self.stale = 0;
        }
    }

    /// Checks that no deadline is later than all waits ahead together.
    fn check_deadlines(&self, step: &str) {
        let crowd = i64::try_from(self.model.queue.iter().filter(|owner| !ours(owner)).count()).unwrap();
        for (place, owner) in self.model.queue.iter().enumerate() {
            let Some(left) = self.model.ms_until(owner) else { continue };
            let all = crowd * LONG + self.stale;
            let ahead = i64::try_from(place).unwrap() * self.model.wait;
            if left > LEASE + self.model.wait + LONG + ahead + all {
                self.fail(&format!("the deadline of {owner} is too far off"));
            }
            if ours(owner) && self.model.queue[..=place].iter().all(|other| ours(other)) && self.stale == 0 {
                // Dead waiters keep their room until the next refresh.
                let fresh = self.waiting.contains_key(owner.as_str()) && step == "refresh all" && !stranger(owner);
                if fresh && left > self.model.wait {
                    self.fail(&format!("{owner} has room for nobody"));
                }
            }
        }
    }

    /// Returns true if a waiter of ours may count as dead: after `wait` without a refresh its place may be removed.
    /// A call without a refresh does not change that. The scripts measure time in 16ths of a second.
    fn silent(&self, owner: &str) -> bool {
        let set = self.set.get(owner).copied().unwrap_or(0);
        self.model.now - set > self.model.wait - 63
    }
}
