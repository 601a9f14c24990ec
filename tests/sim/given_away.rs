//! Releases by owner where only some of the owner's holds have guards.

use crate::pair::Pair;
use crate::prelude::*;

fn pair(flavour: Flavour) -> Pair {
    Pair::new(flavour, LinkOptions::default(), |_| {})
}

/// Whether these guards are still held after two rounds of renewal. A round notifies every guard that lost its hold.
async fn are_held(us: &Party, guards: &[Guard]) -> Vec<bool> {
    us.client.renew_now().await;
    us.client.renew_now().await;
    guards.iter().map(Guard::is_held).collect()
}

/// When the hold without a guard is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// Before the server learns that the hold has no guard.
    AtOnce,
    Later,
    /// After a first release that the server refused.
    Again,
}

#[test]
fn release_by_owner_ends_hold_without_guard_first() {
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

/// The owner's last hold is released at once. A second release finds no hold, even while other owners read.
#[test]
fn second_release_by_owner_gets_not_held_error() {
    let cases = REENTRANT.map(|flavour| (flavour, false)).into_iter().chain([(Flavour::Read, true)]);
    each(cases, async |(flavour, others)| {
        let pair = pair(flavour);
        let Pair { mine, me, .. } = &pair;
        let other = if others { Some(mine.lock().await.unwrap()) } else { None };
        drop(take(&**mine, me).await.into_owner());
        assert_eq!(mine.release(me).await.unwrap(), Released::Free);
        assert!(matches!(mine.release(me).await, Err(Error::NotHeld { .. })));
        assert!(other.is_none_or(|other| other.is_held()));
        pair.ends().await;
    });
}

/// A release by owner ends one hold: one of two guards is notified, and the other guard stays held. If the same client
/// releases, it notifies at once. If another client releases with the owner's text, the next renewal notifies.
#[test]
fn release_by_owner_ends_one_of_two_guards() {
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

/// A hold is marked on the server when it has no guard. A copy of the marking command has no effect, whether it arrives
/// before or after the release of this hold.
#[test]
fn copy_of_disown_has_no_effect() {
    each(pairs(REENTRANT, [Mishap::DuplicateRequest, Mishap::LateCopy(ms(500))]), async |(flavour, copy)| {
        let pair = pair(flavour);
        let Pair { ours, mine, me, .. } = &pair;
        let (given, kept) = (take(&**mine, me).await, take(&**mine, me).await);
        ours.link.plan_next(copy);
        drop(given.into_owner());
        sleep(ms(100)).await;
        assert_eq!(mine.release(me).await.unwrap(), Released::StillHeld(1));
        sleep(ms(1000)).await;
        // The next release ends the hold that has a guard, and the guard is notified.
        assert_eq!(mine.release(me).await.unwrap(), Released::Free);
        assert!(!kept.is_held() && kept.unlock().await.is_err());
        pair.ends().await;
    });
}
