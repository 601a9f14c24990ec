//! What each script asks the server for, counted at n and at ten times as many of what grows; and how long it takes at the size that
//! clients keep to.

use std::time::Duration;

use distlock::{Acquire, Client, DistLock, Flavour, Prefer};
use redis::Value;

use bed::{Bed, idle, reentrant, rw, scripts, secs};

mod cases;

use cases::{CASES, Case, words};

/// A script takes less than 1 ms at its limit where nothing else runs. The quickest of so many runs takes no more than five times
/// that on any machine, however busy.
const RUNS: usize = 15;
const BOUND: Duration = Duration::from_millis(5);

impl Case {
    /// One call, of so many: the commands inside, and how long the server took.
    async fn run(&self, bed: &Bed, count: usize) -> (u64, Duration) {
        let (before, keys, args) = (self.make)(count);
        let () = bed.admin.cmd(&["FLUSHALL"]).await;
        let mut all = words(["EVAL", scripts::RUN_ALL, "0"]);
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
        assert!(inside > 0 && took > Duration::ZERO, "{}: nothing was counted: {info}", self.script);
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
        Flavour::Fenced => {
            client.fenced("s").last_token().await.unwrap();
            client.fenced("s").expire_counter(secs(60)).await.unwrap();
        }
        Flavour::Fair => drop(client.fair("s").queue().await.unwrap()),
        Flavour::Reentrant => {
            let all = client.multi(["m1", "m2", "m3"]);
            all.lock().await.unwrap().unlock().await.unwrap();
        }
        _ => {}
    }
    idle(client).await;
}
