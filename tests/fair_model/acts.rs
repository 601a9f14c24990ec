//! What somebody does, on the servers and in the model.

use super::{JAVA, Java, KEYS, OURS, Story, Waiter};
use crate::model::{JAVA_LEASE, LONG, Reply, ours};

/// Waits of Java's: what it queues with, and what it takes off when it gives up (a `tryLock` in seconds without a lease
/// queues with the bare number of them).
const JAVA_WAITS: [(i64, i64); 8] = [
    (LONG, LONG),
    (LONG, LONG),
    (30_000, 30_000),
    (60_000, 60_000),
    (2_000, 2_000),
    (500, 500),
    (10, 10_000),
    (120, 120_000),
];

impl Story<'_> {
    /// The common arguments behind a script's own.
    pub(super) fn args(&self, own: &[String]) -> Vec<String> {
        let told = [LONG, JAVA_LEASE].map(|ms| ms.to_string());
        [own, &[self.model.wait.to_string(), self.model.first_lease.to_string(), "publish".into()], &told].concat()
    }

    pub(super) fn acquire(&mut self, owner: &'static str, lease: i64, want: i64, turn: u8) -> Reply {
        let args = self.args(&[owner.into(), lease.to_string(), want.to_string(), turn.to_string()]);
        let stood = self.model.due.contains_key(owner);
        let reply = self.run(&format!("acquire {owner}"), &self.scripts.acquire, args, |model| {
            model.acquire(owner, lease, want, turn)
        });
        if !stood && self.stands(owner) {
            self.set.insert(owner, self.model.now);
        }
        if matches!(reply, Reply::List(_)) && turn > 0 && self.stands(owner) {
            let guessed = self.guessed(owner) && !(turn == 2 && stood);
            let waiter = self.waiting.entry(owner).or_insert(Waiter { last: 0, guessed: false });
            waiter.last = self.model.now;
            waiter.guessed |= guessed;
        }
        reply
    }

    pub(super) fn release(&mut self, owner: &str, left: i64, lease: i64) {
        let args = self.args(&[owner.into(), left.to_string(), lease.to_string()]);
        self.run(&format!("release {owner}"), &self.scripts.release, args, |model| model.release(owner, left, lease));
    }

    pub(super) fn leave(&mut self, owner: &str, most: i64, lease: i64) {
        let args = self.args(&[owner.into(), most.to_string(), lease.to_string()]);
        self.waiting.remove(owner);
        self.run(&format!("leave {owner}"), &self.scripts.leave, args, |model| model.leave(owner, most, lease));
    }

    /// Of one client, or of all.
    pub(super) fn refresh(&mut self, clients: &[[&'static str; 3]], name: &str) {
        let alive: Vec<(String, i64)> = clients
            .iter()
            .flatten()
            .filter_map(|owner| Some(((*owner).to_owned(), self.waiting.get(owner)?.last)))
            .collect();
        let mut args = self.args(&[]);
        args.push(alive.len().to_string());
        args.extend(alive.iter().flat_map(|(owner, last)| [owner.clone(), last.to_string()]));
        for (owner, last) in &alive {
            let guessed = (*last == 0 || !self.model.due.contains_key(owner)) && self.guessed(owner);
            let (owner, waiter) = self.waiting.iter_mut().find(|(other, _)| *other == owner).unwrap();
            self.set.insert(owner, self.model.now);
            waiter.last = self.model.now;
            waiter.guessed |= guessed;
        }
        self.run(name, &self.scripts.refresh, args, |model| model.refresh(&alive));
    }

    pub(super) fn refresh_all(&mut self) {
        if self.dice.roll(2) == 0 {
            self.refresh(&OURS[..1], "refresh 1");
            self.refresh(&OURS[1..], "refresh 2");
        } else {
            self.refresh(&OURS, "refresh all");
        }
        self.refreshed = self.model.now;
    }

    pub(super) fn shift(&mut self, ms: i64) {
        self.log.push(format!("time passes by {ms}"));
        let servers = self.rig.run(&self.scripts.pass, &KEYS, &[ms.to_string(), self.model.now.to_string()]);
        self.model.pass(ms);
        self.compare(servers, &Reply::Nil);
    }

    /// Time passes; the living refresh once a second.
    pub(super) fn pass(&mut self, ms: i64) {
        let mut ms = ms;
        while ms > 0 {
            let part = ms.min(self.refreshed + 1000 - self.model.now);
            self.shift(part);
            ms -= part;
            if self.model.now - self.refreshed >= 1000 {
                self.refresh_all();
            }
        }
    }

    pub(super) fn java(&mut self, what: &str, owner: &'static str, lease: i64, wait: i64) -> Reply {
        let args = vec![what.into(), owner.into(), lease.to_string(), wait.to_string()];
        let behind: Vec<String> = self.model.queue.iter().skip_while(|other| *other != owner).cloned().collect();
        let reply = self.run(&format!("java {what} {owner}"), &self.scripts.java, args, |model| match what {
            "long" => model.java_try(owner, lease, wait, true),
            "once" => model.java_try(owner, lease, wait, false),
            "unlock" => model.java_unlock(owner, lease),
            _ => model.java_fail(owner, wait),
        });
        if what == "fail" && self.java_waiting.get(owner).is_some_and(|(came_with, _)| wait > *came_with) {
            let cut: Vec<_> = JAVA.into_iter().filter(|other| behind.iter().any(|one| one == other)).collect();
            for owner in OURS.iter().flatten() {
                let place = behind.iter().position(|one| one == owner);
                if place.is_some_and(|place| behind[..place].iter().any(|one| cut.contains(&one.as_str())))
                    && let Some(waiter) = self.waiting.get_mut(owner)
                {
                    waiter.guessed = true;
                }
            }
            self.cut.extend(cut);
        }
        self.cut.retain(|other| *other != owner || self.model.due.contains_key(owner));
        if what == "fail" || self.model.holds(owner) > 0 {
            self.java_waiting.remove(owner);
        }
        reply
    }

    pub(super) fn java_long(&mut self, owner: &'static str, lease: i64) {
        let wait = match self.java_waiting.get(owner) {
            Some(wait) => *wait,
            None if self.java == Java::Default => (LONG, LONG),
            // The first one's cannot be told.
            None if self.model.queue.iter().all(|other| ours(other)) && self.dice.roll(4) > 0 => (LONG, LONG),
            None => self.dice.of(&JAVA_WAITS),
        };
        self.java_waiting.insert(owner, wait);
        self.java("long", owner, lease, wait.0);
    }
}
