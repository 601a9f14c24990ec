//! The loop in which an acquire waits.

use std::sync::Arc;

use futures::future::join_all;
use tokio::time::{Instant, advance, sleep, timeout};

use super::fake::Fate;
use super::{begin, client, done, leaves_no_trace, ms, secs, settle, takes, waiter, with_lock, with_registry};
use crate::names::LockName;
use crate::transport::Reply;
use crate::{Acquire, Error, Result};

/// The message is sent before the subscription is confirmed.
#[tokio::test(start_paused = true)]
async fn lock_freed_before_subscription_stands_is_acquired_at_once() {
    let (client, fake) = client(|_| ());
    fake.steal("x", secs(3600));
    fake.gate(false);
    let waits = waiter(&client.reentrant("x"));
    settle().await;
    assert_eq!((fake.sent("acquire").len(), fake.subscriptions().0.len()), (1, 1));
    fake.free("x");
    fake.gate(true);
    let guard = timeout(ms(10), waits).await.expect("no second look behind the subscription").unwrap();
    guard.unlock().await.unwrap();
    done(client, &fake).await;
}

/// The contender's wait is longer. The contender looks once for all waits behind it.
#[tokio::test(start_paused = true)]
async fn wait_behind_contender_ends_in_time_after_one_look() {
    let (client, fake, lock) = with_lock();
    fake.steal("x", secs(3600));
    let contender = waiter(&lock);
    sleep(secs(1)).await;
    let asked = fake.sent("acquire").len();
    for outcome in takes(ms(300)..ms(310), join_all((0..50).map(|_| lock.lock_for(ms(300))))).await {
        assert!(matches!(outcome, Ok(None)), "{outcome:?}");
    }
    assert_eq!(fake.sent("acquire").len(), asked + 1);
    contender.abort();
    settle().await;
    // This wait becomes the contender, attempts by itself, and attempts at most once more before its end.
    let asked = fake.sent("acquire").len();
    assert!(lock.lock_for(ms(300)).await.unwrap().is_none());
    assert!((1..=2).contains(&(fake.sent("acquire").len() - asked)), "{}", fake.sent("acquire").len() - asked);
    fake.delete("x");
    done(client, &fake).await;
}

/// Too few replicas have the lock, so it is released at once. The retry follows after a pause, which the message of
/// that release does not end.
#[tokio::test(start_paused = true)]
async fn unacknowledged_acquire_is_undone_and_retried_later() {
    let (client, fake) = client(|_| ());
    fake.next("acquire", Fate::Unacknowledged);
    let began = Instant::now();
    let waits = waiter(&client.reentrant("x"));
    advance(ms(20)).await;
    settle().await;
    assert_eq!((fake.sent("acquire").len(), fake.sent("release").len()), (1, 1));
    fake.publish("x");
    let guard = waits.await.unwrap();
    assert!((secs(1)..=ms(2_100)).contains(&began.elapsed()), "{:?}", began.elapsed());
    // There are three attempts. The second attempt only taught the client the server's clock.
    assert_eq!(fake.sent("acquire").len(), 3);
    guard.unlock().await.unwrap();
    // The end of the client also ends the pause.
    fake.next("acquire", Fate::Unacknowledged);
    let waits = begin(&client.reentrant("y"), Acquire::new());
    advance(ms(20)).await;
    settle().await;
    client.shutdown(secs(1)).await.unwrap();
    let outcome = timeout(ms(10), waits).await.expect("it sleeps").unwrap();
    assert!(matches!(outcome, Err(Error::Closed)), "{outcome:?}");
}

/// An earlier attempt of this acquire left a hold, whose undo has not arrived yet. This can happen when a slot or the
/// primary has just moved.
#[tokio::test(start_paused = true)]
async fn acquire_waits_for_undo_of_its_own_earlier_attempt() {
    let (client, fake) = client(|_| ());
    for wait in [secs(20), ms(0)] {
        fake.next("acquire", Fate::Answer(Reply::Int(-6)));
        let outcome = client.reentrant("x").acquire(Acquire::new().not_reentrant().wait(wait)).await.unwrap();
        assert_eq!(outcome.is_some(), wait > ms(0));
        drop(outcome);
        settle().await;
    }
    done(client, &fake).await;
}

/// Acquires of other clients succeed for a moment and are undone. Their holds show nothing about the replicas.
#[tokio::test(start_paused = true)]
async fn acquire_reports_too_few_replicas_despite_other_holders() {
    let (client, fake, lock) = with_lock();
    let began = Instant::now();
    let waits = tokio::spawn(async move { lock.lock().await });
    let until = async |script: &str, count: usize| {
        while fake.sent(script).len() < count && !waits.is_finished() {
            assert!(began.elapsed() < secs(120), "nobody is told");
            advance(ms(50)).await;
            settle().await;
        }
    };
    while !waits.is_finished() {
        fake.next("acquire", Fate::Unacknowledged);
        until("release", fake.sent("release").len() + 1).await;
        fake.steal("x", secs(3));
        until("acquire", fake.sent("acquire").len() + 1).await;
    }
    let outcome = waits.await.unwrap();
    assert!(matches!(outcome, Err(Error::Replicas { got: 0, wanted: 1, .. })), "{outcome:?}");
    let text = outcome.unwrap_err().to_string();
    assert!(text.starts_with("the lock \"x\": 0 replicas of fake have it"), "{text}");
    client.shutdown(secs(1)).await.unwrap();
}

/// An acquire under an explicit owner attempts before it queues, because the owner may hold the lock. If the client
/// ends, this first attempt and its pause end too.
#[tokio::test(start_paused = true)]
async fn unacknowledged_acquire_of_owner_gets_closed_when_client_closes() {
    let (client, fake) = client(|_| ());
    fake.next("acquire", Fate::Unacknowledged);
    let (lock, owner) = (client.reentrant("x"), client.owner());
    let waits = begin(&lock, Acquire::new().owner(&owner));
    advance(ms(20)).await;
    settle().await;
    let sent = fake.sent("acquire").len();
    client.shutdown(secs(1)).await.unwrap();
    let outcome = timeout(ms(10), waits).await.expect("it sleeps").unwrap();
    assert!(matches!(outcome, Err(Error::Closed)), "{outcome:?}");
    assert_eq!(fake.sent("acquire").len(), sent);
}

#[tokio::test(start_paused = true)]
async fn waiter_gets_closed_error_when_client_closes() {
    let (client, fake, lock) = with_lock();
    fake.steal("x", secs(3600));
    let waits = [(); 3].map(|()| begin(&lock, Acquire::new()));
    settle().await;
    let asked = fake.sent("acquire").len();
    client.shutdown(secs(1)).await.unwrap();
    for waits in waits {
        assert!(matches!(timeout(ms(20), waits).await.expect("waits on").unwrap(), Err(Error::Closed)));
    }
    assert_eq!(fake.sent("acquire").len(), asked);
}

/// A message woke the contender, which left before it looked.
#[tokio::test(start_paused = true)]
async fn wake_up_of_leaving_contender_goes_to_the_next_waiter() {
    let (client, fake, lock) = with_lock();
    // The contender sends no command about a hold that may be handed over.
    let held = lock.lock().await.unwrap();
    let contender = waiter(&lock);
    settle().await;
    let next = waiter(&lock);
    settle().await;
    fake.free("x");
    contender.abort();
    let next = timeout(ms(20), next).await.expect("asleep").unwrap();
    assert!(held.unlock().await.is_err());
    next.unlock().await.unwrap();
    done(client, &fake).await;
}

/// The message arrives after the end of the contender's wait, so the contender does not look.
#[tokio::test(start_paused = true)]
async fn wake_up_at_end_of_a_wait_goes_to_the_next_waiter() {
    let (client, fake, lock) = with_lock();
    let held = lock.lock().await.unwrap();
    let contender = begin(&lock, Acquire::new().wait(ms(300)));
    settle().await;
    let next = waiter(&lock);
    advance(ms(299)).await;
    assert!(!contender.is_finished());
    fake.free("x");
    advance(ms(2)).await;
    assert!(contender.await.unwrap().unwrap().is_none());
    let next = timeout(ms(20), next).await.expect("asleep").unwrap();
    assert!(held.unlock().await.is_err());
    next.unlock().await.unwrap();
    done(client, &fake).await;
}

/// Transient errors do not end a wait. Other errors do, and so do too many transient ones.
#[tokio::test(start_paused = true)]
async fn acquire_retries_passing_errors_for_a_limited_time() {
    let (client, fake, lock) = with_lock();
    let is_refused =
        |outcome: Result<_>| matches!(outcome, Err(Error::Server { message, .. }) if message.starts_with("NOPERM"));
    fake.next("acquire", Fate::Refused("NOPERM no right"));
    assert!(is_refused(lock.lock().await.map(drop)));
    assert_eq!(fake.sent("acquire").len(), 1);
    // The wait ends between two attempts, and the last attempt failed.
    fake.times(1000, "acquire", || Fate::NotSent);
    let outcome = takes(ms(490)..ms(520), lock.lock_for(ms(500))).await;
    assert!(matches!(outcome, Err(Error::Connection { outcome_unknown: false, .. })), "{outcome:?}");
    // Without a time limit, the acquire gives up after its retry time.
    let outcome = takes(secs(18)..secs(24), lock.lock()).await;
    assert!(matches!(outcome, Err(Error::Connection { .. })), "{outcome:?}");
    // No subscribe is sent while the server is unreachable.
    assert_eq!(fake.subscriptions().0.len(), 0);
    fake.calm();
    // An answer between two failures resets the retry time, and decides the result.
    fake.steal("x", secs(3600));
    fake.next("acquire", Fate::NotSent);
    assert!(lock.lock_for(ms(500)).await.unwrap().is_none());
    let waits = waiter(&lock);
    for _ in 0..8 {
        fake.times(3, "acquire", || Fate::NotSent);
        sleep(secs(6)).await;
    }
    assert!(!waits.is_finished());
    fake.calm();
    fake.free("x");
    drop(waits.await.unwrap());
    done(client, &fake).await;
}

/// The server answers, but every grant arrives after its lease. Some answers in between say that the lock is busy.
#[tokio::test(start_paused = true)]
async fn acquire_always_granted_too_late_fails() {
    let (client, fake) = client(|_| ());
    for _ in 0..2000 {
        fake.next("acquire", Fate::Late(ms(60)));
        fake.next("acquire", Fate::Answer(Reply::Int(5)));
    }
    assert!(takes(secs(19)..secs(30), client.reentrant("x").lock_leased(ms(50))).await.is_err());
    fake.calm();
    sleep(secs(5)).await;
    done(client, &fake).await;
}

/// A spare owner is forgotten when its inbox is unsubscribed, even if the lock is never requested again.
#[tokio::test(start_paused = true)]
async fn spare_owner_is_kept_while_its_inbox_is_subscribed() {
    let (client, fake, registry) = with_registry();
    let name = LockName::new("", "x");
    let mut kept = Vec::new();
    for _ in 0..3 {
        let owner = client.owner();
        let inbox = name.inbox(owner.as_str());
        // The inbox is not subscribed yet, so the owner is not kept.
        registry.keep_spare(&owner, &inbox);
        assert!(registry.spare(&name).is_none());
        let mut waiter = registry.enter(&inbox, None);
        waiter.sit();
        waiter.listen(secs(1)).await;
        assert!(waiter.is_listening());
        registry.keep_spare(&owner, &inbox);
        assert!(registry.spare(&name).is_none(), "somebody waits there");
        drop(waiter);
        kept.push((owner, inbox));
    }
    for (owner, inbox) in &kept {
        registry.keep_spare(owner, inbox);
    }
    let (owner, inbox) = registry.spare(&name).expect("kept");
    assert_eq!((&owner, &inbox), (&kept[2].0, &kept[2].1));
    drop((owner, inbox));
    // Takes all spare owners. Each is put back once.
    while registry.spare(&name).is_some() {}
    assert_eq!(Arc::strong_count(&name), 4, "known to its inboxes and here");
    kept.iter().for_each(|(owner, inbox)| registry.keep_spare(owner, inbox));
    sleep(secs(6)).await;
    for (owner, inbox) in kept {
        assert_eq!(Arc::strong_count(&inbox), 1, "{owner}");
    }
    assert_eq!(Arc::strong_count(&name), 1, "remembered for ever");
    assert!(registry.spare(&name).is_none());
    // The same with a single owner.
    let (owner, inbox) = (client.owner(), name.inbox("one"));
    let mut waiter = registry.enter(&inbox, None);
    waiter.sit();
    waiter.listen(secs(1)).await;
    drop(waiter);
    registry.keep_spare(&owner, &inbox);
    sleep(secs(6)).await;
    assert_eq!(Arc::strong_count(&inbox), 1);
    drop(inbox);
    drop(registry);
    leaves_no_trace(client, &fake).await;
}
