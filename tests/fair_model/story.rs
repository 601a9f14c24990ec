//! One sequence: who does what, and what must always hold.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{LONG, MS, Model, Reply, ours};
use crate::rig::{Rig, Script, Scripts};

const KEYS: [&str; 4] = ["lock", "queue", "deadlines", "channel:{lock}"];

/// Two clients of ours with three waiters each, one of Java's with four.
const OURS: [[&str; 3]; 2] = [
    [
        "11111111-1111-8111-8111-111111111111:1",
        "11111111-1111-8111-8111-111111111111:2",
        "11111111-1111-8111-8111-111111111111:3",
    ],
    [
        "22222222-2222-8222-8222-222222222222:1",
        "22222222-2222-8222-8222-222222222222:2",
        "22222222-2222-8222-8222-222222222222:3",
    ],
];
const JAVA: [&str; 4] = [
    "33333333-3333-4333-8333-333333333333:1",
    "33333333-3333-4333-8333-333333333333:2",
    "33333333-3333-4333-8333-333333333333:3",
    "33333333-3333-4333-8333-333333333333:4",
];

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

/// The most that anybody's lease is in here.
const LEASE: i64 = 40_000;

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[usize::try_from(self.roll(list.len() as u64)).unwrap()]
    }
}

/// A waiter of ours that is alive.
#[derive(Clone, Debug)]
struct Waiter {
    last: i64,
    /// Somebody of Java's stood ahead whose wait could only be guessed.
    guessed: bool,
}

/// Which waits Java has.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Java {
    None,
    Default,
    Mixed,
}

pub struct Story<'a> {
    seed: u64,
    dice: Dice,
    scripts: &'a Scripts,
    rig: &'a mut Rig,
    model: Model,
    java: Java,
    /// Somebody spoils the queue: only what recovers can be asked for.
    spoils: bool,
    spoilt: bool,
    waiting: BTreeMap<&'static str, Waiter>,
    /// When the deadlines of ours were set.
    set: BTreeMap<&'static str, i64>,
    /// Those of Java that queued and have not been seen to go, with their waits.
    java_waiting: BTreeMap<&'static str, (i64, i64)>,
    refreshed: i64,
    /// Waits of Java that went without taking anything off, since the queue was last without Java.
    stale: i64,
    log: Vec<String>,
}

impl<'a> Story<'a> {
    pub fn new(seed: u64, scripts: &'a Scripts, rig: &'a mut Rig) -> Self {
        let mut dice = Dice(seed);
        let now = 1_795_000_000_000;
        let model = Model::new(now, dice.of(&[2_000, 5_000, 5_000, 10_000]), dice.of(&[4_000, 15_000]));
        let java = dice.of(&[Java::None, Java::Default, Java::Mixed, Java::Mixed]);
        let spoils = dice.roll(4) == 0;
        rig.command(&["flushall"]);
        Self {
            seed,
            dice,
            scripts,
            rig,
            model,
            java,
            spoils,
            spoilt: false,
            waiting: BTreeMap::new(),
            set: BTreeMap::new(),
            java_waiting: BTreeMap::new(),
            refreshed: now,
            stale: 0,
            log: Vec::new(),
        }
    }

    fn fail(&self, what: &str) -> ! {
        let from = self.log.len().saturating_sub(40);
        let Model { wait, first_lease, .. } = self.model;
        panic!(
            "SEED={}, step {}: {what}\nwait {wait}, first lease {first_lease}, Java {:?}, spoilt {}, waiting {:#?}\n{}",
            self.seed,
            self.log.len(),
            self.java,
            self.spoilt,
            self.waiting,
            self.log[from..].join("\n")
        );
    }

    /// Runs a script on both, and compares its answer and all there is to what the model says.
    fn run(&mut self, name: &str, script: &Script, args: Vec<String>, act: impl FnOnce(&mut Model) -> Reply) -> Reply {
        let before = self.model.clone();
        let mut args = args;
        self.log.push(format!("+{} {name} {}", before.now - 1_795_000_000_000, args.join(" ")));
        args.push(before.now.to_string());
        let replies = self.rig.run(script, &KEYS, &args);
        let expected = act(&mut self.model);
        self.model.round();
        self.log.push(format!("    -> {expected:?}\n    {}", short(&self.model)));
        self.compare(replies, &expected);
        self.check(&before, name);
        expected
    }

    fn compare(&self, servers: [(Reply, Reply); 2], answer: &Reply) {
        let expected = sorted(self.model.state());
        for (server, (state, reply)) in ["simulator", "real server"].iter().zip(servers) {
            let state = sorted(state);
            if reply != *answer {
                self.fail(&format!("the {server} answers\n{reply:?}, the model\n{answer:?}"));
            }
            if state != expected {
                self.fail(&format!("the {server} has\n{state:?}, the model\n{expected:?}"));
            }
        }
    }

    /// What must hold after every step.
    fn check(&mut self, before: &Model, step: &str) {
        let winner = self.model.hold.as_ref().map(|hold| hold.owner.clone());
        let had = before.hold.as_ref().map(|hold| hold.owner.clone());
        if self.model.left() == -1 {
            self.fail("a lock without end");
        }
        // In the order of the queue.
        if let Some(winner) = &winner
            && (had.as_ref() != Some(winner) || step == "force")
            && !self.spoilt
        {
            for ahead in before.queue.iter().take_while(|owner| *owner != winner) {
                let left = before.ms_until(ahead).unwrap_or(i64::MAX);
                let alive =
                    self.waiting.get(ahead.as_str()).is_some_and(|waiter| !waiter.guessed) && !self.silent(ahead);
                let java = !ours(ahead) && left > self.model.wait && !step.starts_with("refresh");
                if alive || java {
                    self.fail(&format!("{winner} passed {ahead}"));
                }
            }
        }
        // Nobody alive loses its place.
        if let Some(winner) = &winner {
            self.waiting.remove(winner.as_str());
            self.java_waiting.remove(winner.as_str());
        }
        let lost: Vec<_> = self.waiting.keys().copied().filter(|owner| !self.stands(owner)).collect();
        for owner in lost {
            let waiter = self.waiting.remove(owner).unwrap();
            if !waiter.guessed && !self.spoilt && !step.contains(owner) && !self.silent(owner) {
                self.fail(&format!("{owner} was alive and lost its place"));
            }
        }
        // What it was given room for stays until nobody of Java's is ahead; garbage stands for the longest.
        let gone = before.queue.iter().filter(|owner| !ours(owner) && !self.stands(owner)).count();
        self.stale += i64::try_from(gone).unwrap() * LONG;
        if step == "refresh all" && before.queue.iter().all(|owner| ours(owner)) {
            self.stale = 0;
        }
        // No deadline further off than all waits ahead together.
        if !self.spoilt {
            let crowd = i64::try_from(self.model.queue.iter().filter(|owner| !ours(owner)).count()).unwrap();
            for (place, owner) in self.model.queue.iter().enumerate() {
                let Some(left) = self.model.ms_until(owner) else { continue };
                let all = crowd * LONG + self.stale;
                let ahead = i64::try_from(place).unwrap() * self.model.wait;
                if left > LEASE + self.model.wait + LONG + ahead + all {
                    self.fail(&format!("the deadline of {owner} is too far off"));
                }
                if ours(owner) && self.model.queue[..=place].iter().all(|other| ours(other)) && self.stale == 0 {
                    // Dead ones keep what they had until the next refresh.
                    let fresh = self.waiting.contains_key(owner.as_str()) && step.starts_with("refresh all");
                    if fresh && left > self.model.wait {
                        self.fail(&format!("{owner} has room for nobody"));
                    }
                }
            }
        }
    }

    /// Whether one of ours counts as dead: after so long without a refresh it may go. One that calls again without a
    /// refresh is no more alive for that. Times are told in 16ths of a second.
    fn silent(&self, owner: &str) -> bool {
        let set = self.set.get(owner).copied().unwrap_or(0);
        self.model.now - set > self.model.wait.max(4_000) - 63
    }

    fn stands(&self, owner: &str) -> bool {
        self.model.queue.iter().any(|other| other == owner)
    }

    /// Whether somebody of Java ahead of this place has a wait that the scripts can only guess.
    fn guessed(&self, owner: &str) -> bool {
        let places = self.model.queue.iter().take_while(|other| *other != owner);
        places.enumerate().any(|(place, other)| {
            let known = place > 0
                && self.model.due.contains_key(&self.model.queue[place - 1])
                && self.model.due.contains_key(other);
            !ours(other) && !known && self.java_waiting.get(other.as_str()).is_none_or(|(_, wait)| *wait != LONG)
        })
    }

    /// The common arguments behind a script's own.
    fn args(&self, own: &[String]) -> Vec<String> {
        [own, &[self.model.wait.to_string(), self.model.first_lease.to_string(), "publish".into()]].concat()
    }

    fn acquire(&mut self, owner: &'static str, lease: i64, want: i64, turn: u8) -> Reply {
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

    fn release(&mut self, owner: &str, left: i64, lease: i64) {
        let args = self.args(&[owner.into(), left.to_string(), lease.to_string()]);
        self.run(&format!("release {owner}"), &self.scripts.release, args, |model| model.release(owner, left, lease));
    }

    fn leave(&mut self, owner: &str, most: i64, lease: i64) {
        let args = self.args(&[owner.into(), most.to_string(), lease.to_string()]);
        self.waiting.remove(owner);
        self.run(&format!("leave {owner}"), &self.scripts.leave, args, |model| model.leave(owner, most, lease));
    }

    /// Of one client, or of all.
    fn refresh(&mut self, clients: &[[&'static str; 3]], name: &str) {
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

    fn refresh_all(&mut self) {
        if self.dice.roll(2) == 0 {
            self.refresh(&OURS[..1], "refresh 1");
            self.refresh(&OURS[1..], "refresh 2");
        } else {
            self.refresh(&OURS, "refresh all");
        }
        self.refreshed = self.model.now;
    }

    fn shift(&mut self, ms: i64) {
        self.log.push(format!("time passes by {ms}"));
        let servers = self.rig.run(&self.scripts.pass, &KEYS, &[ms.to_string(), self.model.now.to_string()]);
        self.model.pass(ms);
        self.compare(servers, &Reply::Nil);
    }

    /// Time passes; the living refresh once a second.
    fn pass(&mut self, ms: i64) {
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

    fn java(&mut self, what: &str, owner: &'static str, lease: i64, wait: i64) -> Reply {
        let args = vec![what.into(), owner.into(), lease.to_string(), wait.to_string()];
        let reply = self.run(&format!("java {what} {owner}"), &self.scripts.java, args, |model| match what {
            "long" => model.java_try(owner, lease, wait, true),
            "once" => model.java_try(owner, lease, wait, false),
            "unlock" => model.java_unlock(owner, lease),
            _ => model.java_fail(owner, wait),
        });
        if what == "fail" || self.model.holds(owner) > 0 {
            self.java_waiting.remove(owner);
        }
        reply
    }

    fn java_long(&mut self, owner: &'static str, lease: i64) {
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

fn short(model: &Model) -> String {
    let name =
        |owner: &str| format!("{}{}", owner.get(..1).unwrap_or(""), owner.rsplit_once(':').map_or("", |(_, n)| n));
    let queue: Vec<_> =
        model.queue.iter().map(|owner| format!("{} {:?}", name(owner), model.ms_until(owner))).collect();
    let hold =
        model.hold.as_ref().map(|hold| format!("{} x{} {}", name(&hold.owner), hold.count, hold.end - model.now));
    format!("held by {hold:?}, waiting {}", queue.join(", "))
}

/// Deadlines in the order of their owners.
fn sorted(state: Reply) -> Reply {
    let Reply::List(mut parts) = state else { return state };
    if let Some(Reply::List(flat)) = parts.last_mut() {
        let mut pairs: Vec<Vec<Reply>> = flat.chunks(2).map(<[Reply]>::to_vec).collect();
        pairs.sort_by_key(|pair| format!("{:?}", pair[0]));
        *flat = pairs.concat();
    }
    Reply::List(parts)
}
