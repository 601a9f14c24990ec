//! The cases. Every call of a family runs in every state of the family.
//!
//! Words are separated by blanks:
//! - `''` is an empty text
//! - `$a`, `$b`, `$c` are owners of ours, `$j` is an owner of Java, `$a/1` is the first cover of `$a`
//! - `$q`, `$d`, `$w`, `$m` are the other keys of the lock `s`
//! - `$l` has the leases of its permits, `$t` is a token of a command about it, `#12` are the ids of permits 1 and 2
//! - `$never` is a last moment that never passes
//! - `@5000` is a deadline of our waiter in 5000 ms, `@j5000` is one of Java's

use std::collections::BTreeSet;

use super::{counters, halves, queues};

/// How a script reports a failed step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// An error. There is one step.
    One,
    /// One entry for each step: the reason (renewals).
    Entries,
    /// One entry for each step: `{'!', reason}` (`common/many`).
    Many,
    /// The time, then four entries for each step, beginning with the reason (`fair/refresh`).
    Fours,
}

pub struct Call {
    pub script: &'static str,
    pub shape: Shape,
    /// The arguments before the steps' arguments.
    pub head: &'static str,
    /// Keys and arguments of each step. In `common/many`, the step's number precedes the keys.
    pub steps: &'static [(&'static str, &'static str)],
}

impl Call {
    /// The number of different keys that the call declares.
    pub fn keys(&self) -> usize {
        let numbers = usize::from(self.shape == Shape::Many);
        let keys = self.steps.iter().flat_map(|(keys, _)| keys.split_whitespace().skip(numbers));
        keys.collect::<BTreeSet<_>>().len()
    }
}

pub struct Family {
    /// The commands that make each state. Each command is about one key.
    pub states: &'static [&'static [&'static str]],
    pub calls: &'static [Call],
}

pub const fn one(script: &'static str, step: &'static [(&'static str, &'static str); 1]) -> Call {
    Call { script, shape: Shape::One, head: "", steps: step }
}

pub const fn call(
    script: &'static str,
    shape: Shape,
    head: &'static str,
    steps: &'static [(&'static str, &'static str)],
) -> Call {
    Call { script, shape, head, steps }
}

pub const fn many(script: &'static str, steps: &'static [(&'static str, &'static str)]) -> Call {
    call(script, Shape::Many, "", steps)
}

/// A renewal.
pub const fn renew(script: &'static str, head: &'static str, steps: &'static [(&'static str, &'static str)]) -> Call {
    call(script, Shape::Entries, head, steps)
}

const HELD: &[&str] = &["HSET s $a 1", "PEXPIRE s 20000"];
const LISTED: &[&str] = &["HSET s $a 2 $a:holds ,i1,i2", "PEXPIRE s 20000"];
const TAKEN: &[&str] = &["HSET s $b 1", "PEXPIRE s 20000"];

pub const FAMILIES: &[Family] = &[
    REENTRANT,
    SEVERAL,
    FENCED,
    PLAIN,
    queues::FAIR,
    queues::QUEUES,
    halves::HALVES,
    counters::PERMITS,
    counters::SEMAPHORES,
    counters::LATCHES,
    counters::BARRIERS,
    counters::LEADERS,
];

/// Reentrant and spin locks, with one key.
const REENTRANT: Family = Family {
    states: &[
        &[],
        HELD,
        LISTED,
        TAKEN,
        &["HSET s $a 1 $a:holds ,i1~6", "PEXPIRE s 40000"],
        &["HSET s $a 1 revoke:holds +", "PEXPIRE s 20000"],
    ],
    calls: &[
        one("common/preflight", &[("s", "$pub $ch")]),
        one("common/state", &[("s", "")]),
        one("common/disown", &[("s", "$a i1")]),
        one("common/revoke", &[("s", "$never")]),
        one("reentrant/acquire", &[("s", "$a 30000")]),
        one("reentrant/acquire", &[("s", "$a 30000 i1 '' $never")]),
        one("reentrant/acquire", &[("s", "$a 30000 i9 i1 $never")]),
        one("reentrant/acquire", &[("s", "$a 30000 i9 '' $never 1")]),
        one("reentrant/release", &[("s", "$a 30000 $pub $ch")]),
        one("reentrant/release", &[("s", "$a 30000 $pub $ch i1 ,i2 $never")]),
        one("reentrant/release", &[("s", "$a 30000 $pub $ch * '' $never")]),
        one("reentrant/force", &[("s", "$never $pub $ch")]),
        renew("common/renew", "30000 0", &[("s", "$a ''")]),
        renew("common/renew", "-5000 $never", &[("s", "$a ,i1~7")]),
    ],
};

const SEVERAL: Family = Family {
    states: &[
        &[],
        HELD,
        &["HSET s $a 1", "PEXPIRE s 20000", "HSET {s}t $a 1", "PEXPIRE {s}t 20000"],
        &["HSET s $b 1", "PEXPIRE s 20000", "HSET {s}t $a 2 $a:holds ,i1,i2", "PEXPIRE {s}t 20000"],
        &[
            "HSET s $a 1",
            "PEXPIRE s 20000",
            "HSET {s}t $a 1",
            "PEXPIRE {s}t 20000",
            "HSET {s}u $a 1",
            "PEXPIRE {s}u 20000",
        ],
    ],
    calls: &[
        one("multi/acquire", &[("s {s}t {s}u", "$a 30000")]),
        renew("common/renew", "30000 0", &[("s", "$a ''"), ("{s}t", "$a ''"), ("{s}u", "$a ''")]),
        renew("common/renew", "-5000 $never", &[("s", "$a ,-~7"), ("{s}t", "$a ,i1~7")]),
        many("reentrant/many", &[("1 s", "$a 30000"), ("1 {s}t", "$a 30000 i9 '' $never")]),
        many(
            "reentrant/many",
            &[("2 s", "$a 30000 $pub $ch"), ("1 {s}t", "$a 30000"), ("2 {s}u", "$a 30000 $pub $ch")],
        ),
        many("reentrant/many", &[("2 s", "$a 30000 $pub $ch"), ("1 s", "$b 30000")]),
    ],
};

const FENCED: Family = Family {
    states: &[
        &[],
        &["SET $n 7"],
        &["SET $n 7", "PEXPIRE $n 60000"],
        &["SET $n 7", "HSET s $a 1", "PEXPIRE s 20000"],
        &["SET $n 7", "HSET s $a 2 $a:holds ,i1,i2", "PEXPIRE s 20000"],
        &["SET $n 7", "HSET s $b 1", "PEXPIRE s 20000"],
        &["SET $n 7", "SET {s}tn 3", "HSET {s}t $a 1", "PEXPIRE {s}t 20000"],
    ],
    calls: &[
        one("fenced/last", &[("$n", "")]),
        one("fenced/expire", &[("s $n", "40000")]),
        one("fenced/acquire", &[("s $n", "$a 30000")]),
        one("fenced/acquire", &[("s $n", "$a 30000 i9 '' $never")]),
        one("fenced/acquire", &[("s $n", "$a 30000 i9 i1 $never 0")]),
        many("fenced/many", &[("1 s $n", "$a 30000"), ("2 {s}t", "$a 30000 $pub $ch")]),
        many("fenced/many", &[("1 s $n", "$a 30000"), ("1 {s}t {s}tn", "$b 30000")]),
    ],
};

const PLAIN: Family = Family {
    states: &[
        &[],
        &["SET s $a/x PX 20000"],
        &["SET s $b/y PX 20000"],
        &["SET s $a/x PX 20000", "SET {s}t $a/z PX 20000"],
    ],
    calls: &[
        one("plain/set", &[("s", "$a/x NX PX 30000")]),
        one("plain/acquire", &[("s", "$a/x 30000")]),
        one("plain/acquire", &[("s", "$a/v 30000 $never $a/")]),
        one("plain/release", &[("s", "$pub $ch $a/x")]),
        one("plain/release", &[("s", "$pub $ch '' $a/")]),
        one("plain/force", &[("s", "$never $pub $ch")]),
        one("plain/state", &[("s", "")]),
        renew("plain/renew", "30000 0", &[("s", "$a/x"), ("{s}t", "$a/z")]),
        renew("plain/renew", "-5000 $never", &[("s", "$a/x")]),
        many("plain/many", &[("1 s", "$b/w NX PX 30000"), ("3 {s}t", "$pub $ch $a/z"), ("2 {s}u", "$b/w 30000")]),
        many("plain/many", &[("3 s", "$pub $ch $a/x"), ("1 s", "$b/w NX PX 30000")]),
    ],
};

/// Locks and permits in several slots of a node, including the open slot. Only for calls without declared keys.
pub const OVER_SLOTS: Family = Family {
    states: &[
        &[],
        &["HSET s $a 1", "PEXPIRE s 20000", "HSET $o $a 1", "PEXPIRE $o 20000"],
        &["HSET s $b 1", "PEXPIRE s 20000", "HSET {s}t $a 1", "PEXPIRE {s}t 20000", "HSET $p $a 1", "PEXPIRE $p 20000"],
        &["ZADD $l @j20000 #1", "ZADD {$o}:timeout @j20000 #2", "ZADD {$p}:timeout @j12000 #3"],
    ],
    calls: &[
        renew("common/renew", "30000 0", &[("s", "$a ''"), ("$o", "$a ''"), ("{s}t", "$a ''"), ("$p", "$a ''")]),
        renew("permits/renew", "30000 0", &[("$o {$o}:timeout", "#2"), ("s $l", "#1"), ("$p {$p}:timeout", "#34")]),
        many(
            "reentrant/many",
            &[
                ("2 s", "$a 30000 $pub $ch"),
                ("1 $o", "$a 30000"),
                ("2 {s}t", "$a 30000 $pub $ch"),
                ("1 $p", "$b 30000 i9 '' $never"),
            ],
        ),
        many(
            "plain/many",
            &[("1 {s}v", "$b/w NX PX 30000"), ("2 {$o}v", "$b/w 30000"), ("1 {$p}v", "$a/w NX PX 30000")],
        ),
    ],
};
