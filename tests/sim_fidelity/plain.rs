//! Random commands, and the scripts of the reentrant lock.

use crate::{Agree, Dice, LEASES, NOW, script, told};

pub(crate) const KEYS: [&str; 6] = ["lock:0", "lock:1", "lock:2", "x", "y", "z"];
const OWNERS: [&str; 4] = ["a:1", "a:2", "b:1", "c:7"];
const NUMBERS: [&str; 14] =
    ["0", "1", "-1", "2", "5", "-3", "9223372036854775807", "-9223372036854775808", "01", "+1", "1.5", "x", "", " 1"];
const SCORES: [&str; 11] = ["0", "1", "2", "2.5", "-1", "1e3", "0.1", "inf", "-inf", "nan", "x"];
const BOUNDS: [&str; 8] = ["-inf", "+inf", "0", "(1", "2", "(2.5", "x", "1000"];

/// A script with what those that take and give back holds share in front, as it is put together at build time.
macro_rules! holds {
    ($($file:literal),+) => {
        concat!(include_str!("../../lua/common/holds.lua") $(, include_str!(concat!("../../lua/", $file, ".lua")))+)
    };
}

const ACQUIRE: &str = holds!("reentrant/acquire");
const RELEASE: &str = holds!("reentrant/release");
const RENEW: &str = holds!("common/renew");
const FORCE: &str = holds!("reentrant/force");
const STATE: &str = include_str!("../../lua/common/state.lua");

/// One random command.
pub(crate) fn draw(d: &mut Dice) -> (Agree, Vec<String>) {
    let key = d.of(&KEYS);
    let lock = d.of(&KEYS[..4]);
    let owner = d.of(&OWNERS);
    let number = d.mostly(&NUMBERS, 6);
    let lease = d.mostly(&LEASES, 4);
    let score = d.mostly(&SCORES, 7);
    let count = ["0", "1", "2", "3"][d.roll(4)].to_owned();
    let publish = d.of(&["publish", "publish", "spublish", "nosuchcommand"]);
    let distinct = (5_000 + d.roll(1_000_000)).to_string();
    let channel = format!("channel:{{{lock}}}");
    let s = |text: &str| text.to_owned();
    let plain = |name: &str, rest: &[&String]| {
        let mut words = vec![name.to_owned(), key.clone()];
        words.extend(rest.iter().map(|word| (*word).clone()));
        words
    };
    let words = match d.roll(62) {
        0..6 => {
            let args = [owner, lease, d.taken(), d.earlier(), d.last(NOW), d.of(&["0", "0", "0", "1"])];
            return script(&told(ACQUIRE, NOW), &[lock], &args[..d.said(2, args.len())]);
        }
        6..11 => {
            let left = ["-1", "0", "1", "2"][d.roll(4)].to_owned();
            let args = [owner, lease, publish, channel, d.given_back(), left, d.last(NOW)];
            return script(&told(RELEASE, NOW), &[lock], &args[..d.said(4, args.len())]);
        }
        11..13 => {
            // A negative lease is set exactly so: one long enough not to end while the answers are compared.
            let lease = if lease == "-5" { s("-40000") } else { lease };
            let mut args = vec![lease, d.last(NOW)];
            for owner in [s("a:1"), owner, s("b:1")] {
                args.extend([owner, d.relied_on()]);
            }
            return script(&told(RENEW, NOW), &[s(KEYS[0]), key, s(KEYS[2])], &args);
        }
        13 => return script(&told(FORCE, NOW), &[lock], &[d.last(NOW), publish, channel]),
        14..16 => return script(STATE, &[lock], &[]),
        16 => return (Agree::Lease, plain("pttl", &[])),
        17 => return (Agree::Seconds, plain("ttl", &[])),
        18 => return (Agree::Set, vec![s("keys"), d.of(&["*", "lock:*", "[xy]", "?", "nope"])]),
        19 => plain("exists", &[&lock]),
        20 => plain("del", &[]),
        21 => plain("get", &[]),
        22 => plain("set", &[&number]),
        23 => plain("set", &[&number, &s("px"), &lease, &d.of(&["nx", "xx", "keepttl", "get", "bad"])]),
        24 => plain(&d.of(&["incr", "decr"]), &[]),
        25 => plain(&d.of(&["incrby", "decrby"]), &[&number]),
        26 => plain("pexpire", &[&lease]),
        // The two deadlines compared by `gt` and `lt` must not be the same but for the moment they were set.
        27 => plain("pexpire", &[&distinct, &d.of(&["nx", "xx", "gt", "lt", "bad"])]),
        28 => plain("expire", &[&d.of(&["100", "0", "-1", "9223372036854775", "x"])]),
        29 => plain("persist", &[]),
        30 => plain("type", &[]),
        31 => plain("hset", &[&owner, &number]),
        32 => plain("hset", &[&owner, &number, &s("f"), &count]),
        33 => plain("hset", &[&owner, &number, &s("f")]),
        34 => plain("hsetnx", &[&owner, &number]),
        35 => plain("hget", &[&owner]),
        36 => plain("hdel", &[&owner, &s("f")]),
        37 => plain("hexists", &[&owner]),
        38 => plain("hincrby", &[&owner, &number]),
        39 => plain(&d.of(&["hkeys", "hvals", "hlen", "hgetall"]), &[]),
        40 => plain("hmget", &[&owner, &s("f"), &s("nope")]),
        41 => plain(&d.of(&["rpush", "lpush"]), &[&owner, &count]),
        42 => plain(&d.of(&["lpop", "rpop"]), &[]),
        43 => plain(&d.of(&["lpop", "rpop"]), &[&number]),
        44 => plain("lindex", &[&number]),
        45 => plain("lrange", &[&number, &d.mostly(&NUMBERS, 6)]),
        46 => plain("llen", &[]),
        47 => plain("lrem", &[&number, &owner]),
        48 => plain("zadd", &[&score, &owner]),
        49 => plain("zadd", &[&d.of(&["nx", "xx", "gt", "lt", "ch", "incr", "bad"]), &score, &owner]),
        50 => plain("zadd", &[&score, &owner, &d.mostly(&SCORES, 7), &s("m")]),
        51 => plain("zscore", &[&owner]),
        52 => plain("zrem", &[&owner]),
        53 => plain("zrange", &[&number, &d.mostly(&NUMBERS, 6), &d.of(&["withscores", "rev", "bad", "byscore"])]),
        54 => plain("zrange", &[&number, &s("-1")]),
        55 => plain("zrangebyscore", &[&d.of(&BOUNDS), &d.of(&BOUNDS), &s("withscores")]),
        56 => plain("zrangebyscore", &[&d.of(&BOUNDS), &d.of(&BOUNDS), &s("limit"), &number, &d.mostly(&NUMBERS, 6)]),
        57 => plain("zcount", &[&d.of(&BOUNDS), &d.of(&BOUNDS)]),
        58 => plain("zincrby", &[&score, &owner]),
        59 => plain(&d.of(&["zcard", "zrank", "publish", "hget", "nosuch", "lrem", "set"]), &[]),
        60 => plain("zremrangebyscore", &[&d.of(&BOUNDS), &d.of(&BOUNDS)]),
        _ => plain(&d.of(&["unlink", "setnx", "ping"]), &[&number]),
    };
    (Agree::Exactly, words)
}
