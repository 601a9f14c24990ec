//! Of renewals and extensions: which holds are told, and what becomes of the lease.

use distlock::{Acquire, DistLock, Error, Guard, Owner, Released};
use distlock_sim::{Mishap, SimReply};
use tokio::time::sleep;

use super::{FLAVOURS, NAME, Sight, enter};
use crate::rig::{ms, virtually};
use crate::stage::text;

/// The owner as another process has it that read it from the lock, which nobody here knows of.
fn elsewhere(owner: &Owner) -> Owner {
    text(owner).parse().unwrap()
}

/// Reads the owner from the lock, and comes in as it beside the hold that is there.
async fn enter_as_holder(lock: &dyn DistLock) -> (Owner, Guard) {
    let owner = lock.state().await.unwrap().holders[0].0.parse().unwrap();
    let guard = enter(lock, &owner, 90_000).await;
    (owner, guard)
}

/// A renewal of a hold that is gone makes no lease longer, whoever has come in as its owner, and its guard is told.
#[test]
fn a_renewal_of_what_is_gone_leaves_the_lease_alone() {
    for flavour in FLAVOURS {
        for listed in [false, true] {
            virtually(async move || {
                let (sight, mine, theirs) = Sight::of_two(flavour).await;
                let outer = mine.lock().await.unwrap();
                let a = outer.owner().clone();
                let gone = if listed {
                    let inner = mine.acquire(Acquire::new().owner(&a)).await.unwrap().unwrap();
                    outer.unlock().await.unwrap();
                    inner
                } else {
                    outer
                };
                assert!(theirs.force_unlock().await.unwrap());
                let there = enter(&*theirs, &a, 5000).await;
                let renewed = sight.us.client.renew_now().await;
                assert_eq!((renewed.renewed, renewed.lost), (0, 1), "{flavour}, listed: {listed}");
                assert!(!gone.is_held() && there.is_held(), "{flavour}, listed: {listed}");
                assert_eq!(sight.server.pttl(NAME.as_bytes()), 5000, "{flavour}, listed: {listed}");
                there.unlock().await.unwrap();
            });
        }
    }
}

/// Of two holds of one owner, one of which somebody else gave back, a renewal tells that one.
#[test]
fn a_renewal_tells_those_that_are_gone() {
    for flavour in FLAVOURS {
        virtually(async move || {
            let (sight, mine, theirs) = Sight::of_two(flavour).await;
            let a = sight.us.client.owner();
            let [one, two] = [(); 2].map(|()| mine.acquire(Acquire::new().owner(&a)));
            let guards = [one.await.unwrap().unwrap(), two.await.unwrap().unwrap()];
            assert_eq!(theirs.release(&elsewhere(&a)).await.unwrap(), Released::StillHeld(1), "{flavour}");
            assert!(guards[0].is_held() && guards[1].is_held(), "{flavour}: as far as they know");
            sight.us.client.renew_now().await;
            let held = guards.each_ref().map(|guard| guard.is_held());
            assert_eq!(held.iter().filter(|held| **held).count(), 1, "{flavour}: {held:?}");
            for (guard, held) in guards.into_iter().zip(held) {
                assert_eq!(guard.unlock().await.is_ok(), held, "{flavour}");
            }
            assert_eq!(sight.keys(&[&a]), "", "{flavour}");
        });
    }
}

/// The hold of an owner that its client takes for unknown, given back by somebody who read the owner from the lock and is
/// in by another hold.
#[test]
fn a_renewal_tells_an_only_hold_that_somebody_gave_back() {
    for flavour in FLAVOURS {
        virtually(async move || {
            let (sight, mine, theirs) = Sight::of_two(flavour).await;
            let guard = mine.lock().await.unwrap();
            let (a, there) = enter_as_holder(&*theirs).await;
            assert_eq!(theirs.release(&a).await.unwrap(), Released::StillHeld(1), "{flavour}");
            sight.us.client.renew_now().await;
            assert!(!guard.is_held() && there.is_held(), "{flavour}");
            assert!(guard.unlock().await.is_err(), "{flavour}");
            assert_eq!(there.unlock().await.unwrap(), Released::Free, "{flavour}");
        });
    }
}

/// Of an owner's only hold an extension to less is one; of one that is gone it is an error.
#[test]
fn an_only_hold_is_extended_as_it_is_told() {
    for flavour in FLAVOURS {
        virtually(async move || {
            let (sight, mine, theirs) = Sight::of_two(flavour).await;
            let guard = mine.lock_leased(ms(9000)).await.unwrap();
            for lease in [3000, 8000, 2000] {
                guard.extend(ms(lease)).await.unwrap();
                assert_eq!(sight.server.pttl(NAME.as_bytes()), lease as i64, "{flavour}");
            }
            assert!(theirs.force_unlock().await.unwrap());
            assert!(matches!(guard.extend(ms(1000)).await, Err(Error::Lost { .. })), "{flavour}");
            assert_eq!(sight.server.pttl(NAME.as_bytes()), -2, "{flavour}");
        });
    }
}

/// An extension to less leaves alone what somebody else came in for, also where the extended hold is not alone and a hold
/// beside it is gone, unknown to its client.
#[test]
fn an_extension_beside_a_hold_that_is_gone_cuts_nobody_short() {
    for flavour in FLAVOURS {
        virtually(async move || {
            let (sight, mine, theirs) = Sight::of_two(flavour).await;
            let a = sight.us.client.owner();
            let (kept, gone) = (enter(&*mine, &a, 9000).await, enter(&*mine, &a, 9000).await);
            assert_eq!(theirs.release(&elsewhere(&a)).await.unwrap(), Released::StillHeld(1), "{flavour}");
            let there = enter(&*theirs, &elsewhere(&a), 40_000).await;
            kept.extend(ms(2000)).await.unwrap();
            assert_eq!(sight.server.pttl(NAME.as_bytes()), 40_000, "{flavour}");
            assert!(there.is_held() && !gone.is_held(), "{flavour}");
        });
    }
}

/// The first hold of an owner that others have come to know goes alone, and leaves theirs.
#[test]
fn an_only_hold_that_is_none_any_more_is_given_back_alone() {
    for flavour in FLAVOURS {
        virtually(async move || {
            let (sight, mine, theirs) = Sight::of_two(flavour).await;
            let guard = mine.lock().await.unwrap();
            let (a, there) = enter_as_holder(&*theirs).await;
            assert_eq!(guard.unlock().await.unwrap(), Released::StillHeld(1), "{flavour}");
            assert_eq!(theirs.hold_count(&a).await.unwrap(), 1, "{flavour}");
            assert_eq!(there.unlock().await.unwrap(), Released::Free, "{flavour}");
            assert_eq!(sight.keys(&[&a]), "", "{flavour}");
        });
    }
}

/// A reader whose cover is gone has lost its hold, whatever its field says.
#[test]
fn a_renewal_brings_no_cover_back() {
    virtually(async || {
        let sight = Sight::new().await;
        let guard = sight.us.client.rw(NAME).read().lock().await.unwrap();
        let cover = format!("{{{NAME}}}:{}:rwlock_timeout:1", text(guard.owner()));
        assert_eq!(sight.server.command(&[b"del", cover.as_bytes()]), SimReply::Int(1));
        let renewed = sight.us.client.renew_now().await;
        assert_eq!((renewed.renewed, renewed.lost), (0, 1));
        assert!(!guard.is_held());
    });
}

/// An extension to less that nobody heard of makes no lease shorter when it comes in after its last moment, be it for the
/// first time: its guard counts on the lease that was there.
#[test]
fn an_extension_that_comes_in_too_late_changes_nothing() {
    for flavour in FLAVOURS {
        virtually(async move || {
            let (sight, mine, _) = Sight::of_two(flavour).await;
            let guard = mine.lock_leased(ms(500_000)).await.unwrap();
            // The client has heard what time it is.
            assert!(!sight.us.client.reentrant("other").force_unlock().await.unwrap());
            let next = sight.us.link.sent();
            sight.us.link.plan(next, Mishap::LateOnly(ms(120_000)));
            for repeat in next + 1..next + 20 {
                sight.us.link.plan(repeat, Mishap::LoseRequest);
            }
            assert!(guard.extend(ms(200_000)).await.unwrap_err().outcome_unknown(), "{flavour}");
            sleep(ms(130_000)).await;
            let left = sight.server.pttl(NAME.as_bytes());
            assert!((300_000..=370_000).contains(&left), "{flavour}: {left} ms are left");
        });
    }
}

/// An extension of a hold that somebody gave back is an error, and changes nothing for the owner's other hold here.
#[test]
fn an_extension_of_a_hold_that_is_gone_changes_nothing() {
    for flavour in FLAVOURS {
        for listed in [false, true] {
            virtually(async move || {
                let (sight, mine, theirs) = Sight::of_two(flavour).await;
                // The one that is not listed goes first, else the newest.
                let (gone, kept) = if listed {
                    let a = sight.us.client.owner();
                    let kept = enter(&*mine, &a, 10_000).await;
                    (enter(&*mine, &a, 40_000).await, kept)
                } else {
                    let gone = mine.lock_leased(ms(40_000)).await.unwrap();
                    let a = gone.owner().clone();
                    (gone, enter(&*mine, &a, 10_000).await)
                };
                let owner = elsewhere(gone.owner());
                assert_eq!(theirs.release(&owner).await.unwrap(), Released::StillHeld(1), "{flavour}");
                let before = sight.server.pttl(NAME.as_bytes());
                let extended = gone.extend(ms(2000)).await;
                assert!(matches!(extended, Err(Error::Lost { .. })), "{flavour}, {listed}: {extended:?}");
                assert_eq!(sight.server.pttl(NAME.as_bytes()), before, "{flavour}, {listed}");
                assert_eq!(kept.unlock().await.unwrap(), Released::Free, "{flavour}, {listed}");
                assert_eq!(sight.keys(&[]), "", "{flavour}, {listed}");
            });
        }
    }
}
