//! Members of other flavours keep the properties of their flavour.

use std::sync::Arc;

use distlock::{Acquire, Error, Flavour, MultiLock};
use parking_lot::Mutex;

use crate::rig::{fair, member, multi, only_keys};
use bed::{becomes, ends, enter, eventually, passer, reentrant, secs, waiter};

const QUEUE: &str = "redisson_lock_queue:{f}";

/// The guard's members have the tokens. Each section (time in which a lock is held) has a higher token.
#[tokio::test]
async fn tokens_of_fenced_members_grow_from_section_to_section() {
    reentrant(async |bed| {
        let (client, other) = (bed.still_client().await, bed.still_client().await);
        let lock = multi(&client, &[(Flavour::Reentrant, "a"), (Flavour::Fenced, "f"), (Flavour::Fenced, "g")]);
        let mut last = 0;
        let mut next = |guard: &distlock::Guard| {
            assert_eq!(guard.fencing_token().ok(), None, "a token of several members");
            let tokens: Vec<_> = guard.members().into_iter().map(|member| (member.name, member.token)).collect();
            assert_eq!(tokens[0], ("a".into(), None));
            let (f, g) = (tokens[1].1.unwrap(), tokens[2].1.unwrap());
            assert!(f > last && f == g, "{f} and {g} after {last}");
            last = f;
        };

        let guard = lock.lock().await.unwrap();
        next(&guard);
        // A re-entry belongs to the same section.
        let inner = enter(&lock, guard.owner()).await;
        assert_eq!(inner.members()[1].token, guard.members()[1].token);
        inner.unlock().await.unwrap();
        guard.unlock().await.unwrap();

        let guard = lock.acquire(Acquire::new().wait(secs(60)).lease(secs(60))).await.unwrap().unwrap();
        next(&guard);
        lock.force_unlock().await.unwrap();
        drop(guard);

        // During a wait for one member, the other members are acquired and released again.
        let theirs = other.reentrant("a").lock().await.unwrap();
        assert!(lock.try_lock().await.unwrap().is_none());
        let waiting = waiter(lock.clone());
        crate::rig::waits_at(bed, &client, "a").await;
        theirs.unlock().await.unwrap();
        let (guard, _) = ends("the waiter", waiting).await.unwrap();
        next(&guard);
        assert_eq!(client.fenced("f").last_token().await.unwrap(), guard.members()[1].token.unwrap());
        guard.unlock().await.unwrap();
    })
    .await;
}

/// Earlier waiters acquire before the multi lock, and later waiters after it. An extend of the holder's lease sets no
/// TTL on the queue.
#[tokio::test]
async fn fair_members_serve_waiters_in_queue_order() {
    reentrant(async |bed| {
        let patient = || bed.still_builder().configure(|options| options.fair_wait = secs(300));
        let (client, other) = (bed.connect(patient()).await, bed.connect(patient()).await);
        let holder = fair(&other, &["f", "g"]).lock_leased(secs(600)).await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for (before, who) in ["first", "multi", "last"].into_iter().enumerate() {
            let lock = match who {
                "multi" => multi(&client, &[(Flavour::Fair, "f"), (Flavour::Reentrant, "z")]),
                _ => fair(&other, &["f"]),
            };
            let order = Arc::clone(&order);
            tasks.push(tokio::spawn(async move {
                let guard = lock.lock().await.unwrap();
                order.lock().push(who);
                guard.unlock().await.unwrap();
            }));
            becomes("places in the queue", before as u64 + 1, async || bed.admin.cmd(&["LLEN", QUEUE]).await).await;
        }
        holder.extend(secs(300)).await.unwrap();
        for key in [QUEUE, "redisson_lock_timeout:{f}"] {
            assert_eq!(bed.admin.pttl(key).await, -1, "{key} expires");
        }
        // An attempt without a wait does not overtake queued waiters.
        assert!(fair(&client, &["f", "x"]).try_lock().await.unwrap().is_none());
        holder.unlock().await.unwrap();
        for task in tasks {
            ends("a waiter in the queue", task).await.unwrap();
        }
        assert_eq!(*order.lock(), ["first", "multi", "last"]);
        only_keys(&bed.admin, &[]).await;
    })
    .await;
}

/// Two multi locks share a read half. A multi lock with the write half waits for both of them.
#[tokio::test]
async fn read_members_are_shared() {
    reentrant(async |bed| {
        let (client, other) = (bed.still_client().await, bed.still_client().await);
        let one = multi(&client, &[(Flavour::Read, "r"), (Flavour::Reentrant, "a")]);
        let two = multi(&other, &[(Flavour::Reentrant, "b"), (Flavour::Read, "r")]);
        let write = multi(&other, &[(Flavour::Write, "r"), (Flavour::Reentrant, "c")]);
        let (first, second) = (one.lock().await.unwrap(), two.try_lock().await.unwrap().expect("readers share"));
        assert_eq!(client.rw("r").read().state().await.unwrap().holders.len(), 2);
        assert!(write.try_lock().await.unwrap().is_none());
        let writer = waiter(write);
        eventually("it listens", async || bed.admin.numsub("redisson_rwlock:{r}").await > 0).await;
        first.unlock().await.unwrap();
        assert_eq!(client.rw("r").read().state().await.unwrap().holders.len(), 1);
        assert!(!writer.is_finished());
        second.unlock().await.unwrap();
        let (guard, _) = ends("the writer", writer).await.unwrap();
        assert!(one.try_lock().await.unwrap().is_none());
        guard.unlock().await.unwrap();
        one.lock().await.unwrap().unlock().await.unwrap();
        only_keys(&bed.admin, &[]).await;
    })
    .await;
}

/// An owner that reads is refused the write half, and keeps the read half. An owner that writes may read.
#[tokio::test]
async fn upgrade_through_multi_lock_is_refused() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let me = client.owner();
        let reading = multi(&client, &[(Flavour::Read, "r"), (Flavour::Reentrant, "a")]);
        let writing = multi(&client, &[(Flavour::Write, "r"), (Flavour::Reentrant, "b")]);
        let guard = enter(&reading, &me).await;
        let error = ends("the upgrade", writing.acquire(Acquire::new().owner(&me))).await.unwrap_err();
        assert!(matches!(error, Error::WouldDeadlock { .. }), "{error:?}");
        eventually("b is free", async || !bed.admin.exists("b").await).await;
        assert!(guard.is_held());
        assert!(matches!(guard.downgrade().await, Err(Error::Unsupported { .. })));
        bed::idle(&client).await;
        let guard = enter(&writing, &me).await;
        enter(&reading, &me).await.unlock().await.unwrap();
        guard.unlock().await.unwrap();
        only_keys(&bed.admin, &[]).await;
    })
    .await;
}

#[tokio::test]
async fn spin_members_are_polled_without_subscription() {
    reentrant(async |bed| {
        let (client, other) = (bed.still_client().await, bed.still_client().await);
        let theirs = other.spin("s").lock().await.unwrap();
        let waiting = passer(multi(&client, &[(Flavour::Spin, "s"), (Flavour::Reentrant, "a")]));
        eventually("it has looked", async || bed.admin.calls("evalsha").await > 6).await;
        assert_eq!(bed.admin.channels().await, [""; 0]);
        theirs.unlock().await.unwrap();
        ends("the waiter", waiting).await.unwrap();
        assert_eq!(bed.admin.calls("subscribe").await, 0);
    })
    .await;
}

#[tokio::test]
async fn members_of_all_flavours_are_held_by_one_owner() {
    reentrant(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let all: Vec<_> = Flavour::ALL.iter().map(|flavour| client.lock(*flavour, flavour.as_str())).collect();
        let lock = MultiLock::of(all.clone());
        let guard = lock.lock().await.unwrap();
        let me = guard.owner().clone();
        assert_eq!(lock.state().await.unwrap().holders, [(me.to_string(), 1)]);
        for one in &all {
            assert_eq!(one.hold_count(&me).await.unwrap(), 1, "{one:?}");
        }
        for flavour in Flavour::ALL.iter().filter(|flavour| **flavour != Flavour::Read) {
            let theirs = MultiLock::of(vec![other.lock(*flavour, flavour.as_str()), member(other.reentrant("x"))]);
            assert!(theirs.try_lock().await.unwrap().is_none(), "{flavour}");
        }
        assert_eq!(client.renew_now().await.renewed, Flavour::ALL.len());
        guard.unlock().await.unwrap();
        assert!(!lock.is_locked().await.unwrap());
        eventually("no key is left", async || bed.keys().await.is_empty()).await;
    })
    .await;
}
