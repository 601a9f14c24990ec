//! Locks of other flavours under the same name, and a lock that contains fenced locks.

use distlock::{Acquire, DistLock, Error, Flavour, MultiLock, Owner};

use crate::rig::{counted, counter, fenced, token, waited};
use bed::{ms, secs};

const OTHERS: [Flavour; 2] = [Flavour::Reentrant, Flavour::Spin];

/// Flavours of one name exclude each other. They wake each other if both use messages. Only the fenced lock increments
/// the counter.
#[tokio::test]
async fn reentrant_and_spin_locks_exclude_fenced_but_issue_no_token() {
    fenced(async |bed| {
        // A spin lock's release sends no message.
        let (client, other) =
            (bed.client().await, bed.connect(bed.builder().configure(|options| options.poll_cap = ms(100))).await);
        let lock = client.fenced("job");
        for (flavour, section) in OTHERS.into_iter().zip([1, 3]) {
            let there = other.lock(flavour, "job");
            let guard = lock.lock().await.unwrap();
            assert_eq!(token(&guard), section);
            assert!(there.try_lock().await.unwrap().is_none(), "{flavour}");
            let guard = waited(guard, &other, there).await;
            assert_eq!((guard.fencing_token().ok(), guard.members()[0].token), (None, None), "{flavour}");
            assert!(lock.try_lock().await.unwrap().is_none(), "{flavour}");
            assert_eq!(counted(bed, "job").await, Some(section.to_string()), "{flavour}");
            // A waiter behind a spin lock polls.
            let guard = waited(guard, &other, other.lock(Flavour::Fenced, "job")).await;
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
        let both = MultiLock::of(vec![client.lock(Flavour::Fenced, "a"), client.lock(Flavour::Fenced, "b")]);
        client.fenced("b").lock().await.unwrap().unlock().await.unwrap();
        let ways = [Acquire::new(), Acquire::new().lease(secs(600)), Acquire::new().wait(secs(600))];
        for (how, first) in ways.into_iter().zip(1..) {
            let guard = both.acquire(how).await.unwrap().unwrap();
            let tokens: Vec<_> = guard.members().iter().map(|member| member.token).collect();
            assert_eq!((guard.fencing_token().ok(), tokens), (None, vec![Some(first), Some(first + 1)]));
            for name in ["a", "b"] {
                assert_eq!(bed.admin.pttl(&counter(name)).await, -1);
            }
            guard.unlock().await.unwrap();
        }
    })
    .await;
}
