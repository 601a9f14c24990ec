//! Results and commands after a failure, a late reply, or a reply that says that a hold is missing.

use tokio::time::{Instant, timeout};

use super::fake::Fate;
use super::release::acquire;
use super::{client, done, ms, secs, settle};
use crate::transport::Reply;
use crate::{Acquire, Error, Lost, NotHeld, Released};

/// The retry of a release finds no hold. The first copy may have renewed the lease of the remaining hold, or not.
#[tokio::test(start_paused = true)]
async fn release_in_doubt_lengthens_no_lease_and_delays_only_if_unanswered() {
    let (client, fake) = client(|_| ());
    let (lock, me) = (client.reentrant("x"), client.owner());
    let leased = || Acquire::new().owner(&me).lease(secs(10));
    let first = lock.acquire(leased()).await.unwrap().unwrap();
    let second = lock.acquire(leased()).await.unwrap().unwrap();
    tokio::time::sleep(secs(5)).await;
    fake.next("release", Fate::Lost(false));
    fake.next("release", Fate::Answer(Reply::List([-2, 1].map(Reply::Int).to_vec())));
    assert_eq!(second.unlock().await.unwrap(), Released::StillHeld(1));
    assert!(first.remaining() <= fake.left("x").unwrap(), "{:?} {:?}", first.remaining(), fake.left("x"));
    // This release was answered, so no copy of it can shorten a lease later.
    let began = Instant::now();
    let third = acquire(&client, &me).await;
    assert!(began.elapsed() < ms(10), "{:?}", began.elapsed());
    // A release without an answer may still shorten a lease, until its last moment.
    fake.next("release", Fate::Ghost(secs(2)));
    fake.next("release", Fate::Refused("NOPERM no right"));
    assert!(third.unlock().await.is_err());
    let began = Instant::now();
    let long = lock.acquire(Acquire::new().owner(&me).lease(secs(600))).await.unwrap().unwrap();
    assert!(began.elapsed() > secs(2), "{:?}", began.elapsed());
    tokio::time::sleep(secs(3)).await;
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
    let (client, fake) = client(|_| ());
    let me = client.owner();
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
    let (client, fake) = client(|_| ());
    let (lock, me) = (client.reentrant("x"), client.owner());
    let first = acquire(&client, &me).await;
    fake.steal("x", secs(60));
    let again = tokio::spawn({
        let (lock, how) = (client.reentrant("x"), Acquire::new().owner(&me).wait(secs(20)));
        async move { lock.acquire(how).await }
    });
    assert!(matches!(timeout(ms(5), first.lost()).await, Ok(Error::Lost { why: Lost::Gone, .. })));
    drop(first);
    // From here on, the acquire waits like any other acquire.
    tokio::time::sleep(secs(1)).await;
    assert!(fake.sent("acquire").len() <= 8, "{}", fake.sent("acquire").len());
    fake.delete("x");
    fake.publish("x");
    let again = timeout(ms(10), again).await.expect("waits on").unwrap().unwrap().unwrap();
    again.unlock().await.unwrap();
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
    tokio::time::sleep(secs(5)).await;
    assert_eq!(fake.sent("release").len(), released + 2);
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn late_copy_of_failed_acquire_is_released() {
    for known in [false, true] {
        let (client, fake) = client(|_| ());
        let (lock, me) = (client.reentrant("x"), client.owner());
        acquire(&client, &me).await.unlock().await.unwrap();
        fake.next("acquire", Fate::Ghost(secs(2)));
        let how = Acquire::new().wait(ms(0));
        let outcome = lock.acquire(if known { how.owner(&me) } else { how }).await;
        assert!(outcome.is_err_and(|error| error.outcome_unknown()));
        tokio::time::sleep(ms(2_100)).await;
        assert_eq!(fake.held().len(), 1, "the late copy");
        tokio::time::sleep(secs(2)).await;
        assert_eq!(fake.held().len(), 0, "known: {known}");
        done(client, &fake).await;
    }
}
