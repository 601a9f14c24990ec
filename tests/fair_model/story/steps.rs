//! Random steps.

use super::acts::give;
use super::{GIVEN, JAVA, Java, KEYS, LEASE, OURS, STRANGERS, Story};
use crate::model::{Ask, Give, LONG, MS, Reply};

/// A TTL of one minute, as the rig stores it.
const MINUTE: &str = "1000600000000";

impl Story<'_> {
    fn step_of_ours(&mut self, owner: &'static str) {
        let lease = self.dice.of(&[4_000, 15_000, 30_000, LEASE]);
        let holds = self.model.holds(owner);
        let waits = self.waiting.contains_key(owner);
        match self.dice.below(12) {
            0..=4 if holds > 0 => {
                let (words, last) = (self.words(owner), self.last());
                let mine = self.mine(owner, &words);
                self.release(&Give { mine, ..give(owner, &words, lease) }, last);
            }
            5..=7 if holds > 0 => {
                let turn = self.dice.of(&[0, 1, 2]);
                let hold = if self.dice.below(2) == 0 { self.listed_id(owner) } else { self.some_hold(owner) };
                self.acquire_anyhow(owner, lease, hold, turn);
            }
            8 if holds > 0 => {
                let hold = self.listed_id(owner);
                let mine = self.mine(owner, &hold);
                self.leave(&Give { mine, ..give(owner, &hold, lease) }, "n");
            }
            0..=2 if waits => self.try_again(owner, lease, 2),
            // A copy of a call that was sent twice.
            3 if waits => self.try_again(owner, lease, 1),
            4 if waits => self.give_up(owner, lease),
            // Another process waits as the same owner, or gives up.
            5 if waits => {
                let (hold, turn) = (self.some_hold(owner), self.dice.of(&[1, 2]));
                if self.dice.below(2) == 0 {
                    self.acquire_anyhow(owner, lease, hold, turn);
                } else {
                    self.leave(&give(owner, &hold, lease), &format!("!{hold}"));
                }
            }
            // The waiter's process dies.
            6 if waits && self.dice.below(3) == 0 => drop(self.waiting.remove(owner)),
            6..=8 if waits => {}
            0..=8 if !waits && (!self.model.stands(owner) || self.java == Java::None) => {
                let hold = self.some_hold(owner);
                self.acquire_anyhow(owner, lease, hold, 1);
            }
            9 => {
                let hold = self.some_hold(owner);
                self.acquire_anyhow(owner, lease, hold, 0);
            }
            10 if !waits => {
                let hold = self.some_hold(owner);
                self.acquire_anyhow(owner, lease, hold, 2);
            }
            10 if self.dice.below(2) == 0 => {
                let (words, last) = (self.words(owner), self.last());
                self.release(&give(owner, &words, lease), last);
            }
            _ => {}
        }
    }

    /// An acquire with random options.
    fn acquire_anyhow(&mut self, owner: &'static str, lease: i64, hold: String, turn: u8) {
        let earlier = match self.dice.below(8) {
            0 => "-".into(),
            1 => self.listed_id(owner),
            _ => String::new(),
        };
        let (last, alone) = (self.last(), self.dice.below(8) == 0);
        let ask = self.ask(owner, lease, hold, turn);
        self.acquire(owner, Ask { earlier, last, alone, ..ask });
    }

    /// A waiter asks again.
    fn try_again(&mut self, owner: &'static str, lease: i64, turn: u8) {
        let hold = self.waiting[owner].hold.clone();
        let (ask, last) = (self.ask(owner, lease, hold, turn), self.last());
        self.acquire(owner, Ask { last, ..ask });
    }

    /// The holds that a release names.
    fn words(&mut self, owner: &str) -> String {
        match self.dice.below(10) {
            0 => String::new(),
            1 | 2 => "-".into(),
            3 | 4 => "*".into(),
            5 => [self.known_id(owner), "-".into(), self.listed_id(owner)].join(","),
            6 => self.known_id(owner),
            _ => self.listed_id(owner),
        }
    }

    /// The holds that the caller of a release claims to have left: none, one, all that will be left with one more,
    /// or all.
    fn mine(&mut self, owner: &str, words: &str) -> String {
        let left = self.model.held(owner).and_then(|hold| hold.without(words)).map(|hold| hold.all());
        match (self.dice.below(5), left) {
            (0, _) => String::new(),
            (1, _) => format!(",{}", self.known_id(owner)),
            (2, Some(left)) => format!("{left},{}", self.known_id(owner)),
            (_, left) => left.unwrap_or_default(),
        }
    }

    /// A client of ours and Java act as the same owner.
    fn step_of_given(&mut self) {
        match self.dice.below(4) {
            0 if self.model.holds(GIVEN) > 0 => drop(self.java("once", GIVEN, 15_000, LONG)),
            1 if self.model.holds(GIVEN) > 0 => drop(self.java("unlock", GIVEN, 15_000, 0)),
            // Java takes a place for this owner, and our client finds it.
            1 if self.dice.below(2) == 0 => drop(self.java("long", GIVEN, 15_000, LONG)),
            _ => self.step_of_ours(GIVEN),
        }
    }

    /// A step of an owner that waits for the twin or holds it.
    fn step_of_stranger(&mut self) {
        let owner = self.dice.of(STRANGERS.as_flattened());
        let lease = self.dice.of(&[4_000, 15_000]);
        let held = self.model.twin.hold.as_ref().is_some_and(|hold| hold.owner == owner);
        match self.dice.below(5) {
            0 | 1 if held => {
                let words = self.dice.of(&["*", "", "-"]);
                self.release(&give(owner, words, lease), 0);
            }
            2 if self.waiting.contains_key(owner) => self.give_up(owner, lease),
            3 if self.dice.below(3) == 0 => drop(self.waiting.remove(owner)),
            _ if self.waiting.contains_key(owner) => self.try_again(owner, lease, 2),
            _ if !self.model.stands(owner) => {
                let (hold, turn) = (self.some_hold(owner), self.dice.of(&[0, 1, 1]));
                self.acquire_anyhow(owner, lease, hold, turn);
            }
            _ => {}
        }
    }

    fn step_of_java(&mut self, owner: &'static str) {
        let lease = self.dice.of(&[4_000, 15_000, 30_000]);
        let waits = self.java_waiting.get(owner).copied();
        match (self.dice.below(10), waits) {
            (0..7, _) if self.model.holds(owner) > 0 => drop(self.java("unlock", owner, lease, 0)),
            (0..6, None) => self.java_long(owner, lease),
            // A waiter of Java waits at one place at a time.
            (6, None) if !self.model.stands(owner) => drop(self.java("once", owner, lease, LONG)),
            (7, None) if self.dice.below(3) == 0 => drop(self.java("unlock", owner, lease, 0)),
            (0..5, Some(_)) => self.java_long(owner, lease),
            (5..7, Some((_, wait))) => drop(self.java("fail", owner, lease, wait)),
            _ => {}
        }
    }

    /// A foreign command changes a key.
    fn spoil(&mut self) {
        self.spoilt = true;
        let all: Vec<&'static str> =
            OURS.iter().flatten().chain(&JAVA).copied().chain([GIVEN, "x", "not a uuid at all"]).collect();
        let owner = self.dice.of(&all);
        let now = self.model.now;
        let due = now + self.dice.of(&[-5_000, 700, 20_000, 400_000]);
        let model = &mut self.model;
        let due_text = due.to_string();
        let words: Vec<&str> = match self.dice.below(8) {
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
            5 => {
                model.own.registered.remove(owner);
                vec!["hdel", "waiters", owner]
            }
            6 => {
                model.register(owner, "stale");
                vec!["hset", "waiters", owner, "stale"]
            }
            _ => {
                model.due.insert(owner.into(), due * MS);
                vec!["zadd", "deadlines", &due_text, owner]
            }
        };
        self.log.push(format!("somebody: {words:?}"));
        self.rig.command(&words);
        if words[0] == "hset" {
            self.rig.command(&["pexpire", "waiters", MINUTE]);
        }
        self.model.pass(0);
        let servers = self.rig.run(&self.scripts.look, &KEYS, &[String::new(), now.to_string()]);
        self.compare(servers, &Reply::Nil);
    }

    fn step(&mut self) {
        match self.dice.below(20) {
            0..10 => {
                let client = self.dice.of(&OURS);
                let owner = self.dice.of(&client);
                self.step_of_ours(owner);
            }
            10..16 if self.java != Java::None => {
                let owner = self.dice.of(&JAVA);
                self.step_of_java(owner);
            }
            16 if self.spoils && self.dice.below(3) == 0 => self.spoil(),
            // A client loses its subscriptions, or regains them.
            17 if self.dice.below(2) == 0 => {
                let owner = self.dice.of(OURS.as_flattened()).to_owned();
                if !self.model.absent.remove(&owner) {
                    self.model.absent.insert(owner);
                }
            }
            17 if self.dice.below(3) == 0 => {
                let last = self.last();
                self.force(last);
            }
            19 if self.given && self.dice.below(2) == 0 => self.step_of_given(),
            19 if self.twins && self.dice.below(2) == 0 => self.step_of_stranger(),
            // The lease ends.
            18 if self.model.left() > 0 && self.dice.below(3) == 0 => self.pass(self.model.left().min(20_000)),
            _ => {
                let ms = self.dice.of(&[100, 300, 900, 1_000, 2_500]);
                self.pass(ms);
            }
        }
    }

    pub fn play(mut self, steps: u64) {
        for _ in 0..steps {
            self.step();
        }
        if self.dice.below(2) == 0 {
            self.end();
        }
        self.leave_all();
    }
}
