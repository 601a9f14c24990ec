//! Holds that are given back by their owner, of which only some have guards.

use distlock::{Acquire, DistLock, Error, Flavour, Guard, Owner, Released};
use distlock_sim::{LinkOptions, Mishap, SimServer};
use tokio::time::sleep;

use crate::rig::{self, Party, ms, settled, virtually};

const FLAVOURS: [Flavour; 6] =
    [Flavour::Reentrant, Flavour::Fair, Flavour::Read, Flavour::Write, Flavour::Fenced, Flavour::Spin];

async fn take(lock: &dyn DistLock, owner: &Owner) -> Guard {
    lock.acquire(Acquire::new().owner(owner)).await.unwrap().unwrap()
}

/// Two rounds of renewals have told by now whoever has lost anything.
async fn are_held<const N: usize>(us: &Party, guards: [&Guard; N]) -> [bool; N] {
    us.client.renew_now().await;
    us.client.renew_now().await;
    guards.map(Guard::is_held)
}

/// When a hold is given back whose guard was given away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// Before the server has been told that it has no guard any more.
    AtOnce,
    Later,
    /// The server refuses that the first time.
    Again,
}

/// Whichever of the two was taken first.
#[test]
fn what_has_no_guard_is_given_back_before_what_has_one() {
    for when in [When::AtOnce, When::Later, When::Again] {
        for (flavour, last) in FLAVOURS.into_iter().flat_map(|flavour| [(flavour, false), (flavour, true)]) {
            virtually(async move || {
                let server = SimServer::new(1);
                let us = Party::new(&server, LinkOptions::default(), |_| {});
                let (lock, owner) = (rig::lock(&us.client, flavour, "l"), us.client.owner());
                let (first, second) = (take(&*lock, &owner).await, take(&*lock, &owner).await);
                let (given, kept) = if last { (second, first) } else { (first, second) };
                drop(given.into_owner());
                if when == When::Again {
                    us.link.plan_next(Mishap::Refuse("ERR not now".into()));
                    assert!(matches!(lock.release(&owner).await, Err(Error::Server { .. })), "{flavour}");
                }
                if when != When::AtOnce {
                    sleep(ms(100)).await;
                }
                let left = lock.release(&owner).await.unwrap();
                assert_eq!(left, Released::StillHeld(1), "{flavour}, {when:?}, last: {last}");
                assert!(are_held(&us, [&kept]).await[0], "{flavour}, {when:?}, last: {last}");
                assert_eq!(kept.unlock().await.unwrap(), Released::Free, "{flavour}");
                settled(&server, &[&us], ms(20_000)).await.unwrap();
            });
        }
    }
}

/// The last one of its owner, given back at once: that was all, whoever else reads.
#[test]
fn the_last_one_is_given_back_once_and_no_more() {
    for (flavour, others) in FLAVOURS.map(|flavour| (flavour, false)).into_iter().chain([(Flavour::Read, true)]) {
        virtually(async move || {
            let server = SimServer::new(1);
            let us = Party::new(&server, LinkOptions::default(), |_| {});
            let (lock, owner) = (rig::lock(&us.client, flavour, "l"), us.client.owner());
            let other = if others { Some(lock.lock().await.unwrap()) } else { None };
            drop(take(&*lock, &owner).await.into_owner());
            assert_eq!(lock.release(&owner).await.unwrap(), Released::Free, "{flavour}, others: {others}");
            assert!(matches!(lock.release(&owner).await, Err(Error::NotHeld { .. })), "{flavour}, others: {others}");
            assert!(other.is_none_or(|other| other.is_held()));
            settled(&server, &[&us], ms(20_000)).await.unwrap();
        });
    }
}

/// A release by owner takes one hold: of two guards one is told, and the other goes on.
#[test]
fn one_of_two_guards_goes_on_when_one_hold_is_given_back_by_its_owner() {
    for flavour in FLAVOURS {
        virtually(async move || {
            let server = SimServer::new(1);
            let us = Party::new(&server, LinkOptions::default(), |_| {});
            let (lock, owner) = (rig::lock(&us.client, flavour, "l"), us.client.owner());
            let guards = [take(&*lock, &owner).await, take(&*lock, &owner).await];
            assert_eq!(lock.release(&owner).await.unwrap(), Released::StillHeld(1), "{flavour}");
            let held = [guards[0].is_held(), guards[1].is_held()];
            assert_eq!(held.iter().filter(|held| **held).count(), 1, "{flavour}: {held:?}");
            sleep(ms(60_000)).await;
            assert_eq!(are_held(&us, [&guards[0], &guards[1]]).await, held, "{flavour}");
            for (guard, held) in guards.into_iter().zip(held) {
                assert_eq!(guard.unlock().await.is_ok(), held, "{flavour}");
            }
            settled(&server, &[&us], ms(20_000)).await.unwrap();
        });
    }
}

/// A copy of the mark marks nothing: not for a second time, nor when its hold was given back.
#[test]
fn a_copy_of_the_mark_marks_nothing() {
    for flavour in FLAVOURS {
        for copy in [Mishap::DuplicateRequest, Mishap::LateCopy(ms(500))] {
            virtually(async move || {
                let server = SimServer::new(1);
                let us = Party::new(&server, LinkOptions::default(), |_| {});
                let (lock, owner) = (rig::lock(&us.client, flavour, "l"), us.client.owner());
                let (given, kept) = (take(&*lock, &owner).await, take(&*lock, &owner).await);
                let label = format!("{flavour}, {copy:?}");
                us.link.plan_next(copy);
                drop(given.into_owner());
                sleep(ms(100)).await;
                assert_eq!(lock.release(&owner).await.unwrap(), Released::StillHeld(1), "{label}");
                sleep(ms(1000)).await;
                // The next one is the one that has a guard, which is told.
                assert_eq!(lock.release(&owner).await.unwrap(), Released::Free, "{label}");
                assert!(!kept.is_held() && kept.unlock().await.is_err(), "{label}");
                settled(&server, &[&us], ms(20_000)).await.unwrap();
            });
        }
    }
}
