//! Re-entry, queries about all members together, and owners of several clients.

use distlock::{Acquire, Client, Deadlock, DistLock, Error, Flavour, MultiLock, NotHeld, Owner, Released};

use crate::rig::{counts, fair, only_keys};
use bed::wire::{Wire, arrives};
use bed::{becomes, enter, ms, reentrant, secs};

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

/// The member is held before the multi lock, and again after it. A multi lock that is refused leaves the owner's count
/// unchanged.
#[tokio::test]
async fn single_hold_of_member_outlives_multi_lock() {
    reentrant(async |bed| {
        let (client, stranger) = (bed.client().await, bed.client().await);
        let me = client.owner();
        let before = enter(&client.reentrant("b"), &me).await;
        let lock = client.multi(NAMES);
        let guard = enter(&lock, &me).await;
        counts(&bed.admin, &me, &[("a", 1), ("b", 2), ("c", 1)]).await;
        assert_eq!(lock.hold_count(&me).await.unwrap(), 1, "as often as all are held");
        let after = enter(&client.reentrant("b"), &me).await;
        assert_eq!(guard.unlock().await.unwrap(), Released::Free, "the multi lock is free");
        counts(&bed.admin, &me, &[("a", 0), ("b", 2), ("c", 0)]).await;
        assert_eq!(client.renew_now().await.renewed, 1);
        assert_eq!(after.unlock().await.unwrap(), Released::StillHeld(1));
        for lock in [client.multi(NAMES), fair(&client, &NAMES)] {
            let refused = lock.acquire(Acquire::new().owner(&me).not_reentrant()).await;
            assert!(matches!(refused, Err(Error::WouldDeadlock { why: Deadlock::NotReentrant, .. })), "{refused:?}");
            counts(&bed.admin, &me, &[("a", 0), ("b", 1), ("c", 0)]).await;
        }
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
        for lock in [lock, fair(&client, &NAMES)] {
            let how = Acquire::new().owner(&me).not_reentrant();
            lock.acquire(how).await.unwrap().unwrap().unlock().await.unwrap();
        }
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

/// One member is held.
#[tokio::test]
async fn force_unlock_frees_every_member() {
    reentrant(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let lock = client.multi(NAMES);
        assert!(!lock.force_unlock().await.unwrap());
        let theirs = other.reentrant("b").lock().await.unwrap();
        assert!(lock.force_unlock().await.unwrap());
        assert_eq!(bed.admin.keys().await, [""; 0]);
        assert!(theirs.unlock().await.is_err());
    })
    .await;
}

/// One owner holds a lock, and a multi lock that contains it. After the first hold is released, `other` is excluded as
/// before.
async fn beside(single: &dyn DistLock, many: &dyn DistLock, me: &Owner, other: &dyn DistLock) {
    let one = enter(single, me).await;
    let all = enter(many, me).await;
    one.unlock().await.unwrap();
    assert!(all.is_held());
    assert!(other.try_lock().await.unwrap().is_none(), "{} is free while {all:?} says held", other.name());
    assert_eq!(all.unlock().await.unwrap(), Released::Free);
}

/// The members belong to several clients. One client created the owner. The last round has two multi locks.
#[tokio::test]
async fn member_and_single_lock_of_one_owner_are_two_holds() {
    reentrant(async |bed| {
        let (first, second, other) = (bed.client().await, bed.client().await, bed.client().await);
        for flavour in [Flavour::Reentrant, Flavour::Write, Flavour::Fair] {
            let many = MultiLock::of(vec![first.lock(flavour, "x"), second.lock(flavour, "y")]);
            let me = first.owner();
            beside(&*second.lock(flavour, "x"), &many, &me, &*other.lock(flavour, "x")).await;
            beside(&*first.lock(flavour, "y"), &many, &me, &*other.lock(flavour, "y")).await;
        }
        let both = |client: &Client| client.multi(["x", "y"]);
        beside(&both(&first), &both(&second), &first.owner(), &other.reentrant("x")).await;
    })
    .await;
}

/// The copy arrives after an extend, and after another client has re-entered.
#[tokio::test]
async fn late_copy_of_acquire_changes_no_lease_or_count() {
    reentrant(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let lock = client.multi(["x", "y"]);
        // This hold teaches the server the script.
        lock.lock().await.unwrap().unlock().await.unwrap();
        let wire = Wire::tap(&bed.server).await;
        let guard = lock.acquire(Acquire::new().lease(secs(90))).await.unwrap().unwrap();
        let copy = wire.last(bed).await;
        guard.extend(secs(600)).await.unwrap();
        arrives(bed, &copy).await;
        for name in ["x", "y"] {
            let left = bed.admin.pttl(name).await;
            assert!(left > 300_000, "{name}: cut to {left} ms");
        }
        let they: Owner = guard.owner().to_string().parse().unwrap();
        let inner = enter(&other.multi(["x", "y"]), &they).await;
        arrives(bed, &copy).await;
        assert_eq!(inner.unlock().await.unwrap(), Released::StillHeld(1));
        assert_eq!(client.reentrant("x").hold_count(&they).await.unwrap(), 1);
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
    })
    .await;
}
