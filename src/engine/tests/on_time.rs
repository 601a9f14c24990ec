//! Time limits of waits, of free locks without a message, of losses and of releases. Also: no guard reports a longer
//! lease than it has, no late copy acquires, no loss affects another lock, and no closed client sends commands.

use tokio::time::{sleep, timeout};

use super::fake::Fate;
use super::release::acquire;
use super::{client, done, learn_clock, ms, secs, settle, takes, waiter, with_lock, with_lock_and_owner, with_owner};
use crate::{Acquire, Error, Released};

#[tokio::test(start_paused = true)]
async fn wait_ends_on_time_and_lock_freed_without_message_is_acquired() {
    let (client, fake, lock) = with_lock();
    fake.steal("x", secs(3600));
    assert!(takes(ms(1500)..ms(1520), lock.lock_for(ms(1500))).await.unwrap().is_none());
    settle().await;
    assert_eq!(fake.sent("release").len(), 0, "the wait has left nothing to undo");
    // The lock is deleted without a message. The waiter acquires it within the longest pause.
    fake.steal("x", secs(3600));
    let waits = waiter(&lock);
    sleep(secs(1)).await;
    fake.delete("x");
    let guard = timeout(secs(5) + ms(20), waits).await.expect("slept without bound").unwrap();
    guard.unlock().await.unwrap();
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn late_reply_makes_no_lease_longer() {
    let (client, fake, me) = with_owner();
    fake.next("acquire", Fate::Late(secs(2)));
    let outer = acquire(&client, &me).await;
    let is_true =
        || assert!(outer.remaining() <= fake.left("x").unwrap(), "{:?} of {:?}", outer.remaining(), fake.left("x"));
    is_true();
    sleep(secs(5)).await;
    fake.next("renew", Fate::Late(secs(2)));
    client.renew_now().await;
    is_true();
    let inner = acquire(&client, &me).await;
    sleep(secs(5)).await;
    fake.next("release", Fate::Late(secs(2)));
    assert_eq!(inner.unlock().await.unwrap(), Released::StillHeld(1));
    is_true();
    outer.unlock().await.unwrap();
    done(client, &fake).await;
}

/// As in Redisson, a release that leaves other holds renews their lease.
#[tokio::test(start_paused = true)]
async fn partial_release_restarts_lease_of_remaining_holds() {
    let (client, fake, lock, me) = with_lock_and_owner();
    let leased = async || lock.acquire(Acquire::new().owner(&me).lease(secs(10))).await.unwrap().unwrap();
    let (outer, inner) = (leased().await, leased().await);
    sleep(secs(8)).await;
    inner.unlock().await.unwrap();
    assert!(outer.remaining() > secs(9), "{:?}", outer.remaining());
    outer.unlock().await.unwrap();
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn late_copy_of_acquire_leaves_no_hold() {
    let (client, fake, me) = with_owner();
    learn_clock(&client, &me).await;
    fake.next("acquire", Fate::Ghost(secs(20)));
    acquire(&client, &me).await.unlock().await.unwrap();
    sleep(secs(21)).await;
    assert_eq!(fake.held(), Vec::<String>::new());
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn failed_renewal_is_retried_soon_without_renewed_holds() {
    let (client, fake) = client(|options| options.watchdog_batch = 1);
    let guards = [client.reentrant("a").lock().await.unwrap(), client.reentrant("b").lock().await.unwrap()];
    fake.next("renew", Fate::NotSent);
    // This is the time of the first round, and of its retry after a tenth of the interval between rounds.
    sleep(secs(10) + ms(100)).await;
    assert_eq!(fake.sent("renew").len(), 2);
    sleep(ms(1_100)).await;
    assert_eq!(fake.sent("renew").len(), 3);
    assert!(["a", "b"].iter().all(|name| fake.left(name).unwrap() > secs(28)));
    drop(guards);
    done(client, &fake).await;
}

/// The hold leaves the table although no task checks its guard.
#[tokio::test(start_paused = true)]
async fn unrenewed_hold_is_lost_and_leaves_the_table() {
    let (client, fake) = client(|_| ());
    let guard = client.reentrant("x").lock().await.unwrap();
    fake.times(1000, "renew", || Fate::NotSent);
    sleep(secs(35)).await;
    assert!(!guard.is_held());
    assert_eq!(client.stats().holds, 0);
    drop(guard);
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn release_of_dropped_guard_is_retried_during_its_lease() {
    let (client, fake) = client(|_| ());
    drop(client.reentrant("x").lock().await.unwrap());
    fake.times(1000, "release", || Fate::NotSent);
    sleep(secs(24)).await;
    fake.calm();
    sleep(ms(2_100)).await;
    assert_eq!(fake.held(), Vec::<String>::new());
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn failed_undo_of_acquire_in_doubt_is_retried_soon() {
    let (client, fake) = client(|_| ());
    fake.next("acquire", Fate::Lost(true));
    fake.times(2, "release", || Fate::NotSent);
    let outcome = client.reentrant("x").try_lock().await;
    assert!(outcome.is_err_and(|error| error.outcome_unknown()));
    settle().await;
    assert_eq!(fake.held().len(), 1);
    // This is before the second look, which finds late copies.
    sleep(ms(2_900)).await;
    assert_eq!(fake.held(), Vec::<String>::new());
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn forced_release_ends_no_hold_of_another_lock() {
    let (client, fake) = client(|_| ());
    let (a, b) = (client.reentrant("a").lock().await.unwrap(), client.reentrant("b").lock().await.unwrap());
    assert!(client.reentrant("a").force_unlock().await.unwrap());
    assert!(!a.is_held() && b.is_held());
    b.unlock().await.unwrap();
    drop(a);
    done(client, &fake).await;
}

/// The first hold was acquired before other clients could know its owner, so its id is not listed. Its guard is
/// notified nevertheless.
#[tokio::test(start_paused = true)]
async fn release_by_owner_ends_the_released_guard_at_once() {
    let (client, fake, lock) = with_lock();
    let first = lock.lock().await.unwrap();
    let me = first.owner().clone();
    let second = acquire(&client, &me).await;
    assert_eq!(lock.release(&me).await.unwrap(), Released::StillHeld(1));
    assert_eq!((first.is_held(), second.is_held()), (false, true));
    let third = acquire(&client, &me).await;
    assert_eq!(lock.release(&me).await.unwrap(), Released::StillHeld(1));
    assert_eq!([&second, &third].iter().filter(|guard| guard.is_held()).count(), 1);
    drop((first, second, third));
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn closed_client_sends_no_commands() {
    let (client, fake, lock, me) = with_lock_and_owner();
    client.shutdown(secs(1)).await.unwrap();
    assert!(matches!(lock.lock().await, Err(Error::Closed)));
    assert!(matches!(lock.try_lock().await, Err(Error::Closed)));
    assert!(matches!(lock.release(&me).await, Err(Error::Closed)));
    assert!(matches!(lock.force_unlock().await, Err(Error::Closed)));
    assert!(matches!(lock.state().await, Err(Error::Closed)));
    for script in ["acquire", "release", "force", "state"] {
        assert_eq!(fake.sent(script).len(), 0, "{script}");
    }
}

#[tokio::test(start_paused = true)]
async fn empty_name_or_zero_lease_is_refused() {
    let (client, fake) = client(|_| ());
    let (lock, me) = (client.reentrant(""), client.owner());
    assert!(matches!(lock.lock().await, Err(Error::Config { .. })));
    assert!(matches!(lock.release(&me).await, Err(Error::Config { .. })));
    assert!(matches!(lock.force_unlock().await, Err(Error::Config { .. })));
    assert!(matches!(lock.state().await, Err(Error::Config { .. })));
    for how in [Acquire::new().lease(ms(0)), Acquire::new().wait(ms(0)).lease(ms(0))] {
        assert!(matches!(client.reentrant("x").acquire(how).await, Err(Error::Config { .. })));
    }
    done(client, &fake).await;
}

/// A guard is lost while its `extend` is in flight. The guard and the extend report the reason.
#[tokio::test(start_paused = true)]
async fn extend_gets_closed_error_when_client_closes() {
    let (client, fake) = client(|_| ());
    let guard = client.reentrant("x").lock().await.unwrap();
    fake.next("renew", Fate::Late(secs(2)));
    let closing = async {
        settle().await;
        client.shutdown(ms(0)).await
    };
    let (extended, closed) = tokio::join!(guard.extend(secs(60)), closing);
    assert!(matches!(extended, Err(Error::Closed)), "{extended:?}");
    assert!(matches!(guard.lost().await, Error::Closed));
    closed.unwrap();
}
