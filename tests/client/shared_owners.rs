//! Several guards, clients and tasks act as one owner. Each hold is independent of the owner's other holds.
//! `sim/sequences` has random sequences of such holds, and `sim/states` the leases.

use distlock::{Acquire, Error, Flavour, NotHeld, Owner, Released};

use super::rig::{each, elsewhere, is_served, nothing_under_way, waiting};
use bed::{ends, enter, freed, idle, ms, reentrant, secs};

/// A guard expires, and the owner acquires the lock again: at the same client, or at another client with or without a
/// guard.
#[tokio::test]
async fn an_expired_guard_frees_no_later_hold_of_its_owner() {
    each(async |bed, flavour| {
        let (first, second, third) = (bed.client().await, bed.client().await, bed.client().await);
        for (client, has_guard) in [(&first, true), (&second, true), (&second, false)] {
            let what = format!("{flavour}, same client: {}, a guard: {has_guard}", client.id() == first.id());
            let (mine, theirs) = (first.lock(flavour, "x"), client.lock(flavour, "x"));
            let expired = mine.acquire(Acquire::new().owner(&first.owner()).lease(ms(300))).await.unwrap().unwrap();
            let they = elsewhere(expired.owner());
            freed(&mine).await;
            let later = enter(&*theirs, &they).await;
            let (held, given_up) = if has_guard { (Some(later), None) } else { (None, Some(later.into_owner())) };
            nothing_under_way(client).await;
            drop(expired);
            nothing_under_way(&first).await;
            assert_eq!(theirs.hold_count(&they).await.unwrap(), 1, "{what}");
            // The flavour that a holder of `flavour` excludes.
            let rival = if flavour == Flavour::Read { Flavour::Write } else { flavour };
            assert!(third.lock(rival, "x").try_lock().await.unwrap().is_none(), "{what}: two holders");
            let released = match (held, given_up) {
                (Some(held), _) => {
                    assert!(held.is_held(), "{what}");
                    held.unlock().await
                }
                (_, given_up) => theirs.release(&given_up.unwrap()).await,
            };
            assert_eq!(released.unwrap(), Released::Free, "{what}");
        }
    })
    .await;
}

/// Another process has read the owner from the lock's state and acquired. Neither process's release ends the other's
/// hold.
#[tokio::test]
async fn holds_of_owner_read_from_redis_are_released_in_any_order() {
    each(async |bed, flavour| {
        let (client, other) = (bed.client().await, bed.client().await);
        for (same, first_goes) in [(false, true), (true, true), (false, false), (true, false)] {
            let lock = client.lock(flavour, "x");
            let theirs = if same { client.lock(flavour, "x") } else { other.lock(flavour, "x") };
            let first = lock.lock().await.unwrap();
            let they: Owner = lock.state().await.unwrap().holders[0].0.parse().unwrap();
            let second = enter(&*theirs, &they).await;
            let what = format!("{flavour}, same client: {same}, the first goes first: {first_goes}");
            let (goes, stays) = if first_goes { (first, second) } else { (second, first) };
            assert_eq!(goes.unlock().await.unwrap(), Released::StillHeld(1), "{what}");
            assert_eq!(client.renew_now().await.lost + other.renew_now().await.lost, 0, "{what}");
            assert!(stays.is_held(), "{what}");
            assert_eq!(lock.hold_count(&they).await.unwrap(), 1, "{what}");
            assert_eq!(stays.unlock().await.unwrap(), Released::Free, "{what}");
            idle(&client).await;
        }
    })
    .await;
}

/// Another client released this client's newest hold, and this client has not noticed.
#[tokio::test]
async fn reentry_beside_lost_hold_ends_no_other_hold() {
    each(async |bed, flavour| {
        let (client, other) = (bed.client().await, bed.client().await);
        let (lock, me) = (client.lock(flavour, "x"), client.owner());
        let (stays, goes) = (enter(&*lock, &me).await, enter(&*lock, &me).await);
        let released = other.lock(flavour, "x").release(&elsewhere(&me)).await.unwrap();
        assert_eq!(released, Released::StillHeld(1), "{flavour}");
        let comes = enter(&*lock, &me).await;
        assert!(stays.is_held() && comes.is_held() && !goes.is_held(), "{flavour}: {stays:?} {goes:?} {comes:?}");
        assert_eq!(lock.hold_count(&me).await.unwrap(), 2, "{flavour}");
        assert_eq!(comes.unlock().await.unwrap(), Released::StillHeld(1), "{flavour}");
        drop(goes);
        assert_eq!(stays.unlock().await.unwrap(), Released::Free, "{flavour}");
        idle(&client).await;
    })
    .await;
}

/// This client's hold is gone, but the owner holds the lock at another client. If the acquire waited, it would wait for
/// its own owner.
#[tokio::test]
async fn an_owner_that_holds_the_lock_elsewhere_does_not_queue() {
    reentrant(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        for flavour in [Flavour::Reentrant, Flavour::Fair] {
            let (lock, theirs) = (client.lock(flavour, "x"), other.lock(flavour, "x"));
            let me = client.owner();
            let stale = lock.acquire(Acquire::new().owner(&me).lease(secs(3600))).await.unwrap().expect("free");
            assert!(theirs.force_unlock().await.unwrap());
            let held = enter(&*theirs, &me).await;
            let waits = std::sync::Arc::clone(&lock);
            let behind = tokio::spawn(async move { waits.lock().await.unwrap() });
            waiting(&client, 1).await;
            let again = ends("an acquire beside the owner's other hold", enter(&*lock, &me)).await;
            again.unlock().await.unwrap();
            drop(stale);
            held.unlock().await.unwrap();
            is_served("the waiter", behind).await;
            idle(&client).await;
        }
    })
    .await;
}

/// A lock of another flavour has the same name as a read-write lock.
#[tokio::test]
async fn an_error_names_the_owner_that_holds_a_half_of_a_read_write_lock() {
    reentrant(async |bed| {
        let client = bed.client().await;
        for half in [Flavour::Write, Flavour::Read] {
            let held = client.lock(half, "job").lock().await.unwrap();
            for flavour in [Flavour::Reentrant, Flavour::Fair, Flavour::Fenced, Flavour::Spin] {
                let refused = client.lock(flavour, "job").release(&client.owner()).await.unwrap_err();
                let Error::NotHeld { why: NotHeld::HeldBy { owner }, .. } = &refused else { panic!("{refused:?}") };
                assert_eq!(*owner, held.owner().to_string(), "{flavour}, where {half} is held");
            }
            held.unlock().await.unwrap();
        }
    })
    .await;
}
