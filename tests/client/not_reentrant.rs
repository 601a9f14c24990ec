//! `Acquire::not_reentrant` for every flavour. An owner that already holds the lock gets an error at once, and keeps
//! its hold.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::rig::{elsewhere, nothing_under_way, waiting};
use bed::cost::sent;
use bed::{Bed, Make, becomes, ends, enter, ms, reentrant, secs};
use distlock::{Acquire, Deadlock, DistLock, Error, Flavour, Guard, MultiLock, Owner, RedLock, Released, Result};

const FLAVOURS: [(&str, Make); 9] = [
    ("reentrant", |client, name| client.lock(Flavour::Reentrant, name)),
    ("fair", |client, name| client.lock(Flavour::Fair, name)),
    ("read", |client, name| client.lock(Flavour::Read, name)),
    ("write", |client, name| client.lock(Flavour::Write, name)),
    ("fenced", |client, name| client.lock(Flavour::Fenced, name)),
    ("spin", |client, name| client.lock(Flavour::Spin, name)),
    ("multi", |client, name| {
        let member = |flavour, n: u8| client.lock(flavour, &format!("{name}/{n}"));
        let all = [(Flavour::Reentrant, 1), (Flavour::Reentrant, 2), (Flavour::Fenced, 3), (Flavour::Fair, 4)];
        Arc::new(MultiLock::of(all.into_iter().map(|(flavour, n)| member(flavour, n)).collect()))
    }),
    ("redlock", |client, name| Arc::new(RedLock::new([client.clone()], name).node_timeout(bed::PATIENCE))),
    ("striped", |client, name| Arc::new(client.striped(name, 3))),
];

/// Returns all keys and values in Redis, without their TTLs.
async fn everything(bed: &Bed) -> BTreeMap<String, BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    for key in bed.admin.keys().await {
        let kind: String = bed.admin.cmd(&["TYPE", &key]).await;
        let value = match kind.as_str() {
            "hash" => bed.admin.hgetall(&key).await,
            "string" => [("".to_owned(), bed.admin.cmd(&["GET", &key]).await)].into(),
            kind => [("".to_owned(), kind.to_owned())].into(),
        };
        all.insert(key, value);
    }
    all
}

async fn lifetimes(bed: &Bed) -> BTreeMap<String, i64> {
    let mut all = BTreeMap::new();
    for key in bed.admin.keys().await {
        let ttl = bed.admin.pttl(&key).await;
        all.insert(key, ttl);
    }
    all
}

#[track_caller]
fn told(outcome: Result<Option<Guard>>, label: &str) {
    match outcome {
        Err(error @ Error::WouldDeadlock { why: Deadlock::NotReentrant, .. }) => {
            assert!(!error.is_retryable() && !error.outcome_unknown(), "{label}: {error:?}");
        }
        other => panic!("{label}: {other:?}"),
    }
}

/// Tries every kind of acquire as this owner. Each acquire must be refused at once, however long it may wait.
async fn all_ways_are_told(lock: &dyn DistLock, me: &Owner, label: &str) {
    let (how, long) = (|| Acquire::new().not_reentrant(), secs(7200));
    let ways = [how(), how().wait(ms(0)), how().wait(long), how().lease(long), how().wait(long).lease(long)];
    for way in ways {
        let label = format!("{label}, {way:?}");
        told(ends(&label, lock.acquire(way.clone().owner(me))).await, &label);
        told(ends(&label, me.scope(lock.acquire(way))).await, &format!("in a scope, {label}"));
    }
}

/// testSameThreadReacquireThrows and testCrossInstanceSameThreadReentryThrows, also from another process. Nothing
/// changes, and one unlock releases the lock.
#[tokio::test]
async fn reentry_is_refused_at_once_and_leaves_keys_unchanged() {
    reentrant(async |bed| {
        let (client, other) = (bed.still_client().await, bed.still_client().await);
        for (label, make) in FLAVOURS {
            let (lock, handle, there) = (make(&client, label), make(&client, label), make(&other, label));
            let me = client.owner();
            let how = || Acquire::new().owner(&me).not_reentrant();
            for first in [how(), Acquire::new().owner(&me)] {
                let guard = lock.acquire(first).await.unwrap().unwrap_or_else(|| panic!("{label}: busy"));
                let (before, lasts) = (everything(bed).await, lifetimes(bed).await);
                sent(bed).await;
                all_ways_are_told(&*lock, &me, label).await;
                all_ways_are_told(&*handle, &me, &format!("{label}, by another handle")).await;
                // A striped lock also queries its other segments, so its number of commands is larger.
                let asked = sent(bed).await;
                assert!(asked.is_empty() || label == "striped", "{label}: the client knows, and asked: {asked:?}");
                // The other client gets the owner as text, so only the server knows that the owner holds the lock.
                let same = elsewhere(&me);
                all_ways_are_told(&*there, &same, &format!("{label}, in another process")).await;
                all_ways_are_told(&*lock, &me, &format!("{label}, once it is known elsewhere")).await;
                nothing_under_way(&client).await;
                nothing_under_way(&other).await;
                assert_eq!(everything(bed).await, before, "{label}");
                for (key, ttl) in lifetimes(bed).await {
                    assert!(ttl <= lasts[&key], "{label}: {key} lasts longer: {ttl} after {}", lasts[&key]);
                }
                assert!(guard.is_held(), "{label}");
                assert_eq!(lock.hold_count(&me).await.unwrap(), 1, "{label}");
                assert_eq!(guard.unlock().await.unwrap(), Released::Free, "{label}");
                assert!(!lock.is_locked().await.unwrap(), "{label}");
            }
            let guard = enter(&*there, &elsewhere(&me)).await;
            all_ways_are_told(&*lock, &me, &format!("{label}, held elsewhere")).await;
            assert_eq!(guard.unlock().await.unwrap(), Released::Free, "{label}");
            lock.acquire(how()).await.unwrap().expect("it is free").unlock().await.unwrap();
        }
    })
    .await;
}

/// The option applies to one call only. Calls without it re-enter, before and after.
#[tokio::test]
async fn not_reentrant_applies_to_its_own_call_only() {
    reentrant(async |bed| {
        let client = bed.still_client().await;
        for (label, make) in FLAVOURS.into_iter().filter(|(label, _)| *label != "striped") {
            let lock = make(&client, label);
            let me = client.owner();
            let how = || Acquire::new().owner(&me).not_reentrant();
            let first = lock.acquire(how()).await.unwrap().unwrap();
            let second = enter(&*lock, &me).await;
            told(lock.acquire(how()).await, label);
            let third = lock.acquire(Acquire::new().owner(&me).wait(ms(0))).await.unwrap().unwrap();
            assert_eq!(lock.hold_count(&me).await.unwrap(), 3, "{label}");
            for (guard, left) in [(second, 2), (third, 1)] {
                assert_eq!(guard.unlock().await.unwrap(), Released::StillHeld(left), "{label}");
            }
            assert_eq!(first.unlock().await.unwrap(), Released::Free, "{label}");
        }
    })
    .await;
}

/// testContendingThreadBlocksAndAcquiresOnRelease. Other owners wait as usual, here and in another process. A new owner
/// never counts as a holder.
#[tokio::test]
async fn other_owners_wait_and_acquire_on_release() {
    reentrant(async |bed| {
        let (client, other) = (bed.still_client().await, bed.still_client().await);
        // Read locks and striped locks are left out: readers do not wait for each other, and two of three segments are
        // free.
        for (label, make) in FLAVOURS.into_iter().filter(|(label, _)| !["read", "striped"].contains(label)) {
            for from in [&client, &other] {
                let guard = make(&client, label).acquire(Acquire::new().not_reentrant()).await.unwrap().unwrap();
                let lock = make(from, label);
                let refused = lock.acquire(Acquire::new().wait(ms(0)).not_reentrant()).await;
                assert!(matches!(refused, Ok(None)), "{label}: {refused:?}");
                let how = Acquire::new().owner(&from.owner()).wait(secs(3600)).not_reentrant();
                let waiter = tokio::spawn(async move { lock.acquire(how).await });
                waiting(from, 1).await;
                assert!(!waiter.is_finished(), "{label}");
                guard.unlock().await.unwrap();
                let guard = ends(label, waiter).await.unwrap().unwrap().expect("the wait ran out");
                assert_eq!(guard.unlock().await.unwrap(), Released::Free, "{label}");
            }
        }
    })
    .await;
}

/// Many tasks act as one owner concurrently: one task gets the lock, and all others get the error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_acquires_by_one_owner_grant_one_hold() {
    reentrant(async |bed| {
        let client = bed.still_client().await;
        for (label, make) in FLAVOURS.into_iter().filter(|(label, _)| *label != "striped") {
            let (lock, me) = (make(&client, label), client.owner());
            let how = || Acquire::new().owner(&me).wait(secs(3600)).not_reentrant();
            let mut outcomes = futures::future::join_all((0..20).map(|_| lock.acquire(how()))).await;
            let granted = outcomes.iter().position(Result::is_ok).unwrap_or_else(|| panic!("{label}: all are refused"));
            let guard = outcomes.remove(granted).unwrap().expect("the wait ran out");
            outcomes.into_iter().for_each(|refused| told(refused, label));
            assert_eq!(lock.hold_count(&me).await.unwrap(), 1, "{label}");
            assert_eq!(guard.unlock().await.unwrap(), Released::Free, "{label}");
        }
    })
    .await;
}

#[tokio::test]
async fn group_lock_is_refused_if_owner_holds_one_member() {
    reentrant(async |bed| {
        let client = bed.still_client().await;
        let me = client.owner();
        let how = || Acquire::new().owner(&me).not_reentrant();
        for held in ["a", "b", "c"] {
            let guard = client.reentrant(held).acquire(how()).await.unwrap().unwrap();
            for wait in [ms(0), secs(30)] {
                told(client.multi(["a", "b", "c"]).acquire(how().wait(wait)).await, held);
                becomes("keys", vec![held.to_owned()], async || bed.admin.keys().await).await;
            }
            assert_eq!(guard.unlock().await.unwrap(), Released::Free);
        }
        // One held segment of a striped lock is enough for a refusal.
        let striped = client.striped("striped", 3);
        for at in 0..3 {
            let guard = striped.segment(at).unwrap().acquire(how()).await.unwrap().unwrap();
            told(striped.acquire_any(how()).await.map(|got| got.map(|(_, guard)| guard)), "a segment is held");
            told(striped.all().acquire(how()).await, "a segment is held, all are wanted");
            guard.unlock().await.unwrap();
            bed::idle(&client).await;
        }
    })
    .await;
}

/// With this option, both halves of a read-write lock count as one lock. An owner that writes and wants to read is
/// refused.
#[tokio::test]
async fn read_acquire_by_writer_counts_as_reentry() {
    reentrant(async |bed| {
        let (client, other) = (bed.still_client().await, bed.still_client().await);
        let (rw, there) = (client.rw("job"), other.rw("job"));
        let me = client.owner();
        let how = || Acquire::new().owner(&me).not_reentrant();
        for wait in [ms(0), secs(30)] {
            let writes = rw.write().acquire(how()).await.unwrap().unwrap();
            told(rw.read().acquire(how().wait(wait)).await, "read while writing");
            told(there.read().acquire(how().wait(wait)).await, "read there while writing");
            assert_eq!(bed.admin.keys().await, ["job"]);
            assert_eq!(writes.unlock().await.unwrap(), Released::Free);
            // An owner that reads and wants to write would wait for itself, so its acquire is always refused.
            let reads = rw.read().acquire(how()).await.unwrap().unwrap();
            for writing in [rw.write(), there.write()] {
                let refused = writing.acquire(how().wait(wait)).await;
                assert!(matches!(refused, Err(Error::WouldDeadlock { .. })), "{refused:?}");
            }
            assert_eq!(reads.unlock().await.unwrap(), Released::Free);
            assert!(!bed.admin.exists("job").await);
        }
    })
    .await;
}
