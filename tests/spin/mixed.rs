//! Spin and reentrant locks of one name are the same lock in Redis, except for messages.

use std::sync::Arc;

use distlock::{Acquire, Backoff, Flavour, Released};
use tokio::task::JoinSet;

use crate::rig::spin;
use bed::{Counter, becomes, ends, enter, ms, secs};

#[tokio::test]
async fn state_in_redis_is_hash_of_reentrant_lock() {
    spin(async |bed| {
        let client = bed.client().await;
        let me = client.owner();
        let lock = client.spin("job");
        let how = |lease| Acquire::new().owner(&me).lease(secs(lease));
        let outer = lock.acquire(how(200)).await.unwrap().unwrap();
        let inner = lock.acquire(how(400)).await.unwrap().unwrap();
        assert_eq!(bed.admin.keys().await, ["job"]);
        assert_eq!(bed.admin.hgetall("job").await.into_iter().collect::<Vec<_>>(), [(me.to_string(), "2".to_owned())]);
        let ttl = bed.admin.pttl("job").await;
        assert!((200_001..=400_000).contains(&ttl), "{ttl}");
        // A re-entry through the other flavour adds a hold.
        let third = client.reentrant("job").acquire(how(200)).await.unwrap().unwrap();
        assert_eq!(lock.hold_count(&me).await.unwrap(), 3);
        assert_eq!(inner.unlock().await.unwrap(), Released::StillHeld(2));
        assert_eq!(third.unlock().await.unwrap(), Released::StillHeld(1));
        let ttl = bed.admin.pttl("job").await;
        assert!((1..=200_000).contains(&ttl), "{ttl}");
        assert_eq!(outer.unlock().await.unwrap(), Released::Free);
        assert_eq!(bed.admin.keys().await, [""; 0]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spin_and_reentrant_locks_exclude_each_other() {
    spin(async |bed| {
        let quick = || bed.builder().configure(|options| options.poll_cap = ms(50));
        let clients = [bed.connect(quick()).await, bed.connect(quick()).await];
        let counter = Arc::new(Counter::default());
        let mut tasks = JoinSet::new();
        for n in 0..12 {
            let flavour = if n % 4 < 2 { Flavour::Spin } else { Flavour::Reentrant };
            let (lock, counter) = (clients[n % 2].lock(flavour, "job"), Arc::clone(&counter));
            tasks.spawn(async move {
                for _ in 0..15 {
                    let guard = lock.lock().await.unwrap();
                    counter.bump(ms(1)).await;
                    guard.unlock().await.unwrap();
                }
            });
        }
        tasks.join_all().await;
        assert_eq!(counter.get(), 12 * 15);
    })
    .await;
}

/// Waiters in the holder's process need not poll: every kind of release wakes them.
#[tokio::test]
async fn every_release_wakes_spin_and_reentrant_waiters_of_the_same_process() {
    spin(async |bed| {
        let client = bed.still_client().await;
        let patient = Backoff::constant(secs(3600)).unwrap();
        for (way, listens) in [("unlock", true), ("release", true), ("force", true), ("unlock", false)] {
            let name = format!("{way} {listens}");
            let holder = client.spin(&name).backoff(patient);
            // A lock of an explicit owner is not handed over, so the waiter acquires it at the server.
            let guard = enter(&holder, &client.owner()).await;
            let waiting = if listens { bed::passer(client.reentrant(&name)) } else { bed::passer(holder.clone()) };
            becomes("waiters", 1, async || client.stats().waiting).await;
            let channel = format!("redisson_lock__channel:{{{name}}}");
            becomes("listeners", u64::from(listens), async || bed.admin.numsub(&channel).await).await;
            becomes("calls under way", 0, async || client.stats().under_way).await;
            match way {
                "unlock" => assert_eq!(guard.unlock().await.unwrap(), Released::Free),
                "release" => assert_eq!(holder.release(&guard.into_owner()).await.unwrap(), Released::Free),
                _ => assert!(holder.force_unlock().await.unwrap()),
            }
            ends(&name, waiting).await.unwrap();
        }
    })
    .await;
}

/// A spin waiter finds the release of a reentrant lock by polling, and does not subscribe.
#[tokio::test]
async fn spin_waiter_behind_reentrant_holder_does_not_subscribe() {
    spin(async |bed| {
        let (ours, theirs) = (bed.client().await, bed.client().await);
        let guard = ours.reentrant("job").lock().await.unwrap();
        let waiting = bed::passer(theirs.spin("job"));
        becomes("waiters", 1, async || theirs.stats().waiting).await;
        let looks = bed.admin.calls("evalsha").await;
        becomes("looks are going on", true, async || bed.admin.calls("evalsha").await > looks + 3).await;
        assert_eq!(bed.admin.channels().await, [""; 0]);
        guard.unlock().await.unwrap();
        ends("the waiter", waiting).await.unwrap();
    })
    .await;
}
