//! Renewals, extensions and releases: the affected holds, and the resulting leases.

use super::{NAME, Sight};
use crate::prelude::*;

/// Reads the owner from the lock, and acquires under this owner, next to the existing hold.
async fn enter_as_holder(lock: &dyn DistLock) -> (Owner, Guard) {
    let owner = lock.state().await.unwrap().holders[0].0.parse().unwrap();
    let guard = enter(lock, &owner, 90_000).await;
    (owner, guard)
}

/// A renewal of a hold that is gone prolongs no lease, even if the owner has entered again. The guard of that hold is
/// notified.
#[test]
fn renewal_of_lost_hold_does_not_prolong_lease() {
    each(pairs(REENTRANT, [false, true]), async |(flavour, listed)| {
        let (sight, mine, theirs) = Sight::of_two(flavour).await;
        let outer = mine.lock().await.unwrap();
        let a = outer.owner().clone();
        let mut gone = outer;
        if listed {
            let inner = take(&*mine, &a).await;
            std::mem::replace(&mut gone, inner).unlock().await.unwrap();
        }
        assert!(theirs.force_unlock().await.unwrap());
        let there = enter(&*theirs, &a, 5000).await;
        let renewed = sight.us.client.renew_now().await;
        assert_eq!((renewed.renewed, renewed.lost), (0, 1));
        assert!(!gone.is_held() && there.is_held());
        assert_eq!(sight.left(), 5000);
        there.unlock().await.unwrap();
    });
}

/// A client believes that its hold is the owner's only hold. But another client read the owner from the lock and has a
/// second hold. A release here keeps the other hold. If the other client releases this client's hold, a renewal
/// notifies the guard.
#[test]
fn release_ends_one_of_two_holds_of_shared_owner() {
    each(pairs(REENTRANT, [false, true]), async |(flavour, by_others)| {
        let (sight, mine, theirs) = Sight::of_two(flavour).await;
        let guard = mine.lock().await.unwrap();
        let (a, there) = enter_as_holder(&*theirs).await;
        if by_others {
            assert_eq!(theirs.release(&a).await.unwrap(), Released::StillHeld(1));
            sight.us.client.renew_now().await;
            assert!(!guard.is_held() && there.is_held());
            assert!(guard.unlock().await.is_err());
        } else {
            assert_eq!(guard.unlock().await.unwrap(), Released::StillHeld(1));
            assert_eq!(theirs.hold_count(&a).await.unwrap(), 1);
        }
        assert_eq!(there.unlock().await.unwrap(), Released::Free);
        assert_eq!(sight.keys(&[&a]), "");
    });
}

/// An extension to a shorter lease spares other clients' holds, even if another hold of the owner is gone and its
/// client does not know.
#[test]
fn extend_beside_lost_hold_does_not_shorten_lease_of_other_client() {
    each(REENTRANT, async |flavour| {
        let (sight, mine, theirs) = Sight::of_two(flavour).await;
        let a = sight.us.client.owner();
        let (kept, gone) = (enter(&*mine, &a, 9000).await, enter(&*mine, &a, 9000).await);
        assert_eq!(theirs.release(&elsewhere(&a)).await.unwrap(), Released::StillHeld(1));
        let there = enter(&*theirs, &elsewhere(&a), 40_000).await;
        kept.extend(ms(2000)).await.unwrap();
        assert_eq!(sight.left(), 40_000);
        assert!(there.is_held() && !gone.is_held());
    });
}

/// A reader whose cover is gone has lost its hold, whatever the hash says.
#[test]
fn renewal_without_cover_reports_lost_read_hold() {
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

/// A copy of an extension to a shorter lease arrives after its last moment. The copy shortens nothing, even if the
/// original never arrived, because the guard relies on the existing lease.
#[test]
fn extend_after_its_last_moment_has_no_effect() {
    each(REENTRANT, async |flavour| {
        let (sight, mine, _) = Sight::of_two(flavour).await;
        let guard = mine.lock_leased(ms(500_000)).await.unwrap();
        // The client learns the server's clock.
        assert!(!sight.us.client.reentrant("other").force_unlock().await.unwrap());
        sight.us.link.plan_next(Mishap::LateOnly(ms(120_000)));
        (1..20).for_each(|n| sight.us.link.plan(sight.us.link.sent() + n, Mishap::LoseRequest));
        assert!(guard.extend(ms(200_000)).await.unwrap_err().outcome_unknown());
        sleep(ms(130_000)).await;
        let left = sight.left();
        assert!((300_000..=370_000).contains(&left), "{left} ms are left");
    });
}

/// Extending a hold that was released elsewhere is an error, and does not affect the owner's other hold here.
#[test]
fn extend_of_lost_hold_fails_and_keeps_lease() {
    each(pairs(REENTRANT, [false, true]), async |(flavour, listed)| {
        let (sight, mine, theirs) = Sight::of_two(flavour).await;
        // The server drops an unlisted hold first. If all are listed, it drops the newest.
        let (gone, kept) = if listed {
            let a = sight.us.client.owner();
            let kept = enter(&*mine, &a, 10_000).await;
            (enter(&*mine, &a, 40_000).await, kept)
        } else {
            let gone = mine.lock_leased(ms(40_000)).await.unwrap();
            let kept = enter(&*mine, gone.owner(), 10_000).await;
            (gone, kept)
        };
        assert_eq!(theirs.release(&elsewhere(gone.owner())).await.unwrap(), Released::StillHeld(1));
        let before = sight.left();
        let extended = gone.extend(ms(2000)).await;
        assert!(matches!(extended, Err(Error::Lost { .. })), "{extended:?}");
        assert_eq!(sight.left(), before);
        assert_eq!(kept.unlock().await.unwrap(), Released::Free);
        assert_eq!(sight.keys(&[]), "");
    });
}

/// A client trusts its knowledge of a server's clock for a minute. After that, a release that leaves other holds asks
/// for the time. Without an answer the release is sent without the time, and the longest lease stays until the next
/// release.
#[test]
fn release_after_quiet_minute_queries_server_time_first() {
    let cases = pairs([None, Some(Mishap::NotSent), Some(Mishap::Refuse("NOPERM no TIME".into()))], REENTRANT);
    each(pairs(cases, [61_000, 1_000]), async |((mishap, flavour), quiet)| {
        let (sight, mine, _) = Sight::of_two(flavour).await;
        let me = sight.us.client.owner();
        let outer = enter(&*mine, &me, 100_000).await;
        let same = enter(&*mine, &me, 100_000).await;
        let inner = enter(&*mine, &me, 7_200_000).await;
        sleep(ms(quiet)).await;
        let asks = quiet > 60_000;
        let asks_again = asks && mishap.is_some();
        let sent = sight.us.link.sent();
        mishap.filter(|_| asks).into_iter().for_each(|mishap| sight.us.link.plan_next(mishap));
        assert_eq!(inner.unlock().await.unwrap(), Released::StillHeld(2));
        assert_eq!(sight.us.link.sent() - sent, 1 + u64::from(asks), "commands of the first release");
        // Without the time, only the last moment tells a late copy.
        let least = if asks_again { 7_000_000..=7_200_000 } else { 0..=100_000 };
        assert!(least.contains(&sight.left()), "{} ms are left after the first release", sight.left());
        let sent = sight.us.link.sent();
        assert_eq!(same.unlock().await.unwrap(), Released::StillHeld(1));
        assert_eq!(sight.us.link.sent() - sent, 1 + u64::from(asks_again), "commands of the second release");
        assert!(sight.left() <= 100_000, "{} ms are left of a lease of 100 s", sight.left());
        outer.unlock().await.unwrap();
        assert_eq!(sight.keys(&[]), "");
    });
}
