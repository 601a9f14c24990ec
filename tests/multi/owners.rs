//! Re-entry, and queries about all members together.

use distlock::{Acquire, Deadlock, DistLock, Error, NotHeld, Released};

use crate::rig::{counts, fair, only_keys, waits_at};
use bed::{becomes, ends, enter, ms, passer, reentrant, secs};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// The owner is explicit, or was created by an acquire of all members at once.
#[tokio::test]
async fn re_entry_counts_on_every_member() {
    reentrant(async |bed| {
        let client = bed.client().await;
        for lock in [client.multi(NAMES), fair(&client, &NAMES)] {
            for given in [true, false] {
                let first = if given { enter(&lock, &client.owner()).await } else { lock.lock().await.unwrap() };
                let me = first.owner().clone();
                let mut guards = vec![first];
                for times in 2..=3 {
                    guards.push(enter(&lock, &me).await);
                    counts(&bed.admin, &me, &NAMES.map(|name| (name, times))).await;
                }
                assert_eq!(lock.hold_count(&me).await.unwrap(), 3);
                assert!(lock.try_lock().await.unwrap().is_none(), "another owner");
                for left in [2, 1] {
                    assert_eq!(guards.remove(0).unlock().await.unwrap(), Released::StillHeld(left));
                    counts(&bed.admin, &me, &NAMES.map(|name| (name, left))).await;
                }
                assert!(guards[0].is_held());
                assert_eq!(client.renew_now().await.renewed, 3);
                assert_eq!(guards.pop().unwrap().unlock().await.unwrap(), Released::Free);
                only_keys(&bed.admin, &[]).await;
            }
        }
    })
    .await;
}

/// A multi lock that is refused leaves the owner's count unchanged.
#[tokio::test]
async fn member_held_before_keeps_its_hold_count() {
    reentrant(async |bed| {
        let (client, stranger) = (bed.client().await, bed.client().await);
        let me = client.owner();
        let before = enter(&client.reentrant("b"), &me).await;
        let lock = client.multi(NAMES);
        let guard = enter(&lock, &me).await;
        counts(&bed.admin, &me, &[("a", 1), ("b", 2), ("c", 1)]).await;
        assert_eq!(lock.hold_count(&me).await.unwrap(), 1, "as often as all are held");
        assert_eq!(guard.unlock().await.unwrap(), Released::Free, "the multi lock is free");
        counts(&bed.admin, &me, &[("a", 0), ("b", 1), ("c", 0)]).await;
        for theirs in ["a", "c"] {
            let theirs = stranger.reentrant(theirs).lock().await.unwrap();
            for wait in [ms(0), ms(60)] {
                let outcome = lock.acquire(Acquire::new().owner(&me).wait(wait)).await;
                assert!(bed::in_vain(&outcome), "{outcome:?}");
                becomes("holds of b", 1, async || lock.locks()[1].hold_count(&me).await.unwrap()).await;
            }
            theirs.unlock().await.unwrap();
            counts(&bed.admin, &me, &[("a", 0), ("b", 1), ("c", 0)]).await;
            assert!(before.is_held());
        }
        assert_eq!(client.renew_now().await.renewed, 1);
        before.unlock().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn release_by_owner_frees_remaining_members_and_reports_held_by() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let lock = client.multi(NAMES);
        for gone in NAMES {
            let me = lock.lock().await.unwrap().into_owner();
            let () = bed.admin.cmd(&["DEL", gone]).await;
            let () = bed.admin.cmd(&["HSET", gone, "stranger:1", "1"]).await;
            let error = lock.release(&me).await.unwrap_err();
            assert!(matches!(error, Error::NotHeld { why: NotHeld::HeldBy { .. }, .. }), "{error:?}");
            assert_eq!(bed.admin.keys().await, [gone]);
            let () = bed.admin.cmd(&["DEL", gone]).await;
        }
        let error = lock.release(&client.owner()).await.unwrap_err();
        let told = matches!(&error, Error::NotHeld { name, why: NotHeld::Never } if &**name == "a+b+c");
        assert!(told, "{error:?}");
    })
    .await;
}

#[tokio::test]
async fn multi_lock_reports_only_holders_of_all_members() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let lock = client.multi(NAMES);
        let (me, you) = (client.owner(), client.owner());
        let state = lock.state().await.unwrap();
        assert!(!state.is_locked() && state.remaining.is_none() && !lock.is_locked().await.unwrap());
        // The owner holds two of the three members.
        let leased = |lease| Acquire::new().owner(&me).lease(secs(lease));
        let a = client.reentrant("a").acquire(leased(5_000)).await.unwrap().unwrap();
        let b = client.reentrant("b").acquire(leased(900)).await.unwrap().unwrap();
        assert!(!lock.is_locked().await.unwrap() && lock.remaining_ttl().await.unwrap().is_none());
        assert!(!lock.is_held_by(&me).await.unwrap());
        let c = enter(&client.reentrant("c"), &you).await;
        assert_eq!(lock.state().await.unwrap().holders, []);
        c.unlock().await.unwrap();
        let c = client.reentrant("c").acquire(leased(5_000)).await.unwrap().unwrap();
        let twice = enter(&client.reentrant("c"), &me).await;
        let state = lock.state().await.unwrap();
        assert_eq!(state.holders, [(me.to_string(), 1)]);
        assert!(state.remaining.is_some_and(|left| left > secs(450) && left <= secs(900)), "{state:?}");
        assert_eq!((lock.hold_count(&me).await.unwrap(), lock.hold_count(&you).await.unwrap()), (1, 0));
        for guard in [a, b, c, twice] {
            guard.unlock().await.unwrap();
        }
    })
    .await;
}

/// One member or all members are held. The force wakes waiters.
#[tokio::test]
async fn force_unlock_frees_every_member() {
    reentrant(async |bed| {
        let (client, other) = (bed.still_client().await, bed.still_client().await);
        let lock = client.multi(NAMES);
        assert!(!lock.force_unlock().await.unwrap());
        let theirs = other.reentrant("b").lock().await.unwrap();
        assert!(lock.force_unlock().await.unwrap());
        assert_eq!(bed.admin.keys().await, [""; 0]);
        assert!(theirs.unlock().await.is_err());
        let guard = other.multi(NAMES).lock().await.unwrap();
        let waiter = passer(lock.clone());
        waits_at(bed, &client, "a").await;
        assert!(lock.force_unlock().await.unwrap());
        ends("the waiter", waiter).await.unwrap();
        assert!(guard.unlock().await.is_err());
    })
    .await;
}

/// One held member is enough for a refusal. No count changes.
#[tokio::test]
async fn not_reentrant_acquire_is_refused_when_owner_holds_a_member() {
    reentrant(async |bed| {
        let client = bed.client().await;
        for lock in [client.multi(NAMES), fair(&client, &NAMES)] {
            let me = client.owner();
            for before in [&NAMES[1..2], &NAMES[..]] {
                let mut guards = Vec::new();
                for name in before {
                    guards.push(enter(&client.reentrant(name), &me).await);
                }
                for wait in [ms(0), secs(3600)] {
                    let how = Acquire::new().owner(&me).not_reentrant().wait(wait);
                    let error = ends("an acquire that would wait for itself", lock.acquire(how)).await.unwrap_err();
                    let told = matches!(error, Error::WouldDeadlock { why: Deadlock::NotReentrant, .. });
                    assert!(told, "{error:?}");
                }
                only_keys(&bed.admin, before).await;
                counts(&bed.admin, &me, &before.iter().map(|name| (*name, 1)).collect::<Vec<_>>()).await;
                for guard in guards {
                    assert_eq!(guard.unlock().await.unwrap(), Released::Free);
                }
            }
            let how = Acquire::new().owner(&me).not_reentrant();
            lock.acquire(how).await.unwrap().unwrap().unlock().await.unwrap();
        }
    })
    .await;
}
