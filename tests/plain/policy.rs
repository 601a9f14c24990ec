//! Features that a plain lock lacks: re-entry and tokens.

use bed::{becomes, enter, ms, secs};
use distlock::{Acquire, Deadlock, Error, Flavour, Guard, Owner, Released, Result};

use crate::rig::{plain, sent, value, warm};

#[track_caller]
fn refused(outcome: Result<Option<Guard>>) {
    match outcome {
        Err(error @ Error::WouldDeadlock { why: Deadlock::NotReentrant, .. }) => {
            assert!(!error.is_retryable() && !error.outcome_unknown());
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn re_entry_is_refused_for_every_kind_of_acquire() {
    plain(async |bed| {
        let (client, other) = (warm(bed).await, bed.client().await);
        let (lock, there) = (client.plain("job"), other.plain("job"));
        let me = client.owner();
        let same: Owner = me.to_string().parse().unwrap();
        let guard = enter(&lock, &me).await;
        let before = value(bed, "job").await;
        sent(bed).await;
        for how in [Acquire::new(), Acquire::new().wait(ms(0)), Acquire::new().wait(secs(60)).lease(secs(90))] {
            refused(lock.acquire(how.clone().owner(&me)).await);
            refused(me.scope(lock.acquire(how)).await);
        }
        refused(me.scope(async { lock.lock().await.map(Some) }).await);
        // The client knows its own hold, so it sends no command.
        assert_eq!(sent(bed).await, (0, 0));
        for how in [Acquire::new(), Acquire::new().wait(ms(0)), Acquire::new().wait(secs(60))] {
            refused(there.acquire(how.owner(&same)).await);
        }
        assert_eq!((value(bed, "job").await, lock.hold_count(&me).await.unwrap()), (before, 1));
        assert!(guard.is_held());
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
        let longer: Owner = format!("{me}0").parse().unwrap();
        let guard = enter(&there, &longer).await;
        assert!(lock.acquire(Acquire::new().owner(&me).wait(ms(0))).await.unwrap().is_none());
        guard.unlock().await.unwrap();
    })
    .await;
}

/// Two waiters that act as one owner acquire one after the other, or get an error.
#[tokio::test]
async fn waiters_of_one_owner_are_served_one_at_a_time_or_refused() {
    plain(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let guard = other.plain("job").lock().await.unwrap();
        let me = client.owner();
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..5 {
            let (lock, me) = (client.plain("job"), me.clone());
            waiting.spawn(async move {
                match lock.acquire(Acquire::new().owner(&me)).await {
                    Ok(guard) => {
                        let guard = guard.expect("without end");
                        assert_eq!(lock.hold_count(&me).await.unwrap(), 1);
                        tokio::time::sleep(ms(5)).await;
                        guard.unlock().await.unwrap();
                        true
                    }
                    Err(Error::WouldDeadlock { .. }) => false,
                    Err(error) => panic!("{error:?}"),
                }
            });
        }
        becomes("waiters", 5, async || client.stats().waiting).await;
        guard.unlock().await.unwrap();
        let served = waiting.join_all().await.into_iter().filter(|served| *served).count();
        assert!(served >= 1);
    })
    .await;
}

#[tokio::test]
async fn fencing_token_is_unsupported_except_on_fenced_locks() {
    plain(async |bed| {
        let client = bed.client().await;
        for flavour in Flavour::ALL {
            let guard = client.lock(*flavour, flavour.as_str()).lock().await.unwrap();
            let token = guard.fencing_token();
            if *flavour == Flavour::Fenced {
                assert_eq!(Some(token.unwrap()), guard.members()[0].token);
            } else {
                let Err(Error::Unsupported { what }) = &token else { panic!("{flavour}: {token:?}") };
                assert!(what.contains(flavour.as_str()) && what.contains("fenced"), "{what}");
                assert_eq!(guard.members()[0].token, None);
            }
            guard.unlock().await.unwrap();
        }
        let several = client.multi(["a", "b"]).lock().await.unwrap();
        assert!(matches!(several.fencing_token(), Err(Error::Unsupported { .. })));
        several.unlock().await.unwrap();
        let guard = client.plain("job").lock().await.unwrap();
        assert!(matches!(guard.downgrade().await, Err(Error::Unsupported { .. })));
        // The guard that could not be downgraded is dropped.
        bed::idle(&client).await;
    })
    .await;
}

/// The guard whose hold was released reports the loss at once.
#[tokio::test]
async fn release_by_owner_frees_the_lock_and_ends_its_guard() {
    plain(async |bed| {
        let client = bed.client().await;
        let lock = client.plain("job");
        for given in [false, true] {
            let me = client.owner();
            let how = if given { Acquire::new().owner(&me) } else { Acquire::new() };
            let guard = lock.acquire(how).await.unwrap().unwrap();
            let owner = guard.owner().clone();
            assert_eq!(lock.release(&owner).await.unwrap(), Released::Free);
            assert!(!guard.is_held(), "given: {given}");
            assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })), "given: {given}");
            bed::idle(&client).await;
        }
    })
    .await;
}
