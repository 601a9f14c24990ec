//! Scripts of the read-write lock.

use crate::{Agree, Dice, LEASES, command, script};

const READ: &str = holds!("rwlock/covers", "rwlock/read");
const READ_RELEASE: &str = holds!("rwlock/covers", "rwlock/read_release");
const WRITE: &str = holds!("rwlock/covers", "rwlock/write");
const WRITE_RELEASE: &str = holds!("rwlock/covers", "rwlock/write_release");
const LEAVE: &str = holds!("rwlock/covers", "rwlock/leave", "rwlock/write_release");
const FORCE: &str = holds!("rwlock/covers", "rwlock/force");
const STATE: &str = holds!("rwlock/covers", "rwlock/state");
const RENEW: &str = holds!("rwlock/covers", "common/renew/begin", "rwlock/renew");

/// The last owner is invalid.
const OWNERS: [&str; 5] = ["a:1", "a:2", "b:1", "c:1", "mode"];
/// A lock, its tag, its channel and its waiting writers. The second lock has a hash tag in its name.
const LOCKS: [[&str; 4]; 2] =
    [["r", "{r}", "c:{r}", "{r}:rwlock_waiting"], ["{s}t", "{s}t", "c:{s}t", "{s}t:rwlock_waiting"]];

/// Keys whose expiry changes what the scripts do.
pub(crate) const ENDING: [&str; 6] = [
    "r",
    "{r}:a:1:rwlock_timeout:1",
    "{r}:a:1:rwlock_timeout:2",
    "{r}:b:1:rwlock_timeout:1",
    "{r}:c:1:rwlock_timeout:1",
    "{r}:rwlock_waiting",
];

/// One random call of a script, or a command that corrupts its keys. `now`: the servers' time of day in ms.
pub(crate) fn draw(d: &mut Dice, now: i64) -> (Agree, Vec<String>) {
    let [hash, tag, channel, waiting] = LOCKS[d.roll(5) / 4].map(str::to_owned);
    let owner = d.mostly(&OWNERS, 4);
    let lease = d.mostly(&LEASES, 4);
    let publish = d.of(&["publish", "publish", "publish", "nosuchcommand"]);
    let cover_of = |n: usize| format!("{tag}:{owner}:rwlock_timeout:{n}");
    let (first, cover) = (cover_of(1), cover_of(1 + d.roll(3)));
    let s = |text: &str| text.to_owned();
    let call = |source: &str, keys: &[&String], args: &[&String]| {
        let owned = |words: &[&String]| words.iter().map(|word| (*word).clone()).collect::<Vec<_>>();
        script(source, &owned(keys), &owned(args))
    };
    let (hold, back, earlier, last) = (d.taken(), d.given_back(), d.earlier(), d.last(now));
    let alone = d.of(&["0", "0", "0", "1"]);
    let left = d.of(&["-1", "0", "0", "1", "2"]);
    match d.roll(40) {
        0..9 => {
            let own = [&owner, &lease, &hold, &earlier, &last, &alone, &tag, &d.of(&["0", "1"])];
            call(READ, &[&hash, &first, &waiting], &own)
        }
        9..14 => {
            let promised = d.of(&["0", "0", "5000", "30000", "x"]);
            let own = [&owner, &back, &lease, &left, &last, &tag, &promised, &publish, &channel];
            let covers: Vec<String> = (1..=1 + d.roll(3)).map(cover_of).collect();
            let keys: Vec<&String> = [&hash].into_iter().chain(&covers).collect();
            call(READ_RELEASE, &keys, &own)
        }
        14..19 => {
            let own = [&owner, &lease, &hold, &earlier, &last, &alone, &tag, &d.of(&["0", "3000", "9000"])];
            call(WRITE, &[&hash, &first, &waiting], &own)
        }
        19..23 => {
            call(WRITE_RELEASE, &[&hash, &first], &[&owner, &back, &lease, &left, &last, &tag, &publish, &channel])
        }
        23..25 => {
            let own = [&owner, &hold, &lease, &left, &s("0"), &tag, &publish, &channel];
            call(LEAVE, &[&hash, &first, &waiting], &own)
        }
        25 => {
            let (mode, message) = if d.roll(2) == 0 { ("read", "0") } else { ("write", "1") };
            call(FORCE, &[&hash], &[&s(mode), &s(message), &last, &publish, &channel])
        }
        26..28 => call(STATE, &[&hash], &[&d.of(&["read", "write"]), &tag]),
        28..32 => draw_renewal(d, lease, last),
        n => draw_corruption(d, n, now, [&hash, &waiting, &owner, &cover]),
    }
}

/// A call that renews a few holds.
fn draw_renewal(d: &mut Dice, lease: String, last: String) -> (Agree, Vec<String>) {
    // A negative lease sets exactly that many ms, even if more are left. 5 ms would end before the comparison.
    let lease = if lease == "-5" { "-15000".to_owned() } else { lease };
    let (mut keys, mut args) = (Vec::new(), vec![lease, last]);
    for _ in 0..1 + d.roll(3) {
        let [hash, tag, ..] = LOCKS[d.roll(5) / 4].map(str::to_owned);
        let (owner, known) = (d.mostly(&OWNERS, 4), d.roll(3));
        keys.push(hash);
        keys.extend((1..=known).map(|n| format!("{tag}:{owner}:rwlock_timeout:{n}")));
        args.extend([owner, d.relied_on(), d.of(&["read", "read", "write", "keep"]), tag, known.to_string()]);
    }
    script(RENEW, &keys, &args)
}

/// A command that corrupts the keys of a lock, for the number `n` from 32.
fn draw_corruption(d: &mut Dice, n: usize, now: i64, [hash, waiting, owner, cover]: [&str; 4]) -> (Agree, Vec<String>) {
    match n {
        // A reader dies, or its lease changes.
        32 => command(&["del", cover]),
        33 => command(&["pexpire", cover, &d.of(&["7000", "60000"])]),
        34 => command(&["persist", &d.of(&["r", "{r}:a:1:rwlock_timeout:1"])]),
        35 => command(&["zadd", waiting, &(now + 1000 * (d.roll(10) as i64 - 5)).to_string(), owner]),
        36 => command(&["del", &d.of(&["r", "{s}t", "{r}:rwlock_waiting"])]),
        // A forged field, or a lock of another kind.
        37 => command(&["hset", hash, owner, &d.of(&["1", "2", "x", "0", "-1"])]),
        38 if d.roll(3) == 0 => command(&["hset", hash, "mode", &d.of(&["read", "write", "odd"])]),
        39 if d.roll(3) == 0 => {
            command(&["set", &d.of(&["r", "{r}:rwlock_waiting", "{r}:a:1:rwlock_timeout:1"]), "no lock"])
        }
        _ => command(&["exists", "nothing"]),
    }
}
