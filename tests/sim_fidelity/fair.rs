//! Scripts of the fair lock.

use crate::{Agree, Dice, LEASES, script};

const FAIR_ACQUIRE: &str = holds!("fair/queue", "fair/acquire");
const FAIR_RELEASE: &str = holds!("fair/queue", "fair/release");
const FAIR_LEAVE: &str = holds!("fair/queue", "fair/remove", "fair/leave");
const FAIR_DEQUEUE: &str = holds!("fair/queue", "fair/remove", "fair/dequeue");
const FAIR_FORCE: &str = holds!("fair/queue", "fair/force");
const FAIR_REFRESH: &str = holds!("fair/queue", "fair/mend", "fair/refresh");
const FAIR_WAITERS: &str = holds!("fair/queue", "fair/waiters");

/// Owners of two clients of ours (uuid version 8) and of one of Java's (version 4), and an invalid owner.
const QUEUERS: [&str; 8] = [
    "00000000-0000-8000-8000-00000000000a:1",
    "00000000-0000-8000-8000-00000000000a:2",
    "00000000-0000-8000-8000-00000000000a:3",
    "00000000-0000-8000-8000-00000000000b:1",
    "00000000-0000-4000-8000-00000000000c:1",
    "00000000-0000-4000-8000-00000000000c:2",
    "00000000-0000-4000-8000-00000000000c:3",
    "x",
];
/// Hash, queue, deadlines, waiters and channel prefix of three locks. The second one shares all but the waiters with
/// the first; the third one shares nothing.
const FAIR: [[&str; 5]; 3] =
    [["f", "q", "t", "w", "c:{f}"], ["{f}", "q", "t", "w:{}", "c:{f}"], ["g", "q:g", "t:g", "w:g", "c:{g}"]];
/// Nonces of waiters.
const NONCES: [&str; 6] = ["n1", "n2", "!i1", "!i2", "!0a.7", ""];
const WAITS: [&str; 4] = ["4000", "10000", "60000", "300000"];

/// One random call of a script, or a command that corrupts its keys. `now`: the servers' time of day in ms.
pub(crate) fn draw(d: &mut Dice, now: i64) -> (Agree, Vec<String>) {
    let names = FAIR[[0, 0, 0, 0, 1, 2][d.roll(6)]].map(str::to_owned);
    let [hash, queue, deadlines, waiters, channels] = names.clone();
    let owner = d.mostly(&QUEUERS, 7);
    let (wait, first_lease) = (d.of(&WAITS), d.of(&["4000", "15000", "15000", "15000", "x", "-1"]));
    let publish = d.of(&["publish", "publish", "publish", "nosuchcommand"]);
    let (long, watchdog) = (d.of(&["300000", "5000"]), d.of(&["30000", "3000"]));
    let grace = d.of(&["500", "500", "5000", "x"]);
    let lease = d.mostly(&LEASES, 4);
    let s = |text: &str| text.to_owned();
    let nonce = d.of(&NONCES);
    let last = d.last(now);
    let options = [&wait, &first_lease, &publish, &long, &watchdog, &grace, &channels].map(String::clone);
    let call = |source: &str, args: &[String]| script(source, &names[..4], &[args, &options[..]].concat());
    let due = (now + 1000 * (d.roll(40) as i64 - 10)).to_string();
    match d.roll(35) {
        0..10 => {
            let (alone, turn) = (d.of(&["0", "0", "0", "1"]), d.of(&["0", "1", "1", "1", "2"]));
            call(FAIR_ACQUIRE, &[owner, lease, d.taken(), d.earlier(), last, alone, turn, nonce])
        }
        10..14 => call(FAIR_RELEASE, &[owner, d.given_back(), lease, d.of(&["-1", "0", "1"]), last]),
        14..17 => call(FAIR_LEAVE, &[owner, d.taken(), lease, d.of(&["0", "1"]), nonce]),
        17 if d.roll(2) == 0 => call(FAIR_FORCE, &[last]),
        17 => script(FAIR_DEQUEUE, &names[..4], &[&[owner][..], &options, &[last]].concat()),
        18 => script(FAIR_WAITERS, &[queue, deadlines], &[]),
        19..25 => draw_refresh(d, now, vec![wait, first_lease, publish, long, watchdog, grace]),
        25 => (Agree::Exactly, vec![s("zadd"), deadlines, due, owner]),
        26 => (Agree::Exactly, vec![s("zadd"), deadlines, d.of(&["-1", "0", "inf", "-inf", "2.5"]), owner]),
        27 => (Agree::Exactly, vec![s("zrem"), deadlines, owner]),
        28 => (Agree::Exactly, vec![s("rpush"), queue, owner]),
        29 => (Agree::Exactly, vec![s("lrem"), queue, s("0"), owner]),
        30 => (Agree::Exactly, vec![s("del"), d.of(&["f", "f", "t", "q", "g", "{f}", "w"])]),
        31 => (Agree::Exactly, vec![s("hset"), hash, owner, s("1")]),
        32 => (Agree::Exactly, vec![s("hset"), waiters, owner, nonce]),
        33 => (Agree::Exactly, vec![s("hdel"), waiters, owner]),
        _ if d.roll(4) > 0 => (Agree::Exactly, vec![s("exists"), s("nothing")]),
        _ => (Agree::Exactly, vec![s("set"), d.of(&["f", "q", "t", "w"]), s("no lock")]),
    }
}

/// A call that refreshes some waiters of the locks. `args`: the options of the client.
fn draw_refresh(d: &mut Dice, now: i64, mut args: Vec<String>) -> (Agree, Vec<String>) {
    let mut keys = Vec::new();
    for names in &FAIR[d.roll(3)..] {
        keys.extend(names[..4].iter().map(|name| (*name).to_owned()));
        let n = d.roll(4);
        args.extend([names[4].to_owned(), n.to_string(), d.of(&["0", "1"])]);
        for _ in 0..n {
            let last = if d.roll(3) == 0 { 0 } else { now - 1000 * d.roll(5) as i64 };
            args.extend([last.to_string(), d.mostly(&QUEUERS, 7)]);
        }
        args.extend((0..n).map(|_| d.of(&NONCES)));
    }
    script(FAIR_REFRESH, &keys, &args)
}
