//! Hostile data: names, and hashes that somebody forged.

use std::collections::BTreeMap;
use std::time::Instant;

use distlock::{Acquire, DistLock as _, Error, Released};
use redis::Value;

use bed::fault::{brisk, warm};
use bed::{eventually, freed, idle, ms, reentrant, secs};

/// What the server sees is KEYS and ARGV, so a name is bytes and nothing else: exactly one key of exactly this name, one
/// channel, and no other key touched.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_names_are_just_names() {
    let long = "x".repeat(4096);
    let odd = [
        "a",
        "\0",
        "\n",
        "\r\n",
        "a\r\nDEL victim\r\n",
        "{",
        "}",
        "{}",
        "{}a",
        "a{b",
        "a{b}c",
        "}{",
        "{a}{b}",
        "*",
        "?",
        "[a-z]",
        "\\",
        "\"",
        "'",
        "]]..redis.call('flushall')..[[",
        "' or 1 --",
        "%s%n%d",
        "$(id)",
        "🔒",
        "\u{202e}rtl\u{202c}",
        "e\u{301}",
        ":",
        "a:b:c",
        " ",
        "redisson_lock__channel:{a}",
        "KEYS[1]",
        &long,
    ];
    reentrant(async |bed| {
        let prefixed = bed.connect(bed.builder().name_prefix("{app}:")).await;
        let plain = bed.client().await;
        let () = bed.admin.cmd(&["SET", "victim", "alive"]).await;
        for name in odd {
            for (client, prefix) in [(&plain, ""), (&prefixed, "{app}:")] {
                let key = format!("{prefix}{name}");
                if key.len() > 4096 {
                    assert!(matches!(client.reentrant(name).lock().await, Err(Error::Config { .. })));
                    continue;
                }
                let lock = client.reentrant(name);
                let guard = lock.lock().await.unwrap();
                let mut expected = vec![key.as_str(), "victim"];
                expected.sort_unstable();
                assert_eq!(bed.admin.keys().await, expected, "{name:?}");
                let waiting = tokio::spawn({
                    let lock = bed_second(client, name);
                    async move { lock.lock_for(secs(5)).await.unwrap().is_some() }
                });
                let channel = if key.contains('{') {
                    format!("redisson_lock__channel:{key}")
                } else {
                    format!("redisson_lock__channel:{{{key}}}")
                };
                // A second client, so that the wait goes through Redis.
                let other = if prefix.is_empty() {
                    bed.client().await
                } else {
                    bed.connect(bed.builder().name_prefix(prefix)).await
                };
                let contender = other.reentrant(name);
                let contending = tokio::spawn(async move { contender.lock_for(secs(5)).await.unwrap().is_some() });
                eventually("it listens to this channel", async || bed.admin.numsub(&channel).await >= 1).await;
                assert_eq!(guard.unlock().await.unwrap(), Released::Free, "{name:?}");
                assert!(waiting.await.unwrap() && contending.await.unwrap(), "{name:?}");
                freed(&(std::sync::Arc::new(lock.clone()) as _), secs(2)).await;
                assert!(!lock.force_unlock().await.unwrap());
                other.shutdown(secs(2)).await.unwrap();
                assert_eq!(bed.admin.cmd::<String>(&["GET", "victim"]).await, "alive");
            }
        }
        let () = bed.admin.cmd(&["DEL", "victim"]).await;
    })
    .await;
}

fn bed_second(client: &distlock::Client, name: &str) -> distlock::ReentrantLock {
    client.reentrant(name)
}

/// Names that no lock can have are refused before anything is sent.
#[tokio::test]
async fn impossible_names_are_refused_unsent() {
    reentrant(async |bed| {
        let client = bed.client().await;
        bed.admin.reset_stats().await;
        for name in [String::new(), "x".repeat(4097), "x".repeat(64 << 10), "x".repeat(64 << 20), "é".repeat(2049)] {
            let lock = client.reentrant(&name);
            for outcome in [
                lock.lock().await.map(drop),
                lock.try_lock().await.map(drop),
                lock.lock_leased(secs(1)).await.map(drop),
                lock.state().await.map(drop),
                lock.force_unlock().await.map(drop),
                lock.release(&client.owner()).await.map(drop),
            ] {
                let error = outcome.unwrap_err();
                assert!(
                    matches!(&error, Error::Config { .. }) && error.to_string().len() < 300,
                    "{} bytes",
                    name.len()
                );
            }
        }
        let stats = bed.admin.commandstats().await;
        assert!(!stats.contains_key("evalsha") && !stats.contains_key("eval"), "{stats:?}");
    })
    .await;
}

/// Somebody else's hash that never ends: held, with no end, and looked at now and then.
#[tokio::test]
async fn a_hash_without_an_end_is_waited_for_with_a_bound() {
    reentrant(async |bed| {
        let client = bed.connect(brisk(&bed.server.url()).poll_cap(ms(300))).await;
        warm(&client).await;
        let () = bed.admin.cmd(&["HSET", "a", "stranger", "1"]).await;
        let lock = client.reentrant("a");
        let state = lock.state().await.unwrap();
        assert_eq!((state.holders, state.remaining), (vec![("stranger".to_owned(), 1)], None));
        assert!(lock.try_lock().await.unwrap().is_none());
        let start = Instant::now();
        assert!(lock.lock_for(ms(500)).await.unwrap().is_none());
        assert!(start.elapsed() >= ms(500) && start.elapsed() < secs(1));
        bed.admin.reset_stats().await;
        let waiting = tokio::spawn(async move { lock.lock().await.unwrap() });
        tokio::time::sleep(ms(1500)).await;
        let asked = bed.admin.calls("evalsha").await;
        assert!((3..=10).contains(&asked), "asked {asked} times in 1.5 s");
        // Deleted without a message.
        let () = bed.admin.cmd(&["DEL", "a"]).await;
        let deleted = Instant::now();
        waiting.await.unwrap().unlock().await.unwrap();
        assert!(deleted.elapsed() < secs(1));
        // By force it can be had.
        let () = bed.admin.cmd(&["HSET", "a", "stranger", "1"]).await;
        assert!(client.reentrant("a").force_unlock().await.unwrap());
    })
    .await;
}

/// Counts that are no counts. Of another owner: held, whatever they say. Of our own: an error or a repair, and never a
/// lock that stays.
#[tokio::test]
async fn forged_counts_are_survived() {
    let forged = [
        "",
        "abc",
        "1.5",
        "-1",
        "0",
        "1e3",
        "9223372036854775807",
        "-9223372036854775808",
        "99999999999999999999",
        "\0",
        " 1",
    ];
    reentrant(async |bed| {
        let client = bed.client().await;
        for count in forged {
            let lock = client.reentrant("a");
            // Somebody else's.
            let () = bed.admin.cmd(&["HSET", "a", "stranger", count]).await;
            let () = bed.admin.cmd(&["PEXPIRE", "a", "60000"]).await;
            assert!(lock.try_lock().await.unwrap().is_none(), "{count:?}");
            let state = lock.state().await.unwrap();
            assert!(state.is_locked() && state.holders.len() == 1, "{count:?}");
            let error = lock.release(&client.owner()).await.unwrap_err();
            assert!(matches!(error, Error::NotHeld { .. }), "{count:?}: {error:?}");
            assert_eq!(bed.admin.hgetall("a").await, BTreeMap::from([("stranger".to_owned(), count.to_owned())]));
            assert!(lock.force_unlock().await.unwrap());
            // Our own, of an owner that others may use, so that the server counts.
            let owner = client.owner();
            let () = bed.admin.cmd(&["HSET", "a", owner.as_str(), count]).await;
            let () = bed.admin.cmd(&["PEXPIRE", "a", "60000"]).await;
            let outcome = lock.acquire(Acquire::new().owner(&owner).wait(ms(0))).await;
            match outcome {
                Ok(guard) => drop(guard),
                Err(error) => assert!(matches!(error, Error::Server { .. }), "{count:?}: {error:?}"),
            }
            idle(&client).await;
            let outcome = lock.release(&owner).await;
            match outcome {
                // Counted by its list of holds, a forged number goes with the last of them.
                Ok(_) | Err(Error::NotHeld { .. }) => {}
                Err(Error::Server { message }) => assert!(message.starts_with("ERR "), "{count:?}: {message}"),
                outcome => panic!("{count:?}: {outcome:?}"),
            }
            lock.force_unlock().await.unwrap();
            // Forged under a guard that is held.
            let guard = lock.lock().await.unwrap();
            let field = bed.admin.hgetall("a").await.into_keys().next().unwrap();
            let () = bed.admin.cmd(&["HSET", "a", &field, count]).await;
            assert_eq!(client.renew_now().await.renewed, 1, "{count:?}");
            assert_eq!(guard.unlock().await.unwrap(), Released::Free, "{count:?}");
            assert!(!bed.admin.exists("a").await, "{count:?}");
        }
    })
    .await;
}

/// Fields that do not belong there.
#[tokio::test]
async fn extra_fields_are_survived() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let lock = client.reentrant("a");
        let guard = lock.lock().await.unwrap();
        let () = bed.admin.cmd(&["HSET", "a", "mode", "write", "stranger", "7", "\u{fffd}", "x"]).await;
        assert_eq!(lock.state().await.unwrap().holders.len(), 4);
        assert_eq!(client.renew_now().await.renewed, 1);
        assert!(lock.try_lock().await.unwrap().is_none());
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
        assert!(!bed.admin.exists("a").await);
        // Bytes that are no text.
        let () = bed.admin.cmd_bytes(&[&b"HSET"[..], b"a", b"\xff\xfe\x00", b"\xc3\x28"]).await;
        assert!(lock.try_lock().await.unwrap().is_none());
        assert_eq!(lock.state().await.unwrap().holders.len(), 1);
        let error = lock.release(&client.owner()).await.unwrap_err();
        assert!(matches!(error, Error::NotHeld { .. }), "{error:?}");
        assert!(lock.force_unlock().await.unwrap());
        // 10^5 of them.
        let fill =
            "for i = 1, 100000 do redis.call('hset', 'a', 'field' .. i, '1') end redis.call('pexpire', 'a', 60000)";
        let _: Value = bed.admin.cmd(&["EVAL", fill, "0"]).await;
        let start = Instant::now();
        assert!(lock.try_lock().await.unwrap().is_none());
        assert!(matches!(lock.release(&client.owner()).await, Err(Error::NotHeld { .. })));
        assert_eq!(lock.state().await.unwrap().holders.len(), 100_000);
        println!("three commands on 100 000 fields: {:?}", start.elapsed());
        assert!(lock.force_unlock().await.unwrap());
    })
    .await;
}

/// Expired, deleted and taken by somebody else under a guard: its release says so and touches nothing.
#[tokio::test]
async fn a_stolen_lock_is_told() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let lock = client.reentrant("a");
        let guard = lock.lock().await.unwrap();
        let () = bed.admin.cmd(&["DEL", "a"]).await;
        let () = bed.admin.cmd(&["HSET", "a", "thief", "1"]).await;
        let error = guard.unlock().await.unwrap_err();
        let Error::NotHeld { why: distlock::NotHeld::HeldBy { owner }, .. } = &error else { panic!("{error:?}") };
        assert_eq!(owner, "thief");
        assert_eq!(bed.admin.hgetall("a").await.len(), 1);
        let () = bed.admin.cmd(&["DEL", "a"]).await;
        // An owner who is told to come in twice but has nothing.
        let owner = client.owner();
        let first = lock.acquire(Acquire::new().owner(&owner)).await.unwrap().unwrap();
        let () = bed.admin.cmd(&["DEL", "a"]).await;
        let second = lock.acquire(Acquire::new().owner(&owner)).await.unwrap().unwrap();
        assert!(!first.is_held() && second.is_held());
        assert_eq!(bed.admin.hgetall("a").await.into_values().collect::<Vec<_>>(), ["1"]);
        assert!(matches!(first.unlock().await, Err(Error::Lost { .. })));
        assert_eq!(second.unlock().await.unwrap(), Released::Free);
    })
    .await;
}
