//! The number of commands inside each script. The quantity that determines the script's cost is n, and then 10 n.

use distlock::{Acquire, Client, Flavour, Prefer};
use distlock_support::{Action, Matcher};
use redis::Value;

use bed::fault::brisk;
use bed::harm::runs;
use bed::{Bed, becomes, ends, eventually, idle, passer, reentrant, rw, scripts, secs, with_longer_waits};

mod cases;
mod counters;

use cases::{CASES, Case, words};

impl Case {
    async fn run(&self, bed: &Bed, count: usize) -> u64 {
        let (before, keys, args) = (self.make)(count);
        let () = bed.admin.cmd(&["FLUSHALL"]).await;
        let mut all = words(["EVAL", scripts::RUN_ALL, "0"]);
        all.extend(before.into_iter().flat_map(|command| [vec![command.len().to_string()], command].concat()));
        let () = bed.admin.cmd_bytes(&all).await;
        let mut call = words(["EVALSHA", &scripts::sha(self.script), &keys.len().to_string()]);
        call.extend(keys.into_iter().chain(args));
        bed.admin.reset_stats().await;
        let answer: Value = bed.admin.cmd_bytes(&call).await;
        let mut stats = bed.admin.commandstats().await;
        let refused = |value: &Value| matches!(value, Value::Array(parts) if parts.first() == Some(&Value::BulkString(b"!".to_vec())));
        let part_refused = matches!(&answer, Value::Array(parts) if parts.iter().any(refused));
        assert!(!refused(&answer) && !part_refused, "{}: {answer:?}", self.script);
        stats.retain(|name, _| !["config", "info", "evalsha"].iter().any(|own| name.starts_with(own)));
        let inside = stats.values().sum();
        assert!(inside > 0, "{}: nothing was counted: {stats:?}", self.script);
        inside
    }
}

async fn load_all(bed: &Bed) {
    for (name, _) in scripts::all() {
        let sha: String = bed.admin.cmd(&["SCRIPT", "LOAD", &scripts::text(name)]).await;
        assert_eq!(sha, scripts::sha(name));
    }
}

#[tokio::test]
async fn script_command_counts_stay_within_stated_bounds() {
    reentrant(async |bed| {
        load_all(bed).await;
        for case in CASES.iter().chain(counters::CASES) {
            for count in [10, 100] {
                let inside = case.run(bed, count).await;
                let most = (case.most)(count as u64);
                assert!(inside <= most, "{}, {count} {}: {inside} of {most}", case.script, case.what);
            }
        }
        let () = bed.admin.cmd(&["FLUSHALL"]).await;
    })
    .await;
}

/// Sends every call of every flavour, alone and in a batch, and every call of permits, semaphores, latches, barriers and
/// leaders. Then the server knows exactly the scripts that `bed::scripts` lists.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn list_of_scripts_is_complete() {
    rw(async |bed| {
        let () = bed.admin.cmd(&["SCRIPT", "FLUSH"]).await;
        let client = bed.client().await;
        for flavour in bed::FLAVOURS {
            every_call(bed, &client, flavour).await;
        }
        every_call_of_permits(&client).await;
        every_call_of_semaphores(bed, &client).await;
        every_call_of_latches(&client).await;
        every_call_of_barriers(&client).await;
        every_call_of_leaders(&client).await;
        let known: Vec<&str> = scripts::all().into_iter().map(|(name, _)| name).collect();
        let mut ask = words(["SCRIPT", "EXISTS"]);
        ask.extend(known.iter().map(|name| scripts::sha(name)));
        let there: Vec<bool> = bed.admin.cmd_bytes(&ask).await;
        let missing: Vec<&str> = known.iter().zip(there).filter(|(_, there)| !there).map(|(name, _)| *name).collect();
        let info: String = bed.admin.cmd(&["INFO", "memory"]).await;
        let count = info.lines().find_map(|line| line.strip_prefix("number_of_cached_scripts:")).unwrap();
        // Outside a batch, the client sends the equivalent plain command instead of this script.
        assert_eq!(missing, ["plain/set"]);
        assert_eq!(count.trim().parse::<usize>().unwrap(), known.len() - missing.len(), "some are in no list");
        // After a force, covers of readers stay until they expire.
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
    let other = bed.client().await;
    if flavour != Flavour::Read {
        let lock = other.lock(flavour, "s");
        let waiter = tokio::spawn(async move { lock.lock().await });
        becomes("waiting tasks", 1, async || other.stats().waiting).await;
        if flavour == Flavour::Fair {
            let refreshes = scripts::sha("fair/refresh");
            let known = async || bed.admin.cmd::<Vec<bool>>(&["SCRIPT", "EXISTS", &refreshes]).await == [true];
            eventually("its place is refreshed", known).await;
        }
        waiter.abort();
        becomes("waiting tasks", 0, async || other.stats().waiting).await;
        idle(&other).await;
    }
    if flavour == Flavour::Write {
        let guard = other.rw("t").read().lock().await.unwrap();
        let leaves = passer(client.rw("t").prefer(Prefer::Writers).write());
        eventually("its mark is left", async || bed.admin.exists("{t}:rwlock_waiting").await).await;
        leaves.abort();
        assert!(leaves.await.is_err(), "a writer beside a reader");
        eventually("its mark is gone", async || !bed.admin.exists("{t}:rwlock_waiting").await).await;
        guard.unlock().await.unwrap();
    }
    guard.unlock().await.unwrap();
    drop(lock.lock().await.unwrap());
    idle(client).await;
    // Many concurrent calls are batched.
    let all = (0..200).map(|n| {
        let lock = client.lock(flavour, &format!("s{n}"));
        async move { lock.lock().await.unwrap().unlock().await.unwrap() }
    });
    futures::future::join_all(all).await;
    // The guard is turned into its owner, and the force ends its hold.
    let guard = lock.acquire(Acquire::new().owner(&me)).await.unwrap().unwrap();
    drop(guard.into_owner());
    idle(client).await;
    lock.force_unlock().await.unwrap();
    match flavour {
        Flavour::Fenced => {
            client.fenced("s").last_token().await.unwrap();
            client.fenced("s").expire_counter(secs(60)).await.unwrap();
        }
        Flavour::Fair => {
            client.fair("s").queue().await.unwrap();
            assert_eq!(client.fair("s").dequeue(me.as_str()).await.unwrap(), None);
        }
        Flavour::Reentrant => {
            let all = client.multi(["m1", "m2", "m3"]);
            all.lock().await.unwrap().unlock().await.unwrap();
            assert!(!lock.revoke().await.unwrap());
        }
        _ => {}
    }
    idle(client).await;
}

async fn every_call_of_permits(client: &Client) {
    let gate = client.permits("gate");
    assert!(gate.try_set_permits(3).await.unwrap());
    gate.set_permits(4).await.unwrap();
    gate.add_permits(1).await.unwrap();
    let (kept, given) = (gate.acquire(1).await.unwrap(), gate.acquire(2).await.unwrap());
    let round = client.renew_now().await;
    assert_eq!((round.renewed, round.lost), (2, 0), "{round:?}");
    assert!(gate.extend_ids(&given.ids(), secs(60)).await.unwrap());
    let counts = gate.counts().await.unwrap();
    assert_eq!((counts.available, counts.acquired, gate.holders().await.unwrap().len()), (2, 3, 3));
    kept.release().await.unwrap();
    assert!(gate.release_ids(&given.ids()).await.unwrap());
    drop(given);
    idle(client).await;
    assert!(gate.delete().await.unwrap());
}

async fn every_call_of_semaphores(bed: &Bed, client: &Client) {
    let seats = client.semaphore("seats");
    assert!(seats.try_set_permits_for(2, secs(600)).await.unwrap());
    seats.set_permits(3).await.unwrap();
    seats.add_permits(1).await.unwrap();
    seats.acquire(2).await.unwrap();
    seats.release(1).await.unwrap();
    assert_eq!((seats.available().await.unwrap(), seats.drain().await.unwrap()), (3, 3));
    seats.release(1).await.unwrap();
    // An acquire whose reply is lost is undone in the background.
    let proxy = bed.proxy();
    let through = bed.connect(brisk(&proxy.url())).await;
    let lost = proxy.on_request(runs(&scripts::files("semaphore/acquire")), Action::SwallowReplyClose);
    let taken = through.semaphore("seats").try_acquire(1).await;
    ends("the lost reply", lost.fired()).await;
    assert!(taken.is_err(), "{taken:?}");
    idle(&through).await;
    assert_eq!(seats.available().await.unwrap(), 1);
    assert!(seats.delete().await.unwrap());
}

async fn every_call_of_latches(client: &Client) {
    let latch = client.latch("parts");
    assert!(latch.try_set(2).await.unwrap());
    assert_eq!((latch.count_down(1).await.unwrap(), latch.count().await.unwrap()), (1, 1));
    assert!(latch.delete().await.unwrap());
    latch.wait().await.unwrap();
}

async fn every_call_of_barriers(client: &Client) {
    let barrier = client.barrier("start", 2);
    assert!(barrier.wait_for(secs(0)).await.unwrap().is_none());
    assert_eq!(barrier.waiting().await.unwrap(), 0);
}

/// The server has forgotten the script, so an attempt takes two commands. The second gets no reply.
#[tokio::test]
async fn wait_ends_while_a_forgotten_script_is_sent_in_full() {
    reentrant(async |bed: &Bed| {
        let proxy = bed.proxy();
        let patient = bed::builder(&proxy.url()).watchdog(secs(4 * 3600)).command_timeout(secs(3600));
        let client = bed.connect(patient).await;
        let locks = [Flavour::Reentrant, Flavour::Fair].map(|flavour| client.lock(flavour, flavour.as_str()));
        for lock in &locks {
            lock.lock().await.unwrap().unlock().await.unwrap();
        }
        for lock in &locks {
            with_longer_waits(secs(1), async |wait| {
                bed.admin.script_flush().await;
                let silent = proxy.on_request(Matcher::command("EVAL"), Action::HangReply);
                let outcome = ends("the wait", lock.lock_for(wait)).await;
                assert!(!matches!(outcome, Ok(Some(_))), "{lock:?}: {outcome:?}");
                let in_time = silent.has_fired();
                silent.disarm();
                proxy.rst_all();
                idle(&client).await;
                in_time.then_some(())
            })
            .await;
        }
    })
    .await;
}

async fn every_call_of_leaders(client: &Client) {
    let term = client.lead("s").payload("one").next().await.unwrap();
    assert!(client.observe("s").current().await.unwrap().is_some());
    term.resign().await.unwrap();
}
