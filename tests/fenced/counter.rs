//! Changes of the counter by other programs, and refused commands.

use distlock::{Acquire, Error, Owner, Released};

use crate::rig::{counted, counter, fenced, token};
use bed::{Bed, becomes, ends, enter, ms, secs, text};

/// Redisson's multi lock sets a TTL on the counter of a fenced member. If the counter expired, numbers would restart at
/// 1, so the next acquire removes the TTL.
#[tokio::test]
async fn acquire_removes_ttl_of_counter() {
    fenced(async |bed| {
        let client = bed.client().await;
        let (lock, key) = (client.fenced("job"), counter("job"));
        for section in 1..=6 {
            if section % 2 == 0 {
                let given: bool = bed.admin.cmd(&["PEXPIRE", &key, "60000"]).await;
                assert!(given && bed.admin.pttl(&key).await > 0);
            }
            let guard = lock.lock().await.unwrap();
            assert_eq!(token(&guard), section);
            assert_eq!(bed.admin.pttl(&key).await, -1);
            guard.unlock().await.unwrap();
        }
    })
    .await;
}

/// If the counter cannot be incremented, every call fails at once and acquires nothing.
#[tokio::test]
async fn acquire_fails_without_hold_when_counter_is_invalid() {
    fenced(async |bed| {
        let client = bed.client().await;
        let (lock, key) = (client.fenced("job"), counter("job"));
        let most = i64::MAX.to_string();
        let makers: [(&[&str], bool); 5] = [
            (&["RPUSH", &key, "x"], true),
            (&["HSET", &key, "x", "1"], true),
            (&["SET", &key, "not a number"], false),
            (&["SET", &key, "1.5"], false),
            (&["SET", &key, &most], false),
        ];
        for (make, other_type) in makers {
            bed.admin.raw(make).await.unwrap();
            let before: Vec<u8> = bed.admin.cmd(&["DUMP", &key]).await;
            let me = client.owner();
            let ways = [
                Acquire::new(),
                Acquire::new().wait(ms(0)),
                Acquire::new().wait(secs(600)),
                Acquire::new().lease(secs(20)),
                Acquire::new().owner(&me).wait(secs(600)),
            ];
            for how in ways {
                let refused = ends("an acquire without a counter", lock.acquire(how.clone())).await;
                let error = refused.expect_err("an acquire without a number");
                let told = matches!(error, Error::WrongType { .. } if other_type)
                    || matches!(error, Error::Server { .. } if !other_type);
                assert!(told && !error.is_retryable() && !error.outcome_unknown(), "{make:?}, {how:?}: {error:?}");
                assert!(!bed.admin.exists("job").await, "{make:?}, {how:?}");
            }
            if other_type {
                assert!(lock.last_token().await.is_err());
            }
            assert_eq!(bed.admin.cmd::<Vec<u8>>(&["DUMP", &key]).await, before, "{make:?}");
            let () = bed.admin.cmd(&["DEL", &key]).await;
            assert_eq!(token(&lock.lock().await.unwrap()), 1, "{make:?}");
            bed::idle(&client).await;
            let () = bed.admin.cmd(&["DEL", &key]).await;
        }
    })
    .await;
}

/// The counter breaks while the lock is held. A re-entry fails and counts nothing, and the hold stays.
#[tokio::test]
async fn hold_survives_when_its_counter_becomes_invalid() {
    fenced(async |bed| {
        let client = bed.client().await;
        let (lock, key) = (client.fenced("job"), counter("job"));
        let makers: [&[&str]; 2] = [&["RPUSH", &key, "x"], &["SET", &key, "not a number"]];
        for make in makers {
            let me = client.owner();
            let guard = enter(&lock, &me).await;
            let () = bed.admin.cmd(&["DEL", &key]).await;
            bed.admin.raw(make).await.unwrap();
            let again = Acquire::new().owner(&me).wait(secs(600));
            lock.acquire(again).await.expect_err("an acquire without a number");
            held_once(bed, "job", &me).await;
            assert!(guard.is_held(), "{make:?}");
            assert_eq!(token(&guard), 1);
            assert_eq!(client.renew_now().await.renewed, 1);
            assert_eq!(guard.unlock().await.unwrap(), Released::Free, "{make:?}");
            let () = bed.admin.cmd(&["DEL", &key]).await;
        }
        // The counter is deleted, as by Redisson's `delete()`. The section keeps its number, and the next section gets
        // number 1.
        let me = client.owner();
        let guard = enter(&lock, &me).await;
        let () = bed.admin.cmd(&["SET", &key, "41"]).await;
        let () = bed.admin.cmd(&["DEL", &key]).await;
        let again = enter(&lock, &me).await;
        assert_eq!((token(&guard), token(&again)), (1, 1));
        assert_eq!(again.unlock().await.unwrap(), Released::StillHeld(1));
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
    })
    .await;
}

async fn held_once(bed: &Bed, name: &str, owner: &Owner) {
    let once = [(text(owner), "1".to_owned())].into();
    becomes("holds", once, async || bed.admin.hgetall(name).await).await;
}

/// A section must have a number, so nothing is held if the server refuses to count.
#[tokio::test]
async fn acquire_with_refused_counter_command_adds_no_hold() {
    fenced(async |bed| {
        for (command, first, again) in [("incr", false, true), ("get", true, false), ("persist", true, true)] {
            let without = format!("-{command}");
            let user: [&str; 10] = ["ACL", "SETUSER", "locks", "reset", "on", ">SECRET", "~*", "&*", "+@all", &without];
            let () = bed.admin.cmd(&user).await;
            let client = bed
                .connect(
                    bed.builder().username("locks").password("SECRET").configure(|options| options.preflight = false),
                )
                .await;
            let (name, me) = (format!("job {command}"), client.owner());
            let lock = client.fenced(&name);
            let how = || Acquire::new().owner(&me).wait(secs(600));
            let refused = |outcome: distlock::Result<Option<distlock::Guard>>| match outcome {
                Err(Error::Server { message, .. }) => {
                    assert!(message.contains("can't run this command"), "{command}: {message}")
                }
                other => panic!("{command}: {other:?}"),
            };
            if !first {
                refused(lock.acquire(how()).await);
                refused(lock.try_lock().await);
                assert!(!bed.admin.exists(&name).await, "{command}");
                assert_eq!(counted(bed, &name).await, None, "{command}");
                continue;
            }
            let guard = lock.acquire(how()).await.unwrap().unwrap();
            assert_eq!(token(&guard), 1, "{command}");
            if again {
                lock.acquire(how()).await.unwrap().unwrap().unlock().await.unwrap();
            } else {
                refused(lock.acquire(how()).await);
            }
            held_once(bed, &name, &me).await;
            assert_eq!(guard.unlock().await.unwrap(), Released::Free, "{command}");
        }
    })
    .await;
}

/// Users may set a TTL on the counters of unused names. While the lock is held, the counter does not expire.
#[tokio::test]
async fn expire_counter_sets_ttl_only_while_lock_is_free() {
    fenced(async |bed| {
        let client = bed.client().await;
        let (lock, key, after) = (client.fenced("job"), counter("job"), client.options().watchdog);
        assert!(lock.expire_counter(after).await.unwrap(), "there is none");
        assert!(!bed.admin.exists(&key).await);
        let guard = lock.lock().await.unwrap();
        assert!(!lock.expire_counter(after).await.unwrap(), "it is held");
        assert_eq!(bed.admin.pttl(&key).await, -1);
        guard.unlock().await.unwrap();
        let early = lock.expire_counter(after - ms(1)).await;
        assert!(matches!(early, Err(Error::Config { .. })), "who lost it may believe in it still: {early:?}");
        assert_eq!(bed.admin.pttl(&key).await, -1);
        assert!(lock.expire_counter(after).await.unwrap());
        let left = bed.admin.pttl(&key).await;
        assert!(left > 0 && u128::try_from(left).unwrap() <= after.as_millis(), "{left}");
        // The name is used again, and its numbers continue.
        let guard = lock.lock().await.unwrap();
        assert_eq!((token(&guard), bed.admin.pttl(&key).await), (2, -1));
        guard.unlock().await.unwrap();
        assert!(lock.expire_counter(std::time::Duration::MAX).await.is_err(), "no end of an end");
        assert_eq!(lock.last_token().await.unwrap(), 2);
    })
    .await;
}
