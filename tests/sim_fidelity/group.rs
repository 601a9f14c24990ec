//! The scripts of the fenced lock, of many locks taken together, and of the reentrant lock where nobody is told.

use crate::{Agree, Dice, LEASES, script};

const ACQUIRE: &str = include_str!("../../lua/reentrant/acquire.lua");
const RELEASE: &str = include_str!("../../lua/reentrant/release.lua");
const FORCE: &str = include_str!("../../lua/reentrant/force.lua");
const RENEW: &str = include_str!("../../lua/common/renew.lua");
const LAST: &str = include_str!("../../lua/fenced/last.lua");
const MULTI: &str = include_str!("../../lua/multi/acquire.lua");
/// As it is put together at build time.
const FENCED: &str = concat!(
    include_str!("../../lua/fenced/begin.lua"),
    include_str!("../../lua/reentrant/acquire.lua"),
    include_str!("../../lua/fenced/number.lua")
);

const OWNERS: [&str; 4] = ["a:1", "a:2", "b:1", "mode"];
/// A lock and the counter of its sections.
const LOCKS: [[&str; 2]; 4] = [["f", "n:{f}"], ["g", "n:{g}"], ["h", "n:{h}"], ["i", "n:{i}"]];

/// Keys whose end changes what the scripts do.
pub(crate) const ENDING: [&str; 5] = ["f", "g", "h", "n:{f}", "n:{g}"];

/// One random call of a script, or something that spoils its keys.
pub(crate) fn draw(d: &mut Dice) -> (Agree, Vec<String>) {
    // Mostly one of two, so that somebody meets somebody.
    let [hash, counter] = LOCKS[if d.roll(3) > 0 { d.roll(2) } else { d.roll(4) }].map(str::to_owned);
    let owner = d.mostly(&OWNERS, 3);
    let lease = d.mostly(&LEASES, 4);
    let publish = d.of(&["", "", "publish", "nosuchcommand"]);
    let channel = format!("channel:{{{hash}}}");
    let s = |text: &str| text.to_owned();
    let plain = |words: &[&str]| (Agree::Exactly, words.iter().map(|word| s(word)).collect());
    let want = d.of(&["-1", "0", "1", "1", "1", "2", "2", "3"]);
    match d.roll(40) {
        0..12 => script(FENCED, &[hash, counter], &[owner, lease, want]),
        12..14 => script(ACQUIRE, &[hash], &[owner, lease, want]),
        14..22 => script(RELEASE, &[hash, channel], &[owner, d.of(&["-1", "0", "0", "1", "2"]), lease, publish]),
        // Where nobody is told there is no channel either.
        22 => script(RELEASE, &[hash], &[owner, d.of(&["-1", "0", "1"]), lease, s("")]),
        23 => script(FORCE, &[hash, channel], &[publish]),
        24 => script(FORCE, &[hash], &[s("")]),
        25 => script(LAST, &[counter], &[]),
        26..31 => {
            let mut keys: Vec<String> = LOCKS.iter().map(|[hash, _]| s(hash)).collect();
            keys.rotate_left(d.roll(4));
            keys.truncate(1 + d.roll(4));
            script(MULTI, &keys, &[owner, lease])
        }
        31 => {
            // A negative lease is set exactly so: one long enough not to end while the answers are compared.
            let lease = if lease == "-5" { s("-40000") } else { lease };
            script(RENEW, &[hash, s("h")], &[lease, owner, s("a:1")])
        }
        32 => plain(&["del", &d.of(&["f", "g", "h", "i"])]),
        // A counter that somebody deleted, gave an end, or set; up to the last number that Lua can tell from the next one.
        33 => plain(&["pexpire", &counter, &d.of(&["60000", "90000"])]),
        34 if d.roll(3) == 0 => plain(&["del", &counter]),
        35 if d.roll(3) == 0 => {
            plain(&["set", &counter, &d.of(&["41", "9007199254740990", "9223372036854775807", "x", "-2"])])
        }
        36 if d.roll(3) == 0 => plain(&["rpush", &counter, "no number"]),
        37 if d.roll(3) == 0 => plain(&["set", &hash, "no lock"]),
        38 => plain(&["hset", &hash, &owner, &d.of(&["1", "2", "x"])]),
        39 => plain(&["persist", &hash]),
        _ => plain(&["ping"]),
    }
}
