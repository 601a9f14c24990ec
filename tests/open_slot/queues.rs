//! Fair locks, with four keys each.

use super::cases::{Call, Family, Shape, call, many, one};

pub const FAIR: Family = Family {
    states: &[
        &[],
        &["HSET s $a 1", "PEXPIRE s 20000"],
        &["HSET s $a 2 $a:holds ,i1,i2", "PEXPIRE s 20000"],
        // Held, with one waiter.
        &["HSET s $b 1", "PEXPIRE s 20000", "RPUSH $q $a", "ZADD $d @5000 $a", "HSET $w $a n1", "PEXPIRE $w 60000"],
        // Held, with two waiters of ours and one of Java's between them.
        &[
            "HSET s $b 1",
            "PEXPIRE s 20000",
            "RPUSH $q $c $j $a",
            "ZADD $d @5000 $c @j35000 $j @40000 $a",
            "HSET $w $c n3 $a n1",
            "PEXPIRE $w 60000",
        ],
        // Free, with waiters of ours, of Java's, and an expired one.
        &["RPUSH $q $a $c", "ZADD $d @5000 $a @5000 $c", "HSET $w $a n1 $c n3", "PEXPIRE $w 60000"],
        &["RPUSH $q $j $a", "ZADD $d @j35000 $j @40000 $a", "HSET $w $a n1", "PEXPIRE $w 60000"],
        &["RPUSH $q $c $a", "ZADD $d @-9000 $c @5000 $a", "HSET $w $c n3 $a n1", "PEXPIRE $w 60000"],
        // Held, with dead waiters only.
        &["HSET s $b 1", "PEXPIRE s 20000", "RPUSH $q $c", "ZADD $d @-9000 $c", "HSET $w $c n3", "PEXPIRE $w 60000"],
        &[
            "HSET s $a 1",
            "PEXPIRE s 20000",
            "RPUSH $q $c $j",
            "ZADD $d @-9000 $c @j-10 $j",
            "HSET $w $c n3",
            "PEXPIRE $w 60000",
        ],
        // Passed on to one waiter, while another waits.
        &["HSET s $a 1", "PEXPIRE s 10000", "RPUSH $q $c", "ZADD $d @5000 $c", "HSET $w $c n3", "PEXPIRE $w 60000"],
        // Leftovers of other clients.
        &["ZADD $d @5000 $c", "HSET $w $c n3", "PEXPIRE $w 60000"],
    ],
    calls: &[
        one("fair/acquire", &[("s $q $d $w", "$a 30000 '' '' 0 0 0 n1 5000 10000 $pub 300000 30000 500 $ch")]),
        one("fair/acquire", &[("s $q $d $w", "$a 30000 '' '' $never 0 1 n1 5000 10000 $pub 300000 30000 500 $ch")]),
        one("fair/acquire", &[("s $q $d $w", "$a 30000 '' '' $never 0 2 n1 5000 10000 $pub 300000 30000 500 $ch")]),
        one("fair/acquire", &[("s $q $d $w", "$a 30000 i9 i1 $never 0 0 n1=i9 5000 10000 $pub 300000 30000 500 $ch")]),
        one("fair/acquire", &[("s $q $d $w", "$a 30000 i9 '' $never 0 1 n1=i9 5000 10000 $pub 300000 30000 500 $ch")]),
        one("fair/release", &[("s $q $d $w", "$a '' 30000 '' 0 5000 10000 $pub 300000 30000 500 $ch")]),
        one("fair/release", &[("s $q $d $w", "$a i1 30000 ,i2 $never 5000 10000 $pub 300000 30000 500 $ch")]),
        one("fair/release", &[("s $q $d $w", "$b '' 30000 '' 0 5000 10000 $pub 300000 30000 500 $ch")]),
        one("fair/leave", &[("s $q $d $w", "$a '' 30000 '' n1 5000 10000 $pub 300000 30000 500 $ch")]),
        one("fair/leave", &[("s $q $d $w", "$c i9 30000 '' n3 5000 10000 $pub 300000 30000 500 $ch")]),
        one("fair/force", &[("s $q $d $w", "$never 5000 10000 $pub 300000 30000 500 $ch")]),
        one("fair/dequeue", &[("s $q $d $w", "$c 5000 10000 $pub 300000 30000 500 $ch $never")]),
        one("fair/dequeue", &[("s $q $d $w", "$j 5000 10000 $pub 300000 30000 500 $ch $never")]),
        one("fair/waiters", &[("$q $d", "")]),
        one("common/state", &[("s", "")]),
        refresh(&[("s $q $d $w", "$ch 1 0 0 $a n1")]),
        refresh(&[("s $q $d $w", "$ch 2 1 0 $a 0 $c n1 n3")]),
        refresh(&[("s $q $d $w", "$ch 0 0")]),
    ],
};

const fn refresh(steps: &'static [(&'static str, &'static str)]) -> Call {
    call("fair/refresh", Shape::Fours, "5000 10000 $pub 300000 30000 500", steps)
}

/// Several steps for fair locks in one command, two of them for another lock of the slot.
pub const QUEUES: Family = Family {
    states: &[
        &[],
        &["HSET s $b 1", "PEXPIRE s 20000", "HSET {s}t $b 1", "PEXPIRE {s}t 20000"],
        &[
            "HSET s $b 1",
            "PEXPIRE s 20000",
            "RPUSH $q $c $a",
            "ZADD $d @5000 $c @5000 $a",
            "HSET $w $c n3 $a n1",
            "PEXPIRE $w 60000",
        ],
        &[
            "HSET s $b 1",
            "PEXPIRE s 20000",
            "RPUSH $q $a",
            "ZADD $d @5000 $a",
            "HSET $w $a n1",
            "PEXPIRE $w 60000",
            "HSET {s}t $a 1",
            "PEXPIRE {s}t 20000",
        ],
    ],
    calls: &[
        many("fair/many", &[TAKE, TAKE_OTHER]),
        many("fair/many", &[GIVE, LEAVE]),
        many("fair/many", &[LEAVE, GIVE, TAKE_OTHER]),
        many("fair/many", &[LEAVE, LEAVE_OTHER]),
        refresh(&[("s $q $d $w", "$ch 1 0 0 $a n1"), ("{s}t {s}tq {s}td {s}tw", "$ch 0 0")]),
    ],
};

const TAKE: (&str, &str) = ("1 s $q $d $w", "$a 30000 '' '' $never 0 1 n1 5000 10000 $pub 300000 30000 500 $ch");
const TAKE_OTHER: (&str, &str) =
    ("1 {s}t {s}tq {s}td {s}tw", "$c 30000 '' '' $never 0 1 n3 5000 10000 $pub 300000 30000 500 $ch");
const GIVE: (&str, &str) = ("2 s $q $d $w", "$b '' 30000 '' 0 5000 10000 $pub 300000 30000 500 $ch");
const LEAVE: (&str, &str) = ("3 s $q $d $w", "$a '' 30000 '' n1 5000 10000 $pub 300000 30000 500 $ch");
const LEAVE_OTHER: (&str, &str) = ("3 s $q $d $w", "$c '' 30000 '' n3 5000 10000 $pub 300000 30000 500 $ch");
