//! Readers and writers that the server refuses, or that find something else under the name.

use std::collections::BTreeSet;

use distlock::{Acquire, Client, Error, Flavour, Prefer, Released};

use crate::rig::{BOTH, RIVALS, cover, marks, near, served, waiter};
use bed::fault::{brisk, refused, told_and_left_alone};
use bed::{Bed, eventually, idle, ms, rw, secs};

/// A client whose login has these rights.
async fn client_as(bed: &Bed, name: &str, rules: &[&str]) -> Client {
    let setuser = [&["ACL", "SETUSER", name, "reset", "on", ">pw"], rules].concat();
    let () = bed.admin.cmd(&setuser).await;
    let url = bed.server.url().replace("redis://", &format!("redis://{name}:pw@"));
    bed.connect(brisk(&url).preflight(false).prefer(Prefer::Writers).poll_cap(ms(200)).coalesce(false)).await
}

/// Half-done work: a key without an end; a hold for reading without its cover, or a cover without its hold.
async fn half_done(bed: &Bed, label: &str) -> Vec<String> {
    let (mut faults, keys, fields) = (Vec::new(), bed.admin.keys().await, bed.admin.hgetall("a").await);
    for key in &keys {
        if bed.admin.pttl(key).await == -1 {
            faults.push(format!("{label}: {key} has no end"));
        }
    }
    let mut covers = BTreeSet::new();
    for (owner, count) in fields.iter().filter(|(field, _)| *field != "mode" && !field.ends_with(":write")) {
        covers.extend((1..=count.parse().unwrap_or(0)).map(|n| cover("a", owner, n)));
    }
    let found: BTreeSet<_> = keys.into_iter().filter(|key| key.contains("rwlock_timeout")).collect();
    if found != covers {
        faults.push(format!("{label}: covers {found:?} of {fields:?}"));
    }
    faults
}

/// Acquires either half beside each that an able client holds. The number of refusals, and the half-done work that was
/// seen.
async fn ways(bed: &Bed, poor: &Client, label: &str) -> (u32, Vec<String>) {
    let able = bed.client().await;
    let (mut failed, mut faults) = (0, Vec::new());
    for held in [None, Some(Flavour::Read), Some(Flavour::Write)] {
        for flavour in BOTH {
            let label = format!("{label}: {flavour} beside {held:?}");
            let guard = match held {
                Some(held) => Some(able.lock(held, "a").lock().await.unwrap()),
                None => None,
            };
            // A mark that may not be taken back runs out.
            let there = async || {
                let mut keys = bed.admin.keys().await;
                keys.retain(|key| !(label.starts_with("zrem") && *key == marks("a")));
                keys
            };
            let before = there().await;
            let mut outcome = poor.lock(flavour, "a").lock_for(ms(100)).await;
            for _ in 0..50 {
                // A machine too busy to answer in time.
                let Err(Error::Timeout { .. }) = outcome else { break };
                idle(poor).await;
                outcome = poor.lock(flavour, "a").lock_for(ms(100)).await;
            }
            match outcome {
                Ok(Some(got)) => {
                    assert!(guard.is_none() || held == Some(Flavour::Read) && flavour == Flavour::Read, "{label}");
                    faults.extend(half_done(bed, &format!("{label}, in")).await);
                    drop(got);
                }
                Ok(None) | Err(Error::Server { .. }) => {
                    assert!(outcome.is_err() || held.is_some(), "{label}: busy, with nobody there");
                    failed += u32::from(outcome.is_err());
                    idle(poor).await;
                    if there().await != before {
                        faults.push(format!("{label}: {:?} stayed of {outcome:?}", there().await));
                    }
                }
                Err(error) => panic!("{label}: {error:?}"),
            }
            idle(poor).await;
            faults.extend(half_done(bed, &format!("{label}, out")).await);
            if let Some(guard) = guard {
                guard.unlock().await.unwrap();
            }
            let () = bed.admin.cmd(&["FLUSHALL"]).await;
        }
    }
    (failed, faults)
}

/// For each right that the scripts use: acquires fail without it and leave nothing behind, or do without.
#[tokio::test]
async fn a_right_that_is_refused_leaves_nothing_half_done() {
    rw(async |bed| {
        let mut faults = Vec::new();
        for (right, rules, needed) in [
            ("set", &[][..], true),
            ("hset", &[], true),
            ("hmget", &[], true),
            ("pexpire", &[], true),
            ("pttl", &[], true),
            ("exists", &[], true),
            ("hgetall", &[], true),
            ("hkeys", &[], false),
            ("hrandfield", &[], false),
            ("hget", &[], false),
            ("time", &[], true),
            ("zadd", &[], false),
            ("zrem", &[], false),
            ("zcount", &[], false),
            ("del", &[], false),
            ("hdel", &[], false),
            ("hlen", &[], false),
            ("publish", &[], false),
            // Patterns of the covers, the mark and the channel.
            ("no keys beside", &["~a", "~redisson_*", "&*", "+@all"], true),
            ("no covers", &["~a", "~redisson_*", "~*:rwlock_waiting", "&*", "+@all"], true),
            ("no marks", &["~a", "~redisson_*", "~*:rwlock_timeout:*", "&*", "+@all"], true),
            ("no channels", &["~*", "resetchannels", "+@all"], false),
        ] {
            let without = format!("-{right}");
            let rules = if rules.is_empty() { &["~*", "&*", "+@all", &without][..] } else { rules };
            let poor = client_as(bed, &right.replace(' ', "-"), rules).await;
            let (failed, found) = ways(bed, &poor, right).await;
            println!("{right}: {failed} of 6 ways in fail");
            assert!(!needed || failed > 0, "{right}: nothing fails");
            faults.extend(found);
            poor.shutdown(secs(5)).await.unwrap();
        }
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    })
    .await;
}

/// A right is taken away while a guard holds: re-entry is refused, and the earlier hold stays; a downgrade is refused,
/// and nothing is held.
#[tokio::test]
async fn a_refused_re_entry_changes_nothing() {
    rw(async |bed| {
        for command in ["set", "pexpire", "pttl", "hset"] {
            let poor = client_as(bed, command, &["~*", "&*", "+@all"]).await;
            for flavour in BOTH {
                let (lock, me) = (poor.lock(flavour, "a"), poor.owner());
                let guard = lock.acquire(Acquire::new().owner(&me).lease(secs(5))).await.unwrap().unwrap();
                let before = (bed.admin.hgetall("a").await, bed.admin.keys().await);
                let () = bed.admin.cmd(&["ACL", "SETUSER", command, &format!("-{command}")]).await;
                // Longer than what is there, so that a lease has to be set.
                let again = lock.acquire(Acquire::new().owner(&me).lease(secs(9))).await;
                if (command, flavour) == ("set", Flavour::Write) {
                    again.unwrap().unwrap().unlock().await.unwrap();
                } else {
                    refused(again, "");
                }
                assert_eq!((bed.admin.hgetall("a").await, bed.admin.keys().await), before, "{command}: {flavour}");
                let ttl = bed.admin.pttl("a").await;
                assert!(ttl > 3_000 && ttl <= 9_000, "{command}: {flavour}: {ttl}");
                assert!(guard.is_held());
                if flavour == Flavour::Write && command != "pexpire" {
                    refused(guard.downgrade().await.map(drop), "");
                    idle(&poor).await;
                } else {
                    assert_eq!(guard.unlock().await.unwrap(), Released::Free);
                }
                assert_eq!(bed.admin.keys().await, Vec::<String>::new(), "{command}: {flavour}");
                let () = bed.admin.cmd(&["ACL", "SETUSER", command, "+@all"]).await;
            }
        }
    })
    .await;
}

/// A release that may not be announced is a release all the same: waiters of the same client need no message, others
/// poll.
#[tokio::test]
async fn a_release_that_may_not_be_announced_is_released() {
    rw(async |bed| {
        let poor = client_as(bed, "mute", &["~*", "resetchannels", "+@all"]).await;
        let other = bed.connect(brisk(&bed.server.url()).poll_cap(ms(500)).watchdog(secs(30))).await;
        for (held, waits) in RIVALS {
            for waiting in [&poor, &other] {
                let guard = poor.lock(held, "a").lock().await.unwrap();
                let next = waiter(waiting, waits, "a");
                eventually("it waits", async || waiting.stats().waiting == 1).await;
                assert_eq!(guard.unlock().await.unwrap(), Released::Free);
                served(&format!("{waits} behind {held}"), next).await;
            }
        }
    })
    .await;
}

/// #5188: whatever is asked of a key of another type, or of a lock of another kind.
#[tokio::test]
async fn a_key_that_is_something_else_is_told_and_left_alone() {
    rw(async |bed| {
        let client = bed.client().await;
        let makers: [&[&str]; 5] = [
            &["SET", "key", "x"],
            &["RPUSH", "key", "x"],
            &["ZADD", "key", "1", "x"],
            // A reentrant lock of Redisson's: Redisson's own read-write lock writes into it, and spoils it.
            &["HSET", "key", "7be4a1a6-9a6b-4a4c-8b9f-1c1f6f8f6f8f:7", "1"],
            &["HSET", "key", "anything", "else"],
        ];
        for make in makers {
            for flavour in BOTH {
                told_and_left_alone(bed, &client, flavour, make).await;
            }
        }
        // Its lease stays, too.
        let plain = client.reentrant("key").lock_leased(secs(30)).await.unwrap();
        for flavour in BOTH {
            let refused = client.lock(flavour, "key").lock_leased(secs(3600)).await;
            assert!(matches!(refused, Err(Error::WrongType { .. })), "{flavour}: {refused:?}");
        }
        assert!(near(bed.admin.pttl("key").await, 30_000) && plain.is_held());
        plain.unlock().await.unwrap();
    })
    .await;
}
