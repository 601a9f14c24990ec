//! Readers and writers whom the server refuses, who come upon something else, or fall into a black hole.

use std::collections::BTreeSet;
use std::time::Duration;

use distlock::{Acquire, Client, DistLock as _, Error, Flavour, Lost, Prefer, Released};
use distlock_support::proxy::Proxy;

use crate::faults::waiter;
use bed::fault::told_and_left_alone;
use bed::fault::{brisk, refused};
use bed::{Bed, ends, eventually, idle, ms, rw, secs};

/// A client whose login has these rights.
async fn client_as(bed: &Bed, name: &str, rules: &[&str]) -> Client {
    let setuser = [&["ACL", "SETUSER", name, "reset", "on", ">pw"], rules].concat();
    let () = bed.admin.cmd(&setuser).await;
    let url = bed.server.url().replace("redis://", &format!("redis://{name}:pw@"));
    bed.connect(brisk(&url).preflight(false).prefer(Prefer::Writers).poll_cap(ms(200)).coalesce(false)).await
}

/// What is half-done: a key without an end; a hold for reading without its cover, or a cover without its hold.
async fn half_done(bed: &Bed, label: &str) -> Vec<String> {
    let (mut faults, keys, fields) = (Vec::new(), bed.admin.keys().await, bed.admin.hgetall("a").await);
    for key in &keys {
        if bed.admin.pttl(key).await == -1 {
            faults.push(format!("{label}: {key} has no end"));
        }
    }
    let mut covers = BTreeSet::new();
    for (owner, count) in fields.iter().filter(|(field, _)| *field != "mode" && !field.ends_with(":write")) {
        covers.extend((1..=count.parse().unwrap_or(0)).map(|n: u32| format!("{{a}}:{owner}:rwlock_timeout:{n}")));
    }
    let found: BTreeSet<_> = keys.into_iter().filter(|key| key.contains("rwlock_timeout")).collect();
    if found != covers {
        faults.push(format!("{label}: covers {found:?} of {fields:?}"));
    }
    faults
}

/// Ways to come in, each beside what an able client holds, again by the same owner, and out. How many were refused, and
/// what was half-done in between.
async fn ways(bed: &Bed, poor: &Client, label: &str) -> (u32, Vec<String>) {
    let able = bed.client().await;
    let (mut failed, mut faults) = (0, Vec::new());
    for held in [None, Some(Flavour::Read), Some(Flavour::Write)] {
        for flavour in [Flavour::Read, Flavour::Write] {
            let label = format!("{label}: {flavour} beside {held:?}");
            let guard = match held {
                Some(held) => Some(able.lock(held, "a").lock().await.unwrap()),
                None => None,
            };
            // A mark that may not be taken back runs out.
            let there = async || {
                let mut keys = bed.admin.keys().await;
                keys.retain(|key| !(label.starts_with("zrem") && key.ends_with(":rwlock_waiting")));
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
                Ok(None) => {
                    assert!(held.is_some(), "{label}: nobody there");
                    idle(poor).await;
                    if there().await != before {
                        faults.push(format!("{label}: {:?} stayed of a wait in vain", there().await));
                    }
                }
                Err(error) => {
                    assert!(matches!(error, Error::Server { .. }), "{label}: {error:?}");
                    failed += 1;
                    idle(poor).await;
                    if there().await != before {
                        faults.push(format!("{label}: {:?} stayed of what was refused", there().await));
                    }
                }
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

/// Each right that the scripts use, missing: acquires fail and leave nothing behind, or do without.
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
            // What the covers and the mark are called, and the channel.
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

/// Rights that are taken away while somebody holds: coming in again is refused, and the holds before it are what they were;
/// a downgrade is refused, and nothing is held.
#[tokio::test]
async fn a_refused_re_entry_changes_nothing() {
    rw(async |bed| {
        for command in ["set", "pexpire", "pttl", "hset"] {
            let poor = client_as(bed, command, &["~*", "&*", "+@all"]).await;
            for flavour in [Flavour::Read, Flavour::Write] {
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

/// A release that may not be announced is a release all the same: waiters of the same client need no message, others poll.
#[tokio::test]
async fn a_release_that_may_not_be_announced_is_released() {
    rw(async |bed| {
        let poor = client_as(bed, "mute", &["~*", "resetchannels", "+@all"]).await;
        let other = bed.connect(brisk(&bed.server.url()).poll_cap(ms(500)).watchdog(secs(30))).await;
        for (held, waits) in
            [(Flavour::Write, Flavour::Read), (Flavour::Read, Flavour::Write), (Flavour::Write, Flavour::Write)]
        {
            for waiting in [&poor, &other] {
                let guard = poor.lock(held, "a").lock().await.unwrap();
                let next = waiter(waiting, waits, "a");
                eventually("it waits", async || waiting.stats().waiting == 1).await;
                assert_eq!(guard.unlock().await.unwrap(), Released::Free);
                let guard = ends(&format!("{waits} behind {held}"), next).await.unwrap();
                guard.unlock().await.unwrap();
            }
        }
    })
    .await;
}

/// A key of another type, and a hash that is a lock of another kind, are told as such and left alone, whatever is asked.
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
            for flavour in [Flavour::Read, Flavour::Write] {
                told_and_left_alone(bed, &client, flavour, make).await;
            }
        }
    })
    .await;
}

/// Readers in black holes, begun at different points of their leases, beside writers that get in the moment the server
/// lets them: every reader has heard of its loss before. Of every three one has come by a downgrade, one holds beside a
/// reader that lives on for a while, one by an explicit lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_in_a_black_hole_is_told_before_a_writer_is_in() {
    const LEASE: Duration = secs(6);
    const CAP: Duration = secs(2);
    rw(async |bed| {
        let builder = brisk(&bed.server.url()).watchdog(secs(30)).poll_cap(CAP);
        let able = bed.connect(builder).await;
        let mut runs = Vec::new();
        for run in 0..9 {
            let proxy = Proxy::start(bed.server.addr());
            // The margin is a hundredth: room for a machine that is slow to run what is due.
            let reader = bed.connect(brisk(&proxy.url()).watchdog(LEASE)).await;
            let able = able.clone();
            runs.push(tokio::spawn(async move {
                let (lock, mine) = (format!("lock {run}"), reader.rw(&format!("lock {run}")));
                let mut beside = None;
                let guard = match run % 3 {
                    0 => mine.write().lock().await.unwrap().downgrade().await.unwrap(),
                    1 => {
                        beside = Some(able.rw(&lock).read().lock().await.unwrap());
                        mine.read().lock().await.unwrap()
                    }
                    _ => mine.read().lock_leased(LEASE).await.unwrap(),
                };
                // Somewhere between two renewals.
                tokio::time::sleep(ms(150 * run)).await;
                assert!(guard.is_held());
                proxy.blackhole(true);
                let waiting = waiter(&able, Flavour::Write, &lock);
                let given_up = tokio::spawn(async move {
                    tokio::time::sleep(secs(1)).await;
                    if let Some(beside) = beside {
                        beside.unlock().await.unwrap();
                    }
                });
                let writer = ends("the writer", waiting).await.unwrap();
                assert!(!guard.is_held(), "run {run}: a writer beside a reader");
                let lost = ends("the loss is signalled", guard.lost()).await;
                assert!(matches!(lost, Error::Lost { why: Lost::Expired, .. }), "{lost:?}");
                given_up.await.unwrap();
                proxy.blackhole(false);
                drop(guard);
                idle(&reader).await;
                assert!(writer.is_held() && able.rw(&lock).write().is_locked().await.unwrap());
                writer.unlock().await.unwrap();
            }));
        }
        for task in runs {
            task.await.unwrap();
        }
    })
    .await;
}
