//! Acts, on the servers and in the model.

use super::{CHANNELS, GIVEN, JAVA, Java, KEYS, OURS, STRANGERS, Story, Waiter, stranger};
use crate::model::{Alive, Ask, Give, JAVA_LEASE, LONG, Reply, is_shared, ours};

/// Waits of Java: the wait of its deadline, and the wait by which it reduces later deadlines when it gives up. A
/// `tryLock` in seconds without a lease queues with the bare number.
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

pub(super) fn give(owner: &str, hold: &str, lease: i64) -> Give {
    Give { owner: owner.into(), hold: hold.into(), lease, mine: String::new() }
}

impl Story<'_> {
    /// The arguments that every script has after its own.
    pub(super) fn args(&self, own: &[String]) -> Vec<String> {
        let told = [LONG, JAVA_LEASE, self.model.grace].map(|ms| ms.to_string());
        let queue = [self.model.wait.to_string(), self.model.first_lease.to_string(), "publish".into()];
        [own, &queue, &told, &[CHANNELS.into()]].concat()
    }

    /// A name that was not used before.
    fn name(&mut self, what: char) -> String {
        self.names += 1;
        format!("{what}{}", self.names)
    }

    /// A new id for a hold of this owner.
    pub(super) fn id(&mut self, owner: &str) -> String {
        let id = self.name('i');
        self.issued.entry(owner.into()).or_default().push(id.clone());
        id
    }

    /// A hold for an acquire: the only one of its owner, a new one, or a known one.
    pub(super) fn some_hold(&mut self, owner: &str) -> String {
        match self.dice.below(8) {
            0..3 => String::new(),
            3..6 => self.id(owner),
            _ => self.known_id(owner),
        }
    }

    /// A recent id of the owner, listed or gone; a new id if there is none.
    pub(super) fn known_id(&mut self, owner: &str) -> String {
        let ids = self.issued.get(owner).map(|ids| ids[ids.len().saturating_sub(4)..].to_vec()).unwrap_or_default();
        match ids.len() {
            0 => self.id(owner),
            n => ids[usize::try_from(self.dice.below(n as u64)).unwrap()].clone(),
        }
    }

    /// Usually a listed id, else any known id.
    pub(super) fn listed_id(&mut self, owner: &str) -> String {
        match self.model.held(owner).and_then(|hold| hold.ids.last().cloned()) {
            Some(id) if self.dice.below(3) > 0 => id,
            _ => self.known_id(owner),
        }
    }

    /// A last moment: usually none, else one that has passed, is now, or is in the future.
    pub(super) fn last(&mut self) -> i64 {
        match self.dice.below(10) {
            0 => self.model.now - self.dice.of(&[1, 5_000]),
            1 => self.model.now + self.dice.of(&[0, 1, 5_000]),
            _ => 0,
        }
    }

    /// A plain acquire of this hold.
    pub(super) fn ask(&mut self, owner: &str, lease: i64, hold: String, turn: u8) -> Ask {
        let nonce = match self.waiting.get(owner) {
            Some(waiter) if waiter.hold == hold => waiter.nonce.clone(),
            _ if hold.is_empty() => self.name('n'),
            // An owner that was made for one acquire, and is used again.
            _ if owner != GIVEN && self.dice.below(3) == 0 => format!("{}={hold}", self.name('n')),
            _ => format!("!{hold}"),
        };
        Ask { owner: owner.into(), lease, hold, earlier: String::new(), last: 0, alone: false, turn, nonce }
    }

    pub(super) fn acquire(&mut self, owner: &'static str, ask: Ask) -> Reply {
        let flags = [ask.last.to_string(), u8::from(ask.alone).to_string(), ask.turn.to_string()];
        let [last, alone, turn] = flags;
        let own = [owner.into(), ask.lease.to_string(), ask.hold.clone(), ask.earlier.clone(), last, alone, turn];
        let args = self.args(&[&own[..], std::slice::from_ref(&ask.nonce)].concat());
        let stood = self.model.due.contains_key(owner);
        let step = (&*format!("acquire {owner}"), stranger(owner));
        let reply = self.run(step, &self.scripts.acquire, args, |model| model.acquire(&ask));
        if !stood && self.model.stands(owner) {
            self.set.insert(owner, self.model.now);
        }
        let busy = matches!(&reply, Reply::List(parts) if parts[0] != Reply::Int(-7));
        if busy && ask.turn > 0 && self.model.stands(owner) {
            let guessed = owner == GIVEN || self.guessed(owner) && !(ask.turn == 2 && stood);
            let Ask { hold, nonce, .. } = ask;
            let waiter = self.waiting.entry(owner).or_insert(Waiter { last: 0, hold, nonce, guessed: false });
            waiter.last = self.model.now;
            waiter.guessed |= guessed;
        }
        reply
    }

    pub(super) fn release(&mut self, give: &Give, last: i64) {
        let Give { owner, hold, lease, mine } = give;
        let args = [owner.clone(), hold.clone(), lease.to_string(), mine.clone(), last.to_string()];
        let step = (&*format!("release {owner}"), stranger(owner));
        self.run(step, &self.scripts.release, self.args(&args), |model| model.release(give, last));
    }

    /// A waiter gives up. With another nonce, the waiter of another process with the same owner gives up.
    pub(super) fn leave(&mut self, give: &Give, nonce: &str) {
        let Give { owner, hold, lease, mine } = give;
        let args = [owner.clone(), hold.clone(), lease.to_string(), mine.clone(), nonce.into()];
        if self.waiting.get(owner.as_str()).is_some_and(|waiter| waiter.nonce == nonce) {
            self.waiting.remove(owner.as_str());
        }
        let step = (&*format!("leave {owner}"), stranger(owner));
        self.run(step, &self.scripts.leave, self.args(&args), |model| model.leave(give, nonce));
    }

    pub(super) fn give_up(&mut self, owner: &str, lease: i64) {
        let Some(Waiter { hold, nonce, .. }) = self.waiting.get(owner).cloned() else { return };
        let give = give(owner, &hold, lease);
        self.leave(&give, &nonce);
    }

    pub(super) fn force(&mut self, last: i64) {
        let late = last != 0 && last < self.model.now;
        let args = self.args(&[last.to_string()]);
        let step = (if late { "too late to force" } else { "force" }, false);
        self.run(step, &self.scripts.force, args, |model| model.force(last));
    }

    /// A refresh by one client or by several.
    pub(super) fn refresh(&mut self, owners: &[&'static str], name: &str) {
        let alive: Vec<Alive> = owners
            .iter()
            .filter_map(|owner| {
                let Waiter { last, nonce, .. } = self.waiting.get(owner)?;
                Some(Alive { owner: (*owner).to_owned(), last: *last, nonce: nonce.clone() })
            })
            .collect();
        let mut args = self.args(&[]);
        args.push(alive.len().to_string());
        args.push(u8::from(alive.iter().any(|one| is_shared(&one.nonce))).to_string());
        args.extend(alive.iter().flat_map(|one| [one.last.to_string(), one.owner.clone()]));
        args.extend(alive.iter().map(|one| one.nonce.clone()));
        for Alive { owner, last, .. } in &alive {
            let guessed = (*last == 0 || !self.model.due.contains_key(owner)) && self.guessed(owner);
            let (owner, waiter) = self.waiting.iter_mut().find(|(other, _)| *other == owner).unwrap();
            self.set.insert(owner, self.model.now);
            waiter.last = self.model.now;
            waiter.guessed |= guessed;
        }
        let twin = owners.first().is_some_and(|owner| stranger(owner));
        self.run((name, twin), &self.scripts.refresh, args, |model| model.refresh(&alive));
    }

    pub(super) fn refresh_ours(&mut self) {
        self.refresh(&[OURS.as_flattened(), &[GIVEN]].concat(), "refresh all");
    }

    pub(super) fn refresh_all(&mut self) {
        if self.dice.below(2) == 0 {
            self.refresh(&[&OURS[0][..], &[GIVEN]].concat(), "refresh 1");
            self.refresh(&OURS[1], "refresh 2");
        } else {
            self.refresh_ours();
        }
        if STRANGERS.as_flattened().iter().any(|owner| self.waiting.contains_key(owner)) {
            self.refresh(STRANGERS.as_flattened(), "refresh twin");
        }
        self.refreshed = self.model.now;
    }

    pub(super) fn shift(&mut self, ms: i64) {
        self.log.push(format!("time passes by {ms}"));
        let servers =
            self.rig.run(&self.scripts.pass, &KEYS, &[ms.to_string(), String::new(), self.model.now.to_string()]);
        self.model.pass(ms);
        self.compare(servers, &Reply::Nil);
    }

    /// Lets time pass, and refreshes live waiters once a second.
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
        let args = vec![what.into(), owner.into(), lease.to_string(), wait.to_string(), CHANNELS.into()];
        let behind: Vec<String> = self.model.queue.iter().skip_while(|other| *other != owner).cloned().collect();
        let behind_cut = self.model.queue.last().is_some_and(|last| self.cut.contains(last.as_str()));
        let stood = self.model.stands(owner);
        let reply = self.run((&format!("java {what} {owner}"), false), &self.scripts.java, args, |model| match what {
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
        if behind_cut && !stood && self.model.stands(owner) {
            self.cut.insert(owner);
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
            // The wait of the first waiter cannot be computed.
            None if self.model.queue.iter().all(|other| ours(other)) && self.dice.below(4) > 0 => (LONG, LONG),
            None => self.dice.of(&JAVA_WAITS),
        };
        self.java_waiting.insert(owner, wait);
        self.java("long", owner, lease, wait.0);
    }
}
