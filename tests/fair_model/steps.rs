//! Who does what, and how it ends.

use std::collections::BTreeSet;

use super::{JAVA, Java, KEYS, LEASE, OURS, Story};
use crate::model::{LONG, MS, Model, Reply};

impl Story<'_> {
    fn step_of_ours(&mut self, owner: &'static str) {
        let lease = self.dice.of(&[4_000, 15_000, 30_000, LEASE]);
        let holds = self.model.holds(owner);
        let waits = self.waiting.contains_key(owner);
        match self.dice.roll(12) {
            0..=4 if holds > 0 => self.release(owner, self.dice_left(holds), lease),
            5..=7 if holds > 0 => {
                let (want, turn) = (self.dice.of(&[0, 1, holds + 1, holds]), self.dice.of(&[0, 1, 2]));
                self.acquire(owner, lease, want, u8::try_from(turn).unwrap());
            }
            8 if holds > 0 => self.leave(owner, self.dice_left(holds), lease),
            0..=2 if waits => drop(self.acquire(owner, lease, self.want(), 2)),
            // A copy of a call that was sent twice.
            3 if waits => drop(self.acquire(owner, lease, self.want(), 1)),
            4 | 5 if waits => self.leave(owner, [-1, 0, 1][usize::try_from(self.model.now / 100 % 3).unwrap()], lease),
            // Its process dies.
            6 if waits && self.dice.roll(3) == 0 => drop(self.waiting.remove(owner)),
            6..=8 if waits => {}
            0..=8 if !waits && (!self.stands(owner) || self.java == Java::None) => {
                drop(self.acquire(owner, lease, self.want(), 1));
            }
            9 => {
                let want = self.dice.of(&[1, 1, 1, 2]);
                self.acquire(owner, lease, want, 0);
            }
            10 if !waits => drop(self.acquire(owner, lease, 1, 2)),
            10 if self.dice.roll(2) == 0 => self.release(owner, 0, lease),
            _ => {}
        }
    }

    fn want(&self) -> i64 {
        i64::from(self.model.now % 500 != 0)
    }

    fn dice_left(&self, holds: i64) -> i64 {
        match self.model.now / 100 % 4 {
            0 => -1,
            1 => holds - 1,
            _ => 0,
        }
    }

    fn step_of_java(&mut self, owner: &'static str) {
        let lease = self.dice.of(&[4_000, 15_000, 30_000]);
        let waits = self.java_waiting.get(owner).copied();
        match (self.dice.roll(10), waits) {
            (0..7, _) if self.model.holds(owner) > 0 => drop(self.java("unlock", owner, lease, 0)),
            (0..6, None) => self.java_long(owner, lease),
            // It waits at one place at a time.
            (6, None) if !self.stands(owner) => drop(self.java("once", owner, lease, LONG)),
            (7, None) if self.dice.roll(3) == 0 => drop(self.java("unlock", owner, lease, 0)),
            (0..5, Some(_)) => self.java_long(owner, lease),
            (5..7, Some((_, wait))) => drop(self.java("fail", owner, lease, wait)),
            _ => {}
        }
    }

    /// Somebody else's hands on the keys.
    fn spoil(&mut self) {
        self.spoilt = true;
        let all: Vec<&'static str> =
            OURS.iter().flatten().chain(&JAVA).copied().chain(["x", "not a uuid at all"]).collect();
        let owner = self.dice.of(&all);
        let now = self.model.now;
        let due = now + self.dice.of(&[-5_000, 700, 20_000, 400_000]);
        let model = &mut self.model;
        let due_text = due.to_string();
        let words: Vec<&str> = match self.dice.roll(6) {
            0 => {
                model.due.clear();
                vec!["del", "deadlines"]
            }
            1 => {
                model.queue.clear();
                vec!["del", "queue"]
            }
            2 => {
                model.due.remove(owner);
                vec!["zrem", "deadlines", owner]
            }
            3 => {
                model.queue.push(owner.into());
                vec!["rpush", "queue", owner]
            }
            4 => {
                model.queue.insert(0, owner.into());
                vec!["lpush", "queue", owner]
            }
            _ => {
                model.due.insert(owner.into(), due * MS);
                vec!["zadd", "deadlines", &due_text, owner]
            }
        };
        self.log.push(format!("somebody: {words:?}"));
        self.rig.command(&words);
        let servers = self.rig.run(&self.scripts.look, &KEYS, &[now.to_string()]);
        self.compare(servers, &Reply::Nil);
    }

    fn step(&mut self) {
        match self.dice.roll(20) {
            0..10 => {
                let client = self.dice.of(&OURS);
                let owner = self.dice.of(&client);
                self.step_of_ours(owner);
            }
            10..16 if self.java != Java::None => {
                let owner = self.dice.of(&JAVA);
                self.step_of_java(owner);
            }
            16 if self.spoils && self.dice.roll(3) == 0 => self.spoil(),
            17 if self.dice.roll(5) == 0 => {
                let args = self.args(&[]);
                self.run("force", &self.scripts.force, args, Model::force);
            }
            // The lease ends.
            18 if self.model.left() > 0 && self.dice.roll(3) == 0 => self.pass(self.model.left().min(20_000)),
            _ => {
                let ms = self.dice.of(&[100, 300, 900, 1_000, 2_500]);
                self.pass(ms);
            }
        }
    }

    /// Whatever happened: who is alive gets the lock, and nothing stays behind.
    fn end(&mut self) {
        let stands: BTreeSet<_> =
            OURS.iter().flatten().copied().filter(|owner| self.waiting.contains_key(owner)).collect();
        let mut left = stands;
        for _ in 0..2 {
            self.refresh(&OURS, "refresh all");
            let standing: BTreeSet<&String> = self.model.queue.iter().collect();
            let scored: BTreeSet<&String> = self.model.due.keys().collect();
            if standing != scored {
                self.fail("queue and deadlines differ after a refresh");
            }
        }
        for _ in 0..60 {
            if let Some(hold) = self.model.hold.clone() {
                left.remove(hold.owner.as_str());
                match JAVA.iter().find(|owner| **owner == hold.owner) {
                    Some(owner) => drop(self.java("unlock", owner, 30_000, 0)),
                    None => self.release(&hold.owner.clone(), 0, 30_000),
                }
            }
            if left.is_empty() && self.model.hold.is_none() {
                break;
            }
            for owner in left.clone() {
                if !self.stands(owner) && self.model.holds(owner) == 0 {
                    self.acquire(owner, 30_000, 1, 1);
                }
            }
            // Heads that never come are out of date at some time.
            let head = self.model.queue.first().cloned();
            if let Some(head) = head.filter(|_| self.model.hold.is_none()) {
                match JAVA.iter().find(|owner| **owner == head && self.java_waiting.contains_key(**owner)) {
                    Some(owner) => self.java_long(owner, 30_000),
                    None => self.shift(self.model.ms_until(&head).unwrap().max(0) / 100 * 100 + 100),
                }
            }
            self.refresh(&OURS, "refresh all");
        }
        if !left.is_empty() {
            self.fail(&format!("{left:?} never had the lock"));
        }
    }

    fn leave_all(&mut self) {
        let someone_dead =
            self.model.queue.iter().any(|owner| {
                !self.waiting.contains_key(owner.as_str()) && !self.java_waiting.contains_key(owner.as_str())
            });
        for owner in OURS.as_flattened() {
            if self.waiting.contains_key(owner) || self.model.holds(owner) > 0 {
                self.leave(owner, 0, 30_000);
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
        if someone_dead || self.spoilt || self.model.hold.is_some() || !self.model.queue.is_empty() {
            for _ in 0..50 {
                let last = self.model.due.keys().filter_map(|owner| self.model.ms_until(owner)).max();
                self.shift(last.unwrap_or(0).max(LEASE) / 100 * 100 + 100);
                self.refresh(&OURS, "refresh all");
                if self.model.queue.is_empty() && self.model.hold.is_none() {
                    break;
                }
            }
        }
        if !(self.model.queue.is_empty() && self.model.due.is_empty() && self.model.hold.is_none()) {
            self.fail("something is left behind");
        }
    }

    pub fn play(mut self, steps: u64) {
        for _ in 0..steps {
            self.step();
        }
        if self.dice.roll(2) == 0 {
            self.end();
        }
        self.leave_all();
    }
}
