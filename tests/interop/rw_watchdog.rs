//! The watchdog renews readers and writers of both sides for longer than a lease, while the other side waits and
//! retries.

use std::cell::RefCell;
use std::collections::BTreeMap;

use distlock_support::TtlSampler;
use distlock_support::agent::Kind;

use crate::rig::{Rig, ms, replied, soon, until};
use crate::rw_rig::{Doc, HALVES, Seen, enter, refused, wait_for_half};

/// Waits until every lease of these locks and covers has been renewed three times, which takes as long as a lease.
/// Calls `check` in between. Returns the number of leases.
async fn renewed(docs: &[Doc<'_>], check: impl AsyncFn()) -> usize {
    let leases = RefCell::new(BTreeMap::<String, (i64, u32)>::new());
    let all = async || {
        for doc in docs {
            let seen: Seen = doc.look().await;
            let covers = seen.covers.into_iter().map(|(cover, left)| (format!("{} {cover}", doc.name), left));
            for (what, left) in covers.chain([(doc.name.to_owned(), seen.ttl)]) {
                assert!(left > 0, "{what} lapsed while held");
                let mut leases = leases.borrow_mut();
                let (last, times) = leases.entry(what).or_insert((i64::MAX, 0));
                *times += u32::from(left > *last);
                *last = left;
            }
        }
        check().await;
        leases.borrow().values().all(|(_, times)| *times >= 3)
    };
    until("three renewals of every lease", all).await;
    leases.into_inner().len()
}

pub async fn rw_watchdogs_of_both_sides_keep_their_holds(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.watched_client().await;
    let waiter = rig.client().await;
    let sampler = TtlSampler::start(&rig.server.url()).await;
    let owner = client.owner();
    let all = ["ours:read", "ours:write", "java:read", "java:write", "both:read"].map(|name| Doc::new(&rig, name));
    let [ours_read, ours_write, java_read, java_write, both] = all;

    // Readers re-enter, so that several covers have to be renewed.
    let mut guards = Vec::new();
    for (doc, half) in [(ours_read, Kind::Read), (ours_write, Kind::Write), (both, Kind::Read)] {
        for _ in 0..2 {
            guards.push(enter(&client, half, doc.name, &owner, None).await);
        }
    }
    let held = [java_read.java(0, Kind::Read, 1), java_write.java(0, Kind::Write, 1), both.java(0, Kind::Read, 1)];
    for lock in &held {
        replied(lock.lock()).await;
        replied(lock.lock()).await;
    }
    let mut theirs = [ours_read, ours_write].map(|doc| doc.java(0, Kind::Write, 2).start_lock());
    let ours = [java_read, java_write].map(|doc| wait_for_half(&waiter, Kind::Write, doc.name));
    rig.waiting(&waiter, 2).await;

    let check = async || {
        for doc in [ours_read, ours_write, both] {
            assert_eq!(doc.java(0, Kind::Write, 3).try_lock().await, Ok(false), "{}", doc.name);
        }
        for doc in [java_read, java_write, both] {
            refused(&waiter, Kind::Write, doc.name).await;
        }
    };
    // Five locks, and one cover for each read hold.
    assert_eq!(renewed(&all, check).await, 5 + 2 + 2 + 4);
    assert!(guards.iter().all(distlock::Guard::is_held));
    for call in &mut theirs {
        assert_eq!(call.within(ms(0)).await, None);
    }
    assert!(!ours.iter().any(tokio::task::JoinHandle::is_finished));

    for guard in guards {
        guard.unlock().await.expect("unlock");
    }
    for lock in &held {
        replied(lock.unlock()).await;
        replied(lock.unlock()).await;
    }
    for (doc, call) in [ours_read, ours_write].into_iter().zip(theirs) {
        replied(call).await;
        replied(doc.java(0, Kind::Write, 2).unlock()).await;
    }
    for task in ours {
        soon(task).await.expect("the waiter").unlock().await.expect("unlock");
    }
    assert_eq!(sampler.stop().await, [], "a lock without an end");
    rig.end([client, waiter]).await;
}

/// An owner holds both halves under the watchdog, and releases either half first. The remaining hold is kept, except in
/// Redisson after the release of a read inside a write.
pub async fn rw_remaining_half_is_renewed_after_release_of_the_other(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.watched_client().await;
    let owner = client.owner();
    let [reads, writes] = HALVES.map(|half| format!("left:{}", half.as_str()));
    let mut kept = Vec::new();
    for name in [&reads, &writes] {
        let writing = enter(&client, Kind::Write, name, &owner, None).await;
        let reading = enter(&client, Kind::Read, name, &owner, None).await;
        let (give, keep) = if *name == reads { (writing, reading) } else { (reading, writing) };
        give.unlock().await.expect("unlock");
        kept.push(keep);
    }
    let [java, lapses] = ["java:read", "java:write"].map(|name| Doc::new(&rig, name));
    for doc in [java, lapses] {
        replied(doc.java(0, Kind::Write, 1).lock()).await;
        replied(doc.java(0, Kind::Read, 1).lock()).await;
    }
    replied(java.java(0, Kind::Write, 1).unlock()).await;
    replied(lapses.java(0, Kind::Read, 1).unlock()).await;
    let docs = [Doc::new(&rig, &reads), Doc::new(&rig, &writes), java];
    let check = async || {
        for (doc, mode) in docs.iter().zip(["read", "write", "read"]) {
            let seen = doc.look().await;
            assert_eq!(seen.mode(), Some(mode), "{}: {seen:?}", doc.name);
        }
    };
    renewed(&docs, check).await;
    lapses.until("no hold of Java's: Redisson has learnt to keep the write", |seen| seen.fields.is_empty()).await;
    assert_eq!(
        lapses.java(0, Kind::Write, 1).unlock().await.expect_err("it lapsed").error,
        "IllegalMonitorStateException"
    );
    assert!(kept.iter().all(distlock::Guard::is_held));
    for guard in kept {
        guard.unlock().await.expect("unlock");
    }
    replied(java.java(0, Kind::Read, 1).unlock()).await;
    rig.end([client]).await;
}
