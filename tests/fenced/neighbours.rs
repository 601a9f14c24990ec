//! Locks of other flavours under the same name, and locks that contain a fenced lock.

use std::sync::Arc;

use distlock::{Acquire, Client, DistLock, Error, Flavour, MultiLock, Owner};

use crate::rig::{counted, counter, fenced, token};
use bed::{becomes, ms, secs};

const OTHERS: [Flavour; 2] = [Flavour::Reentrant, Flavour::Spin];

/// Flavours of one name exclude each other. They wake each other if both use messages. Only the fenced lock increments
/// the counter.
#[tokio::test]
async fn reentrant_and_spin_locks_exclude_fenced_but_issue_no_token() {
    fenced(async |bed| {
        // A spin lock's release sends no message.
        let (client, other) = (bed.client().await, bed.connect(bed.builder().poll_cap(ms(100))).await);
        let lock = client.fenced("job");
        for (flavour, section) in OTHERS.into_iter().zip([1, 3]) {
            let there = other.lock(flavour, "job");
            let guard = lock.lock().await.unwrap();
            assert_eq!(token(&guard), section);
            assert!(there.try_lock().await.unwrap().is_none(), "{flavour}");
            let waiter = tokio::spawn(async move { there.lock().await.unwrap() });
            becomes("waiters", 1, async || other.stats().waiting).await;
            guard.unlock().await.unwrap();
            let guard = waiter.await.unwrap();
            assert_eq!((guard.token(), guard.members()[0].token), (None, None), "{flavour}");
            assert!(lock.try_lock().await.unwrap().is_none(), "{flavour}");
            assert_eq!(counted(bed, "job").await, Some(section.to_string()), "{flavour}");
            // A waiter behind a spin lock polls.
            let waiting = other.fenced("job");
            let waiter = tokio::spawn(async move { waiting.lock().await.unwrap() });
            becomes("waiters", 1, async || other.stats().waiting).await;
            guard.unlock().await.unwrap();
            let guard = waiter.await.unwrap();
            assert_eq!(token(&guard), section + 1, "{flavour}");
            guard.unlock().await.unwrap();
        }
    })
    .await;
}

async fn refused(lock: &dyn DistLock, owner: &Owner) {
    for how in [Acquire::new(), Acquire::new().wait(ms(0)), Acquire::new().wait(secs(600))] {
        match lock.acquire(how.owner(owner)).await {
            Err(Error::Config { what }) => assert!(what.contains("with and without a fencing token"), "{what}"),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn owner_cannot_hold_lock_both_with_and_without_token() {
    fenced(async |bed| {
        let client = bed.client().await;
        let lock = |flavour| client.lock(flavour, "job");
        for other in OTHERS {
            for (first, second) in [(Flavour::Fenced, other), (other, Flavour::Fenced)] {
                let me = client.owner();
                let guard = lock(first).acquire(Acquire::new().owner(&me)).await.unwrap().unwrap();
                let (before, holders) = (counted(bed, "job").await, bed.admin.hgetall("job").await);
                refused(&*lock(second), &me).await;
                assert_eq!((counted(bed, "job").await, bed.admin.hgetall("job").await), (before, holders));
                assert!(guard.is_held());
                guard.unlock().await.unwrap();
                // After the release, the owner may use the second flavour.
                lock(second).acquire(Acquire::new().owner(&me)).await.unwrap().unwrap().unlock().await.unwrap();
            }
        }
    })
    .await;
}

/// In a multi lock of fenced locks, each member has its own growing number, and its counter gets no TTL.
#[tokio::test]
async fn fenced_members_have_tokens_and_counters_without_ttl() {
    fenced(async |bed| {
        let client = bed.client().await;
        let member = |client: &Client, name: &str| client.lock(Flavour::Fenced, name);
        let both =
            MultiLock::of(vec![member(&client, "a"), client.lock(Flavour::Reentrant, "r"), member(&client, "b")]);
        client.fenced("b").lock().await.unwrap().unlock().await.unwrap();
        for (round, how) in
            [Acquire::new(), Acquire::new().lease(secs(600)), Acquire::new().wait(secs(600))].iter().enumerate()
        {
            let guard = both.acquire(how.clone()).await.unwrap().unwrap();
            assert_eq!(guard.token(), None);
            let tokens: Vec<_> = guard.members().iter().map(|member| (member.name.to_string(), member.token)).collect();
            let round = round as u64;
            let expected = [("a", Some(round + 1)), ("b", Some(round + 2)), ("r", None)];
            assert_eq!(tokens, expected.map(|(name, token)| (name.to_owned(), token)));
            for name in ["a", "b"] {
                assert_eq!(bed.admin.pttl(&counter(name)).await, -1);
            }
            guard.unlock().await.unwrap();
        }
        let lock: Arc<dyn DistLock> = Arc::new(both);
        let guard = lock.lock().await.unwrap();
        assert!(lock.force_unlock().await.unwrap());
        assert!(guard.unlock().await.is_err());
        assert_eq!(token(&client.fenced("a").lock().await.unwrap()), 5);
    })
    .await;
}
