//! Holds with an explicit lease: nobody renews them, and a server that has come to answer for them is asked whether it has them.

use tokio::time::{sleep, timeout};

use super::fake::Fate;
use super::{client, done, ms, secs, settle};
use crate::transport::Arg;
use crate::{Acquire, Error, Flavour, Lost};

#[tokio::test(start_paused = true)]
async fn an_explicit_lease_of_any_flavour_is_told_at_a_reconnect_that_its_lock_is_gone() {
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
            let lost = timeout(ms(50), guard.lost()).await.unwrap_or_else(|_| panic!("{flavour:?} is not told"));
            assert!(matches!(lost, Error::Lost { why: Lost::Gone, .. }), "{flavour:?}: {lost:?}");
            assert!(!guard.is_held() && kept.is_held(), "{flavour:?}");
            drop((guard, kept));
            settle().await;
            for name in ["x", "y"] {
                fake.delete(name);
            }
        }
        done(client, &fake).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_confirmation_leaves_every_lease_as_it_is() {
    let (client, fake) = client(|_| ());
    for flavour in [Flavour::Reentrant, Flavour::Fair, Flavour::Write, Flavour::Fenced, Flavour::Spin, Flavour::Plain] {
        // Shorter than the watchdog's lease, and longer.
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
            fake.persist("x");
            fake.listener().reconnected();
            settle().await;
            assert_eq!(fake.left("x"), None, "{flavour:?}: no lease is given to a key that has none");
            // And it is not deleted: its release finds it.
            assert!(guard.is_held(), "{flavour:?}");
            guard.unlock().await.unwrap();
            // Fair releases do nothing here.
            fake.delete("x");
        }
    }
    done(client, &fake).await;
}

/// One that is kept by the watchdog, and one that is not, of different owners: two commands; nothing more in regular rounds.
#[tokio::test(start_paused = true)]
async fn many_explicit_leases_are_confirmed_by_one_command_and_only_then() {
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
    settle().await;
    done(client, &fake).await;
}

/// As long as it fails; also beside what the watchdog keeps, which regular rounds renew meanwhile.
#[tokio::test(start_paused = true)]
async fn a_confirmation_that_fails_is_repeated_and_nothing_is_asked_for_that_was_taken_since() {
    let (client, fake) = client(|_| ());
    let watched = client.plain("w").lock().await.unwrap();
    let guard = client.reentrant("x").lock_leased(secs(600)).await.unwrap();
    fake.delete("x");
    (0..25).for_each(|_| fake.next("common/renew", Fate::NotSent));
    fake.listener().reconnected();
    settle().await;
    let since = client.reentrant("y").lock_leased(secs(600)).await.unwrap();
    timeout(secs(30), guard.lost()).await.expect("is not told once the server answers");
    let asked = |name: &'static str| {
        let sent = fake.sent("common/renew");
        sent.iter().filter(|sent| sent.words.contains(&Arg::Text(name.into()))).count()
    };
    assert_eq!(asked("x"), 26);
    // Only with the regular rounds meanwhile.
    assert!(asked("y") <= 3, "{}", asked("y"));
    assert!(watched.is_held() && since.is_held());
    drop((watched, guard, since));
    settle().await;
    done(client, &fake).await;
}

/// The answer comes when the lease is over here: that is how it ended.
#[tokio::test(start_paused = true)]
async fn a_lease_that_ends_while_it_is_confirmed_has_expired() {
    let (client, fake) = client(|_| ());
    let lock = client.reentrant("x");
    let guard = lock.acquire(Acquire::new().lease(secs(2))).await.unwrap().unwrap();
    fake.next("renew", Fate::Slow(ms(2_500)));
    fake.listener().reconnected();
    let lost = guard.lost().await;
    assert!(matches!(lost, Error::Lost { why: Lost::Expired, .. }), "{lost:?}");
    sleep(secs(2)).await;
    let lost = guard.lost().await;
    assert!(matches!(lost, Error::Lost { why: Lost::Expired, .. }), "{lost:?}");
    drop(guard);
    settle().await;
    done(client, &fake).await;
}
