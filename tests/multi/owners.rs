//! Re-entry, owners given by name, and what is asked about all members together.

use distlock::{Acquire, Deadlock, DistLock, Error, NotHeld, Owner, Released};

use crate::rig::{counts, fair, only_keys, soon};
use bed::{enter, idle, ms, reentrant, secs};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// The same owner comes in again: two on every member, and as many releases.
#[tokio::test]
async fn an_owner_comes_in_again() {
    reentrant(async |bed| {
        let client = bed.client().await;
        for lock in [client.multi(NAMES), fair(&client, &NAMES)] {
            let me = client.owner();
            let mut guards = Vec::new();
            for times in 1..=3 {
                guards.push(enter(&lock, &me).await);
                counts(&bed.admin, &me, &NAMES.map(|name| (name, times))).await;
            }
            assert_eq!(lock.hold_count(&me).await.unwrap(), 3);
            assert!(lock.try_lock().await.unwrap().is_none(), "another owner");
            for left in [2, 1] {
                assert_eq!(guards.pop().unwrap().unlock().await.unwrap(), Released::StillHeld(left));
                counts(&bed.admin, &me, &NAMES.map(|name| (name, left))).await;
            }
            assert!(guards[0].is_held());
            assert_eq!(guards.pop().unwrap().unlock().await.unwrap(), Released::Free);
            only_keys(&bed.admin, &[]).await;
        }
    })
    .await;
}

/// As the owner of a guard that was taken by one script.
#[tokio::test]
async fn a_guards_owner_comes_in_again() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let lock = client.multi(NAMES);
        let outer = lock.lock().await.unwrap();
        let me = outer.owner().clone();
        let inner = enter(&lock, &me).await;
        assert_eq!(inner.owner(), &me);
        counts(&bed.admin, &me, &[("a", 2), ("b", 2), ("c", 2)]).await;
        // The outer one goes first.
        assert_eq!(outer.unlock().await.unwrap(), Released::StillHeld(1));
        assert!(inner.is_held());
        assert_eq!(client.renew_now().await.renewed, 3);
        assert_eq!(inner.unlock().await.unwrap(), Released::Free);
    })
    .await;
}

/// Some of them were held before: those are held twice, and once again afterwards, also where the multi lock is not had.
#[tokio::test]
async fn some_were_held_before() {
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
        // c is somebody's, and a not free either: the count of b goes back.
        for theirs in ["a", "c"] {
            let theirs = stranger.reentrant(theirs).lock().await.unwrap();
            for wait in [ms(0), ms(60)] {
                let outcome = lock.acquire(Acquire::new().owner(&me).wait(wait)).await;
                assert!(matches!(outcome, Ok(None) | Err(Error::Timeout { .. })), "{outcome:?}");
                soon("counted back", secs(3), async {
                    while lock.locks()[1].hold_count(&me).await.unwrap() != 1 {
                        tokio::time::sleep(ms(2)).await;
                    }
                })
                .await;
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

/// Within a scope every acquire is the same owner's: of the multi lock, and of its members.
#[tokio::test]
async fn within_a_scope() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let me = client.owner();
        me.scope(async {
            let lock = client.multi(NAMES);
            let outer = lock.lock().await.unwrap();
            let inner = client.reentrant("b").lock().await.unwrap();
            let again = lock.try_lock().await.unwrap().expect("mine");
            assert_eq!(outer.owner(), &me);
            counts(&bed.admin, &me, &[("a", 2), ("b", 3), ("c", 2)]).await;
            inner.unlock().await.unwrap();
            again.unlock().await.unwrap();
            outer.unlock().await.unwrap();
        })
        .await;
        only_keys(&bed.admin, &[]).await;
    })
    .await;
}

/// Given away, and released by another client, by the owner's text.
#[tokio::test]
async fn another_client_releases_it() {
    reentrant(async |bed| {
        let (client, other) = (bed.quick().await, bed.client().await);
        let guard = client.multi(NAMES).lock().await.unwrap();
        let me: Owner = guard.into_owner().to_string().parse().unwrap();
        idle(&client).await;
        assert_eq!(client.renew_now().await.renewed, 0, "nobody renews it");
        let lock = other.multi(["c", "b", "a"]);
        assert!(lock.is_held_by(&me).await.unwrap());
        // The other one comes in, and both holds are given back one after the other.
        let taken = enter(&lock, &me).await;
        assert_eq!(lock.release(&me).await.unwrap(), Released::StillHeld(1));
        counts(&bed.admin, &me, &[("a", 1), ("b", 1), ("c", 1)]).await;
        assert_eq!(taken.unlock().await.unwrap(), Released::Free);
        let error = lock.release(&me).await.unwrap_err();
        let told = matches!(&error, Error::NotHeld { name, why: NotHeld::Never } if &**name == "a+b+c");
        assert!(told, "{error:?}");
        only_keys(&bed.admin, &[]).await;
    })
    .await;
}

/// Given away, and taken up again by the same client: one hold more, and the one given away stays until it is released.
#[tokio::test]
async fn given_away_and_taken_up_again() {
    reentrant(async |bed| {
        let client = bed.client().await;
        for lock in [client.multi(NAMES), fair(&client, &NAMES)] {
            let me = lock.lock().await.unwrap().into_owner();
            assert!(lock.try_lock().await.unwrap().is_none(), "it is held still");
            let guard = enter(&lock, &me).await;
            counts(&bed.admin, &me, &NAMES.map(|name| (name, 2))).await;
            assert_eq!(guard.unlock().await.unwrap(), Released::StillHeld(1));
            assert_eq!(lock.release(&me).await.unwrap(), Released::Free);
            only_keys(&bed.admin, &[]).await;
        }
    })
    .await;
}

/// One of them is gone: the others are released all the same, and it is told.
#[tokio::test]
async fn a_release_by_owner_gives_back_what_there_is() {
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
    })
    .await;
}

/// Who holds it: who holds all of them. Some of them is nobody.
#[tokio::test]
async fn its_state_is_that_of_all() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let lock = client.multi(NAMES);
        let (me, you) = (client.owner(), client.owner());
        let state = lock.state().await.unwrap();
        assert!(!state.is_locked() && state.remaining.is_none() && !lock.is_locked().await.unwrap());
        // Two of three.
        let a = enter(&client.reentrant("a"), &me).await;
        let b = client.reentrant("b").acquire(Acquire::new().owner(&me).lease(secs(9))).await.unwrap().unwrap();
        assert!(!lock.is_locked().await.unwrap() && lock.remaining_ttl().await.unwrap().is_none());
        assert!(!lock.is_held_by(&me).await.unwrap());
        // The third is another one's.
        let c = enter(&client.reentrant("c"), &you).await;
        assert_eq!(lock.state().await.unwrap().holders, []);
        c.unlock().await.unwrap();
        let c = enter(&client.reentrant("c"), &me).await;
        let twice = enter(&client.reentrant("c"), &me).await;
        let state = lock.state().await.unwrap();
        assert_eq!(state.holders, [(me.to_string(), 1)]);
        assert!(state.remaining.is_some_and(|left| left > secs(7) && left <= secs(9)), "{state:?}");
        assert_eq!((lock.hold_count(&me).await.unwrap(), lock.hold_count(&you).await.unwrap()), (1, 0));
        for guard in [a, b, c, twice] {
            guard.unlock().await.unwrap();
        }
    })
    .await;
}

/// Freed by force, whoever holds what; the guard learns of it.
#[tokio::test]
async fn forced_open() {
    reentrant(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let lock = client.multi(NAMES);
        assert!(!lock.force_unlock().await.unwrap());
        let guard = lock.lock().await.unwrap();
        assert!(lock.force_unlock().await.unwrap());
        assert_eq!(bed.admin.keys().await, [""; 0]);
        assert!(!guard.is_held());
        soon("it learns of it", secs(2), guard.lost()).await;
        assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
        // One of three, held by somebody else.
        let theirs = other.reentrant("b").lock().await.unwrap();
        assert!(lock.force_unlock().await.unwrap());
        assert_eq!(bed.admin.keys().await, [""; 0]);
        assert!(theirs.unlock().await.is_err());
        // And those who wait are woken.
        let guard = other.multi(NAMES).lock().await.unwrap();
        let waiting = client.multi(NAMES);
        let waiter = tokio::spawn(async move { waiting.lock().await.unwrap() });
        let listens = async || bed.admin.numsub("redisson_lock__channel:{a}").await == 1;
        bed::eventually("it listens", listens).await;
        assert!(lock.force_unlock().await.unwrap());
        soon("it is woken", secs(4), waiter).await.unwrap().unlock().await.unwrap();
        assert!(guard.unlock().await.is_err());
    })
    .await;
}

/// Not to come in again: an error at once, where any is held, and no count is changed (§1.6).
#[tokio::test]
async fn not_to_come_in_again() {
    reentrant(async |bed| {
        let client = bed.client().await;
        for lock in [client.multi(NAMES), fair(&client, &NAMES)] {
            let me = client.owner();
            for before in [&NAMES[1..2], &NAMES[..]] {
                let mut guards = Vec::new();
                for name in before {
                    guards.push(enter(&client.reentrant(name), &me).await);
                }
                for wait in [ms(0), secs(10)] {
                    let how = Acquire::new().owner(&me).not_reentrant().wait(wait);
                    let error = soon("at once", secs(2), lock.acquire(how)).await.unwrap_err();
                    let told = matches!(error, Error::WouldDeadlock { why: Deadlock::NotReentrant, .. });
                    assert!(told, "{error:?}");
                }
                only_keys(&bed.admin, before).await;
                counts(&bed.admin, &me, &before.iter().map(|name| (*name, 1)).collect::<Vec<_>>()).await;
                for guard in guards {
                    assert_eq!(guard.unlock().await.unwrap(), Released::Free);
                }
            }
            // Where none is held, it is as any other acquire.
            let how = Acquire::new().owner(&me).not_reentrant();
            lock.acquire(how).await.unwrap().unwrap().unlock().await.unwrap();
            lock.acquire(Acquire::new().not_reentrant()).await.unwrap().unwrap().unlock().await.unwrap();
        }
    })
    .await;
}

/// Whose last hold of one member goes on while the multi lock's ends: that one is watched still.
#[tokio::test]
async fn a_member_held_for_itself_outlives_it() {
    reentrant(async |bed| {
        let client = bed.quick().await;
        let me = client.owner();
        let guard = enter(&client.multi(NAMES), &me).await;
        let b = enter(&client.reentrant("b"), &me).await;
        guard.unlock().await.unwrap();
        let until = std::time::Instant::now() + bed::QUICK + ms(400);
        while std::time::Instant::now() < until {
            assert!(b.is_held());
            tokio::time::sleep(ms(50)).await;
        }
        only_keys(&bed.admin, &["b"]).await;
        assert_eq!(b.unlock().await.unwrap(), Released::Free);
    })
    .await;
}
