//! The scripts of the crate by name, with the files of `lua/` that each is made of. `tests/client/scripts.rs` tests
//! that the list is complete and up to date.

use crate::harm;

const HOLDS: &str = "common/holds";
const COVERS: [&str; 2] = [HOLDS, "rwlock/covers"];
const FAIR: [&str; 2] = [HOLDS, "fair/queue"];
const REMOVE: [&str; 3] = [HOLDS, "fair/queue", "fair/remove"];
const PLAIN: [&str; 2] = [HOLDS, "plain/values"];
const ONCE: &str = "common/once";
const ROUNDS: &str = "barrier/rounds";
const PERMITS: &str = "permits/ids";
const TAKE: [&str; 3] = ["fenced/begin", "reentrant/acquire", "fenced/number"];

/// All scripts. `fenced/release`, `fenced/force` and the scripts of spin locks are the reentrant ones.
pub fn all() -> Vec<(&'static str, Vec<&'static str>)> {
    let with = |front: &[&'static str], own: &[&'static str]| [front, own].concat();
    let many = |front: &[&'static str], steps: &[&[&'static str]]| {
        let mut files = with(front, &["common/many/begin"]);
        files.extend(steps.join(&"common/many/next"));
        files.push("common/many/run");
        files
    };
    let mut all = vec![
        ("common/preflight", vec!["common/preflight"]),
        ("common/state", vec!["common/state"]),
        ("common/disown", vec![HOLDS, "common/disown"]),
        ("common/revoke", vec![HOLDS, "common/revoke"]),
        ("common/renew", vec![HOLDS, "common/renew/begin", "common/renew"]),
        ("multi/acquire", vec!["multi/acquire"]),
        ("reentrant/many", many(&[HOLDS], &[&["reentrant/acquire"], &["reentrant/release"]])),
        ("fenced/acquire", with(&[HOLDS], &TAKE)),
        ("fenced/many", many(&[HOLDS], &[&TAKE, &["reentrant/release"]])),
        ("fenced/last", vec!["fenced/last"]),
        ("fenced/expire", vec!["fenced/expire"]),
        ("plain/set", vec!["plain/set"]),
        ("plain/state", vec!["plain/state"]),
        ("plain/renew", with(&PLAIN, &["common/renew/begin", "plain/renew"])),
        ("plain/many", many(&PLAIN, &[&["plain/set"], &["plain/acquire"], &["plain/release"]])),
        ("fair/waiters", vec!["fair/waiters"]),
        ("permits/renew", vec![HOLDS, "common/renew/begin", PERMITS, "permits/renew"]),
        ("semaphore/set", vec!["semaphore/set"]),
        ("latch/set", vec!["latch/set"]),
        ("barrier/arrive", vec![ONCE, ROUNDS, "barrier/arrive"]),
        ("barrier/leave", vec![ONCE, ROUNDS, "barrier/leave"]),
        ("barrier/look", vec![ROUNDS, "barrier/look"]),
        ("barrier/count", vec!["barrier/count"]),
        ("lead/announce", vec!["lead/announce"]),
        ("lead/leader", vec!["lead/leader"]),
        ("common/number", vec!["common/number"]),
        ("rwlock/leave", with(&COVERS, &["rwlock/leave", "rwlock/write_release"])),
        ("rwlock/renew", with(&COVERS, &["common/renew/begin", "rwlock/renew"])),
    ];
    let front = with(&REMOVE, &["fair/many/begin"]);
    let mut queue = many(&front, &[&["fair/acquire"], &["fair/release"], &["fair/leave"]]);
    queue.push("fair/many/end");
    all.push(("fair/many", queue));
    all.push(("fair/refresh", vec![HOLDS, "fair/queue", "fair/mend", "fair/refresh"]));
    let mut halves = many(
        &[HOLDS, "rwlock/covers", "rwlock/many/begin"],
        &[&["rwlock/read"], &["rwlock/read_release"], &["rwlock/write"], &["rwlock/write_release"]],
    );
    halves.push("rwlock/many/end");
    all.push(("rwlock/many", halves));
    for (front, own) in [
        (&[HOLDS][..], &["reentrant/acquire", "reentrant/release", "reentrant/force"][..]),
        (&PLAIN, &["plain/acquire", "plain/release", "plain/force"]),
        (&FAIR, &["fair/acquire", "fair/release", "fair/force"]),
        (&REMOVE, &["fair/leave", "fair/dequeue"]),
        (
            &COVERS,
            &[
                "rwlock/read",
                "rwlock/read_release",
                "rwlock/write",
                "rwlock/write_release",
                "rwlock/force",
                "rwlock/state",
            ],
        ),
        (&[ONCE], &["semaphore/acquire", "semaphore/release", "semaphore/undo", "latch/down"]),
        (
            &[PERMITS],
            &[
                "permits/acquire",
                "permits/release",
                "permits/extend",
                "permits/set",
                "permits/count",
                "permits/holders",
                "permits/delete",
            ],
        ),
    ] {
        all.extend(own.iter().map(|name| (*name, with(front, &[name]))));
    }
    all
}

pub fn files(name: &str) -> Vec<&'static str> {
    let found = all().into_iter().find(|(one, _)| *one == name);
    found.unwrap_or_else(|| panic!("no script is called {name}")).1
}

pub fn text(name: &str) -> String {
    harm::text(&files(name))
}

pub fn sha(name: &str) -> String {
    harm::sha(&files(name))
}

/// Not a script of the crate. Runs many commands; each one is preceded by the number of its words.
pub const RUN_ALL: &str = "
local at = 1
while at <= #ARGV do
  local count = tonumber(ARGV[at])
  redis.call(unpack(ARGV, at + 1, at + count))
  at = at + count + 1
end";
