//! Read-write locks: the hash, a cover for each reader's hold, and the marks of waiting writers.

use super::cases::{Family, many, one, renew};

pub const HALVES: Family = Family {
    states: &[
        &[],
        // One reader, once and twice, and two readers.
        &["HSET s mode read $a 1", "PEXPIRE s 20000", "SET $a/1 1 PX 20000"],
        &["HSET s mode read $a 2", "PEXPIRE s 20000", "SET $a/1 1 PX 15000", "SET $a/2 1 PX 20000"],
        &["HSET s mode read $a 2 $a:holds ,i1,i2", "PEXPIRE s 20000", "SET $a/1 1 PX 20000", "SET $a/2 1 PX 15000"],
        &["HSET s mode read $a 1 $b 1", "PEXPIRE s 20000", "SET $a/1 1 PX 20000", "SET $b/1 1 PX 15000"],
        &["HSET s mode read $a 1 $b 1", "PEXPIRE s 20000", "SET $a/1 1 PX 15000", "SET $b/1 1 PX 20000"],
        // Another reader: alone, with a dead reader, with a waiting writer.
        &["HSET s mode read $b 1", "PEXPIRE s 20000", "SET $b/1 1 PX 20000"],
        &["HSET s mode read $a 1 $c 1", "PEXPIRE s 20000", "SET $a/1 1 PX 15000"],
        &["HSET s mode read $b 1", "PEXPIRE s 20000", "SET $b/1 1 PX 20000", "ZADD $m @j9000 $c", "PEXPIRE $m 9000"],
        // Only dead readers.
        &["HSET s mode read $b 1", "PEXPIRE s 20000"],
        // A writer: alone, while reading, twice, another owner, and another owner with a waiting writer.
        &["HSET s mode write $a:write 1", "PEXPIRE s 20000"],
        &["HSET s mode write $a:write 1 $a 1", "PEXPIRE s 20000", "SET $a/1 1 PX 20000"],
        &[
            "HSET s mode write $a:write 2 $a:write:holds ,i1,i2 $a 2",
            "PEXPIRE s 20000",
            "SET $a/1 1 PX 20000",
            "SET $a/2 1 PX 15000",
        ],
        &["HSET s mode write $b:write 1", "PEXPIRE s 20000"],
        &["HSET s mode write $b:write 1", "PEXPIRE s 20000", "ZADD $m @j9000 $a", "PEXPIRE $m 9000"],
        // A writer that reads too, and was asked to finish.
        &["HSET s mode write $a:write 1 $a 1 revoke:holds +", "PEXPIRE s 20000", "SET $a/1 1 PX 20000"],
    ],
    calls: &[
        one("rwlock/read", &[("s $a/1 $m", "$a 30000 '' '' 0 0 {s} 1")]),
        one("rwlock/read", &[("s $a/1 $m", "$a 30000 i9 '' $never 0 {s} 0")]),
        one("rwlock/read", &[("s $a/1 $m", "$a 30000 i9 i1 $never 0 {s} 1")]),
        one("rwlock/read", &[("s $a/1 $m", "$a 30000 i1 '' $never 1 {s} 1")]),
        one("rwlock/read_release", &[("s $a/1", "$a '' 30000 '' 0 {s} 0 $pub $ch")]),
        one("rwlock/read_release", &[("s $a/1 $a/2", "$a i1 30000 ,i2 $never {s} 17500 $pub $ch")]),
        one("rwlock/read_release", &[("s $a/1", "$a i2 30000 '' $never {s} 0 $pub $ch")]),
        one("rwlock/read_release", &[("s $a/1", "$a * 30000 '' $never {s} 0 $pub $ch")]),
        one("rwlock/write", &[("s $a/1", "$a 30000 '' '' 0 0 {s} 0")]),
        one("rwlock/write", &[("s $a/1 $m", "$a 30000 i9 '' $never 0 {s} 9000")]),
        one("rwlock/write", &[("s $a/1", "$a 30000 i9 i1 $never 0 {s} 0")]),
        one("rwlock/write_release", &[("s $a/1", "$a '' 30000 '' 0 {s} $pub $ch")]),
        one("rwlock/write_release", &[("s $a/1", "$a i1 30000 ,i2 $never {s} $pub $ch")]),
        one("rwlock/leave", &[("s $a/1 $m", "$a '' 30000 '' 0 {s} $pub $ch")]),
        one("rwlock/leave", &[("s $c/1 $m", "$c i9 30000 '' $never {s} $pub $ch")]),
        one("common/revoke", &[("s", "$never")]),
        one("rwlock/force", &[("s", "read 0 $never $pub $ch")]),
        one("rwlock/force", &[("s", "write 1 $never $pub $ch")]),
        one("rwlock/state", &[("s", "read {s}")]),
        one("rwlock/state", &[("s", "write {s}")]),
        renew("rwlock/renew", "30000 0", &[("s $a/1", "$a '' read {s} 1")]),
        renew("rwlock/renew", "30000 0", &[("s $a/1", "$a ,i1 keep {s} 1")]),
        renew("rwlock/renew", "30000 0", &[("s", "$a '' write {s} 0")]),
        renew("rwlock/renew", "-5000 $never", &[("s $a/1 $a/2", "$a ,i1~7,i2 read {s} 2")]),
        renew("rwlock/renew", "-5000 $never", &[("s $a/1", "$a ,i1~7,i2 write {s} 1")]),
        renew("rwlock/renew", "30000 0", &[("s $a/1", "$a '' read {s} 1"), ("s $b/1", "$b '' read {s} 1")]),
        many("rwlock/many", &[("1 s $a/1 $m", READ), ("1 s $b/1 $m", "$b 30000 '' '' 0 0 {s} 1")]),
        many("rwlock/many", &[("2 s $a/1", GIVE), ("3 s $c/1", WRITE)]),
        many("rwlock/many", &[("2 s $a/1", GIVE), ("2 s $b/1", "$b '' 30000 '' 0 {s} 0 $pub $ch")]),
        many(
            "rwlock/many",
            &[("4 s $a/1", "$a '' 30000 '' 0 {s} $pub $ch"), ("1 s $b/1 $m", "$b 30000 '' '' 0 0 {s} 1")],
        ),
    ],
};

const READ: &str = "$a 30000 '' '' 0 0 {s} 1";
const GIVE: &str = "$a '' 30000 '' 0 {s} 0 $pub $ch";
const WRITE: &str = "$c 30000 '' '' 0 0 {s} 0";
