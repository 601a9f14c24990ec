//! Holds with an explicit lease are confirmed, not renewed: after a reconnect, a promotion or a slot move, the client
//! asks the server whether these holds still exist.

use tokio::time::{sleep, timeout};

use super::fake::Fate;
use super::{client, done, ms, secs, settle, with_lock};
use crate::transport::Arg;
use crate::{Acquire, Error, Flavour, Lost};

#[tokio::test(start_paused = true)]
async fn explicit_lease_guard_reports_loss_after_reconnect_or_slot_move() {
    for by_slot in [false, true] {
        let (client, fake) = client(|_| ());
        for flavour in Flavour::ALL {
            let guard = client.lock(*flavour, "x").lock_leased(secs(600)).await.unwrap();
            let kept = client.lock(*flavour, "y").lock_leased(secs(600)).await.unwrap();
            fake.delete("x");
            if by_slot {
                client.engine().kick.renew_slots(&["x", "y"].map(|name| crate::topology::slot_of(name.as_bytes())));
            } else {
                fake.listener().reconnected();
            }
            let lost = timeout(ms(50), guard.lost()).await.unwrap_or_else(|_| panic!("{flavour:?}: no signal"));
            assert!(matches!(lost, Error::Lost { why: Lost::Gone, .. }), "{flavour:?}: {lost:?}");
            assert!(!guard.is_held() && kept.is_held(), "{flavour:?}");
            drop((guard, kept));
            settle().await;
            ["x", "y"].iter().for_each(|name| fake.delete(name));
        }
        done(client, &fake).await;
    }
}

#[tokio::test(start_paused = true)]
async fn confirmation_changes_no_lease() {
    let (client, fake) = client(|_| ());
    for flavour in Flavour::ALL.iter().copied() {
        // One lease is shorter than the watchdog's, one is longer.
        for lease in [secs(5), secs(600)] {
            let guard = client.lock(flavour, "x").lock_leased(lease).await.unwrap();
            sleep(ms(1_000)).await;
            let before = fake.sent("renew").len();
            fake.listener().reconnected();
            settle().await;
            assert_eq!(fake.sent("renew").len(), before + 1, "{flavour:?}");
            let left = fake.left("x").unwrap();
            assert!(left <= lease - secs(1) && left >= lease - ms(1_100), "{flavour:?}: {left:?} of {lease:?}");
            assert!(guard.is_held() && guard.remaining() < left, "{flavour:?}");
            // The hash of a read lock gets the lease of its covers.
            if flavour != Flavour::Read {
                fake.persist("x");
                fake.listener().reconnected();
                settle().await;
                assert_eq!(fake.left("x"), None, "{flavour:?}: a confirmation added a lease");
            }
            // The key still exists, so the release finds the hold.
            assert!(guard.is_held(), "{flavour:?}");
            guard.unlock().await.unwrap();
            // The fake's fair release frees nothing.
            fake.delete("x");
        }
    }
    done(client, &fake).await;
}

/// After a reconnect, one command confirms all explicit leases, of different owners. Another command renews the
/// watched lock. Regular rounds renew only the watched lock.
#[tokio::test(start_paused = true)]
async fn explicit_leases_are_confirmed_together_but_not_by_regular_rounds() {
    let (client, fake) = client(|_| ());
    let watched = client.reentrant("w").lock().await.unwrap();
    let mut leased = Vec::new();
    for n in 0..50 {
        leased.push(client.reentrant(&format!("x{n}")).lock_leased(secs(600)).await.unwrap());
    }
    fake.listener().reconnected();
    settle().await;
    let leases: Vec<_> = fake.sent("renew").iter().map(|sent| sent.words[sent.keys].clone()).collect();
    assert_eq!(leases.len(), 2);
    assert!(leases.contains(&Arg::Int(0)) && leases.contains(&Arg::Int(30_000)), "{leases:?}");
    sleep(secs(61)).await;
    assert!((7..=8).contains(&(fake.sent("renew").len())), "{}", fake.sent("renew").len());
    drop((watched, leased));
    done(client, &fake).await;
}

/// The confirmation is retried until the server answers. Regular rounds renew the watched lock meanwhile.
#[tokio::test(start_paused = true)]
async fn failed_confirmation_is_retried_without_locks_acquired_since() {
    let (client, fake) = client(|_| ());
    let watched = client.plain("w").lock().await.unwrap();
    let guard = client.reentrant("x").lock_leased(secs(600)).await.unwrap();
    fake.delete("x");
    fake.times(25, "common/renew", || Fate::NotSent);
    fake.listener().reconnected();
    settle().await;
    let since = client.reentrant("y").lock_leased(secs(600)).await.unwrap();
    timeout(secs(30), guard.lost()).await.expect("the loss is signalled once the server answers");
    let asked = |name: &'static str| {
        let sent = fake.sent("common/renew");
        sent.iter().filter(|sent| sent.words.contains(&Arg::Text(name.into()))).count()
    };
    assert_eq!(asked("x"), 26);
    // While a confirmation is missing, each regular round confirms every explicit lease. A retry skips locks that were
    // acquired after the reconnect.
    assert!(asked("y") <= 3, "{}", asked("y"));
    assert!(watched.is_held() && since.is_held());
    drop((watched, guard, since));
    done(client, &fake).await;
}

/// The answer arrives after the lease has ended by the client's clock, so the reported reason stays `Expired`.
#[tokio::test(start_paused = true)]
async fn lease_that_ends_before_its_confirmation_is_lost_as_expired() {
    let (client, fake, lock) = with_lock();
    let guard = lock.acquire(Acquire::new().lease(secs(2))).await.unwrap().unwrap();
    fake.next("renew", Fate::Slow(ms(2_500)));
    fake.listener().reconnected();
    for _ in 0..2 {
        let lost = guard.lost().await;
        assert!(matches!(lost, Error::Lost { why: Lost::Expired, .. }), "{lost:?}");
        sleep(secs(2)).await;
    }
    drop(guard);
    done(client, &fake).await;
}
