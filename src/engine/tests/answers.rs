//! Releases and forced releases with a rare reply or without a reply: the result, the retries, and the table of holds.

use bytes::Bytes;
use tokio::time::{Instant, timeout};

use super::fake::Fate;
use super::release::acquire;
use super::{client, done, ms, secs, settle, waiter};
use crate::lock::DistLock as _;
use crate::transport::Reply;
use crate::{Acquire, Error, Lost, NotHeld, Released, Result};

type Told = fn(&Result<Released>) -> bool;

fn ints<const N: usize>(ints: [i64; N]) -> [Reply; N] {
    ints.map(Reply::Int)
}

fn list(replies: impl Into<Vec<Reply>>) -> Fate {
    Fate::Answer(Reply::List(replies.into()))
}

/// After a release no guard relies on the hold, whatever the reply. The hold leaves the table and is not renewed.
#[tokio::test(start_paused = true)]
async fn hold_leaves_table_whatever_reply_its_release_gets() {
    let refused = || Fate::Refused("NOPERM no right");
    let which = || list([Reply::Int(-8), Reply::Text(Bytes::from_static(b"id"))]);
    let fates: [(_, Told); 5] = [
        (list(ints([-1])), |outcome| matches!(outcome, Ok(Released::Free))),
        (list(ints([-2, 0])), |outcome| matches!(outcome, Err(Error::NotHeld { why: NotHeld::LeaseOver, .. }))),
        (
            list(ints([-7, 5])),
            |outcome| matches!(outcome, Err(Error::Server { message, .. }) if message.contains("unexpected")),
        ),
        (which(), |outcome| matches!(outcome, Err(Error::Server { message, .. }) if message.contains("unexpected"))),
        (refused(), |outcome| matches!(outcome, Err(Error::Server { message, .. }) if message.starts_with("NOPERM"))),
    ];
    for (n, (fate, is_told)) in fates.into_iter().enumerate() {
        let (client, fake) = client(|_| ());
        let guard = acquire(&client, &client.owner()).await;
        fake.next("release", fate);
        let outcome = guard.unlock().await;
        assert!(is_told(&outcome), "{n}: {outcome:?}");
        assert_eq!(client.stats().holds, 0, "{n}");
        tokio::time::sleep(secs(20)).await;
        assert_eq!(fake.sent("renew").len(), 0, "{n}");
        fake.delete("x");
        done(client, &fake).await;
    }
}

/// There is no retry, because it could free the lock of the next holder.
#[tokio::test(start_paused = true)]
async fn forced_release_in_doubt_is_not_retried() {
    let (client, fake) = client(|_| ());
    let lock = client.reentrant("x");
    for (fate, sent) in [(Fate::Lost(true), 1), (Fate::Lost(false), 2)] {
        fake.steal("x", secs(60));
        fake.next("force", fate);
        assert!(lock.force_unlock().await.is_err_and(|error| error.outcome_unknown()));
        tokio::time::sleep(secs(30)).await;
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
    let (client, fake) = client(|_| ());
    let lock = client.reentrant("x");
    fake.steal("x", secs(60));
    (0..2).for_each(|_| fake.next("force", Fate::NotSent));
    let began = Instant::now();
    assert!(lock.force_unlock().await.unwrap());
    // The client learns the server's time from the third command, and sends the fourth with a last moment.
    assert_eq!(fake.sent("force").len(), 4);
    assert!(began.elapsed() > ms(500), "{:?}", began.elapsed());
    (0..1000).for_each(|_| fake.next("force", Fate::NotSent));
    let began = Instant::now();
    assert!(lock.force_unlock().await.is_err_and(|error| !error.outcome_unknown()));
    assert!((secs(15)..=secs(20)).contains(&began.elapsed()), "{:?}", began.elapsed());
    assert!((10..25).contains(&(fake.sent("force").len() - 4)), "{}", fake.sent("force").len());
    fake.calm();
    done(client, &fake).await;
}

/// The refusal tells the client the server's time, so the retry has a last moment in the future.
#[tokio::test(start_paused = true)]
async fn late_forced_release_is_retried_with_last_moment() {
    let (client, fake) = client(|_| ());
    let lock = client.reentrant("x");
    fake.steal("x", secs(60));
    fake.next("force", list(ints([-7, 1_700_000_000_000])));
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
        // The acquire teaches the client the server's clock.
        acquire(&client, &me).await.unlock().await.unwrap();
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
        tokio::time::sleep(ms(700)).await;
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

/// The owner's first acquire was in doubt. The release of its second guard finds no hold. A late copy of the first
/// acquire then gets the lock, and is released.
#[tokio::test(start_paused = true)]
async fn late_copy_of_acquire_is_released_after_lock_was_found_gone() {
    let (client, fake) = client(|_| ());
    let me = client.owner();
    // The acquire teaches the client the server's clock.
    acquire(&client, &me).await.unlock().await.unwrap();
    fake.next("acquire", Fate::Ghost(secs(2)));
    let first = acquire(&client, &me).await;
    let second = acquire(&client, &me).await;
    fake.delete("x");
    assert!(matches!(second.unlock().await, Err(Error::NotHeld { .. })));
    assert!(matches!(first.lost().await, Error::Lost { why: Lost::Gone, .. }));
    tokio::time::sleep(ms(2200)).await;
    assert_eq!(fake.held(), ["x 1 1"], "the late copy");
    tokio::time::sleep(secs(2)).await;
    assert_eq!(fake.held(), Vec::<String>::new());
    drop(first);
    settle().await;
    done(client, &fake).await;
}

/// The client knows that the owner holds the lock.
#[tokio::test(start_paused = true)]
async fn not_reentrant_acquire_gets_would_deadlock_without_command() {
    let (client, fake) = client(|_| ());
    let (lock, me) = (client.reentrant("x"), client.owner());
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
        let (client, fake) = client(|_| ());
        let (lock, me) = (client.reentrant("x"), client.owner());
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
        let (client, fake) = client(|_| ());
        let (lock, me) = (client.reentrant("x"), client.owner());
        let long = lock.acquire(Acquire::new().owner(&me).lease(secs(600))).await.unwrap().unwrap();
        if unseen {
            fake.next("acquire", Fate::Lost(true));
            let outcome = lock.acquire(Acquire::new().owner(&me).wait(ms(0))).await;
            assert!(outcome.is_err_and(|error| error.outcome_unknown()));
            (0..1000).for_each(|_| fake.next("release", Fate::NotSent));
        } else {
            let guard = acquire(&client, &me).await;
            (0..1000).for_each(|_| fake.next("release", Fate::NotSent));
            drop(guard);
        }
        tokio::time::sleep(secs(60)).await;
        assert_eq!(fake.held(), ["x 1 2"]);
        fake.calm();
        tokio::time::sleep(ms(2_500)).await;
        assert_eq!(fake.held(), ["x 1 1"], "unseen: {unseen}");
        long.unlock().await.unwrap();
        tokio::time::sleep(secs(5)).await;
        done(client, &fake).await;
    }
}
