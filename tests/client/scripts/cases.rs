//! The scripts of locks, each with the quantity that determines its cost.

const ME: &str = "0a1b2c3d-0000-8000-9000-00000000000a";
/// A last moment that never passes.
pub const NEVER: &str = "9999999999999";
pub const LEASE: &str = "30000";

pub type Words = Vec<String>;

/// The commands before the call, and the call's keys and arguments.
pub type Made = (Vec<Words>, Words, Words);

pub struct Case {
    pub script: &'static str,
    pub what: &'static str,
    /// Upper bound of the number of commands inside a call, for a size of the quantity.
    pub most: fn(u64) -> u64,
    /// Returns the preparing commands, the keys and the arguments, for a size of the quantity.
    pub make: fn(usize) -> Made,
}

pub fn words<const N: usize>(words: [&str; N]) -> Words {
    words.map(str::to_owned).to_vec()
}

fn owner(n: usize) -> String {
    format!("{ME}:{n}")
}

fn id(n: usize) -> String {
    format!("{n:012}")
}

fn names(count: usize) -> Words {
    (0..count).map(|n| format!("n{n}")).collect()
}

fn held_often(count: usize) -> Vec<Words> {
    let list: String = (0..count).map(|n| format!(",{}", id(n))).collect();
    let field = owner(1) + ":holds";
    vec![words(["HSET", "x", &owner(1), &count.to_string(), &field, &list]), words(["PEXPIRE", "x", LEASE])]
}

fn held_each(count: usize) -> Vec<Words> {
    let hold =
        |n: usize| [words(["HSET", &format!("n{n}"), &owner(n), "1"]), words(["PEXPIRE", &format!("n{n}"), "9000"])];
    (0..count).flat_map(hold).collect()
}

fn read_by(count: usize) -> Vec<Words> {
    let mut hash = words(["HSET", "x", "mode", "read"]);
    let mut covers = words(["MSET"]);
    for n in 0..count {
        hash.extend([owner(n), "1".to_owned()]);
        covers.extend([cover(n), "1".to_owned()]);
    }
    let mut all = vec![hash, words(["PEXPIRE", "x", LEASE])];
    if count > 0 {
        all.push(covers);
    }
    all.extend((0..count).map(|n| words(["PEXPIRE", &cover(n), LEASE])));
    all
}

fn cover(n: usize) -> String {
    format!("{{x}}:{}:rwlock_timeout:1", owner(n))
}

/// Combines calls of step `number` into one batch.
fn steps(number: usize, calls: impl Iterator<Item = (Words, Words)>) -> (Words, Words) {
    let (mut all_keys, mut all_args) = (Vec::new(), Vec::new());
    for (keys, args) in calls {
        all_args.push((number * 10_000 + keys.len() * 100 + args.len()).to_string());
        all_keys.extend(keys);
        all_args.extend(args);
    }
    (all_keys, all_args)
}

fn taken(count: usize, keys: fn(usize) -> Words) -> (Words, Words) {
    steps(1, (0..count).map(|n| (keys(n), words([&owner(n), LEASE]))))
}

fn given_back(count: usize) -> (Words, Words) {
    steps(2, (0..count).map(|n| (vec![format!("n{n}")], words([&owner(n), LEASE, "publish", "c"]))))
}

/// A batch after these commands.
fn batch(before: Vec<Words>, (keys, args): (Words, Words)) -> Made {
    (before, keys, args)
}

pub const fn case(script: &'static str, what: &'static str, most: fn(u64) -> u64, make: fn(usize) -> Made) -> Case {
    Case { script, what, most, make }
}

pub const CASES: &[Case] = &[
    case(
        "reentrant/acquire",
        "holds of its owner",
        |_| 4,
        |n| (held_often(n), words(["x"]), words([&owner(1), LEASE, "z", "", "0"])),
    ),
    case(
        "reentrant/release",
        "holds of its owner",
        |_| 4,
        |n| (held_often(n), words(["x"]), words([&owner(1), LEASE, "publish", "c", &id(0)])),
    ),
    case(
        "reentrant/force",
        "holds of its owner",
        |_| 4,
        |n| (held_often(n), words(["x"]), words([NEVER, "publish", "c"])),
    ),
    case("common/disown", "holds of its owner", |_| 3, |n| (held_often(n), words(["x"]), words([&owner(1), &id(0)]))),
    case("common/revoke", "holds of its owner", |_| 4, |n| (held_often(n), words(["x"]), words([NEVER]))),
    case("common/state", "holds of its owner", |_| 2, |n| (held_often(n), words(["x"]), Vec::new())),
    case(
        "common/renew",
        "locks",
        |k| 3 * k,
        |n| {
            let each = (0..n).flat_map(|n| [owner(n), String::new()]);
            (held_each(n), names(n), words([LEASE, "0"]).into_iter().chain(each).collect())
        },
    ),
    case("multi/acquire", "locks", |k| 2 * k + 1, |n| (Vec::new(), names(n), words([&owner(1), LEASE]))),
    case("reentrant/many", "acquires", |k| 3 * k, |n| batch(Vec::new(), taken(n, |n| vec![format!("n{n}")]))),
    case("reentrant/many", "releases", |k| 3 * k, |n| batch(held_each(n), given_back(n))),
    case(
        "fenced/many",
        "acquires",
        |k| 6 * k,
        |n| batch(Vec::new(), taken(n, |n| vec![format!("n{n}"), format!("c{n}")])),
    ),
    case(
        "plain/many",
        "acquires",
        |k| k,
        |n| {
            let set = |n: usize| (vec![format!("n{n}")], words([&owner(n), "NX", "PX", LEASE]));
            batch(Vec::new(), steps(1, (0..n).map(set)))
        },
    ),
    case(
        "plain/renew",
        "locks",
        |k| 3 * k,
        |n| {
            let held = (0..n).map(|n| words(["SET", &format!("n{n}"), &owner(n), "PX", "9000"])).collect();
            (held, names(n), words([LEASE, "0"]).into_iter().chain((0..n).map(owner)).collect())
        },
    ),
    case(
        "rwlock/many",
        "readers that come",
        |k| 6 * k,
        |n| {
            let args = |n: usize| words([&owner(n), LEASE, "", "", "0", "0", "{x}", "1"]);
            batch(Vec::new(), steps(1, (0..n).map(|n| (words(["x", &cover(n), "marks"]), args(n)))))
        },
    ),
    case(
        "rwlock/many",
        "readers that leave, of ten times as many",
        |k| 4 * k + 30,
        |n| {
            let args = |n: usize| words([&owner(n), "", LEASE, "", "0", "{x}", "0", "publish", "c"]);
            batch(read_by(10 * n), steps(2, (0..n).map(|n| (words(["x", &cover(n)]), args(n)))))
        },
    ),
    case(
        "rwlock/renew",
        "readers",
        |k| 5 * k,
        |n| {
            let keys = (0..n).flat_map(|n| words(["x", &cover(n)])).collect();
            let each = (0..n).flat_map(|n| words([&owner(n), "", "read", "{x}", "1"]));
            (read_by(n), keys, words(["40000", "0"]).into_iter().chain(each).collect())
        },
    ),
    case("rwlock/force", "readers", |_| 4, |n| (read_by(n), words(["x"]), words(["read", "0", NEVER, "publish", "c"]))),
    case(
        "rwlock/state",
        "readers, who are all told",
        |n| n + 3,
        |n| (read_by(n), words(["x"]), words(["read", "{x}"])),
    ),
    case(
        "fair/waiters",
        "waiters, who are all told",
        |w| w + 2,
        |n| {
            let queued = (0..n).map(|n| words(["RPUSH", "q", &owner(n)]));
            (queued.collect(), words(["q", "d"]), Vec::new())
        },
    ),
    case(
        "fair/dequeue",
        "waiters of Java behind the removed one",
        |w| 3 * w + 17,
        |n| {
            let mut before = vec![words(["HSET", "x", &owner(0), "1"]), words(["RPUSH", "q", &owner(1)])];
            for thread in 0..n {
                let java = format!("0a1b2c3d-0000-4000-9000-00000000000a:{thread}");
                before.extend([words(["RPUSH", "q", &java]), words(["ZADD", "d", NEVER, &java])]);
            }
            let args = words([&owner(1), "5500", "5500", "publish", "300000", "30000", "500", "c", NEVER]);
            (before, words(["x", "q", "d", "w"]), args)
        },
    ),
];
