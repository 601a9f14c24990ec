//! Tests that the minimal access list of `docs/acl.md` is enough for locks, and that each of its commands is needed.

mod counters;
mod operations;

use bed::{Bed, PATIENCE, at_one, is_cluster, ms, reentrant, secs, with_longer_waits};
use distlock::{Client, Flavour};
use operations::{plain_turns, queue, read_and_write, take_turns, wakes};

const PAGE: &str = include_str!("../../docs/acl.md");

const CLUSTERS: &str = include_str!("../../docs/clusters.md");

/// Pub/sub commands of a single server.
const MESSAGES: [&str; 3] = ["+subscribe", "+unsubscribe", "+publish"];

fn block(page: &str) -> &str {
    let (_, block) = page.split_once("```acl\n").expect("the page has the list");
    block.split_once("```").expect("the block ends").0
}

/// The access list. For a cluster, the cluster's lines replace the pub/sub commands.
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

/// Connects two clients with a login that has these rules except `without`.
async fn log_in(bed: &Bed, rules: &[String], without: &str) -> (Client, Client) {
    // Without a right to any channel, the probe (the check of the login's rights at connect) would fail.
    log_in_as(bed, rules, without, rules.iter().any(|rule| rule.starts_with('&'))).await
}

async fn log_in_as(bed: &Bed, rules: &[String], without: &str, preflight: bool) -> (Client, Client) {
    let mut setuser = vec!["ACL", "SETUSER"];
    setuser.extend(rules.iter().map(String::as_str).filter(|rule| *rule != without));
    let () = bed.admin.cmd(&setuser).await;
    let () = bed.admin.cmd(&["ACL", "LOG", "RESET"]).await;
    // A client that skips the probe may lack the right to messages, and then its waiters poll.
    let poll_cap = if preflight { secs(3600) } else { secs(2) };
    let login = bed.builder().username("locks").password("SECRET").name_prefix("app:");
    let login = login.configure(|options| (options.preflight, options.poll_cap) = (preflight, poll_cap));
    (
        bed.connect(login.clone().configure(|options| options.subscription_linger = ms(50))).await,
        bed.connect(login).await,
    )
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

/// Returns the rules of the list's common lines, and of the lines of the flavours in `first`.
fn lines(first: &[&str]) -> Vec<String> {
    let only = ["+set", "+zadd", "+lindex", "+incr"];
    let wanted = |line: &&str| {
        let begin = line.split_whitespace().next().unwrap_or_default();
        !only.contains(&begin) || first.contains(&begin)
    };
    list().lines().filter(wanted).flat_map(str::split_whitespace).skip(1).map(str::to_owned).collect()
}

#[tokio::test]
async fn access_line_for_fenced_locks_is_sufficient_and_necessary() {
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

/// Spin locks use no channels and no pub/sub commands. They need all other commands of the common lines.
#[tokio::test]
async fn spin_locks_need_no_channel_but_most_common_commands() {
    reentrant(async |bed| {
        let mut rules = lines(&[]);
        let messages = messages();
        rules.retain(|rule| !messages.contains(rule) && !rule.starts_with('&'));
        let commands = rules.iter().map(String::as_str).skip_while(|rule| *rule != "+exists");
        // Only other flavours need `exists`, and only guards that are turned into their owners need `hget`.
        let commands: Vec<_> = commands.filter(|rule| !["+exists", "+hget"].contains(rule)).collect();
        assert_eq!(commands.len(), 11, "{commands:?}");
        let spin = async |one: &Client, two: &Client| take_turns(Flavour::Spin, one, two).await;
        enough_and_each_is_needed(bed, &rules, &commands, spin, async |(), _| {}).await;
    })
    .await;
}

/// Plain locks need two commands of their own, and some of the common lines.
#[tokio::test]
async fn plain_locks_need_get_and_set_and_their_channel() {
    reentrant(async |bed| {
        let mut rules = lines(&[]);
        rules.retain(|rule| !rule.starts_with("+h") || rule == "+hello");
        rules.retain(|rule| !["+exists", "+type"].contains(&rule.as_str()) && !rule.starts_with("&redisson"));
        rules.extend(["+get", "+set"].map(str::to_owned));
        assert!(rules.iter().any(|rule| rule.starts_with("&distlock_plain")));
        // These rules do not allow the probe.
        let (one, two) = log_in_as(bed, &rules, "", false).await;
        plain_turns(&one, &two, secs(60)).await.unwrap();
        assert_eq!(refusals(bed).await, "");
        leave(bed, [one, two]).await;
        let needed =
            ["+get", "+set", "+del", "+pexpire", "+pttl", "+time", "&distlock_plain:{app:*}"].map(str::to_owned);
        let [subscribe, _, publish] = &messages()[..] else { panic!("three commands") };
        for without in needed.iter().chain([subscribe, publish]) {
            // If the lease ends before the waiter asks, the waiter finds the lock free, and the test tries again.
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

/// Messages need a right to the channel (`&`). They need no right (`~`) to a key with the channel's name.
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

        // A right to the key gives no right to the channel.
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
async fn access_lines_for_read_write_locks_are_sufficient_and_necessary() {
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

#[tokio::test]
async fn the_minimal_access_list_is_enough() {
    reentrant(async |bed| {
        let (one, two) = log_in(bed, &rules(), "").await;
        // Other tests run the other flavours with parts of the list.
        queue(&one, &two).await;
        let asked = one.reentrant("asked").lock().await.unwrap();
        assert!(two.reentrant("asked").revoke().await.unwrap());
        asked.unlock().await.unwrap();
        // Many concurrent acquires are batched. Batches need no further rights.
        let many = (0..64).map(|n| {
            let flavour = Flavour::ALL[n % Flavour::ALL.len()];
            let lock = one.lock(flavour, &format!("many{n}"));
            async move { lock.lock().await.unwrap().unlock().await.unwrap() }
        });
        futures::future::join_all(many).await;
        let login = bed.builder().username("locks").password("SECRET").name_prefix("app:").label("pod-7");
        let labelled = bed.connect(login).await;
        let found = async || two.label_of(labelled.id()).await.unwrap();
        bed::becomes("the label", Some("pod-7".to_owned()), found).await;
        labelled.shutdown(PATIENCE).await.unwrap();
        assert_eq!(refusals(bed).await, "");

        // The rules allow no name outside the prefix.
        let stray = bed
            .connect(bed.builder().username("locks").password("SECRET").configure(|options| options.preflight = false))
            .await;
        for flavour in [Flavour::Reentrant, Flavour::Read, Flavour::Write, Flavour::Fenced] {
            assert!(stray.lock(flavour, "other").try_lock().await.is_err(), "{flavour}");
        }
        assert!(stray.fenced("other").last_token().await.is_err());
        assert!(stray.multi(["other", "others"]).try_lock().await.is_err());
        assert!(!bed.admin.exists("other").await);
        // A force does not delete the covers of readers.
        let () = bed.admin.cmd(&["FLUSHALL"]).await;
    })
    .await;
}

/// The probe at connect finds each refused command, learns the server's time, and leaves no keys.
#[tokio::test]
async fn preflight_probe_reports_each_refused_command() {
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

/// One command renews many holds. The server refuses the whole command if the login has lost the right to one key.
#[tokio::test]
async fn denied_key_does_not_stop_renewal_of_other_keys() {
    at_one(
        |client, name| client.lock(Flavour::Reentrant, name),
        async |bed| {
            let rules = ["ACL", "SETUSER", "locks", "reset", "on", ">SECRET", "+@all", "&*", "~a:*", "~b:*"];
            let () = bed.admin.cmd(&rules).await;
            let client = bed
                .connect(
                    bed.builder().username("locks").password("SECRET").configure(|options| options.preflight = false),
                )
                .await;
            let mut guards = Vec::new();
            for name in ["a:1", "b:1", "a:2", "a:3"] {
                guards.push(client.reentrant(name).lock().await.unwrap());
            }
            let () = bed.admin.cmd(&["ACL", "SETUSER", "locks", "resetkeys", "~a:*"]).await;
            let round = client.renew_now().await;
            assert_eq!((round.renewed, round.failed, round.lost), (3, 1, 0));
            let () = bed.admin.cmd(&["ACL", "SETUSER", "locks", "~b:*"]).await;
            for guard in guards {
                guard.unlock().await.unwrap();
            }
        },
    )
    .await;
}
