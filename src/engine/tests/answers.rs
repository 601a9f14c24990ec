//! Releases and forced releases with a rare reply or without a reply: the result, the retries, and the table of holds.

use bytes::Bytes;
use tokio::time::{sleep, timeout};

use super::fake::Fate;
use super::release::acquire;
use super::{client, done, learn_clock, ms, secs, settle, takes, waiter, with_lock, with_lock_and_owner};
use crate::transport::Reply;
use crate::{Acquire, Error, NotHeld, Released};

fn ints<const N: usize>(ints: [i64; N]) -> Fate {
    Fate::Answer(Reply::List(ints.map(Reply::Int).into()))
}

/// After a release no guard relies on the hold, whatever the reply. The hold leaves the table and is not renewed.
#[tokio::test(start_paused = true)]
async fn hold_leaves_table_whatever_reply_its_release_gets() {
    for n in 0..5 {
        let (client, fake) = client(|_| ());
        let guard = acquire(&client, &client.owner()).await;
        fake.next(
            "release",
            match n {
                0 => ints([-1]),
                1 => ints([-2, 0]),
                2 => ints([-7, 5]),
                3 => Fate::Answer(Reply::List(vec![Reply::Int(-8), Reply::Text(Bytes::from_static(b"id"))])),
                _ => Fate::Refused("NOPERM no right"),
            },
        );
        let outcome = guard.unlock().await;
        let is_told = match &outcome {
            Ok(Released::Free) => n == 0,
            Err(Error::NotHeld { why: NotHeld::LeaseOver, .. }) => n == 1,
            Err(Error::Server { message, .. }) if message.contains("unexpected") => n == 2 || n == 3,
            Err(Error::Server { message, .. }) => n == 4 && message.starts_with("NOPERM"),
            _ => false,
        };
        assert!(is_told, "{n}: {outcome:?}");
        assert_eq!(client.stats().holds, 0, "{n}");
        sleep(secs(20)).await;
        assert_eq!(fake.sent("renew").len(), 0, "{n}");
        fake.delete("x");
        done(client, &fake).await;
    }
}

/// There is no retry, because it could free the lock of the next holder.
#[tokio::test(start_paused = true)]
async fn forced_release_in_doubt_is_not_retried() {
    let (client, fake, lock) = with_lock();
    for (fate, sent) in [(Fate::Lost(true), 1), (Fate::Lost(false), 2)] {
        fake.steal("x", secs(60));
        fake.next("force", fate);
        assert!(lock.force_unlock().await.is_err_and(|error| error.outcome_unknown()));
        sleep(secs(30)).await;
        assert_eq!(fake.sent("force").len(), sent);
    }
    // A permanently refused command is not retried.
    fake.next("force", Fate::Refused("NOPERM no"));
    assert!(lock.force_unlock().await.is_err());
    assert_eq!(fake.sent("force").len(), 3);
    fake.delete("x");
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn unsent_forced_release_is_retried_for_limited_time() {
    let (client, fake, lock) = with_lock();
    fake.steal("x", secs(60));
    fake.times(2, "force", || Fate::NotSent);
    assert!(takes(ms(501)..secs(60), lock.force_unlock()).await.unwrap());
    // The client learns the server's time from the third command, and sends the fourth with a last moment.
    assert_eq!(fake.sent("force").len(), 4);
    fake.times(1000, "force", || Fate::NotSent);
    let outcome = takes(secs(15)..secs(20) + ms(1), lock.force_unlock()).await;
    assert!(outcome.is_err_and(|error| !error.outcome_unknown()));
    assert!((10..25).contains(&(fake.sent("force").len() - 4)), "{}", fake.sent("force").len());
    fake.calm();
    done(client, &fake).await;
}

/// The refusal tells the client the server's time, so the retry has a last moment in the future.
#[tokio::test(start_paused = true)]
async fn late_forced_release_is_retried_with_last_moment() {
    let (client, fake, lock) = with_lock();
    fake.steal("x", secs(60));
    fake.next("force", ints([-7, 1_700_000_000_000]));
    assert!(lock.force_unlock().await.unwrap());
    let last: Vec<i64> = fake.sent("force").iter().map(|sent| sent.text(0).parse().unwrap()).collect();
    assert!(last.len() == 2 && last[0] == 1 && last[1] > 1_700_000_000_000, "{last:?}");
    done(client, &fake).await;
}

/// No messages arrive. The task that frees the lock wakes the waiter of its own process.
#[tokio::test(start_paused = true)]
async fn release_in_this_process_wakes_waiter_without_message() {
    for way in ["unlock", "drop", "release", "force", "undo"] {
        let (client, fake) = client(|_| ());
        fake.subscribe_fails(true);
        let (lock, me) = (client.reentrant("x"), client.owner());
        learn_clock(&client, &me).await;
        let guard = match way {
            "unlock" | "drop" => Some(acquire(&client, &me).await),
            "release" => {
                drop(acquire(&client, &me).await.into_owner());
                None
            }
            "force" => {
                fake.steal("x", secs(3600));
                None
            }
            _ => {
                // The server has a hold without a guard, and its undo takes a while.
                fake.next("acquire", Fate::Lost(true));
                fake.next("release", Fate::Slow(ms(705)));
                assert!(lock.acquire(Acquire::new().owner(&me).wait(ms(0))).await.is_err());
                None
            }
        };
        let waits = waiter(&lock);
        // This time is between two looks of the waiter.
        sleep(ms(700)).await;
        assert!(!waits.is_finished(), "{way}");
        match (way, guard) {
            ("unlock", Some(guard)) => drop(guard.unlock().await.unwrap()),
            ("release", _) => assert_eq!(lock.release(&me).await.unwrap(), Released::Free),
            ("force", _) => assert!(lock.force_unlock().await.unwrap()),
            (_, guard) => drop(guard),
        }
        let next = timeout(ms(25), waits).await.unwrap_or_else(|_| panic!("not told: {way}")).unwrap();
        next.unlock().await.unwrap();
        fake.subscribe_fails(false);
        done(client, &fake).await;
    }
}

/// The client knows that the owner holds the lock.
#[tokio::test(start_paused = true)]
async fn not_reentrant_acquire_gets_would_deadlock_without_command() {
    let (client, fake, lock, me) = with_lock_and_owner();
    let guard = acquire(&client, &me).await;
    let asked = fake.sent("acquire").len();
    for wait in [ms(0), secs(5)] {
        let outcome = lock.acquire(Acquire::new().owner(&me).not_reentrant().wait(wait)).await;
        assert!(matches!(outcome, Err(Error::WouldDeadlock { .. })), "{outcome:?}");
    }
    assert_eq!(fake.sent("acquire").len(), asked);
    assert!(guard.is_held());
    guard.unlock().await.unwrap();
    let guard = lock.acquire(Acquire::new().owner(&me).not_reentrant()).await.unwrap().unwrap();
    guard.unlock().await.unwrap();
    done(client, &fake).await;
}

/// The hold without a guard is released, and the lease of the owner's other guard does not change.
#[tokio::test(start_paused = true)]
async fn release_by_owner_shortens_no_lease() {
    for at_once in [true, false] {
        let (client, fake, lock, me) = with_lock_and_owner();
        let long = lock.acquire(Acquire::new().owner(&me).lease(secs(600))).await.unwrap().unwrap();
        drop(acquire(&client, &me).await.into_owner());
        if !at_once {
            settle().await;
            // `disown` tells other clients with the same owner that the hold has no guard.
            assert_eq!(fake.sent("disown").len(), 1);
        }
        assert_eq!(lock.release(&me).await.unwrap(), Released::StillHeld(1));
        assert!(long.is_held());
        assert!(fake.left("x").unwrap() >= long.remaining(), "{:?} {:?}", fake.left("x"), long.remaining());
        assert_eq!(long.unlock().await.unwrap(), Released::Free);
        done(client, &fake).await;
    }
}

/// A hold that cannot be released stays on the server until the owner's longest lease ends. Its release is retried
/// until then.
#[tokio::test(start_paused = true)]
async fn failed_release_is_retried_while_its_owner_has_a_lease() {
    for unseen in [true, false] {
        let (client, fake, lock, me) = with_lock_and_owner();
        let long = lock.acquire(Acquire::new().owner(&me).lease(secs(600))).await.unwrap().unwrap();
        if unseen {
            fake.next("acquire", Fate::Lost(true));
            fake.times(1000, "release", || Fate::NotSent);
            let outcome = lock.acquire(Acquire::new().owner(&me).wait(ms(0))).await;
            assert!(outcome.is_err_and(|error| error.outcome_unknown()));
        } else {
            fake.times(1000, "release", || Fate::NotSent);
            drop(acquire(&client, &me).await);
        }
        sleep(secs(60)).await;
        assert_eq!(fake.held(), ["x 1 2"]);
        fake.calm();
        sleep(ms(2_500)).await;
        assert_eq!(fake.held(), ["x 1 1"], "unseen: {unseen}");
        long.unlock().await.unwrap();
        sleep(secs(5)).await;
        done(client, &fake).await;
    }
}
