//! The scripts and what they grow with.

const ME: &str = "0a1b2c3d-0000-8000-9000-00000000000a";
/// Nothing is too late before this moment.
const NEVER: &str = "9999999999999";
const LEASE: &str = "30000";

/// A command, or a part of one, word by word.
pub type Words = Vec<String>;

/// The commands before a call; its keys; its arguments.
type Made = (Vec<Words>, Words, Words);

/// One script and what it grows with.
pub struct Case {
    pub script: &'static str,
    pub what: &'static str,
    /// The most commands inside a call, of so many.
    pub most: fn(u64) -> u64,
    /// What is there before a call, a command each, and the call's keys and arguments, of so many.
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

/// A lock whose owner has so many holds.
fn held_often(count: usize) -> Vec<Words> {
    let list: String = (0..count).map(|n| format!(",{}", id(n))).collect();
    let field = owner(1) + ":holds";
    vec![words(["HSET", "x", &owner(1), &count.to_string(), &field, &list]), words(["PEXPIRE", "x", LEASE])]
}

/// So many locks, each of an owner of its own.
fn held_each(count: usize) -> Vec<Words> {
    let hold =
        |n: usize| [words(["HSET", &format!("n{n}"), &owner(n), "1"]), words(["PEXPIRE", &format!("n{n}"), "9000"])];
    (0..count).flat_map(hold).collect()
}

/// A read-write lock with so many readers.
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

/// So many calls by one command: of step `number`, each with these keys and arguments.
fn steps(number: usize, calls: impl Iterator<Item = (Words, Words)>) -> (Words, Words) {
    let (mut all_keys, mut all_args) = (Vec::new(), Vec::new());
    for (keys, args) in calls {
        all_args.extend([number, keys.len(), args.len()].map(|n| n.to_string()));
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

pub const CASES: &[Case] = &[
    Case {
        script: "reentrant/acquire",
        what: "holds of its owner",
        most: |_| 4,
        make: |n| (held_often(n), words(["x"]), words([&owner(1), LEASE, "z", "", "0"])),
    },
    Case {
        script: "reentrant/release",
        what: "holds of its owner",
        most: |_| 4,
        make: |n| (held_often(n), words(["x"]), words([&owner(1), LEASE, "publish", "c", &id(0)])),
    },
    Case {
        script: "reentrant/force",
        what: "holds of its owner",
        most: |_| 4,
        make: |n| (held_often(n), words(["x"]), words([NEVER, "publish", "c"])),
    },
    Case {
        script: "common/disown",
        what: "holds of its owner",
        most: |_| 3,
        make: |n| (held_often(n), words(["x"]), words([&owner(1), &id(0)])),
    },
    Case {
        script: "common/state",
        what: "holds of its owner",
        most: |_| 2,
        make: |n| (held_often(n), words(["x"]), Vec::new()),
    },
    Case {
        script: "common/renew",
        what: "locks",
        most: |k| 3 * k,
        make: |n| {
            let each = (0..n).flat_map(|n| [owner(n), String::new()]);
            (held_each(n), names(n), words([LEASE, "0"]).into_iter().chain(each).collect())
        },
    },
    Case {
        script: "multi/acquire",
        what: "locks",
        most: |k| 2 * k + 1,
        make: |n| (Vec::new(), names(n), words([&owner(1), LEASE])),
    },
    Case {
        script: "reentrant/many",
        what: "acquires",
        most: |k| 3 * k,
        make: |n| {
            let (keys, args) = taken(n, |n| vec![format!("n{n}")]);
            (Vec::new(), keys, args)
        },
    },
    Case {
        script: "reentrant/many",
        what: "releases",
        most: |k| 3 * k,
        make: |n| {
            let (keys, args) = given_back(n);
            (held_each(n), keys, args)
        },
    },
    Case {
        script: "fenced/many",
        what: "acquires",
        most: |k| 6 * k,
        make: |n| {
            let (keys, args) = taken(n, |n| vec![format!("n{n}"), format!("c{n}")]);
            (Vec::new(), keys, args)
        },
    },
    Case {
        script: "plain/many",
        what: "acquires",
        most: |k| k,
        make: |n| {
            let (keys, args) = steps(1, (0..n).map(|n| (vec![format!("n{n}")], words([&owner(n), "NX", "PX", LEASE]))));
            (Vec::new(), keys, args)
        },
    },
    Case {
        script: "plain/renew",
        what: "locks",
        most: |k| 3 * k,
        make: |n| {
            let held = (0..n).map(|n| words(["SET", &format!("n{n}"), &owner(n), "PX", "9000"])).collect();
            (held, names(n), words([LEASE, "0"]).into_iter().chain((0..n).map(owner)).collect())
        },
    },
    Case {
        script: "rwlock/many",
        what: "readers that come",
        most: |k| 6 * k,
        make: |n| {
            let args = |n: usize| words([&owner(n), LEASE, "", "", "0", "0", "{x}", "1"]);
            let (keys, args) = steps(1, (0..n).map(|n| (words(["x", &cover(n), "marks"]), args(n))));
            (Vec::new(), keys, args)
        },
    },
    Case {
        script: "rwlock/many",
        what: "readers that leave, of ten times as many",
        // What is left is looked at once.
        most: |k| 4 * k + 30,
        make: |n| {
            let args = |n: usize| words([&owner(n), "", LEASE, "", "0", "{x}", "0", "publish", "c"]);
            let (keys, args) = steps(2, (0..n).map(|n| (words(["x", &cover(n)]), args(n))));
            (read_by(10 * n), keys, args)
        },
    },
    Case {
        script: "rwlock/renew",
        what: "readers",
        most: |k| 5 * k,
        make: |n| {
            let keys = (0..n).flat_map(|n| words(["x", &cover(n)])).collect();
            let each = (0..n).flat_map(|n| words([&owner(n), "", "read", "{x}", "1"]));
            (read_by(n), keys, words(["40000", "0"]).into_iter().chain(each).collect())
        },
    },
    Case {
        script: "rwlock/force",
        what: "readers",
        most: |_| 4,
        make: |n| (read_by(n), words(["x"]), words(["read", "0", NEVER, "publish", "c"])),
    },
    Case {
        script: "rwlock/state",
        what: "readers, who are all told",
        most: |n| n + 3,
        make: |n| (read_by(n), words(["x"]), words(["read", "{x}"])),
    },
    Case {
        script: "fair/waiters",
        what: "waiters, who are all told",
        most: |w| w + 2,
        make: |n| {
            let queued = (0..n).map(|n| words(["RPUSH", "q", &owner(n)]));
            (queued.collect(), words(["q", "d"]), Vec::new())
        },
    },
];
