//! Refused readers and writers, and names with keys of other types.

use std::collections::BTreeSet;

use distlock::{Acquire, Client, Error, Flavour, Prefer, Released};

use crate::rig::{BOTH, HOUR, cover, lease, marks, near, unlock_all};
use bed::fault::{got, refused, told_and_left_alone};
use bed::{Bed, PATIENCE, builder, eventually, idle, ms, rw};

async fn client_as(bed: &Bed, name: &str, rules: &[&str]) -> Client {
    let setuser = [&["ACL", "SETUSER", name, "reset", "on", ">pw"], rules].concat();
    let () = bed.admin.cmd(&setuser).await;
    let url = bed.server.url().replace("redis://", &format!("redis://{name}:pw@"));
    let patient = builder(&url).watchdog(HOUR).command_timeout(PATIENCE);
    bed.connect(patient.configure(|options| {
        options.preflight = false;
        options.prefer = Prefer::Writers;
        options.poll_cap = ms(200);
        options.batching = false;
    }))
    .await
}

/// Lists half-done work: a key without a TTL, a read hold without its cover (key that lives as long as one read hold),
/// or a cover without its hold.
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

/// Acquires either half while another client with all rights holds a half. Returns the number of refusals, and the
/// half-done work.
async fn ways(bed: &Bed, poor: &Client, label: &str) -> (u32, Vec<String>) {
    let able = bed.still_client().await;
    let (mut failed, mut faults) = (0, Vec::new());
    for held in [None, Some(Flavour::Read), Some(Flavour::Write)] {
        for flavour in BOTH {
            let label = format!("{label}: {flavour} beside {held:?}");
            let mut guard = None;
            if let Some(held) = held {
                guard = Some(able.lock(held, "a").lock().await.unwrap());
            }
            // A mark (entry of a waiting writer) expires if the login may not remove it.
            let there = async || {
                let mut keys = bed.admin.keys().await;
                keys.retain(|key| !(label.starts_with("zrem") && *key == marks("a")));
                keys
            };
            let before = there().await;
            let is_free = held.is_none() || held == Some(Flavour::Read) && flavour == Flavour::Read;
            // At a busy lock, the second attempt sets the mark. The waiter gives up after both replies.
            bed.admin.reset_stats().await;
            let is_answered = async || {
                let attempts = bed.admin.calls("evalsha").await;
                let stats = poor.stats();
                attempts > 1 && (stats.waiting, stats.under_way) == (1, 0)
            };
            let (lock, attempts) = (poor.lock(flavour, "a"), format!("{label}: two attempts are answered"));
            let outcome = tokio::select! {
                outcome = lock.lock_for(PATIENCE) => outcome,
                () = eventually(&attempts, is_answered), if !is_free => Ok(None),
            };
            match outcome {
                Ok(Some(got)) => {
                    assert!(is_free, "{label}: two holders");
                    faults.extend(half_done(bed, &format!("{label}, in")).await);
                    drop(got);
                }
                Ok(None) | Err(Error::Server { .. }) => {
                    assert!(outcome.is_err() || !is_free, "{label}: busy, and nobody holds it");
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

/// Removes each right that the scripts use. Without it, an acquire fails and leaves nothing, or does not need the
/// right.
#[tokio::test]
async fn acquire_without_acl_right_leaves_no_partial_state() {
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
            poor.shutdown(PATIENCE).await.unwrap_or_else(|error| panic!("shutdown, {right}: {error:?}"));
        }
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    })
    .await;
}

/// A right is revoked while a guard holds the lock. A re-entry is refused, and the earlier hold stays. A downgrade is
/// refused, and no half is held.
#[tokio::test]
async fn refused_re_entry_changes_no_state() {
    rw(async |bed| {
        for command in ["set", "pexpire", "pttl", "hset"] {
            let poor = client_as(bed, command, &["~*", "&*", "+@all"]).await;
            for flavour in BOTH {
                let (lock, me) = (poor.lock(flavour, "a"), poor.owner());
                let guard = lease(&*lock, &me, HOUR).await;
                let before = (bed.admin.hgetall("a").await, bed.admin.keys().await);
                let () = bed.admin.cmd(&["ACL", "SETUSER", command, &format!("-{command}")]).await;
                // The lease is longer than the current one, so the script must set it.
                let again = lock.acquire(Acquire::new().owner(&me).lease(10 * HOUR)).await;
                if (command, flavour) == ("set", Flavour::Write) {
                    unlock_all([got("set", "write again", again)]).await;
                } else {
                    refused(again, "");
                }
                assert_eq!((bed.admin.hgetall("a").await, bed.admin.keys().await), before, "{command}: {flavour}");
                let ttl = bed.admin.pttl("a").await;
                assert!(near(ttl, HOUR), "{command}: {flavour}: {ttl} ms left of an hour");
                assert!(guard.is_held(), "{command}: {flavour}: the earlier hold is lost");
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

/// #5188: every call on a hash of another kind. The conformance suite has the other types.
#[tokio::test]
async fn key_of_wrong_type_is_reported_and_left_unchanged() {
    rw(async |bed| {
        let client = bed.still_client().await;
        // The first hash is Redisson's reentrant lock. Redisson's read-write lock would write into it and corrupt it.
        for (field, value) in [("7be4a1a6-9a6b-4a4c-8b9f-1c1f6f8f6f8f:7", "1"), ("anything", "else")] {
            for flavour in BOTH {
                told_and_left_alone(bed, &client, flavour, &["HSET", "key", field, value]).await;
            }
        }
        // The lease of the key stays, too.
        let plain = client.reentrant("key").lock_leased(HOUR).await.unwrap();
        for flavour in BOTH {
            let refused = client.lock(flavour, "key").lock_leased(10 * HOUR).await;
            assert!(matches!(refused, Err(Error::WrongType { .. })), "{flavour}: {refused:?}");
        }
        assert!(near(bed.admin.pttl("key").await, HOUR) && plain.is_held(), "the lease has changed: {plain:?}");
        plain.unlock().await.unwrap();
    })
    .await;
}
