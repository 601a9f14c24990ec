//! The lease that a guard reports, while commands of the same owner or copies of them arrive.

use super::fake::Fate;
use super::release::acquire;
use super::{client, done, ms, secs, settle};
use crate::{Acquire, Error, Guard, Lost};

#[tokio::test(start_paused = true)]
async fn extend_in_doubt_counts_as_the_shorter_lease() {
    let (client, fake) = client(|_| ());
    let lock = client.reentrant("x");
    let leased = lock.lock_leased(secs(60)).await.unwrap();
    fake.next("renew", Fate::Refused("ERR no"));
    assert!(leased.extend(secs(5)).await.is_err());
    assert!(leased.remaining() > secs(50));
    fake.next("renew", Fate::Lost(true));
    assert!(leased.extend(secs(5)).await.is_err_and(|error| error.outcome_unknown()));
    assert!(leased.remaining() <= fake.left("x").unwrap());
    leased.extend(secs(10)).await.unwrap();
    assert!(leased.remaining() > secs(9) && leased.remaining() <= fake.left("x").unwrap());
    leased.unlock().await.unwrap();
    // A hold that the watchdog renews, first with a longer lease.
    let watched = lock.lock().await.unwrap();
    fake.next("renew", Fate::Lost(true));
    assert!(watched.extend(secs(300)).await.is_err());
    tokio::time::sleep(secs(400)).await;
    assert!(watched.is_held(), "the watchdog goes on");
    fake.next("renew", Fate::Lost(true));
    assert!(watched.extend(secs(2)).await.is_err());
    assert!(watched.remaining() <= secs(2));
    drop(watched);
    settle().await;
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn lease_keeps_its_margin_under_other_commands_of_the_owner() {
    let (client, fake) = client(|_| ());
    let lock = client.reentrant("x");
    let me = client.owner();
    let how = || Acquire::new().owner(&me);
    let long = lock.acquire(how().lease(secs(600))).await.unwrap().unwrap();
    // The key lives longer than the guard reports, by the drift margin.
    let has_margin = || {
        let promised = long.remaining();
        assert!(fake.left("x").unwrap() >= promised + promised / 100, "{:?} for {promised:?}", fake.left("x"));
    };
    has_margin();
    let short = lock.acquire(how().lease(secs(1))).await.unwrap().unwrap();
    has_margin();
    short.extend(secs(2)).await.unwrap();
    has_margin();
    let watched = lock.acquire(how()).await.unwrap().unwrap();
    has_margin();
    client.renew_now().await;
    has_margin();
    watched.unlock().await.unwrap();
    has_margin();
    drop((short, long));
    settle().await;
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn late_copy_of_acquire_is_released_but_not_a_newer_hold() {
    for comes_back in [false, true] {
        let (client, fake) = client(|_| ());
        let me = client.owner();
        // The acquire teaches the client the server's clock.
        acquire(&client, &me).await.unlock().await.unwrap();
        // The command is lost, and the client retries it. A copy of the first command arrives after the lock was
        // released.
        fake.next("acquire", Fate::Ghost(secs(2)));
        let guard = acquire(&client, &me).await;
        guard.unlock().await.unwrap();
        tokio::time::sleep(ms(2200)).await;
        assert_eq!(fake.held(), ["x 1 1"], "the late copy");
        let guard = if comes_back { Some(acquire(&client, &me).await) } else { None };
        tokio::time::sleep(secs(2)).await;
        assert_eq!(fake.held().len(), usize::from(comes_back));
        assert!(guard.as_ref().is_none_or(Guard::is_held));
        drop(guard);
        tokio::time::sleep(secs(4)).await;
        done(client, &fake).await;
    }
}

#[tokio::test(start_paused = true)]
async fn look_for_late_copy_spares_hold_acquired_after_a_loss() {
    let (client, fake) = client(|_| ());
    let me = client.owner();
    fake.next("acquire", Fate::Lost(true));
    let guard = acquire(&client, &me).await;
    for _ in 0..200 {
        fake.next("renew", Fate::Lost(false));
    }
    assert!(matches!(guard.lost().await, Error::Lost { why: Lost::Expired, .. }));
    fake.calm();
    tokio::time::sleep(secs(1)).await;
    assert_eq!((fake.held(), client.stats().under_way), (Vec::new(), 0));
    let again = acquire(&client, &me).await;
    tokio::time::sleep(secs(5)).await;
    assert!(again.is_held());
    assert_eq!(fake.held(), ["x 1 1"]);
    drop((guard, again));
    tokio::time::sleep(secs(5)).await;
    done(client, &fake).await;
}
