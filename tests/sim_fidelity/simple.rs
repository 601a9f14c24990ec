//! Random commands, and the scripts of the reentrant lock.

use crate::{Agree, Dice, LEASES, script};

pub(crate) const KEYS: [&str; 6] = ["lock:0", "lock:1", "lock:2", "x", "y", "z"];
const OWNERS: [&str; 4] = ["a:1", "a:2", "b:1", "c:7"];
const NUMBERS: [&str; 14] =
    ["0", "1", "-1", "2", "5", "-3", "9223372036854775807", "-9223372036854775808", "01", "+1", "1.5", "x", "", " 1"];
const SCORES: [&str; 11] = ["0", "1", "2", "2.5", "-1", "1e3", "0.1", "inf", "-inf", "nan", "x"];
const BOUNDS: [&str; 8] = ["-inf", "+inf", "0", "(1", "2", "(2.5", "x", "1000"];

const ACQUIRE: &str = holds!("reentrant/acquire");
const RELEASE: &str = holds!("reentrant/release");
const RENEW: &str = holds!("common/renew/begin", "common/renew");
const FORCE: &str = holds!("reentrant/force");
const STATE: &str = include_str!("../../lua/common/state.lua");

/// What the words of a command are chosen from.
struct Words {
    key: String,
    lock: String,
    owner: String,
    number: String,
    lease: String,
    score: String,
    count: String,
    publish: String,
}

impl Words {
    /// Draws every word, also those that the command does not use.
    fn draw(d: &mut Dice) -> Self {
        Self {
            key: d.of(&KEYS),
            lock: d.of(&KEYS[..4]),
            owner: d.of(&OWNERS),
            number: d.mostly(&NUMBERS, 6),
            lease: d.mostly(&LEASES, 4),
            score: d.mostly(&SCORES, 7),
            count: ["0", "1", "2", "3"][d.roll(4)].to_owned(),
            publish: d.of(&["publish", "publish", "spublish", "nosuchcommand"]),
        }
    }

    /// Returns the call of a script for the number `n` below 16.
    fn into_script(self, d: &mut Dice, now: i64, n: usize) -> (Agree, Vec<String>) {
        let Self { key, lock, owner, lease, publish, .. } = self;
        let channel = format!("channel:{{{lock}}}");
        let s = |text: &str| text.to_owned();
        match n {
            0..6 => {
                let args = [owner, lease, d.taken(), d.earlier(), d.last(now), d.of(&["0", "0", "0", "1"])];
                script(ACQUIRE, &[lock], &args[..d.said(2, args.len())])
            }
            6..11 => {
                let left = ["-1", "0", "1", "2"][d.roll(4)].to_owned();
                let args = [owner, lease, publish, channel, d.given_back(), left, d.last(now)];
                script(RELEASE, &[lock], &args[..d.said(4, args.len())])
            }
            11..13 => {
                // A negative lease sets exactly that many ms, even if more are left. 5 ms would end before the
                // comparison.
                let lease = if lease == "-5" { s("-40000") } else { lease };
                let mut args = vec![lease, d.last(now)];
                for owner in [s("a:1"), owner, s("b:1")] {
                    args.extend([owner, d.relied_on()]);
                }
                script(RENEW, &[s(KEYS[0]), key, s(KEYS[2])], &args)
            }
            13 => script(FORCE, &[lock], &[d.last(now), publish, channel]),
            _ => script(STATE, &[lock], &[]),
        }
    }

    /// Returns a command for the number `n` from 16.
    fn to_command(&self, d: &mut Dice, n: usize) -> Vec<String> {
        let Self { key, lock, owner, number, lease, score, count, .. } = self;
        let s = |text: &str| text.to_owned();
        let plain = |name: &str, rest: &[&String]| {
            let mut words = vec![name.to_owned(), key.clone()];
            words.extend(rest.iter().map(|word| (*word).clone()));
            words
        };
        match n {
            16 => plain("pttl", &[]),
            17 => plain("exists", &[lock]),
            18 => plain("del", &[]),
            19 => plain("get", &[]),
            20 => plain("set", &[number]),
            21 => plain("set", &[number, &s("px"), lease]),
            22 => plain("set", &[number, &d.of(&["bad", "nx", "px"])]),
            23 => plain("incr", &[]),
            24 => plain("pexpire", &[lease]),
            25 => plain("persist", &[]),
            26 => plain("type", &[]),
            27 => plain("hset", &[owner, number]),
            28 => plain("hset", &[owner, number, &s("f"), count]),
            29 => plain("hset", &[owner, number, &s("f")]),
            30 => plain("hget", &[owner]),
            31 => plain("hdel", &[owner, &s("f")]),
            32 => plain("hexists", &[owner]),
            33 => plain("hincrby", &[owner, number]),
            34 => plain(&d.of(&["hkeys", "hlen", "hgetall"]), &[]),
            // A count of 1000 exceeds the number of fields, so the reply has all of them in their order.
            35 if d.roll(2) == 0 => plain("hrandfield", &[&d.of(&["0", "1000", "x"]), &d.of(&["withvalues", "bad"])]),
            35 => plain("hmget", &[owner, &s("f"), &s("nope")]),
            36..38 => plain(&d.of(&["rpush", "lpush"]), &[owner, count]),
            38 if d.roll(2) == 0 => plain("lset", &[number, owner]),
            38 => plain("lpop", &[]),
            39 => plain("lindex", &[number]),
            40 => plain("lrange", &[number, &d.mostly(&NUMBERS, 6)]),
            41 => plain("lrem", &[number, owner]),
            42 => plain("zadd", &[score, owner]),
            43 => plain("zadd", &[&d.of(&["xx", "CH"]), &d.of(&["ch", "XX"]), score, owner]),
            44 => plain("zadd", &[score, owner, &d.mostly(&SCORES, 7), &s("m")]),
            45 => plain("zscore", &[owner]),
            46 => plain("zrem", &[owner]),
            47 => plain("zrange", &[number, &d.mostly(&NUMBERS, 6), &d.of(&["withscores", "bad"])]),
            48 => plain("zrange", &[number, &s("-1")]),
            49 => plain("zcount", &[&d.of(&BOUNDS), &d.of(&BOUNDS)]),
            50 => plain("zincrby", &[score, owner]),
            _ => plain(&d.of(&["zcard", "publish", "hget", "nosuch", "lrem", "set"]), &[]),
        }
    }
}

/// One random command, or one random call of a script. `now`: the servers' time of day in ms.
pub(crate) fn draw(d: &mut Dice, now: i64) -> (Agree, Vec<String>) {
    let words = Words::draw(d);
    match d.roll(52) {
        n @ 0..16 => words.into_script(d, now, n),
        n => (Agree::Exactly, words.to_command(d, n)),
    }
}
