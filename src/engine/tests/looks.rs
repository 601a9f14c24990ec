//! When a waiter looks at the lock (checks who holds it), and the result of its last look.

use tokio::time::{sleep, timeout};

use super::fake::Fate;
use super::release::acquire;
use super::{
    begin, client, done, leaves_no_trace, ms, no_trace, secs, settle, takes, waiter, with_lock, with_lock_and_owner,
};
use crate::transport::Reply;
use crate::{Acquire, Error, Flavour};

/// A message about a lock that this process holds means that another client has changed the lock.
#[tokio::test(start_paused = true)]
async fn waiter_for_lock_held_in_process_looks_only_at_a_message() {
    let (client, fake, lock) = with_lock();
    let held = lock.lock().await.unwrap();
    let waits = waiter(&lock);
    settle().await;
    let asked = fake.sent("acquire").len();
    sleep(secs(60)).await;
    assert_eq!(fake.sent("acquire").len(), asked);
    fake.free("x");
    let next = timeout(ms(20), waits).await.expect("asleep").unwrap();
    assert!(held.unlock().await.is_err());
    next.unlock().await.unwrap();
    done(client, &fake).await;
}

/// No message announces the end of a lease, so the waiter sleeps until then. If the lease has just ended, the waiter
/// polls at random intervals of 1 to 5 ms.
#[tokio::test(start_paused = true)]
async fn waiter_looks_when_the_lease_is_over() {
    let (client, fake, lock) = with_lock();
    for listens in [true, false] {
        let asked = fake.sent("acquire").len();
        fake.gate(listens);
        fake.steal("x", ms(300));
        takes(ms(300)..ms(310), lock.lock()).await.unwrap().unlock().await.unwrap();
        // With a subscription there is one more attempt.
        assert_eq!(fake.sent("acquire").len() - asked, if listens { 3 } else { 2 });
        fake.gate(true);
        no_trace(&client, &fake).await;
    }
    fake.times(20, "acquire", || Fate::Answer(Reply::Int(0)));
    takes(ms(60)..ms(180), lock.lock()).await.unwrap().unlock().await.unwrap();
    leaves_no_trace(client, &fake).await;
}

/// An answer shows whether the owner already holds the lock. A command that was not sent shows nothing, so it is
/// retried.
#[tokio::test(start_paused = true)]
async fn owner_reenters_past_waiters_after_an_unsent_command() {
    let (client, fake, lock, me) = with_lock_and_owner();
    // From here on, this client does not count the hold as its own.
    drop(acquire(&client, &me).await.into_owner());
    let waits = waiter(&lock);
    settle().await;
    fake.next("acquire", Fate::NotSent);
    let guard = lock.acquire(Acquire::new().owner(&me).wait(secs(2))).await.unwrap().expect("queued behind others");
    guard.unlock().await.unwrap();
    fake.free("x");
    waits.await.unwrap().unlock().await.unwrap();
    done(client, &fake).await;
}

/// The server answers other commands in time, but not this attempt. The result is busy only if a holder was seen.
#[tokio::test(start_paused = true)]
async fn wait_that_ends_before_its_answer_is_an_error_unless_a_holder_was_seen() {
    for (failed_before, seen_before) in [(false, false), (true, false), (false, true)] {
        let (client, fake, lock) = with_lock();
        let other = client.reentrant("other").lock().await.unwrap();
        let answered = tokio::spawn({
            let client = client.clone();
            async move {
                for _ in 0..100 {
                    client.renew_now().await;
                    sleep(ms(5)).await;
                }
            }
        });
        tokio::task::yield_now().await;
        if failed_before {
            fake.next("acquire", Fate::NotSent);
        }
        if seen_before {
            fake.next("acquire", Fate::Answer(Reply::Int(3_600_000)));
        }
        fake.next("acquire", Fate::Late(ms(700)));
        let outcome = takes(ms(400)..ms(440), lock.lock_for(ms(400))).await;
        let is_told = match outcome {
            Err(Error::Connection { .. }) => failed_before,
            Ok(None) => seen_before,
            Err(Error::Timeout { .. }) => !failed_before && !seen_before,
            _ => false,
        };
        assert!(is_told, "failed before: {failed_before}, seen before: {seen_before}, {outcome:?}");
        answered.await.unwrap();
        other.unlock().await.unwrap();
        sleep(secs(5)).await;
        done(client, &fake).await;
    }
}

/// No message announces the free lock: its lease has ended, only other clients got the message, or the connection was
/// broken.
#[tokio::test(start_paused = true)]
async fn waiter_looks_when_lock_may_be_free_without_a_message() {
    for (why, listens) in [("over", true), ("others", false), ("away", true)] {
        let (client, fake) = client(|_| ());
        fake.subscribe_fails(!listens);
        let lock = client.reentrant("x");
        let mut held = Some(lock.lock_leased(secs(3600)).await.unwrap());
        let waits = waiter(&lock);
        // This time is between two looks of the waiter.
        sleep(ms(700)).await;
        fake.delete("x");
        match why {
            "over" => assert!(held.take().unwrap().unlock().await.is_err()),
            "others" => {
                fake.next("release", Fate::Answer(Reply::Int(-2)));
                held.take().unwrap().unlock().await.unwrap();
            }
            _ => fake.listener().reconnected(),
        }
        let next = timeout(ms(25), waits).await.unwrap_or_else(|_| panic!("asleep: {why}")).unwrap();
        if why == "away" {
            let renewals = fake.sent("renew").len();
            fake.listener().reconnected();
            settle().await;
            assert_eq!(fake.sent("renew").len(), renewals + 1);
        }
        next.unlock().await.unwrap();
        drop(held);
        settle().await;
        fake.subscribe_fails(false);
        done(client, &fake).await;
    }
}

/// The waiter has no command in flight, but other commands of its client have had no answer for a long time.
#[tokio::test(start_paused = true)]
async fn wait_that_ends_at_a_silent_server_is_an_error() {
    for silent in [true, false] {
        let (client, fake) = client(|_| ());
        let other = client.reentrant("other").lock().await.unwrap();
        fake.steal("x", secs(3600));
        let waits = begin(&client.reentrant("x"), Acquire::new().wait(ms(800)));
        sleep(ms(200)).await;
        if silent {
            fake.next("renew", Fate::Late(secs(2)));
            // This is the waiter's last attempt before its wait ends.
            fake.next("acquire", Fate::Late(secs(2)));
        }
        let (outcome, _) = tokio::join!(waits, client.renew_now());
        let outcome = outcome.unwrap();
        let is_told = if silent { matches!(outcome, Err(Error::Timeout { .. })) } else { matches!(outcome, Ok(None)) };
        assert!(is_told, "silent: {silent}, {outcome:?}");
        other.unlock().await.unwrap();
        fake.delete("x");
        sleep(secs(3)).await;
        done(client, &fake).await;
    }
}

/// No message announces the free lock. The pauses between looks grow from 1 ms to 128 ms.
#[tokio::test(start_paused = true)]
async fn spin_lock_waiter_polls_with_growing_pauses() {
    let (client, fake) = client(|_| ());
    fake.steal("x", secs(3600));
    assert!(client.spin("x").lock_for(secs(2)).await.unwrap().is_none());
    let looks = fake.sent("acquire").len();
    assert!((18..45).contains(&looks), "{looks}");
    assert_eq!(fake.subscriptions().0.len(), 0);
    fake.delete("x");
    done(client, &fake).await;
}

/// No message announces the free lock. The waiter's last attempt finds it free.
#[tokio::test(start_paused = true)]
async fn waiter_tries_once_more_before_its_wait_ends() {
    for flavour in [Flavour::Reentrant, Flavour::Fair, Flavour::Fenced, Flavour::Write, Flavour::Read] {
        let (client, fake) = client(|_| ());
        let other = if flavour == Flavour::Read { Flavour::Write } else { flavour };
        let held = client.lock(other, "x").acquire(Acquire::new().lease(secs(3600))).await.unwrap().unwrap();
        let waits = tokio::spawn({
            let lock = client.lock(flavour, "x");
            async move { lock.lock_for(secs(3)).await }
        });
        sleep(secs(1)).await;
        fake.delete("x");
        let outcome = timeout(ms(2_050), waits).await.expect("the wait is over").unwrap();
        let guard = outcome.unwrap_or_else(|error| panic!("{flavour}: {error:?}"));
        guard.unwrap_or_else(|| panic!("{flavour}: busy, though it is free")).unlock().await.unwrap();
        drop(held);
        settle().await;
        // The fake's fair release frees nothing.
        fake.delete("x");
        done(client, &fake).await;
    }
}

/// Tasks of one process wait for the first task's attempt. Without its answer, none of them has seen a holder.
#[tokio::test(start_paused = true)]
async fn tasks_queued_behind_an_unanswered_attempt_time_out_and_are_not_busy() {
    let (client, fake, lock) = with_lock();
    fake.next("acquire", Fate::Late(secs(2)));
    for outcome in futures::future::join_all((0..15).map(|_| lock.lock_for(ms(50)))).await {
        assert!(matches!(outcome, Err(Error::Timeout { .. })), "{outcome:?}");
    }
    sleep(secs(5)).await;
    done(client, &fake).await;
}
