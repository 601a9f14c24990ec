//! Releases that are in doubt or refused, of shared owners, of holds that are gone, and by force.

use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use tokio::time::{sleep, timeout};

use super::fake::{Fake, Fate};
use super::{begin, client, done, ms, secs, settle, waiter, with_lock, with_lock_and_owner, with_owner};
use crate::transport::Reply;
use crate::{Acquire, Client, Error, Guard, Lost, NotHeld, Owner, Released};

pub(super) async fn acquire(client: &Client, owner: &Owner) -> Guard {
    client.reentrant("x").acquire(Acquire::new().owner(owner)).await.unwrap().unwrap()
}

fn holds(fake: &Fake) -> Vec<String> {
    fake.sent("release").iter().map(|sent| sent.text(4)).collect()
}

#[tokio::test(start_paused = true)]
async fn release_in_doubt_is_retried_for_the_same_hold() {
    let (client, fake, me) = with_owner();
    let (outer, inner) = (acquire(&client, &me).await, acquire(&client, &me).await);
    for fate in [Fate::Lost(true), Fate::Lost(false), Fate::NotSent, Fate::Lost(true)] {
        fake.next("release", fate);
    }
    assert_eq!(inner.unlock().await.unwrap(), Released::StillHeld(1));
    let sent = holds(&fake);
    assert!(sent.len() == 5 && sent.iter().all(|hold| *hold == sent[0] && !hold.is_empty()), "{sent:?}");
    assert_eq!(fake.held(), ["x 1 1"]);
    assert!(outer.is_held());
    // This is the owner's last hold. The first command ran without a reply, so the retry does not find the hold.
    fake.next("release", Fate::Lost(true));
    assert_eq!(outer.unlock().await.unwrap(), Released::Free);
    let last = &holds(&fake)[5..];
    assert!(last.len() == 2 && last[0] == last[1] && last[0] != sent[0], "{last:?}");
    // The result is the same if another client holds the lock at the retry.
    let guard = acquire(&client, &me).await;
    fake.next("release", Fate::Lost(true));
    let unlock = tokio::spawn(guard.unlock());
    sleep(ms(3)).await;
    fake.steal("x", secs(5));
    assert_eq!(unlock.await.unwrap().unwrap(), Released::Free);
    assert_eq!(fake.held(), ["x 1 1"]);
    fake.delete("x");
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn release_succeeds_although_its_message_is_refused() {
    let (client, fake, me) = with_owner();
    let guard = acquire(&client, &me).await;
    let refusal = Reply::Text(Bytes::from_static(b"NOPERM no channel"));
    fake.next("release", Fate::Answer(Reply::List(vec![Reply::Int(0), refusal.clone()])));
    fake.delete("x");
    assert_eq!(guard.unlock().await.unwrap(), Released::Free);
    fake.next("force", Fate::Answer(Reply::List(vec![Reply::Int(1), refusal])));
    assert!(client.reentrant("x").force_unlock().await.unwrap());
    assert_eq!(client.stats().holds, 0);
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn failed_release_is_retried_in_the_background_until_done() {
    let (client, fake, me) = with_owner();
    let guard = acquire(&client, &me).await;
    fake.times(15, "release", || Fate::Lost(false));
    let outcome = guard.unlock().await;
    assert!(matches!(outcome, Err(Error::ReleasePending { .. })), "{outcome:?}");
    assert_eq!(client.stats().holds, 1, "still in hand");
    assert_eq!(fake.held(), ["x 1 1"]);
    sleep(secs(12)).await;
    assert_eq!(fake.held(), Vec::<String>::new());
    assert_eq!(holds(&fake).len(), 16);
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn refused_release_leaves_other_guards_held() {
    let (client, fake, me) = with_owner();
    let (outer, inner) = (acquire(&client, &me).await, acquire(&client, &me).await);
    fake.next("release", Fate::Refused("NOPERM no right"));
    assert!(matches!(inner.unlock().await, Err(Error::Server { .. })));
    sleep(secs(100)).await;
    assert!(outer.is_held());
    // The owner's last release also removes the hold whose release was refused.
    assert_eq!(outer.unlock().await.unwrap(), Released::Free);
    assert_eq!(client.stats().holds, 0);
    assert_eq!(fake.held(), Vec::<String>::new());
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn hold_of_same_owner_elsewhere_is_not_counted_in_the_table() {
    let (client, fake, lock) = with_lock();
    let me = acquire(&client, &client.owner()).await.into_owner();
    for _ in 0..3 {
        let guard = acquire(&client, &me).await;
        assert_eq!(fake.held(), ["x 1 2"]);
        assert_eq!(guard.unlock().await.unwrap(), Released::StillHeld(1));
        assert_eq!(client.stats().holds, 0, "kept in the table by what is held elsewhere");
    }
    let (outer, inner) = (acquire(&client, &me).await, acquire(&client, &me).await);
    // A guard is turned into its owner. The other guard's hold is still renewed.
    drop(inner.into_owner());
    sleep(secs(100)).await;
    assert!(outer.is_held());
    assert_eq!(outer.unlock().await.unwrap(), Released::StillHeld(2));
    assert_eq!(client.stats().holds, 0);
    assert_eq!(lock.release(&me).await.unwrap(), Released::StillHeld(1));
    assert_eq!(lock.release(&me).await.unwrap(), Released::Free);
    assert!(matches!(lock.release(&me).await, Err(Error::NotHeld { why: NotHeld::Never, .. })));
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn hold_given_up_during_reentry_is_not_counted() {
    let (client, fake, me) = with_owner();
    let first = acquire(&client, &me).await;
    fake.next("acquire", Fate::Late(ms(50)));
    let second = begin(&client.reentrant("x"), Acquire::new().owner(&me));
    settle().await;
    drop(first.into_owner());
    let second = second.await.unwrap().unwrap().unwrap();
    assert_eq!(fake.held(), ["x 1 2"]);
    assert_eq!(second.unlock().await.unwrap(), Released::StillHeld(1));
    assert_eq!(client.stats().holds, 0);
    assert_eq!(client.reentrant("x").release(&me).await.unwrap(), Released::Free);
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn release_that_finds_no_hold_reports_loss_to_other_guards() {
    let (client, fake, me) = with_owner();
    let watched = acquire(&client, &me).await;
    let leased = client.reentrant("x").acquire(Acquire::new().owner(&me).lease(secs(600))).await.unwrap().unwrap();
    let last = acquire(&client, &me).await;
    let lost = tokio::spawn(futures::future::join(watched.lost(), leased.lost()));
    settle().await;
    fake.steal("x", secs(5));
    assert!(matches!(last.unlock().await, Err(Error::NotHeld { why: NotHeld::HeldBy { .. }, .. })));
    settle().await;
    assert!(lost.is_finished() && !leased.is_held() && !watched.is_held());
    assert!(matches!(lost.await.unwrap(), (Error::Lost { why: Lost::Gone, .. }, Error::Lost { why: Lost::Gone, .. })));
    drop((watched, leased));
    fake.delete("x");
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn forced_release_ends_the_holder_but_not_the_next_hold() {
    let (client, fake) = client(|options| options.local_handoff_limit = 0);
    let lock = client.reentrant("x");
    let held = lock.lock().await.unwrap();
    let next = waiter(&lock);
    settle().await;
    // The message of the force arrives long before its reply.
    fake.next("force", Fate::Late(secs(1)));
    let force = tokio::spawn(async move { lock.force_unlock().await });
    // Before the reply, the waiter considers the hold of its own process valid.
    assert!(force.await.unwrap().unwrap());
    assert!(!held.is_held());
    let next = next.await.unwrap();
    assert!(matches!(held.unlock().await, Err(Error::Lost { why: Lost::Gone, .. })));
    assert!(next.is_held());
    // A hold that was acquired meanwhile is not mistaken for the forced one.
    let lock = client.reentrant("x");
    fake.next("force", Fate::Late(secs(1)));
    let force = tokio::spawn(async move { lock.force_unlock().await });
    settle().await;
    assert!(next.unlock().await.is_err());
    let newer = client.reentrant("x").lock().await.unwrap();
    assert!(!force.is_finished());
    assert!(force.await.unwrap().unwrap());
    settle().await;
    assert!(newer.is_held());
    assert_eq!(fake.held().len(), 1);
    newer.unlock().await.unwrap();
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn forced_release_does_not_end_next_hold_of_the_same_owner() {
    let (client, fake, me) = with_owner();
    let first = acquire(&client, &me).await;
    let lock = client.reentrant("x");
    fake.next("force", Fate::Late(ms(300)));
    let force = tokio::spawn(async move { lock.force_unlock().await });
    settle().await;
    fake.next("release", Fate::Slow(ms(100)));
    let unlock = tokio::spawn(first.unlock());
    tokio::task::yield_now().await;
    let second = acquire(&client, &me).await;
    assert!(matches!(unlock.await.unwrap(), Err(Error::NotHeld { why: NotHeld::LeaseOver, .. })));
    assert!(!force.is_finished());
    assert!(force.await.unwrap().unwrap());
    settle().await;
    assert!(second.is_held());
    assert_eq!(second.unlock().await.unwrap(), Released::Free);
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn shutdown_releases_holds_of_given_and_known_owners() {
    let (client, fake) = client(|_| ());
    let (mine, printed) = (client.owner(), client.owner());
    let _ = printed.to_string();
    let how = |owner| Acquire::new().owner(owner);
    let (a, b) = (client.reentrant("a"), client.reentrant("b"));
    let mut guards = Vec::new();
    for _ in 0..3 {
        guards.push(a.acquire(how(&mine)).await.unwrap().unwrap());
        guards.push(b.acquire(how(&printed)).await.unwrap().unwrap());
    }
    client.shutdown(secs(10)).await.unwrap();
    assert_eq!(fake.held(), Vec::<String>::new());
    assert_eq!(client.stats().holds, 0);
    assert!(guards.iter().all(|guard| matches!(guard.lost().now_or_never(), Some(Error::Closed))));
}

#[tokio::test(start_paused = true)]
async fn released_guard_gets_no_lost_signal() {
    let (client, fake) = client(|options| options.local_handoff_time = secs(60));
    let lock = client.reentrant("x");
    let first = lock.lock().await.unwrap();
    let lost = tokio::spawn(first.lost());
    let next = waiter(&lock);
    settle().await;
    // After a hand-over, another guard has the same hold.
    first.unlock().await.unwrap();
    let next = next.await.unwrap();
    assert_eq!(fake.sent("acquire").len(), 1, "the lock was handed over to the waiter");
    fake.delete("x");
    client.renew_now().await;
    assert!(!next.is_held());
    sleep(secs(100)).await;
    assert!(!lost.is_finished(), "a false signal");
    lost.abort();
    // A guard that is lost before its drop gets the signal.
    let lost = next.lost();
    drop(next);
    assert!(lost.now_or_never().is_some());
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn unlock_completes_after_its_future_is_dropped() {
    let (client, fake, me) = with_owner();
    for late in [Duration::ZERO, ms(1), ms(5)] {
        let guard = acquire(&client, &me).await;
        let mut unlock = Box::pin(guard.unlock());
        if !late.is_zero() {
            let _ = timeout(late, &mut unlock).await;
        }
        drop(unlock);
        settle().await;
        assert_eq!(fake.held(), Vec::<String>::new(), "{late:?}");
    }
    done(client, &fake).await;
}

/// The watchdog could not renew a hold, and the server refuses its release. The owner's next release in this client
/// includes it.
#[tokio::test(start_paused = true)]
async fn refused_release_of_expired_hold_joins_the_next_release() {
    let (client, fake, lock, me) = with_lock_and_owner();
    let watched = acquire(&client, &me).await;
    let long = lock.acquire(Acquire::new().owner(&me).lease(secs(600))).await.unwrap().unwrap();
    fake.times(100, "renew", || Fate::NotSent);
    fake.next("release", Fate::Refused("NOPERM no right"));
    sleep(secs(31)).await;
    assert!(!watched.is_held() && long.is_held());
    drop(watched);
    settle().await;
    assert_eq!(long.unlock().await.unwrap(), Released::Free);
    assert_eq!(fake.held(), Vec::<String>::new());
    done(client, &fake).await;
}
