//! `distlock list` finds exactly the locks, among 10 000 other keys.

use std::collections::{BTreeMap, HashSet};

use distlock::{Client, Guard, PermitGuard, PlainValue};
use distlock_support::{Admin, Cluster, ClusterOptions};
use serde_json::{Value as Json, json};
use tokio::task::JoinHandle;

use crate::rig::{Bed, JAVA, run, until};

const OURS: &str = "71b96ce8-2746-8c3a-9d0e-0123456789ab";

/// Groups of other keys, about 100 keys each.
const GROUPS: usize = 100;

/// The expected line about a lock: flavour, owner, language.
type Listed = (String, Option<String>, Option<String>);

/// Locks that are held until this is dropped.
struct Held {
    _guards: Vec<Guard>,
    _permits: PermitGuard,
    waiter: JoinHandle<()>,
    expected: BTreeMap<String, Listed>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.waiter.abort();
    }
}

fn listed(flavour: &str, owner: Option<&str>, language: Option<&str>) -> Listed {
    (flavour.to_owned(), owner.map(str::to_owned), language.map(str::to_owned))
}

/// Acquires a lock of every flavour by the public API, and others as Redisson does.
async fn hold(client: &Client, admin: &Admin) -> Held {
    let fair = client.fair("our fair");
    let guards = vec![
        ("reentrant", client.reentrant("our reentrant").lock().await.unwrap()),
        ("reentrant", client.spin("our spin").lock().await.unwrap()),
        ("fair", fair.lock().await.unwrap()),
        ("reentrant or fenced", client.fenced("our fenced").lock().await.unwrap()),
        ("read", client.rw("our read").read().lock().await.unwrap()),
        ("write", client.rw("our write").write().lock().await.unwrap()),
        ("plain", client.plain("our plain").lock().await.unwrap()),
        ("plain", client.plain("our hex").value(PlainValue::Hex).lock().await.unwrap()),
        ("plain", client.plain("our base64").value(PlainValue::Base64).lock().await.unwrap()),
    ];
    // A request to finish is a field of the hash.
    assert!(fair.revoke().await.unwrap() && client.rw("our write").write().revoke().await.unwrap());
    let permits = client.permits("our permits");
    permits.set_permits(5).await.unwrap();
    let permit = permits.acquire(2).await.unwrap();
    let mut expected: BTreeMap<String, Listed> = BTreeMap::new();
    for (flavour, guard) in &guards {
        expected.insert(guard.name().to_owned(), listed(flavour, Some(guard.owner().as_str()), Some("rust")));
    }
    expected.insert("our permits".to_owned(), listed("permits", None, None));
    let waits = fair.clone();
    let waiter = tokio::spawn(async move { drop(waits.lock().await) });
    until("a waiter", async || fair.queue_len().await.unwrap() == 1).await;

    let java_write = format!("{JAVA}:write");
    for (flavour, key, fields) in [
        ("reentrant", "java:lock", vec![JAVA, "2"]),
        ("read", "java:read", vec!["mode", "read", JAVA, "1"]),
        ("write", "{java}:write", vec!["mode", "write", &java_write, "1"]),
    ] {
        let _: i64 = admin.cmd(&[&["HSET", key][..], &fields[..]].concat()).await;
        let _: i64 = admin.cmd(&["PEXPIRE", key, "600000"]).await;
        expected.insert(key.to_owned(), listed(flavour, Some(JAVA), Some("java")));
    }
    let guards = guards.into_iter().map(|(_, guard)| guard).collect();
    Held { _guards: guards, _permits: permit, waiter, expected }
}

/// Writes keys that resemble locks but are none. Each group is in a slot of its own.
async fn write_other_keys(admin: &Admin) {
    let owner = format!("{OURS}:7");
    for group in 0..GROUPS {
        let name = format!("other{group}");
        let key = |end: &str| format!("{{{name}}}:{end}");
        let strings = (0..90).flat_map(|n| [key(&format!("string{n}")), format!("{:032x}", n * 7_919)]);
        let mset: Vec<String> = [String::from("MSET")].into_iter().chain(strings).collect();
        let registrations = format!("redisson_lock_waiters:{}", key("x"));
        let mut commands: Vec<Vec<&str>> = vec![mset.iter().map(String::as_str).collect()];
        let hashes = [key("h1"), key("h2"), key("h3"), key("h4"), key("h5")];
        commands.push(vec!["HSET", &hashes[0], "a", "1"]);
        commands.push(vec!["HSET", &hashes[1], OURS, "1"]);
        commands.push(vec!["HSET", &hashes[2], &owner, "text"]);
        commands.push(vec!["HSET", &hashes[3], &owner, "1", "other", "2"]);
        commands.push(vec!["HSET", &hashes[4], "mode", "read", "colour", "blue"]);
        commands.push(vec!["HSET", &registrations, &owner, "1234567890123456"]);
        let (list, leases) = (key("list"), key("timeout"));
        commands.push(vec!["RPUSH", &list, &owner]);
        // A number with a sorted set of that name, whose members are no permits.
        commands.push(vec!["ZADD", &leases, "99999999999999", "member"]);
        commands.push(vec!["SET", &name, "5"]);
        let (hex, text) = (key("hex"), key("owner"));
        let zeros = "0".repeat(48);
        commands.push(vec!["SET", &hex, &zeros, "PX", "600000"]);
        // A plain lock has a lease.
        commands.push(vec!["SET", &text, &owner]);
        for command in commands {
            admin.raw(&command).await.unwrap();
        }
    }
}

/// The lines of `list --json`, by name. A name that is listed twice fails the test.
async fn list(url: &str, words: &[&str]) -> BTreeMap<String, Json> {
    let ran = run(url, &[&["list", "--json"][..], words].concat()).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let mut lines = BTreeMap::new();
    for line in ran.out.lines() {
        let line: Json = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let name = line["name"].as_str().unwrap().to_owned();
        assert!(lines.insert(name, line).is_none(), "{ran:?}");
    }
    lines
}

fn short(lines: &BTreeMap<String, Json>) -> BTreeMap<String, Listed> {
    let text = |value: &Json| value.as_str().map(str::to_owned);
    let short = |line: &Json| (text(&line["flavour"]).unwrap(), text(&line["owner"]), text(&line["language"]));
    lines.iter().map(|(name, line)| (name.clone(), short(line))).collect()
}

async fn list_finds_exactly_the_locks(url: &str, client: &Client, admin: &Admin) {
    let held = hold(client, admin).await;
    write_other_keys(admin).await;
    let lines = list(url, &[]).await;
    assert_eq!(short(&lines), held.expected);
    let about = |name: &str, member: &str| lines[name][member].clone();
    assert_eq!((about("our permits", "holds"), about("our permits", "total")), (json!(2), json!(5)));
    assert_eq!((about("our fair", "waiters"), about("java:lock", "holds")), (json!(1), json!(2)));
    assert_eq!(about("our fenced", "fencing_counter"), json!(1));
    assert!(lines.values().all(|line| line["ttl_ms"].as_i64().is_some_and(|ms| ms > 0)), "{lines:?}");

    let java = list(url, &["--match", "java:*"]).await;
    assert_eq!(java.into_keys().collect::<Vec<_>>(), ["java:lock", "java:read"]);
    let ours = list(url, &["--prefix", "our "]).await;
    assert_eq!(ours.len(), 10);
    assert_eq!((&ours["fair"]["key"], &ours["fair"]["owner"]), (&json!("our fair"), &lines["our fair"]["owner"]));
}

#[tokio::test]
async fn list_finds_exactly_the_locks_of_one_server() {
    let bed = Bed::new().await;
    list_finds_exactly_the_locks(&bed.server.url(), &bed.client, &bed.admin).await;
}

#[tokio::test]
async fn list_finds_exactly_the_locks_of_a_cluster() {
    let cluster = Cluster::start(ClusterOptions::default().replicas(0).node_timeout(60_000)).await;
    let admin = Admin::of_cluster(&cluster).await;
    let client = Client::connect(&cluster.url()).await.unwrap();
    list_finds_exactly_the_locks(&cluster.url(), &client, &admin).await;
}

#[tokio::test]
async fn list_prints_a_table_and_counts_on_stderr() {
    let bed = Bed::new().await;
    bed.java_locks("b", JAVA).await;
    bed.java_locks("a\x1b[2J", JAVA).await;
    let _: String = bed.admin.cmd(&["SET", "c", "1"]).await;
    let ran = bed.run(&["list"]).await;
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), "2 locks among 3 keys\n"), "{ran:?}");
    let lines: Vec<&str> = ran.out.lines().collect();
    assert!(lines.len() == 3 && lines[0].starts_with("FLAVOUR") && lines[0].ends_with("NAME"), "{ran:?}");
    let at = lines[0].find("NAME").unwrap();
    let names: HashSet<&str> = lines[1..].iter().map(|line| &line[at..]).collect();
    assert_eq!(names, HashSet::from(["b", "a\\u{1b}[2J"]), "{ran:?}");
    assert!(lines[1..].iter().all(|line| line.contains(JAVA) && line.contains("java")), "{ran:?}");
}

/// The keys are read by SCAN, in pages that a server answers fast.
#[tokio::test]
async fn list_never_sends_keys() {
    let bed = Bed::new().await;
    let fill = "for n = 1, 5000 do redis.call('set', 'k' .. n, n) end return 1";
    let _: i64 = bed.admin.cmd(&["EVAL", fill, "0"]).await;
    bed.admin.reset_stats().await;
    assert!(list(&bed.server.url(), &[]).await.is_empty());
    let calls = bed.admin.commandstats().await;
    assert_eq!(calls.get("keys"), None, "{calls:?}");
    assert!(calls["scan"] >= 5, "{calls:?}");
}
