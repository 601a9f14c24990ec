//! Hostile data: odd names and forged hashes.

use std::collections::BTreeMap;

use distlock::{Acquire, Error, NotHeld, Released};
use redis::Value;

use bed::{ends, idle, ms, passer, reentrant};

/// A name may be any bytes. The lock uses one key of this name and one channel, and touches no other key.
#[tokio::test]
async fn names_that_look_like_commands_touch_no_other_keys() {
    const ODD: [&str; 9] = [
        "a\r\nDEL victim\r\n",
        "]]..redis.call('flushall')..[[",
        "' or 1 --",
        "%s%n%d",
        "$(id)",
        "\u{202e}rtl\u{202c}",
        "e\u{301}",
        "KEYS[1]",
        "[a-z]",
    ];
    reentrant(async |bed| {
        let () = bed.admin.cmd(&["SET", "victim", "alive"]).await;
        let (client, other) = (bed.still_client().await, bed.still_client().await);
        for name in ODD {
            let lock = client.reentrant(name);
            let guard = lock.lock().await.unwrap();
            let mut expected = [name, "victim"];
            expected.sort_unstable();
            assert_eq!(bed.admin.keys().await, expected, "{name:?}");
            let contending = passer(other.reentrant(name));
            let channel = format!("redisson_lock__channel:{{{name}}}");
            bed::becomes(&channel, 1, async || bed.admin.numsub(&channel).await).await;
            assert_eq!(guard.unlock().await.unwrap(), Released::Free, "{name:?}");
            ends("the waiter", contending).await.unwrap();
            assert!(!lock.force_unlock().await.unwrap());
        }
        assert_eq!(bed.admin.cmd::<String>(&["GET", "victim"]).await, "alive");
        let () = bed.admin.cmd(&["DEL", "victim"]).await;
    })
    .await;
}

/// Forged hold counts that are not numbers. Another owner's lock counts as held, whatever its count is. If the client's
/// own owner has the forged count, the client returns an error or repairs the count, and the lock does not stay held.
#[tokio::test]
async fn forged_hold_counts_break_neither_exclusion_nor_release() {
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
        let client = bed.still_client().await;
        let lock = client.reentrant("a");
        let forge = async |owner: &str, count: &str| {
            let () = bed.admin.cmd(&["HSET", "a", owner, count]).await;
            let () = bed.admin.cmd(&["PEXPIRE", "a", "600000"]).await;
        };
        for count in forged {
            forge("stranger", count).await;
            assert!(lock.try_lock().await.unwrap().is_none(), "{count:?}");
            let state = lock.state().await.unwrap();
            assert!(state.is_locked() && state.holders.len() == 1, "{count:?}");
            let error = lock.release(&client.owner()).await.unwrap_err();
            assert!(matches!(error, Error::NotHeld { .. }), "{count:?}: {error:?}");
            assert_eq!(bed.admin.hgetall("a").await, BTreeMap::from([("stranger".to_owned(), count.to_owned())]));
            assert!(lock.force_unlock().await.unwrap());
            // The client's own owner may be used by others, so the server counts its holds.
            let owner = client.owner();
            forge(owner.as_str(), count).await;
            match lock.acquire(Acquire::new().owner(&owner).wait(ms(0))).await {
                Ok(guard) => drop(guard),
                Err(error) => assert!(matches!(error, Error::Server { .. }), "{count:?}: {error:?}"),
            }
            idle(&client).await;
            match lock.release(&owner).await {
                // The release follows the list of hold ids, so the forged count is deleted with the last hold.
                Ok(_) | Err(Error::NotHeld { .. }) => {}
                Err(Error::Server { message, .. }) => assert!(message.starts_with("ERR "), "{count:?}: {message}"),
                outcome => panic!("{count:?}: {outcome:?}"),
            }
            lock.force_unlock().await.unwrap();
            // Here the count is forged while a guard holds the lock.
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

#[tokio::test]
async fn extra_hash_fields_break_neither_exclusion_nor_release() {
    reentrant(async |bed| {
        let client = bed.still_client().await;
        let lock = client.reentrant("a");
        let is_held_by_others = async |fields: usize| {
            assert!(lock.try_lock().await.unwrap().is_none());
            assert_eq!(lock.state().await.unwrap().holders.len(), fields);
            let error = lock.release(&client.owner()).await.unwrap_err();
            assert!(matches!(error, Error::NotHeld { .. }), "{error:?}");
        };
        let guard = lock.lock().await.unwrap();
        let () = bed.admin.cmd(&["HSET", "a", "mode", "write", "stranger", "7", "\u{fffd}", "x"]).await;
        is_held_by_others(4).await;
        assert_eq!(client.renew_now().await.renewed, 1);
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
        assert!(!bed.admin.exists("a").await);
        let () = bed.admin.cmd_bytes(&[&b"HSET"[..], b"a", b"\xff\xfe\x00", b"\xc3\x28"]).await;
        is_held_by_others(1).await;
        assert!(lock.force_unlock().await.unwrap());
        let fill = "for i = 1, 100000 do redis.call('hset', 'a', 'field' .. i, '1') end
            redis.call('pexpire', 'a', 600000)";
        let _: Value = bed.admin.cmd(&["EVAL", fill, "0"]).await;
        is_held_by_others(100_000).await;
        assert!(lock.force_unlock().await.unwrap());
    })
    .await;
}

/// The key is deleted and another owner takes the lock. The release returns an error and changes nothing.
#[tokio::test]
async fn release_of_stolen_lock_reports_new_holder() {
    reentrant(async |bed| {
        let client = bed.still_client().await;
        let lock = client.reentrant("a");
        let guard = lock.lock().await.unwrap();
        let () = bed.admin.cmd(&["DEL", "a"]).await;
        let () = bed.admin.cmd(&["HSET", "a", "thief", "1"]).await;
        let error = guard.unlock().await.unwrap_err();
        let Error::NotHeld { why: NotHeld::HeldBy { owner }, .. } = &error else { panic!("{error:?}") };
        assert_eq!(owner, "thief");
        assert_eq!(bed.admin.hgetall("a").await.len(), 1);
        let () = bed.admin.cmd(&["DEL", "a"]).await;
        // The client counts one hold of this owner, but the server has none.
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
