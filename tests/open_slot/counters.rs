//! Permits, with a number and a set of leases; semaphores and latches, with a number and a token; barriers, with a state,
//! a token and a set of parties; leaders, with a fenced lock and its counter.

use super::cases::{Family, one, renew};

pub const PERMITS: Family = Family {
    states: &[
        &[],
        // Free, and with permits that are held: ours, ours and others', only others'.
        &["SET s 3"],
        &["SET s 1", "ZADD $l @j20000 #1 @j12000 #2"],
        &["SET s 0", "ZADD $l @j20000 #1 @j12000 #2 @j5000 #8"],
        &["SET s 0", "ZADD $l @j20000 #8 @j9000 #9"],
        // Permits that have expired: some, all, and one of ours.
        &["SET s 0", "ZADD $l @j-9000 #8 @j-6000 #9 @j20000 #1"],
        &["SET s 0", "ZADD $l @j-9000 #7 @j-8000 #8 @j-6000 #9"],
        &["SET s 0", "ZADD $l @j-6000 #1 @j-9000 #9"],
        // More are held than there are in total.
        &["SET s -2", "ZADD $l @j20000 #1 @j12000 #2 @j9000 #9"],
        // The number has an end.
        &["SET s 2 PX 60000", "ZADD $l @j20000 #1", "PEXPIRE $l 60000"],
        // Without a number.
        &["ZADD $l @j20000 #1 @j-6000 #9"],
        // Two names.
        &["SET s 1", "ZADD $l @j20000 #1", "SET {s}t 0", "ZADD {s}t:timeout @j12000 #5"],
    ],
    calls: &[
        one("permits/acquire", &[("s $l", "#1 30000 0 $pub $ch")]),
        one("permits/acquire", &[("s $l", "#12 30000 $never $pub $ch")]),
        one("permits/acquire", &[("s $l", "#34 30000 $never $pub $ch")]),
        one("permits/acquire", &[("s $l", "#3456 30000 $never $pub $ch")]),
        one("permits/release", &[("s $l", "#12 0 0 $pub $ch")]),
        one("permits/release", &[("s $l", "#1 1 $never $pub $ch")]),
        one("permits/release", &[("s $l", "#12 1 $never $pub $ch")]),
        one("permits/extend", &[("s $l", "#1 40000 $never")]),
        one("permits/extend", &[("s $l", "#12 5000 $never")]),
        one("permits/set", &[("s $l", "new 5 $never $pub $ch")]),
        one("permits/set", &[("s $l", "total 9 $never $pub $ch")]),
        one("permits/set", &[("s $l", "total 1 $never $pub $ch")]),
        one("permits/set", &[("s $l", "add 2 $never $pub $ch")]),
        one("permits/set", &[("s $l", "add -2 $never $pub $ch")]),
        one("permits/count", &[("s $l", "")]),
        one("permits/holders", &[("$l", "0 0 500")]),
        one("permits/holders", &[("$l", "0 1 1")]),
        one("permits/delete", &[("s $l", "$never")]),
        renew("permits/renew", "30000 0", &[("s $l", "#1")]),
        renew("permits/renew", "-5000 $never", &[("s $l", "#12")]),
        renew("permits/renew", "30000 0", &[("s $l", "#1"), ("{s}t {s}t:timeout", "#5")]),
    ],
};

/// The command has the number 7. Its token notes nothing, an earlier command, the acquire, its undo, or a later
/// command.
pub const SEMAPHORES: Family = Family {
    states: &[
        &[],
        &["SET s 5"],
        &["SET s 5 PX 60000", "SET $t 6:1 PX 20000"],
        &["SET s 5", "SET $t 7:1 PX 20000"],
        &["SET s 5", "SET $t 7:0 PX 20000"],
        &["SET s 5", "SET $t 8:1 PX 20000"],
        &["SET s 0", "SET $t 6:1 PX 20000"],
        &["SET s -3", "SET $t 7:1 PX 20000"],
        &["SET $t 6:1 PX 20000"],
        &["SET $t 7:1 PX 20000"],
    ],
    calls: &[
        one("semaphore/acquire", &[("s $t", "7 30000 0 1")]),
        one("semaphore/acquire", &[("s $t", "7 30000 $never 9")]),
        one("semaphore/release", &[("s $t", "7 30000 0 2 0 $pub $ch")]),
        one("semaphore/release", &[("s $t", "7 30000 $never 2 1 $pub $ch")]),
        one("semaphore/undo", &[("s $t", "7 30000 $never 2 $pub $ch")]),
        one("semaphore/set", &[("s", "new 4 0 $never $pub $ch")]),
        one("semaphore/set", &[("s", "new 4 30000 $never $pub $ch")]),
        one("semaphore/set", &[("s", "value 4 0 $never $pub $ch")]),
        one("semaphore/set", &[("s", "add 2 0 $never $pub $ch")]),
        one("semaphore/set", &[("s", "drain 0 0 $never $pub $ch")]),
        one("semaphore/set", &[("s", "delete 0 0 $never $pub $ch")]),
        one("common/number", &[("s", "")]),
    ],
};

pub const LATCHES: Family = Family {
    states: &[
        &[],
        &["SET s 3"],
        &["SET s 3", "SET $t 6:4 PX 20000"],
        &["SET s 2", "SET $t 7:2 PX 20000"],
        &["SET s 1", "SET $t 8:1 PX 20000"],
        &["SET s 1", "SET $t 6:2 PX 20000"],
        &["SET s 0", "SET $t 6:1 PX 20000"],
        &["SET $t 7:0 PX 20000"],
    ],
    calls: &[
        one("latch/down", &[("s $t", "7 30000 0 1 $pub $ch")]),
        one("latch/down", &[("s $t", "7 30000 $never 9 $pub $ch")]),
        one("latch/set", &[("s", "4 $never $pub $ch")]),
        one("latch/set", &[("s", "delete $never $pub $ch")]),
        one("common/number", &[("s", "")]),
    ],
};

/// A new barrier has no case: its first round has the number of the server's time, so no two replies are equal.
///
/// The command has the number 7, and the party `o1` is in round 4. `s` is the state, `$l` the parties.
pub const BARRIERS: Family = Family {
    states: &[
        &["HSET s round 4 n 3"],
        &["HSET s round 4 n 3", "ZADD $l @j20000 o1"],
        &["HSET s round 4 n 3", "ZADD $l @j20000 o1 @j20000 o2", "SET $t 6:8 PX 20000"],
        &["HSET s round 4 n 3", "ZADD $l @j20000 o1 @j-6000 o2", "SET $t 6:8 PX 20000"],
        &["HSET s round 4 n 3", "ZADD $l @j20000 o2", "SET $t 7:8 PX 20000"],
        &["HSET s round 5 n 3 broken ,4", "SET $t 8:9 PX 20000"],
        &["HSET s round 5 n 3", "ZADD $l @j20000 o2", "SET $t 7:8 PX 20000"],
        &["HSET s first 9 round 9 n 3", "ZADD $l @j20000 o2"],
    ],
    calls: &[
        one("barrier/arrive", &[("s $t $l", "7 30000 0 o1 3 30000 $pub $ch")]),
        one("barrier/arrive", &[("s $t $l", "7 30000 $never o1 3 30000 $pub $ch")]),
        one("barrier/leave", &[("s $t $l", "7 30000 $never o1 $pub $ch")]),
        one("barrier/look", &[("s $l", "o1 4 30000 $pub $ch")]),
        one("barrier/count", &[("$l", "")]),
    ],
};

/// `$n` is the counter of the fenced lock.
pub const LEADERS: Family = Family {
    states: &[
        &[],
        &["SET $n 7"],
        &["SET $n 7", "HSET s $b 1", "PEXPIRE s 20000"],
        &["SET $n 7", "HSET s $a 1", "PEXPIRE s 20000"],
        &["SET $n 7", "HSET s $a 1 leader:holds 7:2:here", "PEXPIRE s 20000"],
        &["HSET s $a 1", "PEXPIRE s 20000"],
    ],
    calls: &[
        one("lead/announce", &[("s", "$a 7 1 there $never $pub $ch")]),
        one("lead/announce", &[("s", "$a 7 3 '' $never $pub $ch")]),
        one("lead/leader", &[("s $n", "")]),
    ],
};
