//! What each script asks the server for, counted at n and at ten times as many of what grows; and how long it takes at the size that
//! clients keep to.

use std::time::Duration;

use distlock::{Acquire, Client, DistLock, Flavour, Prefer};
use redis::Value;

use bed::{Bed, idle, reentrant, rw, scripts, secs};

const ME: &str = "0a1b2c3d-0000-8000-9000-00000000000a";
/// Nothing is too late before this moment.
const NEVER: &str = "9999999999999";
const LEASE: &str = "30000";

/// A script takes less than 1 ms at its limit where nothing else runs. The quickest of so many runs takes no more than five times
/// that on any machine, however busy.
const RUNS: usize = 15;
const BOUND: Duration = Duration::from_millis(5);

/// Runs many commands, each behind the number of its words.
const PREPARE: &str = "
local at = 1
while at <= #ARGV do
  local count = tonumber(ARGV[at])
  redis.call(unpack(ARGV, at + 1, at + count))
  at = at + count + 1
end";

/// A command, word by word.
type Words = Vec<String>;

/// One script and what it grows with.
struct Case {
    script: &'static str,
    what: &'static str,
    /// The most commands inside a call, of so many.
    most: fn(u64) -> u64,
    /// How many a client has in one call; 0: as many as there are.
    limit: usize,
    /// What is there before a call, a command each, and the call's keys and arguments, of so many.
    make: fn(usize) -> (Vec<Words>, Vec<String>, Vec<String>),
}

fn words<const N: usize>(words: [&str; N]) -> Words {
    words.map(str::to_owned).to_vec()
}

fn owner(n: usize) -> String {
    format!("{ME}:{n}")
}

fn id(n: usize) -> String {
    format!("{n:012}")
}

fn names(count: usize) -> Vec<String> {
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
fn steps(number: usize, calls: impl Iterator<Item = (Vec<String>, Vec<String>)>) -> (Vec<String>, Vec<String>) {
    let (mut all_keys, mut all_args) = (Vec::new(), Vec::new());
    for (keys, args) in calls {
        all_args.extend([number, keys.len(), args.len()].map(|n| n.to_string()));
        all_keys.extend(keys);
        all_args.extend(args);
    }
    (all_keys, all_args)
}

fn taken(count: usize, keys: fn(usize) -> Vec<String>) -> (Vec<String>, Vec<String>) {
    steps(1, (0..count).map(|n| (keys(n), words([&owner(n), LEASE]))))
}

fn given_back(count: usize) -> (Vec<String>, Vec<String>) {
    steps(2, (0..count).map(|n| (vec![format!("n{n}")], words([&owner(n), LEASE, "publish", "c"]))))
}

const CASES: &[Case] = &[
    Case {
        script: "reentrant/acquire",
        what: "holds of its owner",
        most: |_| 4,
        limit: 1_000,
        make: |n| (held_often(n), words(["x"]), words([&owner(1), LEASE, "z", "", "0"])),
    },
    Case {
        script: "reentrant/release",
        what: "holds of its owner",
        most: |_| 4,
        limit: 1_000,
        make: |n| (held_often(n), words(["x"]), words([&owner(1), LEASE, "publish", "c", &id(0)])),
    },
    Case {
        script: "reentrant/force",
        what: "holds of its owner",
        most: |_| 4,
        limit: 1_000,
        make: |n| (held_often(n), words(["x"]), words([NEVER, "publish", "c"])),
    },
    Case {
        script: "common/disown",
        what: "holds of its owner",
        most: |_| 3,
        limit: 1_000,
        make: |n| (held_often(n), words(["x"]), words([&owner(1), &id(0)])),
    },
    Case {
        script: "common/state",
        what: "holds of its owner",
        most: |_| 2,
        limit: 1_000,
        make: |n| (held_often(n), words(["x"]), Vec::new()),
    },
    Case {
        script: "common/renew",
        what: "locks",
        most: |k| 3 * k,
        limit: 100,
        make: |n| {
            let each = (0..n).flat_map(|n| [owner(n), String::new()]);
            (held_each(n), names(n), words([LEASE, "0"]).into_iter().chain(each).collect())
        },
    },
    Case {
        script: "multi/acquire",
        what: "locks",
        most: |k| 2 * k + 1,
        limit: 250,
        make: |n| (Vec::new(), names(n), words([&owner(1), LEASE])),
    },
    Case {
        script: "reentrant/many",
        what: "acquires",
        most: |k| 3 * k,
        limit: 64,
        make: |n| {
            let (keys, args) = taken(n, |n| vec![format!("n{n}")]);
            (Vec::new(), keys, args)
        },
    },
    Case {
        script: "reentrant/many",
        what: "releases",
        most: |k| 3 * k,
        limit: 64,
        make: |n| {
            let (keys, args) = given_back(n);
            (held_each(n), keys, args)
        },
    },
    Case {
        script: "fenced/many",
        what: "acquires",
        most: |k| 6 * k,
        limit: 64,
        make: |n| {
            let (keys, args) = taken(n, |n| vec![format!("n{n}"), format!("c{n}")]);
            (Vec::new(), keys, args)
        },
    },
    Case {
        script: "plain/many",
        what: "acquires",
        most: |k| k,
        limit: 64,
        make: |n| {
            let (keys, args) = steps(1, (0..n).map(|n| (vec![format!("n{n}")], words([&owner(n), "NX", "PX", LEASE]))));
            (Vec::new(), keys, args)
        },
    },
    Case {
        script: "plain/renew",
        what: "locks",
        most: |k| 3 * k,
        limit: 100,
        make: |n| {
            let held = (0..n).map(|n| words(["SET", &format!("n{n}"), &owner(n), "PX", "9000"])).collect();
            (held, names(n), words([LEASE, "0"]).into_iter().chain((0..n).map(owner)).collect())
        },
    },
    Case {
        script: "rwlock/many",
        what: "readers that come",
        most: |k| 6 * k,
        limit: 32,
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
        limit: 32,
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
        limit: 100,
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
        limit: 1_000,
        make: |n| (read_by(n), words(["x"]), words(["read", "0", NEVER, "publish", "c"])),
    },
    Case {
        script: "rwlock/state",
        what: "readers, who are all told",
        most: |n| n + 3,
        limit: 0,
        make: |n| (read_by(n), words(["x"]), words(["read", "{x}"])),
    },
    Case {
        script: "fair/waiters",
        what: "waiters, who are all told",
        most: |w| w + 2,
        limit: 0,
        make: |n| {
            let queued = (0..n).map(|n| words(["RPUSH", "q", &owner(n)]));
            (queued.collect(), words(["q", "d"]), Vec::new())
        },
    },
];

impl Case {
    /// One call, of so many: the commands inside, and how long the server took.
    async fn run(&self, bed: &Bed, count: usize) -> (u64, Duration) {
        let (before, keys, args) = (self.make)(count);
        let () = bed.admin.cmd(&["FLUSHALL"]).await;
        let mut all = words(["EVAL", PREPARE, "0"]);
        all.extend(before.into_iter().flat_map(|command| [vec![command.len().to_string()], command].concat()));
        let () = bed.admin.cmd_bytes(&all).await;
        let mut call = words(["EVALSHA", &scripts::sha(self.script), &keys.len().to_string()]);
        call.extend(keys.into_iter().chain(args));
        bed.admin.reset_stats().await;
        let answer: Value = bed.admin.cmd_bytes(&call).await;
        let info: String = bed.admin.cmd(&["INFO", "commandstats"]).await;
        let refused = |value: &Value| matches!(value, Value::Array(parts) if parts.first() == Some(&Value::BulkString(b"!".to_vec())));
        let whole = match &answer {
            Value::Array(parts) => !refused(&answer) && !parts.iter().any(refused),
            _ => true,
        };
        assert!(whole, "{}: {answer:?}", self.script);
        let (mut inside, mut took) = (0, Duration::ZERO);
        for (name, stat) in info.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(':')) {
            let of = |field: &str| stat.split(',').find_map(|part| part.strip_prefix(field)?.parse::<u64>().ok());
            if name == "evalsha" {
                took = Duration::from_micros(of("usec=").unwrap_or_default());
            } else if !["config", "info"].iter().any(|own| name.starts_with(own)) {
                inside += of("calls=").unwrap_or_default();
            }
        }
        (inside, took)
    }
}

async fn load_all(bed: &Bed) {
    for (name, _) in scripts::all() {
        let sha: String = bed.admin.cmd(&["SCRIPT", "LOAD", &scripts::text(name)]).await;
        assert_eq!(sha, scripts::sha(name));
    }
}

#[tokio::test]
async fn what_scripts_ask_for_grows_as_it_is_said_to() {
    reentrant(async |bed| {
        load_all(bed).await;
        for case in CASES {
            for count in [10, 100] {
                let (inside, _) = case.run(bed, count).await;
                println!("{}, {count} {}: {inside} commands", case.script, case.what);
                let most = (case.most)(count as u64);
                assert!(inside <= most, "{}, {count} {}: {inside} of {most}", case.script, case.what);
            }
        }
        let () = bed.admin.cmd(&["FLUSHALL"]).await;
    })
    .await;
}

#[tokio::test]
async fn no_script_takes_long_at_the_size_that_clients_keep_to() {
    reentrant(async |bed| {
        load_all(bed).await;
        for case in CASES.iter().filter(|case| case.limit > 0) {
            let mut quickest = Duration::MAX;
            for _ in 0..RUNS {
                quickest = quickest.min(case.run(bed, case.limit).await.1);
            }
            println!("{}, {} {}: {quickest:?}", case.script, case.limit, case.what);
            assert!(quickest < BOUND, "{}, {} {}: {quickest:?}", case.script, case.limit, case.what);
        }
        let () = bed.admin.cmd(&["FLUSHALL"]).await;
    })
    .await;
}

/// Everything that every flavour can be asked for has been sent once, by itself and with others: the server knows as many scripts
/// as `bed::scripts` does, and just these.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_list_of_scripts_is_whole() {
    rw(async |bed| {
        let () = bed.admin.cmd(&["SCRIPT", "FLUSH"]).await;
        let client = bed.client().await;
        for flavour in [
            Flavour::Reentrant,
            Flavour::Fair,
            Flavour::Fenced,
            Flavour::Spin,
            Flavour::Plain,
            Flavour::Read,
            Flavour::Write,
        ] {
            every_call(bed, &client, flavour).await;
        }
        let known: Vec<(&str, String)> =
            scripts::all().into_iter().map(|(name, _)| (name, scripts::sha(name))).collect();
        let mut ask = words(["SCRIPT", "EXISTS"]);
        ask.extend(known.iter().map(|(_, sha)| sha.clone()));
        let there: Vec<bool> = bed.admin.cmd_bytes(&ask).await;
        let missing: Vec<&str> =
            known.iter().zip(there).filter(|(_, there)| !there).map(|((name, _), _)| *name).collect();
        let info: String = bed.admin.cmd(&["INFO", "memory"]).await;
        let count = info.lines().find_map(|line| line.strip_prefix("number_of_cached_scripts:")).unwrap();
        // By itself this one goes as the command that it is.
        assert_eq!(missing, ["plain/set"]);
        assert_eq!(count.trim().parse::<usize>().unwrap(), known.len() - missing.len(), "some are in no list");
        // Covers of readers whose lock was forced open are left to run out.
        let () = bed.admin.cmd(&["FLUSHALL"]).await;
    })
    .await;
}

async fn every_call(bed: &Bed, client: &Client, flavour: Flavour) {
    let lock = client.lock(flavour, "s");
    let me = client.owner();
    let guard = lock.acquire(Acquire::new().owner(&me)).await.unwrap().unwrap();
    lock.state().await.unwrap();
    guard.extend(secs(20)).await.unwrap();
    // A second client that has to wait, and gives up.
    let other = bed.client().await;
    if flavour != Flavour::Read {
        // Places in a queue are kept once a second.
        let wait = if flavour == Flavour::Fair { 2_500 } else { 100 };
        let how = Acquire::new().wait(Duration::from_millis(wait));
        assert!(other.lock(flavour, "s").acquire(how).await.unwrap().is_none());
    }
    if flavour == Flavour::Write {
        let guard = other.rw("t").read().lock().await.unwrap();
        let writes = client.rw("t").prefer(Prefer::Writers).write();
        let how = Acquire::new().wait(Duration::from_millis(100));
        assert!(writes.acquire(how).await.unwrap().is_none());
        guard.unlock().await.unwrap();
    }
    guard.unlock().await.unwrap();
    drop(lock.lock().await.unwrap());
    idle(client).await;
    // Many at once share commands.
    let all = (0..200).map(|n| {
        let lock = client.lock(flavour, &format!("s{n}"));
        async move { lock.lock().await.unwrap().unlock().await.unwrap() }
    });
    futures::future::join_all(all).await;
    // Forgotten by its guard, and given back by its owner.
    let guard = lock.acquire(Acquire::new().owner(&me)).await.unwrap().unwrap();
    drop(guard.into_owner());
    idle(client).await;
    lock.force_unlock().await.unwrap();
    match flavour {
        Flavour::Fenced => drop(client.fenced("s").last_token().await.unwrap()),
        Flavour::Fair => drop(client.fair("s").queue().await.unwrap()),
        Flavour::Reentrant => {
            let all = client.multi(["m1", "m2", "m3"]);
            all.lock().await.unwrap().unlock().await.unwrap();
        }
        _ => {}
    }
    idle(client).await;
}
