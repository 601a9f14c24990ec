//! Scripts of the plain lock, and commands of other users at the same keys.

use crate::{Agree, Dice, LEASES, command, script};

const ACQUIRE: &str = holds!("plain/values", "plain/acquire");
const RELEASE: &str = holds!("plain/values", "plain/release");
const FORCE: &str = holds!("plain/values", "plain/force");
const RENEW: &str = holds!("plain/values", "common/renew/begin", "plain/renew");
const STATE: &str = include_str!("../../lua/plain/state.lua");
const SET: &str = include_str!("../../lua/plain/set.lua");
const MANY: &str = holds!(
    "plain/values",
    "common/many/begin",
    "plain/set",
    "common/many/next",
    "plain/acquire",
    "common/many/next",
    "plain/release",
    "common/many/run"
);

pub(crate) const KEYS: [&str; 3] = ["p", "q", "r"];

/// Our values in all forms, with and without ids, and values of others.
const VALUES: [&str; 12] = [
    "71b96ce8-2746-8c3a-9d0e-0123456789ab:7",
    "71b96ce8-2746-8c3a-9d0e-0123456789ab:7/71b96ce82746.1",
    "71b96ce8-2746-8c3a-9d0e-0123456789ab:70",
    "71b96ce827468c3a9d0e0123456789ab0000000000000007",
    "71b96ce827468c3a9d0e0123456789ab000000000000000771b96ce827460000000000000102",
    "cbls6CdGjDqdDgEjRWeJqwAAAAAAAAAH",
    "cbls6CdGjDqdDgEjRWeJqwAAAAAAAAAHcbls6CdGAAAAAAAAAQI=",
    "71b96ce827464c3a9d0e0123456789ab0000000000000007",
    "PpQbmd7PO+5LjbGwDPnMPA==",
    "7be4a1a69a6b4a4c8b9f1c1f6f8f6f8f",
    "x",
    "",
];

/// Prefixes shared by all values of an owner.
const OWNERS: [&str; 5] = [
    "",
    "71b96ce8-2746-8c3a-9d0e-0123456789ab:7/",
    "71b96ce827468c3a9d0e0123456789ab0000000000000007",
    "cbls6CdGjDqdDgEjRWeJqwAAAAAAAAAH",
    "nobody's/",
];

/// One random call of a script, or a command of another user.
pub(crate) fn draw(d: &mut Dice, now: i64) -> (Agree, Vec<String>) {
    let key = KEYS[if d.roll(3) > 0 { 0 } else { d.roll(KEYS.len()) }].to_owned();
    let s = |text: &str| text.to_owned();
    let value = if d.roll(3) > 0 { d.of(&VALUES[..3]) } else { d.of(&VALUES) };
    let lease = d.mostly(&LEASES, 4);
    let publish = d.of(&["publish", "publish", "publish", "nosuchcommand"]);
    let channel = format!("c:{{{key}}}");
    let owner = d.of(&OWNERS);
    match d.roll(30) {
        0..6 => script(SET, &[key], &[value, s("NX"), s("PX"), lease]),
        6..11 => {
            let args = [value, lease, d.last(now), owner, d.of(&OWNERS)];
            script(ACQUIRE, &[key], &args[..d.said(2, args.len())])
        }
        11..16 => script(RELEASE, &[key], &[publish, channel, value, d.of(&VALUES)]),
        16 => script(RELEASE, &[key], &[publish, channel, value]),
        17..19 => script(RELEASE, &[key], &[publish, channel, String::new(), owner, d.of(&OWNERS)]),
        19..22 => {
            let lease = if lease == "-5" { s("-40000") } else { lease };
            script(RENEW, &[key, s("q"), s("r")], &[lease, d.last(now), value, d.of(&VALUES), d.of(&VALUES)])
        }
        22 => script(FORCE, &[key], &[d.last(now), publish, channel]),
        23..25 => script(STATE, &[key], &[]),
        25..27 => {
            let (one, two) = (d.of(&KEYS), d.of(&KEYS));
            let mut args = [s("1"), s("1"), s("4"), value.clone(), s("NX"), s("PX"), s("20000")].to_vec();
            args.extend([s("2"), s("1"), s("2"), d.of(&VALUES), s("20000")]);
            args.extend([s("3"), s("1"), s("3"), publish, channel, value]);
            script(MANY, &[one.clone(), two, one], &args)
        }
        27 => command(&["set", &key, &value, "PX", "20000", "NX"]),
        28 => command(&["set", &key, &value]),
        _ => match d.roll(3) {
            0 => command(&["hset", &key, "f", "1"]),
            _ => command(&["del", &key]),
        },
    }
}
