//! Scripts of fenced locks, of multi locks, and of reentrant locks without messages.

use crate::{Agree, Dice, LEASES, command, script};

const ACQUIRE: &str = holds!("reentrant/acquire");
const RELEASE: &str = holds!("reentrant/release");
const FORCE: &str = holds!("reentrant/force");
const RENEW: &str = holds!("common/renew/begin", "common/renew");
const LAST: &str = include_str!("../../lua/fenced/last.lua");
const MULTI: &str = include_str!("../../lua/multi/acquire.lua");
const FENCED: &str = holds!("fenced/begin", "reentrant/acquire", "fenced/number");

const OWNERS: [&str; 4] = ["a:1", "a:2", "b:1", "mode"];
/// A lock, and the counter of its tokens.
const LOCKS: [[&str; 2]; 4] = [["f", "n:{f}"], ["g", "n:{g}"], ["h", "n:{h}"], ["i", "n:{i}"]];

/// Keys whose expiry changes what the scripts do.
pub(crate) const ENDING: [&str; 5] = ["f", "g", "h", "n:{f}", "n:{g}"];

/// One random call of a script, or a command that corrupts its keys.
pub(crate) fn draw(d: &mut Dice, now: i64) -> (Agree, Vec<String>) {
    // Mostly one of two locks, so that calls meet.
    let [hash, counter] = LOCKS[if d.roll(3) > 0 { d.roll(2) } else { d.roll(4) }].map(str::to_owned);
    let owner = d.mostly(&OWNERS, 3);
    let lease = d.mostly(&LEASES, 4);
    let publish = d.of(&["", "", "publish", "nosuchcommand"]);
    let channel = format!("channel:{{{hash}}}");
    let s = |text: &str| text.to_owned();
    match d.roll(40) {
        n @ 0..14 => {
            let by_time = d.of(&["0", "0", "1"]);
            let args = [owner, lease, d.taken(), d.earlier(), d.last(now), d.of(&["0", "0", "0", "1"]), by_time];
            if n < 12 {
                script(FENCED, &[hash, counter], &args[..d.said(2, args.len())])
            } else {
                script(ACQUIRE, &[hash], &args[..d.said(2, args.len() - 1)])
            }
        }
        14..22 => {
            let args = [owner, lease, publish, channel, d.given_back(), d.of(&["-1", "0", "0", "1", "2"]), d.last(now)];
            script(RELEASE, &[hash], &args[..d.said(4, args.len())])
        }
        // Without a message there is no channel either.
        22 => {
            let args = [owner, lease, s(""), s(""), d.given_back(), d.of(&["-1", "0", "1"]), d.last(now)];
            script(RELEASE, &[hash], &args[..d.said(2, args.len())])
        }
        23 => script(FORCE, &[hash], &[d.last(now), publish, channel]),
        24 => script(FORCE, &[hash], &[d.last(now)]),
        25 => script(LAST, &[counter], &[]),
        26..31 => {
            let mut keys: Vec<String> = LOCKS.iter().map(|[hash, _]| s(hash)).collect();
            keys.rotate_left(d.roll(4));
            keys.truncate(1 + d.roll(4));
            script(MULTI, &keys, &[owner, lease])
        }
        31 => {
            // A negative lease sets exactly that many ms, even if more are left. 5 ms would end before the comparison.
            let lease = if lease == "-5" { s("-40000") } else { lease };
            let args = [lease, d.last(now), owner, d.relied_on(), s("a:1"), d.relied_on()];
            script(RENEW, &[hash, s("h")], &args)
        }
        32 => command(&["del", &d.of(&["f", "g", "h", "i"])]),
        // A counter that was deleted, given an expiry or overwritten; up to the largest number that Lua can tell from
        // its successor.
        33 => command(&["pexpire", &counter, &d.of(&["60000", "90000"])]),
        34 if d.roll(3) == 0 => command(&["del", &counter]),
        35 if d.roll(3) == 0 => {
            command(&["set", &counter, &d.of(&["41", "9007199254740990", "9223372036854775807", "x", "-2"])])
        }
        36 if d.roll(3) == 0 => command(&["rpush", &counter, "no number"]),
        37 if d.roll(3) == 0 => command(&["set", &hash, "no lock"]),
        38 => command(&["hset", &hash, &owner, &d.of(&["1", "2", "x"])]),
        39 => command(&["persist", &hash]),
        _ => command(&["exists", "nothing"]),
    }
}
