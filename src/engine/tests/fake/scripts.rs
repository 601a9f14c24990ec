//! What the scripts do, told in Rust.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::State;
use crate::transport::script::Script;
use crate::transport::{Arg, Call, Reply};

impl State {
    pub(super) fn expire(&mut self) {
        let now = Instant::now();
        self.locks.retain(|_, lock| lock.ends.is_none_or(|ends| now < ends) && !lock.holders.is_empty());
    }

    /// The reply to a command whose last moment has passed. The server's clock is tokio's, from some day on.
    fn too_late(&self, last: i64) -> Option<Reply> {
        let at = 1_700_000_000_000 + self.begin?.elapsed().as_millis() as i64;
        (last != 0 && at > last).then(|| Reply::List(vec![Reply::Int(-7), Reply::Int(at)]))
    }

    /// Every place is there, and every lock is held.
    fn refreshed(&self, call: &Call) -> Reply {
        let at = 1_700_000_000_000 + self.begin.map_or(0, |begin| begin.elapsed().as_millis() as i64);
        let (mut replies, mut n) = (vec![Reply::Int(at)], call.keys + 5);
        for _ in 0..call.keys / 4 {
            let Some(Arg::Int(places)) = call.words.get(n + 1) else { panic!("no count") };
            replies.extend([Reply::Int(0), Reply::Int(-1)]);
            replies.extend((0..*places).map(|_| Reply::Int(1)));
            n += 2 + 3 * *places as usize;
        }
        Reply::List(replies)
    }

    /// The scripts of `lua/reentrant`, told in Rust; of fair locks only what needs no state. `free`: the names of locks that became free.
    pub(super) fn carry_out(&mut self, call: &Call, free: &mut Vec<String>) -> Reply {
        self.expire();
        if call.script.name == "reentrant/many" {
            return Reply::List(apart(call).iter().map(|call| self.carry_out(call, free)).collect());
        }
        match call.script.name {
            "reentrant/acquire" => self.acquire(call),
            "reentrant/release" => self.release(call, free),
            "common/disown" => self.disown(call),
            "common/renew" => self.renew(call),
            "reentrant/force" => self.force(call, free),
            "fair/release" => Reply::Int(0),
            "fair/leave" | "rwlock/leave" => Reply::Nil,
            "fair/refresh" => self.refreshed(call),
            other => panic!("no such script here: {other}"),
        }
    }

    fn acquire(&mut self, call: &Call) -> Reply {
        let text = |n: usize| super::text(&call.words, n);
        let name = super::text(&call.words, 0);
        let (owner, lease, hold, earlier, last) = (text(1), int(call, 2), text(3), text(4), int(call, 5));
        if let Some(late) = self.too_late(last) {
            return late;
        }
        let hold = if hold.is_empty() { "-".to_owned() } else { hold };
        let free = !self.locks.contains_key(&name);
        if let Some(lock) = self.locks.get(&name) {
            let Some(holds) = lock.holders.get(&owner) else {
                let left = lock.ends.map_or(-1, |ends| (ends - Instant::now()).as_millis() as i64);
                return Reply::Int(left);
            };
            if !earlier.is_empty() && !holds.contains(&earlier) && !holds.contains(&hold) {
                return Reply::Int(-3);
            }
        } else if !earlier.is_empty() {
            return Reply::Int(-3);
        }
        let lock = self.locks.entry(name).or_default();
        let holds = lock.holders.entry(owner).or_default();
        if !holds.contains(&hold) {
            holds.push(hold);
        }
        if free || lock.ends < ends(lease) {
            lock.ends = ends(lease);
        }
        Reply::Nil
    }

    fn release(&mut self, call: &Call, free: &mut Vec<String>) -> Reply {
        let text = |n: usize| super::text(&call.words, n);
        let name = super::text(&call.words, 0);
        let (owner, hold, lease, mine) = (text(1), text(5), int(call, 2), text(6));
        let Some(lock) = self.locks.get_mut(&name) else { return Reply::Nil };
        let Some(holds) = lock.holders.get_mut(&owner) else {
            return Reply::Text(Bytes::from(lock.holders.keys().next().unwrap().clone()));
        };
        let before = holds.clone();
        let any = || {
            let marked = before.iter().find(|hold| hold.starts_with('+'));
            marked.or_else(|| before.iter().find(|hold| *hold == "-")).or(before.last()).unwrap().clone()
        };
        let hold = if hold == "*" { any() } else { hold };
        if text(5) == "*" && hold != "-" {
            return Reply::List(vec![Reply::Int(-8), Reply::Text(Bytes::from(hold))]);
        }
        match hold.as_str() {
            "" => holds.clear(),
            several => holds.retain(|hold| !several.split(',').any(|one| one == hold)),
        }
        if *holds == before {
            return Reply::List(vec![Reply::Int(-2), Reply::Int(before.len() as i64)]);
        }
        let left = holds.len() as i64;
        let told = i64::from(self.channels.contains(text(4).as_bytes()));
        if left > 0 {
            let decides = !mine.is_empty() && mine.split(',').skip(1).count() as i64 == left;
            if decides || lock.ends < ends(lease) {
                lock.ends = ends(lease);
            }
        } else {
            self.locks.remove(&name);
            free.push(name);
        }
        Reply::Int(if left > 0 { left } else { -told })
    }

    fn disown(&mut self, call: &Call) -> Reply {
        let text = |n: usize| super::text(&call.words, n);
        let name = super::text(&call.words, 0);
        let holds = self.locks.get_mut(&name).and_then(|lock| lock.holders.get_mut(&text(1)));
        let hold = holds.into_iter().flatten().find(|hold| **hold == text(2));
        Reply::Int(i64::from(hold.map(|hold| hold.insert(0, '+')).is_some()))
    }

    fn renew(&mut self, call: &Call) -> Reply {
        let text = |n: usize| super::text(&call.words, n);
        let lease = int(call, call.keys);
        if let Some(late) = self.too_late(int(call, call.keys + 1)) {
            return late;
        }
        let mut out = Vec::new();
        for n in 0..call.keys {
            let (owner, relied) = (text(call.keys + 2 + 2 * n), text(call.keys + 3 + 2 * n));
            let held = self.locks.get_mut(&text(n)).and_then(|lock| {
                let holds = lock.holders.get(&owner)?.clone();
                Some((lock, holds))
            });
            let Some((lock, holds)) = held else {
                out.push(Reply::Int(0));
                continue;
            };
            let relied: Vec<&str> = relied.split([',', '~']).skip(1).collect();
            let relied: Vec<&str> = relied.into_iter().filter(|hold| hold.parse::<u64>().is_err()).collect();
            let gone: Vec<Reply> = (1_i64..)
                .zip(&relied)
                .filter(|(_, hold)| !holds.iter().any(|held| held == *hold))
                .map(|(n, _)| Reply::Int(n))
                .collect();
            if !gone.is_empty() && gone.len() == relied.len() {
                out.push(Reply::Int(0));
                continue;
            }
            if lease < 0 || lock.ends <= ends(lease) {
                lock.ends = ends(lease.abs());
            }
            out.push(if gone.is_empty() { Reply::Int(1) } else { Reply::List(gone) });
        }
        Reply::List(out)
    }

    fn force(&mut self, call: &Call, free: &mut Vec<String>) -> Reply {
        let name = super::text(&call.words, 0);
        let held = self.locks.remove(&name).is_some();
        free.extend(held.then_some(name));
        Reply::Int(i64::from(held))
    }
}

/// A word as a number; 0 where it was left out.
fn int(call: &Call, n: usize) -> i64 {
    let text = super::text(&call.words, n);
    if text.is_empty() { 0 } else { text.parse().unwrap() }
}

/// The end of a lease of so many ms from now.
fn ends(ms: i64) -> Option<Instant> {
    Some(Instant::now() + Duration::from_millis(u64::try_from(ms).unwrap()))
}

/// The calls that go out together in one.
fn apart(call: &Call) -> Vec<Call> {
    static ACQUIRE: Script = Script::new("reentrant/acquire", "");
    static RELEASE: Script = Script::new("reentrant/release", "");
    let (keys, mut args) = call.words.split_at(call.keys);
    let mut keys = keys.iter();
    let mut calls = Vec::new();
    while let [Arg::Int(step), Arg::Int(nkeys), Arg::Int(nargs), rest @ ..] = args {
        let (own, rest) = rest.split_at(*nargs as usize);
        let words = keys.by_ref().take(*nkeys as usize).chain(own).cloned().collect();
        calls.push(Call { script: [&ACQUIRE, &RELEASE][*step as usize - 1], keys: *nkeys as usize, words });
        args = rest;
    }
    calls
}
