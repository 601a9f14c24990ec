//! Tests that the minimal access list of `docs/acl.md` is enough for locks, and that each of its commands is needed.

use std::time::Duration;

use bed::{
    Bed, PATIENCE, becomes, ends, eventually, in_vain, is_cluster, ms, reentrant, secs, waits_in_vain,
    with_longer_waits,
};
use distlock::{Acquire, Client, DistLock, Flavour, Prefer, Released};

const PAGE: &str = include_str!("../../docs/acl.md");

const CLUSTERS: &str = include_str!("../../docs/clusters.md");

/// Pub/sub commands of a single server.
const MESSAGES: [&str; 3] = ["+subscribe", "+unsubscribe", "+publish"];

fn block(page: &str) -> &str {
    let (_, block) = page.split_once("```acl\n").expect("the page has the list");
    block.split_once("```").expect("the block ends").0
}

/// The access list. For a cluster, its own lines replace the pub/sub commands.
fn list() -> String {
    if !is_cluster() {
        return block(PAGE).to_owned();
    }
    let list = block(PAGE).replace(&format!("  {}\n", MESSAGES.join(" ")), block(CLUSTERS));
    assert_ne!(list, block(PAGE), "the commands for messages are a line of their own");
    list
}

fn messages() -> Vec<String> {
    MESSAGES
        .iter()
        .map(|command| if is_cluster() { command.replace('+', "+s") } else { (*command).to_owned() })
        .collect()
}

fn rules() -> Vec<String> {
    list().split_whitespace().skip(1).map(str::to_owned).collect()
}

/// Logs in two clients with these rules, without the rule `without`.
async fn log_in(bed: &Bed, rules: &[String], without: &str) -> (Client, Client) {
    // Without a right to any channel, the probe at connect would fail.
    let hears = rules.iter().any(|rule| rule.starts_with('&'));
    log_in_as(bed, rules, without, hears).await
}

async fn log_in_as(bed: &Bed, rules: &[String], without: &str, preflight: bool) -> (Client, Client) {
    let mut setuser = vec!["ACL", "SETUSER"];
    setuser.extend(rules.iter().map(String::as_str).filter(|rule| *rule != without));
    let () = bed.admin.cmd(&setuser).await;
    let () = bed.admin.cmd(&["ACL", "LOG", "RESET"]).await;
    // A client without the probe may lack the right to messages. Then it polls.
    let poll_cap = if preflight { secs(3600) } else { secs(2) };
    let login = || {
        bed.builder().username("locks").password("SECRET").name_prefix("app:").preflight(preflight).poll_cap(poll_cap)
    };
    (bed.connect(login().subscription_linger(ms(50))).await, bed.connect(login()).await)
}

/// Asserts that `rules` are enough for `done`, and that without each of `commands` the server refuses exactly that
/// command.
async fn enough_and_each_is_needed<T>(
    bed: &Bed,
    rules: &[String],
    commands: &[&str],
    done: impl AsyncFn(&Client, &Client) -> distlock::Result<T>,
    look: impl AsyncFnOnce(T, &Client),
) {
    let (one, two) = log_in(bed, rules, "").await;
    let outcome = done(&one, &two).await.unwrap();
    look(outcome, &one).await;
    assert_eq!(refusals(bed).await, "");
    leave(bed, [one, two]).await;
    for without in commands {
        let (one, two) = log_in(bed, rules, without).await;
        drop(done(&one, &two).await);
        let refused = refusals(bed).await;
        assert!(refused.contains(&format!("{:?}", &without[1..])), "{without} is not needed: {refused}");
        leave(bed, [one, two]).await;
    }
}

/// Shuts the clients down, and deletes the keys that they had no right to release.
async fn leave(bed: &Bed, clients: [Client; 2]) {
    for client in clients {
        client.shutdown(PATIENCE).await.unwrap();
    }
    let () = bed.admin.cmd(&["FLUSHALL"]).await;
}

async fn refusals(bed: &Bed) -> String {
    let refused: Vec<redis::Value> = bed.admin.cmd(&["ACL", "LOG"]).await;
    if refused.is_empty() { String::new() } else { format!("{refused:?}") }
}

/// Runs every operation of both halves of a read-write lock. Returns true if a waiting writer held a reader back.
async fn read_and_write(bed: &Bed, one: &Client, two: &Client) -> distlock::Result<bool> {
    let (mine, theirs) = (one.rw("rw").prefer(Prefer::Writers), two.rw("rw"));
    let first = mine.read().lock().await?;
    let me = first.owner().clone();
    let again = mine.read().acquire(Acquire::new().owner(&me)).await?;
    let beside = theirs.read().lock().await?;
    // More readers than the scripts look at one by one.
    let crowd = theirs.read();
    let mut crowd = futures::future::try_join_all((0..20).map(|_| crowd.lock())).await?;
    if let Some(guard) = crowd.pop() {
        guard.unlock().await?;
    }
    drop(crowd);
    eventually("they left", async || two.stats().under_way == 0).await;
    one.renew_now().await;
    first.extend(secs(60)).await?;
    theirs.read().state().await?;
    let writing = mine.write();
    let writer = tokio::spawn(async move { writing.lock().await });
    let listens = async || bed.admin.numsub("redisson_rwlock:{app:rw}").await == 1;
    eventually("it has asked once", async || listens().await || writer.is_finished()).await;
    let held_back = match theirs.read().lock_for(ms(300)).await {
        outcome if in_vain(&outcome) => true,
        outcome => outcome?.is_none(),
    };
    writer.abort();
    eventually("it gave up", async || one.stats().waiting + one.stats().under_way == 0).await;
    beside.unlock().await?;
    if let Some(again) = again {
        again.unlock().await?;
    }
    // The last reader's release wakes the writer, and the writer's downgrade wakes all readers.
    let writing = mine.write();
    let writer = tokio::spawn(async move { writing.lock_for(PATIENCE).await });
    eventually("it waits", async || one.stats().waiting == 1 || writer.is_finished()).await;
    first.unlock().await?;
    let Some(guard) = bed::ends("the waiting writer", writer).await.expect("no panic")? else { return Ok(held_back) };
    let reading = theirs.read();
    let reader = tokio::spawn(async move { reading.lock_for(PATIENCE).await });
    eventually("it waits", async || two.stats().waiting == 1 || reader.is_finished()).await;
    guard.extend(secs(60)).await?;
    let guard = guard.downgrade().await?;
    drop(bed::ends("the waiting reader", reader).await.expect("no panic")?);
    guard.unlock().await?;
    for half in [&mine.read() as &dyn DistLock, &mine.write()] {
        let guard = half.lock().await?;
        half.force_unlock().await?;
        drop(guard);
    }
    Ok(held_back)
}

async fn take_turns(flavour: Flavour, one: &Client, two: &Client) -> distlock::Result<()> {
    let (mine, theirs) = (one.lock(flavour, "x"), two.lock(flavour, "x"));
    if let Some(outer) = mine.acquire(Acquire::new().wait(ms(0))).await? {
        let me = outer.owner().clone();
        let inner = mine.acquire(Acquire::new().owner(&me)).await?;
        one.renew_now().await;
        outer.extend(secs(60)).await?;
        theirs.state().await?;
        let stranger = theirs.release(&two.owner()).await;
        assert!(stranger.is_err(), "a stranger released it");
        let waiter = tokio::spawn(async move { theirs.lock_for(PATIENCE).await });
        eventually("it waits", async || two.stats().waiting == 1 || waiter.is_finished()).await;
        if let Some(inner) = inner {
            inner.unlock().await?;
        }
        outer.unlock().await?;
        drop(bed::ends("the waiter", waiter).await.expect("no panic")?);
    }
    eventually("it is given back", async || two.stats().under_way + two.stats().holds == 0).await;
    let guard = mine.lock().await?;
    // The owner was printed, so another process may know it.
    let again = mine.acquire(Acquire::new().owner(&guard.owner().to_string().parse()?)).await?;
    drop(again);
    mine.force_unlock().await?;
    drop(guard);
    Ok(())
}

/// Returns the rules of the common lines, and of the flavour lines that begin with one of `first`.
fn lines(first: &[&str]) -> Vec<String> {
    let only = ["+set", "+zadd", "+lindex", "+incr"];
    let wanted = |line: &&str| {
        let begin = line.split_whitespace().next().unwrap_or_default();
        !only.contains(&begin) || first.contains(&begin)
    };
    list().lines().filter(wanted).flat_map(str::split_whitespace).skip(1).map(str::to_owned).collect()
}

#[tokio::test]
async fn the_line_for_fenced_locks_is_enough_and_each_is_needed() {
    reentrant(async |bed| {
        let rules = lines(&["+incr"]);
        assert_eq!(rules.last().map(String::as_str), Some("+persist"));
        let fenced = async |one: &Client, two: &Client| take_turns(Flavour::Fenced, one, two).await;
        enough_and_each_is_needed(bed, &rules, &["+incr", "+get", "+persist"], fenced, async |(), one| {
            assert_eq!(one.fenced("x").last_token().await.unwrap(), 3);
            assert!(bed.admin.exists("redisson_lock_token:{app:x}").await);
        })
        .await;
    })
    .await;
}

/// Spin locks use no channels and no pub/sub. They need every other command of the common lines.
#[tokio::test]
async fn spin_locks_need_no_channel_and_each_other_command_of_the_common_lines() {
    reentrant(async |bed| {
        let mut rules = lines(&[]);
        let messages = messages();
        rules.retain(|rule| !messages.contains(rule) && !rule.starts_with('&'));
        let commands = rules.iter().map(String::as_str).skip_while(|rule| *rule != "+exists");
        // Other flavours need `exists`, and guards that are turned into their owners need `hget`.
        let commands: Vec<_> = commands.filter(|rule| !["+exists", "+hget"].contains(rule)).collect();
        assert_eq!(commands.len(), 11, "{commands:?}");
        let spin = async |one: &Client, two: &Client| take_turns(Flavour::Spin, one, two).await;
        enough_and_each_is_needed(bed, &rules, &commands, spin, async |(), _| {}).await;
    })
    .await;
}

/// Runs every operation of a plain lock. `lease` limits how long a waiter waits if no message of the release arrives.
async fn plain_turns(one: &Client, two: &Client, lease: Duration) -> distlock::Result<()> {
    let (mine, theirs) = (one.plain("x"), two.plain("x"));
    let me = one.owner();
    let guard = mine.lock().await?;
    one.renew_now().await;
    guard.extend(lease).await?;
    theirs.state().await?;
    let waiter = tokio::spawn(async move { theirs.lock_for(PATIENCE).await });
    eventually("it waits", async || two.stats().waiting == 1 || waiter.is_finished()).await;
    tokio::time::sleep(ms(50)).await;
    guard.unlock().await?;
    drop(bed::ends("the waiter", waiter).await.expect("no panic")?);
    eventually("it is given back", async || two.stats().under_way + two.stats().holds == 0).await;
    let guard = mine.acquire(Acquire::new().owner(&me)).await?;
    mine.force_unlock().await?;
    drop(guard);
    Ok(())
}

/// Plain locks need two commands in addition to some of the common lines.
#[tokio::test]
async fn plain_locks_need_get_and_set_and_their_channel() {
    reentrant(async |bed| {
        let mut rules = lines(&[]);
        rules.retain(|rule| !rule.starts_with("+h") || rule == "+hello");
        rules.retain(|rule| !["+exists", "+type"].contains(&rule.as_str()) && !rule.starts_with("&redisson"));
        rules.extend(["+get", "+set"].map(str::to_owned));
        assert!(rules.iter().any(|rule| rule.starts_with("&distlock_plain")));
        // These rules do not allow the probe at connect.
        let (one, two) = log_in_as(bed, &rules, "", false).await;
        plain_turns(&one, &two, secs(60)).await.unwrap();
        assert_eq!(refusals(bed).await, "");
        leave(bed, [one, two]).await;
        let needed =
            ["+get", "+set", "+del", "+pexpire", "+pttl", "+time", "&distlock_plain:{app:*}"].map(str::to_owned);
        let [subscribe, _, publish] = &messages()[..] else { panic!("three commands") };
        for without in needed.iter().chain([subscribe, publish]) {
            // If the lease ends before the waiter asks, the waiter finds the lock free.
            with_longer_waits(secs(2), async |lease| {
                let (one, two) = log_in_as(bed, &rules, without, false).await;
                drop(plain_turns(&one, &two, lease).await);
                let is_refused = !refusals(bed).await.is_empty();
                println!("without {without}, a lease of {lease:?}: refused {is_refused}");
                leave(bed, [one, two]).await;
                is_refused.then_some(())
            })
            .await;
        }
    })
    .await;
}

async fn wakes(bed: &Bed, one: &Client, two: &Client) {
    let guard = one.reentrant("y").lock().await.unwrap();
    let lock = two.reentrant("y");
    let waiter = tokio::spawn(async move { lock.lock().await.unwrap() });
    let channel = "redisson_lock__channel:{app:y}";
    becomes("subscribers", 1, async || bed.admin.numsub(channel).await).await;
    guard.unlock().await.unwrap();
    drop(ends("the waiter", waiter).await.unwrap());
}

/// Messages need a channel right (`&`), and no right (`~`) to a key with the channel's name.
#[tokio::test]
async fn channels_need_no_right_to_a_key() {
    reentrant(async |bed| {
        let mut rules = rules();
        rules.retain(|rule| !rule.starts_with("~redisson_"));
        let (one, two) = log_in(bed, &rules, "").await;
        assert_eq!(refusals(bed).await, "", "the probe at connect");
        take_turns(Flavour::Reentrant, &one, &two).await.unwrap();
        wakes(bed, &one, &two).await;
        assert!(read_and_write(bed, &one, &two).await.unwrap(), "no reader was held back");
        assert_eq!(refusals(bed).await, "");
        leave(bed, [one, two]).await;

        // A right to the key is no right to the channel either.
        rules.retain(|rule| !rule.starts_with('&'));
        rules.push("~redisson_*".to_owned());
        let (one, two) = log_in(bed, &rules, "").await;
        one.reentrant("y").lock().await.unwrap().unlock().await.unwrap();
        let refused = refusals(bed).await;
        assert!(refused.contains("redisson_lock__channel:{app:y}"), "{refused}");
        leave(bed, [one, two]).await;
    })
    .await;
}

#[tokio::test]
async fn the_lines_for_read_write_locks_are_enough_and_each_is_needed() {
    reentrant(async |bed| {
        let list = list();
        let (line, _) = list.split_once("+lindex").expect("the page has a line for fair locks");
        let count = line.split_whitespace().count();
        let rules = rules()[..count - 1].to_vec();
        assert_eq!(rules.last().map(String::as_str), Some("+zcount"), "that line is the last");
        let commands = ["+set", "+hrandfield", "+hlen", "+zadd", "+zrem", "+zcount"];
        let both = async |one: &Client, two: &Client| read_and_write(bed, one, two).await;
        enough_and_each_is_needed(bed, &rules, &commands, both, async |held_back, _| {
            assert!(held_back, "no reader was held back");
        })
        .await;
    })
    .await;
}

/// Runs every operation of a fair lock: queueing, a grant to the head of the queue, giving up, queries, force.
async fn queue(one: &Client, two: &Client) {
    let fair = one.fair("fair");
    let guard = fair.lock().await.unwrap();
    let lock = two.fair("fair");
    let waiter = tokio::spawn(async move { lock.lock().await.unwrap() });
    let queued = async || fair.queue_len().await.unwrap();
    becomes("places in the queue", 1, queued).await;
    waits_in_vain(ms(50), async |wait| one.fair("fair").lock_for(wait).await).await;
    becomes("places in the queue", 1, queued).await;
    let left = async || fair.queue().await.unwrap().waiters[0].remaining;
    let mut last = left().await;
    eventually("its place is refreshed", async || std::mem::replace(&mut last, left().await) < last).await;
    assert_eq!(guard.unlock().await.unwrap(), Released::Free);
    let guard = ends("the waiter of the fair lock", waiter).await.unwrap();
    assert!(fair.force_unlock().await.unwrap());
    drop(guard);
}

#[tokio::test]
async fn the_minimal_access_list_is_enough() {
    reentrant(async |bed| {
        let (one, two) = log_in(bed, &rules(), "").await;
        take_turns(Flavour::Reentrant, &one, &two).await.unwrap();
        wakes(bed, &one, &two).await;
        queue(&one, &two).await;
        // Many concurrent acquires are batched. Batches need no further rights.
        let many = (0..64).map(|n| {
            let flavour = Flavour::ALL[n % Flavour::ALL.len()];
            let lock = one.lock(flavour, &format!("many{n}"));
            async move { lock.lock().await.unwrap().unlock().await.unwrap() }
        });
        futures::future::join_all(many).await;
        assert!(read_and_write(bed, &one, &two).await.unwrap(), "no reader was held back");
        assert_eq!(refusals(bed).await, "");

        // The rules allow no other names.
        let stray = bed.connect(bed.builder().username("locks").password("SECRET").preflight(false)).await;
        assert!(stray.reentrant("other").try_lock().await.is_err());
        assert!(stray.rw("other").read().try_lock().await.is_err());
        assert!(stray.rw("other").write().try_lock().await.is_err());
        assert!(stray.fenced("other").try_lock().await.is_err());
        assert!(stray.fenced("other").last_token().await.is_err());
        assert!(stray.multi(["other", "others"]).try_lock().await.is_err());
        assert!(!bed.admin.exists("other").await);
        // Readers' covers are left after a force.
        let () = bed.admin.cmd(&["FLUSHALL"]).await;
    })
    .await;
}

/// The probe at connect finds each refused command, learns the server's time, and leaves no keys.
#[tokio::test]
async fn the_probe_finds_what_is_refused() {
    const TRIED: [&str; 14] = [
        "time", "exists", "hset", "pexpire", "hexists", "hget", "hmget", "hdel", "hkeys", "hgetall", "pttl", "type",
        "del", "publish",
    ];
    let probe = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../lua/common/preflight.lua")).unwrap();
    reentrant(async |bed| {
        let clock = async || {
            let (secs, micros): (i64, i64) = bed.admin.cmd(&["TIME"]).await;
            secs * 1000 + micros / 1000
        };
        for without in [None].into_iter().chain(TRIED.map(Some)) {
            let before = clock().await;
            let rule =
                |sign: &str| without.map(|command| format!("{sign}{command}")).unwrap_or_else(|| "on".to_owned());
            let () = bed.admin.cmd(&["ACL", "SETUSER", "default", &rule("-")]).await;
            let reply: Vec<redis::Value> = bed.admin.cmd(&["EVAL", &probe, "1", "probe", "publish", "channel"]).await;
            let () = bed.admin.cmd(&["ACL", "SETUSER", "default", &rule("+")]).await;
            let (now, reasons) = reply.split_first().expect("the time");
            let redis::Value::Int(now) = now else { panic!("without {without:?}: {reply:?}") };
            let at = if without == Some("time") { 0..=0 } else { before..=clock().await };
            assert!(at.contains(now), "without {without:?}: {reply:?}");
            let told = reasons.iter().all(|reason| matches!(reason, redis::Value::BulkString(_)));
            assert!(told && reasons.len() == usize::from(without.is_some()), "without {without:?}: {reply:?}");
            let left = bed.admin.pttl("probe").await;
            let expires = without == Some("del") && (0..=2000).contains(&left);
            assert!(left == -2 || expires, "without {without:?}: the probe's key has {left} ms left");
        }
    })
    .await;
}
