//! Acquires that are dropped, in doubt or late, that end with the client, or that run next to a hand-over.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::fake::Fate;
use super::{begin, client, done, learn_clock, ms, secs, settle, takes, waiter, with_lock, with_lock_and_owner};
use crate::{Acquire, Error};

#[tokio::test(start_paused = true)]
async fn dropped_acquire_does_not_end_next_hold_of_its_owner() {
    let (client, fake, lock) = with_lock();
    for slow in [Fate::Slow(ms(50)), Fate::Late(ms(50)), Fate::Ghost(ms(50))] {
        let me = client.owner();
        let how = || Acquire::new().owner(&me);
        fake.next("acquire", slow);
        assert!(timeout(ms(10), lock.acquire(how())).await.is_err() || fake.sent("acquire").len() > 1);
        let guard = lock.acquire(how()).await.unwrap().unwrap();
        for _ in 0..100 {
            sleep(ms(100)).await;
            assert!(guard.is_held());
            assert_eq!(fake.held().len(), 1);
        }
        guard.unlock().await.unwrap();
    }
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn acquire_granted_while_client_closes_is_released() {
    let (client, fake, lock) = with_lock();
    fake.next("acquire", Fate::Late(ms(500)));
    let acquire = tokio::spawn(async move { lock.lock().await });
    settle().await;
    assert_eq!(fake.held().len(), 1);
    client.shutdown(secs(10)).await.unwrap();
    assert_eq!(fake.held(), Vec::<String>::new());
    assert!(matches!(acquire.await.unwrap(), Err(Error::Closed)));
    assert_eq!(client.stats().holds, 0);
}

#[tokio::test(start_paused = true)]
async fn retry_of_acquire_in_doubt_counts_once_for_known_owner() {
    let (client, fake, lock, me) = with_lock_and_owner();
    let _ = me.as_str();
    learn_clock(&client, &me).await;
    for carried_out in [true, false] {
        fake.next("acquire", Fate::Lost(carried_out));
        let guard = lock.acquire(Acquire::new().owner(&me).wait(secs(20))).await.unwrap().unwrap();
        assert_eq!(fake.held(), ["x 1 1"]);
        if carried_out {
            // The retry has found the hold of the first command, so nothing is undone later.
            sleep(secs(5)).await;
            assert!(guard.is_held());
            assert_eq!((fake.held().len(), fake.sent("release").len()), (1, 1));
        }
        guard.unlock().await.unwrap();
        assert_eq!(fake.held(), Vec::<String>::new());
    }
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn acquire_in_doubt_is_undone_unless_its_retry_succeeds() {
    for carried_out in [true, false] {
        let (client, fake, lock) = with_lock();
        fake.next("acquire", Fate::Lost(carried_out));
        assert!(lock.try_lock().await.is_err_and(|error| error.outcome_unknown()));
        settle().await;
        assert_eq!((fake.held().len(), fake.sent("release").len()), (0, 1));
        fake.times(20, "acquire", || Fate::Lost(carried_out));
        assert!(lock.lock_for(secs(2)).await.is_err_and(|error| error.outcome_unknown()));
        settle().await;
        assert_eq!((fake.held().len(), fake.sent("release").len()), (0, 2));
        // The first wait is dropped while the command is in flight, the second in the pause after the command.
        for wait in [ms(1), ms(30)] {
            assert!(timeout(wait, lock.lock()).await.is_err());
            settle().await;
            assert_eq!(fake.held().len(), 0, "{wait:?}");
        }
        fake.calm();
        // The retry resolves the doubt, so nothing needs to be undone.
        let before = fake.sent("release").len();
        fake.next("acquire", Fate::Lost(carried_out));
        let guard = lock.lock().await.unwrap();
        settle().await;
        assert_eq!((fake.held().len(), fake.sent("release").len()), (1, before));
        guard.unlock().await.unwrap();
        sleep(secs(4)).await;
        done(client, &fake).await;
    }
}

#[tokio::test(start_paused = true)]
async fn wait_ends_in_time_while_release_of_same_owner_is_retried() {
    let (client, fake, lock, me) = with_lock_and_owner();
    let guard = lock.acquire(Acquire::new().owner(&me)).await.unwrap().unwrap();
    // A release in doubt does not change the order of the owner's commands.
    fake.times(12, "release", || Fate::Lost(false));
    drop(guard);
    for wait in [ms(100), secs(5)] {
        let outcome = takes(ms(0)..wait + ms(40), lock.acquire(Acquire::new().owner(&me).wait(wait))).await;
        assert!(!matches!(outcome, Ok(Some(_))), "{outcome:?}");
    }
    sleep(secs(40)).await;
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn owner_does_not_reenter_after_release_to_next_waiter() {
    let (client, fake) = client(|options| options.local_handoff_time = secs(3600));
    let lock = client.reentrant("x");
    let first = lock.lock().await.unwrap();
    let owner = first.owner().clone();
    let next = waiter(&lock);
    settle().await;
    drop(first);
    let next = next.await.unwrap();
    assert!(next.is_held());
    // The first owner no longer holds the lock, because another task holds it.
    let again = lock.acquire(Acquire::new().owner(&owner).wait(Duration::ZERO)).await.unwrap();
    assert!(again.is_none(), "two tasks hold the lock, as one owner");
    drop(next);
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn reply_slower_than_lease_makes_no_hold() {
    let (client, fake, lock) = with_lock();
    fake.next("acquire", Fate::Late(ms(60)));
    fake.next("release", Fate::Late(ms(200)));
    let guard = lock.lock_leased(ms(50)).await.unwrap();
    assert!(guard.is_held());
    assert_eq!(fake.held().len(), 1);
    assert_eq!(client.stats().holds, 1);
    guard.unlock().await.unwrap();
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn acquire_in_doubt_reports_unknown_outcome_not_busy() {
    let (client, fake, lock) = with_lock();
    // Another task of this process is ahead in the local queue.
    fake.steal("x", secs(60));
    let other = begin(&lock, Acquire::new().wait(secs(10)));
    settle().await;
    let me = client.owner();
    fake.times(20, "acquire", || Fate::Lost(true));
    let outcome = lock.acquire(Acquire::new().owner(&me).wait(secs(2))).await;
    assert!(outcome.is_err_and(|error| error.outcome_unknown()));
    fake.calm();
    assert!(other.await.unwrap().unwrap().is_none());
    fake.delete("x");
    sleep(secs(10)).await;
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn waiter_polls_slowly_when_subscribing_fails() {
    let (client, fake, lock) = with_lock();
    fake.steal("x", secs(3600));
    fake.subscribe_fails(true);
    assert!(lock.lock_for(secs(10)).await.unwrap().is_none());
    // The waiter polls twice a second, and a few times more at the start.
    let (asked, subscribed) = (fake.sent("acquire").len(), fake.subscriptions().0.len());
    assert!((10..=50).contains(&asked), "{asked} commands in 10 s");
    assert!((10..=50).contains(&subscribed), "{subscribed} subscriptions in 10 s");
    // A subscribe that failed may still have taken effect, so each one is followed by an unsubscribe.
    settle().await;
    assert_eq!(fake.subscriptions().1.len(), subscribed);
    fake.delete("x");
    done(client, &fake).await;
}
