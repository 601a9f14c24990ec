//! Holds that are given back by their owner, of which only some have guards.

use crate::pair::Pair;
use crate::prelude::*;

fn pair(flavour: Flavour) -> Pair {
    Pair::new(flavour, LinkOptions::default(), |_| {})
}

/// Two rounds of renewals have told by now whoever has lost anything.
async fn are_held(us: &Party, guards: &[Guard]) -> Vec<bool> {
    us.client.renew_now().await;
    us.client.renew_now().await;
    guards.iter().map(Guard::is_held).collect()
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
    let cases = pairs([When::AtOnce, When::Later, When::Again], pairs(REENTRANT, [false, true]));
    each(cases, async |(when, (flavour, last))| {
        let pair = pair(flavour);
        let Pair { ours, mine, me, .. } = &pair;
        let mut guards = vec![take(&**mine, me).await, take(&**mine, me).await];
        drop(guards.remove(usize::from(last)).into_owner());
        if when == When::Again {
            ours.link.plan_next(Mishap::Refuse("ERR not now".into()));
            assert!(matches!(mine.release(me).await, Err(Error::Server { .. })));
        }
        if when != When::AtOnce {
            sleep(ms(100)).await;
        }
        assert_eq!(mine.release(me).await.unwrap(), Released::StillHeld(1));
        assert_eq!(are_held(ours, &guards).await, [true]);
        assert_eq!(guards.remove(0).unlock().await.unwrap(), Released::Free);
        pair.ends().await;
    });
}

/// The last one of its owner, given back at once: that was all, whoever else reads.
#[test]
fn the_last_one_is_given_back_once_and_no_more() {
    each(
        REENTRANT.map(|flavour| (flavour, false)).into_iter().chain([(Flavour::Read, true)]),
        async |(flavour, others)| {
            let pair = pair(flavour);
            let Pair { mine, me, .. } = &pair;
            let other = if others { Some(mine.lock().await.unwrap()) } else { None };
            drop(take(&**mine, me).await.into_owner());
            assert_eq!(mine.release(me).await.unwrap(), Released::Free);
            assert!(matches!(mine.release(me).await, Err(Error::NotHeld { .. })));
            assert!(other.is_none_or(|other| other.is_held()));
            pair.ends().await;
        },
    );
}

/// A release by owner takes one hold: of two guards one is told, and the other goes on. Here at once; where another client gave it back
/// that read the owner from the lock, by the next renewal.
#[test]
fn one_of_two_guards_goes_on_when_one_hold_is_given_back_by_its_owner() {
    each(pairs(REENTRANT, [false, true]), async |(flavour, by_others)| {
        let pair = pair(flavour);
        let Pair { ours, mine, other, me, .. } = &pair;
        let guards = [take(&**mine, me).await, take(&**mine, me).await];
        let released = if by_others { other.release(&elsewhere(me)).await } else { mine.release(me).await };
        assert_eq!(released.unwrap(), Released::StillHeld(1));
        if by_others {
            assert!(guards.iter().all(Guard::is_held), "as far as they know");
            ours.client.renew_now().await;
        }
        let held: Vec<_> = guards.iter().map(Guard::is_held).collect();
        assert_eq!(held.iter().filter(|held| **held).count(), 1, "{held:?}");
        sleep(ms(60_000)).await;
        assert_eq!(are_held(ours, &guards).await, held);
        for (guard, held) in guards.into_iter().zip(held) {
            assert_eq!(guard.unlock().await.is_ok(), held);
        }
        pair.ends().await;
    });
}

/// A copy of the mark marks nothing: not for a second time, nor when its hold was given back.
#[test]
fn a_copy_of_the_mark_marks_nothing() {
    each(pairs(REENTRANT, [Mishap::DuplicateRequest, Mishap::LateCopy(ms(500))]), async |(flavour, copy)| {
        let pair = pair(flavour);
        let Pair { ours, mine, me, .. } = &pair;
        let (given, kept) = (take(&**mine, me).await, take(&**mine, me).await);
        ours.link.plan_next(copy);
        drop(given.into_owner());
        sleep(ms(100)).await;
        assert_eq!(mine.release(me).await.unwrap(), Released::StillHeld(1));
        sleep(ms(1000)).await;
        // The next one is the one that has a guard, which is told.
        assert_eq!(mine.release(me).await.unwrap(), Released::Free);
        assert!(!kept.is_held() && kept.unlock().await.is_err());
        pair.ends().await;
    });
}
