//! Results and commands after a failure, a late reply, or a reply that says that a hold is missing.

use tokio::time::{sleep, timeout};

use super::fake::{Fake, Fate};
use super::release::acquire;
use super::{begin, done, got, learn_clock, ms, secs, settle, takes, with_lock_and_owner, with_owner};
use crate::transport::Reply;
use crate::{Acquire, Client, Error, Guard, Lost, NotHeld, Released};

/// The retry of a release finds no hold. The first copy may have renewed the lease of the remaining hold, or not.
#[tokio::test(start_paused = true)]
async fn release_in_doubt_lengthens_no_lease_and_delays_only_if_unanswered() {
    let (client, fake, lock, me) = with_lock_and_owner();
    let leased = || Acquire::new().owner(&me).lease(secs(10));
    let first = lock.acquire(leased()).await.unwrap().unwrap();
    let second = lock.acquire(leased()).await.unwrap().unwrap();
    sleep(secs(5)).await;
    fake.next("release", Fate::Lost(false));
    fake.next("release", Fate::Answer(Reply::List([-2, 1].map(Reply::Int).to_vec())));
    assert_eq!(second.unlock().await.unwrap(), Released::StillHeld(1));
    assert!(first.remaining() <= fake.left("x").unwrap(), "{:?} {:?}", first.remaining(), fake.left("x"));
    // This release was answered, so no copy of it can shorten a lease later.
    let third = takes(ms(0)..ms(10), acquire(&client, &me)).await;
    // A release without an answer may still shorten a lease, until its last moment.
    fake.next("release", Fate::Ghost(secs(2)));
    fake.next("release", Fate::Refused("NOPERM no right"));
    assert!(third.unlock().await.is_err());
    let long = lock.acquire(Acquire::new().owner(&me).lease(secs(600)));
    let long = takes(secs(2)..secs(600), long).await.unwrap().unwrap();
    sleep(secs(3)).await;
    assert!(long.remaining() <= fake.left("x").unwrap(), "{:?} {:?}", long.remaining(), fake.left("x"));
    drop((first, long));
    settle().await;
    fake.delete("x");
    done(client, &fake).await;
}

/// Two guards of one owner are unlocked at once, and the server has neither hold. The reply to the first release says
/// so, and the second release sends nothing.
#[tokio::test(start_paused = true)]
async fn release_sends_no_command_after_another_found_holds_gone() {
    let (client, fake, me) = with_owner();
    let (first, second) = (acquire(&client, &me).await, acquire(&client, &me).await);
    fake.delete("x");
    let (first, second) = tokio::join!(first.unlock(), second.unlock());
    assert!(matches!(first, Err(Error::NotHeld { why: NotHeld::LeaseOver, .. })), "{first:?}");
    assert!(matches!(second, Err(Error::Lost { why: Lost::Gone, .. })), "{second:?}");
    assert_eq!(fake.sent("release").len(), 1);
    done(client, &fake).await;
}

/// The owner has one hold in this process and re-enters. The server answers that another owner has the lock, so the
/// guard of the first hold reports the loss.
#[tokio::test(start_paused = true)]
async fn reentry_reports_lost_holds_of_its_owner() {
    let (client, fake, lock, me) = with_lock_and_owner();
    let first = acquire(&client, &me).await;
    fake.steal("x", secs(60));
    let again = begin(&lock, Acquire::new().owner(&me).wait(secs(20)));
    assert!(matches!(timeout(ms(5), first.lost()).await, Ok(Error::Lost { why: Lost::Gone, .. })));
    drop(first);
    // From here on, the acquire waits like any other acquire.
    sleep(secs(1)).await;
    assert!(fake.sent("acquire").len() <= 8, "{}", fake.sent("acquire").len());
    fake.free("x");
    got(ms(10), again).await.unlock().await.unwrap();
    // Another client released the hold that this acquire re-enters. The owner still has its other hold.
    let (first, second) = (acquire(&client, &me).await, acquire(&client, &me).await);
    fake.next("acquire", Fate::Answer(Reply::Int(-3)));
    let third = acquire(&client, &me).await;
    assert_eq!((first.is_held(), second.is_held(), third.is_held()), (true, false, true));
    drop((first, second, third));
    settle().await;
    fake.delete("x");
    // An owner without a hold must not get this reply. The attempt is undone, and so is a late copy of it.
    let released = fake.sent("release").len();
    fake.next("acquire", Fate::Answer(Reply::Int(-3)));
    assert!(matches!(lock.try_lock().await, Err(Error::Server { message, .. }) if message.contains("unexpected")));
    settle().await;
    assert_eq!(fake.sent("release").len(), released + 1);
    sleep(secs(5)).await;
    assert_eq!(fake.sent("release").len(), released + 2);
    done(client, &fake).await;
}

/// A copy of an owner's first acquire arrives after the acquire has failed, or after its hold has ended.
#[tokio::test(start_paused = true)]
async fn late_copy_of_acquire_is_released_but_not_a_newer_hold() {
    let ways =
        ["failed", "failed, fresh owner", "unlocked", "held again", "given up", "marked", "not marked", "lost", "gone"];
    for way in ways {
        let (client, fake, lock, me) = with_lock_and_owner();
        learn_clock(&client, &me).await;
        fake.next("acquire", Fate::Ghost(secs(2)));
        let lost = if way.starts_with("failed") {
            let how = Acquire::new().wait(ms(0));
            let outcome = lock.acquire(if way == "failed" { how.owner(&me) } else { how }).await;
            assert!(outcome.is_err_and(|error| error.outcome_unknown()), "{way}");
            None
        } else {
            end_hold(acquire(&client, &me).await, way, &client, &fake).await
        };
        sleep(ms(2_200)).await;
        let held = fake.held();
        let is_late_copy = held == ["x 1 1"] || way == "failed, fresh owner" && held.len() == 1;
        assert!(is_late_copy, "{way}: {held:?}");
        let again = if way == "held again" { Some(acquire(&client, &me).await) } else { None };
        sleep(secs(2)).await;
        assert_eq!(fake.held().len(), usize::from(again.is_some()), "{way}");
        assert!(again.as_ref().is_none_or(Guard::is_held));
        drop((again, lost));
        sleep(secs(4)).await;
        done(client, &fake).await;
    }
}

/// Ends the owner's hold of the lock `x` in this way. Returns the guard if it is lost but not dropped.
async fn end_hold(guard: Guard, way: &str, client: &Client, fake: &Fake) -> Option<Guard> {
    let (lock, me) = (client.reentrant("x"), guard.owner().clone());
    match way {
        "unlocked" | "held again" => drop(guard.unlock().await.unwrap()),
        "given up" | "marked" => {
            drop(guard.into_owner());
            if way == "marked" {
                settle().await;
            }
            assert_eq!(lock.release(&me).await.unwrap(), Released::Free, "{way}");
        }
        "not marked" => {
            fake.next("disown", Fate::Refused("NOPERM no"));
            drop(guard.into_owner());
            settle().await;
            fake.delete("x");
        }
        "lost" => {
            fake.delete("x");
            client.renew_now().await;
            assert!(!guard.is_held());
        }
        _ => {
            let second = acquire(client, &me).await;
            fake.delete("x");
            assert!(matches!(second.unlock().await, Err(Error::NotHeld { .. })));
            assert!(matches!(guard.lost().await, Error::Lost { why: Lost::Gone, .. }));
            return Some(guard);
        }
    }
    None
}
