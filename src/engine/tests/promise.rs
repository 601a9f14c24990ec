//! The lease that a guard reports, while commands of the same owner or copies of them arrive.

use super::fake::Fate;
use super::release::acquire;
use super::{done, secs, with_lock, with_lock_and_owner, with_owner};
use crate::{Acquire, Error, Lost};

#[tokio::test(start_paused = true)]
async fn extend_in_doubt_counts_as_the_shorter_lease() {
    let (client, fake, lock) = with_lock();
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
    // The longer lease is in doubt. A later, shorter one sets the server's lease to its own value.
    let leased = lock.lock_leased(secs(5)).await.unwrap();
    fake.next("renew", Fate::Lost(true));
    leased.extend(secs(60)).await.unwrap_err();
    assert!(leased.remaining() <= secs(5) && fake.left("x").unwrap() > secs(50));
    leased.extend(secs(20)).await.unwrap();
    assert!(fake.left("x").unwrap() <= secs(20), "{:?}", fake.left("x"));
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
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn lease_keeps_its_margin_under_other_commands_of_the_owner() {
    let (client, fake, lock, me) = with_lock_and_owner();
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
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn look_for_late_copy_spares_hold_acquired_after_a_loss() {
    let (client, fake, me) = with_owner();
    fake.next("acquire", Fate::Lost(true));
    let guard = acquire(&client, &me).await;
    fake.times(200, "renew", || Fate::Lost(false));
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
