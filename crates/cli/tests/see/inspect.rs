//! `distlock inspect`, for locks of this crate and for keys as Redisson writes them.

use distlock::{Acquire, PlainValue};
use serde_json::{Value as Json, json};

use crate::rig::{Bed, JAVA, ends, until};

/// A reader of Java whose uuid sorts behind almost all others.
const LAST: &str = "ffffffff-ffff-4fff-bfff-ffffffffffff:6";

/// The members that every report has, for a lock with these holders.
fn lock(name: &str, flavour: &str, holders: Json) -> Json {
    json!({
        "name": name, "key": name, "flavour": flavour, "held": true, "ttl_ms": "later", "holders": holders,
        "more_holders": 0, "queue": [], "more_waiters": 0, "subscribers": 0,
    })
}

fn rust(owner: &str) -> Json {
    json!({ "owner": owner, "language": "rust", "holds": 1, "hold_ids": [] })
}

fn with(mut report: Json, members: Json) -> Json {
    let members = members.as_object().unwrap().clone();
    report.as_object_mut().unwrap().extend(members);
    report
}

#[tokio::test]
async fn name_without_keys_is_not_locked() {
    let bed = Bed::new().await;
    let expected = with(lock("a", "", json!([])), json!({ "flavour": null, "held": false, "ttl_ms": null }));
    assert_eq!(bed.inspect("a", 1).await, expected);
    let ran = bed.run(&["inspect", "a"]).await;
    assert_eq!((ran.code, ran.out.lines().next()), (Some(1), Some("a: not locked")), "{ran:?}");
}

#[tokio::test]
async fn holds_of_a_shared_owner_are_listed() {
    let bed = Bed::new().await;
    let (lock_a, owner) = (bed.client.reentrant("a"), bed.client.owner());
    let _one = lock_a.acquire(Acquire::new().owner(&owner)).await.unwrap();
    let _two = lock_a.acquire(Acquire::new().owner(&owner)).await.unwrap();
    let fields = bed.admin.hgetall_whole("a").await;
    let ids: Vec<&str> = fields[&format!("{owner}:holds")].split(',').skip(1).collect();
    assert_eq!(ids.len(), 2);
    let holder = json!([{ "owner": owner.as_str(), "language": "rust", "holds": 2, "hold_ids": ids }]);
    assert_eq!(bed.inspect("a", 0).await, lock("a", "reentrant", holder));
    let text = bed.run(&["inspect", "a"]).await.out;
    assert!(text.contains(&format!("{owner} (rust), 2 holds: {} {}", ids[0], ids[1])), "{text}");
}

/// The holder, a waiter behind it, and the holder of a permit have the label of their client.
#[tokio::test]
async fn label_of_a_client_is_shown_with_its_holds() {
    let bed = Bed::new().await;
    let client = distlock::Client::builder(&bed.server.url()).label("pod-7").connect().await.unwrap();
    until("the label is written", async || bed.client.label_of(client.id()).await.unwrap().is_some()).await;
    let guard = client.reentrant("a").lock().await.unwrap();
    let mut holder = rust(guard.owner().as_str());
    holder["label"] = json!("pod-7");
    assert_eq!(bed.inspect("a", 0).await, lock("a", "reentrant", json!([holder])));
    let text = bed.run(&["inspect", "a"]).await.out;
    assert!(text.contains(", label pod-7\n"), "{text}");

    let gate = client.permits("gate");
    assert!(gate.try_set_permits(1).await.unwrap());
    let _permit = gate.acquire(1).await.unwrap();
    assert_eq!(bed.inspect("gate", 0).await["permits"]["holders"][0]["label"], "pod-7");
}

#[tokio::test]
async fn lock_of_java_is_told_from_a_lock_of_this_crate() {
    let bed = Bed::new().await;
    bed.java_locks("a", JAVA).await;
    let holder = json!([{ "owner": JAVA, "language": "java", "holds": 1, "hold_ids": [] }]);
    assert_eq!(bed.inspect("a", 0).await, lock("a", "reentrant", holder));
}

#[tokio::test]
async fn fenced_lock_has_its_counter_also_when_it_is_free() {
    let bed = Bed::new().await;
    let guard = bed.client.fenced("a").lock().await.unwrap();
    let owner = guard.owner().as_str().to_owned();
    let counter = json!({ "fencing_counter": guard.fencing_token().unwrap() });
    let expected = with(lock("a", "reentrant or fenced", json!([rust(&owner)])), counter);
    assert_eq!(bed.inspect("a", 0).await, expected);
    guard.unlock().await.unwrap();
    let free = json!({ "flavour": "fenced", "held": false, "ttl_ms": null, "holders": [] });
    assert_eq!(bed.inspect("a", 1).await, with(expected, free));
}

#[tokio::test]
async fn queue_of_a_fair_lock_has_waiters_of_both_languages() {
    let bed = Bed::new().await;
    let fair = bed.client.fair("a");
    let guard = fair.lock().await.unwrap();
    let (waiting, waits) = (bed.client.owner(), fair.clone());
    let how = Acquire::new().owner(&waiting);
    let waiter = tokio::spawn(async move { waits.acquire(how).await });
    until("a waiter", async || fair.queue_len().await.unwrap() == 1).await;
    bed.java_waits("a", JAVA, bed.now().await + 300_000).await;
    let queue = json!({ "queue": [
        { "position": 1, "owner": waiting.as_str(), "language": "rust", "deadline_ms": "later" },
        { "position": 2, "owner": JAVA, "language": "java", "deadline_ms": "later" },
    ]});
    let expected = with(lock("a", "fair", json!([rust(guard.owner().as_str())])), queue);
    assert_eq!(bed.inspect("a", 0).await, expected);
    guard.unlock().await.unwrap();
    ends("the waiter", waiter).await.unwrap().unwrap();
}

#[tokio::test]
async fn dead_reader_is_told_from_live_readers() {
    let bed = Bed::new().await;
    let guard = bed.client.rw("a").read().lock().await.unwrap();
    let _: i64 = bed.admin.cmd(&["HSET", "a", JAVA, "1", LAST, "2"]).await;
    let cover = format!("{{a}}:{LAST}:rwlock_timeout:2");
    let _: String = bed.admin.cmd(&["SET", &cover, "1", "PX", "600000"]).await;
    let reader = |owner: &str, holds: i64, ttl: Json| {
        let language = if owner == JAVA || owner == LAST { "java" } else { "rust" };
        json!({
            "owner": owner, "language": language, "holds": holds, "hold_ids": [], "half": "read", "ttl_ms": ttl,
        })
    };
    let ours = guard.owner().as_str();
    let holders = json!([reader(JAVA, 1, json!(0)), reader(ours, 1, json!("later")), reader(LAST, 2, json!("later"))]);
    let modes = json!({ "mode": "read", "waiting_writers": [] });
    assert_eq!(bed.inspect("a", 0).await, with(lock("a", "read-write", holders), modes));
}

#[tokio::test]
async fn writer_is_shown_in_write_mode() {
    let bed = Bed::new().await;
    let guard = bed.client.rw("a").write().lock().await.unwrap();
    let holders = json!([with(rust(guard.owner().as_str()), json!({ "half": "write" }))]);
    let modes = json!({ "mode": "write", "waiting_writers": [] });
    assert_eq!(bed.inspect("a", 0).await, with(lock("a", "read-write", holders), modes));
}

#[tokio::test]
async fn plain_lock_shows_the_owner_of_every_form() {
    let bed = Bed::new().await;
    for form in [PlainValue::Owner, PlainValue::Hex, PlainValue::Base64] {
        let guard = bed.client.plain("a").value(form).lock().await.unwrap();
        let expected = lock("a", "plain", json!([rust(guard.owner().as_str())]));
        assert_eq!(bed.inspect("a", 0).await, expected, "{form:?}");
        guard.unlock().await.unwrap();
    }
    let _: String = bed.admin.cmd(&["SET", "a", "of another library", "PX", "600000"]).await;
    let other = json!([{ "owner": "of another library", "language": null, "holds": 1, "hold_ids": [] }]);
    assert_eq!(bed.inspect("a", 0).await, lock("a", "plain", other));
}

#[tokio::test]
async fn permits_have_their_holders_and_the_request_that_waits() {
    let bed = Bed::new().await;
    let permits = bed.client.permits("a").fair();
    permits.set_permits(3).await.unwrap();
    let guard = permits.acquire(2).await.unwrap();
    let ids: Vec<String> = guard.ids().iter().map(ToString::to_string).collect();
    let ends_at = (bed.now().await + 600_000).to_string();
    let _: i64 = bed.admin.cmd(&["ZADD", "{a}:timeout", &ends_at, "of java, 16 byte"]).await;
    let _: i64 = bed.admin.cmd(&["DECR", "a"]).await;
    let line = "distlock_line:{a}";
    until("no request", async || !bed.admin.exists(line).await).await;
    let request = tokio::spawn(async move { permits.acquire(3).await });
    until("a request in line", async || bed.admin.exists(line).await).await;
    let served = bed.admin.hgetall(line).await.into_keys().next().unwrap();
    until("its subscription", async || bed.admin.numsub("redisson_sc:{a}").await == 1).await;
    let java: String = "of java, 16 byte".bytes().map(|byte| format!("{byte:02x}")).collect();
    let holder = |id: &str, language: &str| json!({ "id": id, "language": language, "ttl_ms": "later" });
    let expected = json!({
        "ttl_ms": null,
        "queue": [{ "position": 1, "owner": served, "language": "rust", "deadline_ms": "later" }],
        "subscribers": 1,
        "permits": {
            "total": 3, "free": 0, "held": 3,
            "holders": [holder(&ids[0], "rust"), holder(&ids[1], "rust"), holder(&java, "java")],
        },
    });
    assert_eq!(bed.inspect("a", 0).await, with(lock("a", "permits", json!([])), expected));
    request.abort();
}

#[tokio::test]
async fn semaphores_and_latches_are_numbers() {
    let bed = Bed::new().await;
    let _: i64 = bed.admin.cmd(&["INCRBY", "a", "4"]).await;
    assert!(bed.client.latch("b").try_set(2).await.unwrap());
    for (name, number) in [("a", 4), ("b", 2)] {
        let expected = with(lock(name, "number", json!([])), json!({ "ttl_ms": null, "number": number }));
        assert_eq!(bed.inspect(name, 0).await, expected);
    }
}

#[tokio::test]
async fn barrier_shows_the_parties_that_have_arrived() {
    let bed = Bed::new().await;
    let barrier = bed.client.barrier("a", 2);
    let waits = barrier.clone();
    let party = tokio::spawn(async move { waits.wait().await });
    until("a party", async || barrier.waiting().await.unwrap() == 1).await;
    let report = bed.inspect("a", 0).await;
    assert_eq!((&report["flavour"], &report["barrier"]["parties"]), (&json!("barrier"), &json!(2)));
    assert_eq!(report["barrier"]["arrived"][0]["language"], "rust");
    assert_eq!(report["barrier"]["arrived"][0]["deadline_ms"], "later");
    ends("the barrier", barrier.wait()).await.unwrap();
    ends("the party", party).await.unwrap().unwrap();
}

#[tokio::test]
async fn more_readers_than_are_read_are_counted() {
    let bed = Bed::new().await;
    let script = "redis.call('hset', KEYS[1], 'mode', 'read') \
                  for n = 1, 3000 do redis.call('hset', KEYS[1], ARGV[1] .. n, 1) end \
                  return redis.call('pexpire', KEYS[1], 600000)";
    let _: i64 = bed.admin.cmd(&["EVAL", script, "1", "a", JAVA]).await;
    let report = bed.inspect("a", 0).await;
    // The field with the mode may be among the first 1000.
    let listed = report["holders"].as_array().unwrap().len();
    assert!((999..=1000).contains(&listed), "{listed}");
    assert_eq!(report["more_holders"], 3000 - listed);
}

#[tokio::test]
async fn hash_of_another_program_is_not_locked() {
    let bed = Bed::new().await;
    let _: i64 = bed.admin.cmd(&["HSET", "a", "colour", "blue"]).await;
    let report = bed.inspect("a", 1).await;
    assert_eq!((&report["flavour"], &report["key_type"]), (&Json::Null, &json!("hash")));
    let text = bed.run(&["inspect", "a"]).await.out;
    assert!(text.starts_with("a: no lock that is known: the key has the type hash\n"), "{text}");
}

#[tokio::test]
async fn prefix_is_part_of_the_key() {
    let bed = Bed::new().await;
    bed.java_locks("app:a", JAVA).await;
    let ran = bed.run(&["inspect", "a", "--json", "--prefix", "app:"]).await;
    let report: Json = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((&report["name"], &report["key"], &report["held"]), (&json!("a"), &json!("app:a"), &json!(true)));
}
