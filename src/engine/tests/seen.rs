//! A wait reports busy only if it saw another holder, by itself or through the contender of its process.

use futures::future::join_all;
use tokio::time::sleep;

use super::fake::Fate;
use super::{client, done, ms, secs, settle, waiter};
use crate::lock::DistLock as _;
use crate::transport::Reply;
use crate::{Error, Guard, Result};

fn is_timeout(outcome: &Result<Option<Guard>>) -> bool {
    let is_named = |error: &Error| error.to_string().contains("no answer in time from fake while");
    matches!(outcome, Err(error @ Error::Timeout { .. }) if is_named(error))
}

fn busy() -> Reply {
    Reply::List(vec![Reply::Int(60_000), Reply::Int(1_700_000_000_000)])
}

/// The holder was seen before these waits began. The contender looks once for all of them.
#[tokio::test(start_paused = true)]
async fn waiters_behind_a_contender_that_looked_before_share_one_look() {
    let (client, fake) = client(|_| ());
    let lock = client.reentrant("x");
    fake.steal("x", secs(3600));
    let contender = waiter(&lock);
    sleep(secs(1)).await;
    let asked = fake.sent("acquire").len();
    for outcome in join_all((0..50).map(|_| lock.lock_for(ms(300)))).await {
        assert!(matches!(outcome, Ok(None)), "{outcome:?}");
    }
    assert_eq!(fake.sent("acquire").len(), asked + 1);
    contender.abort();
    settle().await;
    fake.delete("x");
    done(client, &fake).await;
}

/// The contender saw the holder before the server failed.
#[tokio::test(start_paused = true)]
async fn waiter_behind_contender_times_out_when_server_has_died() {
    let (client, fake) = client(|_| ());
    let lock = client.reentrant("x");
    fake.steal("x", secs(3600));
    let contender = waiter(&lock);
    sleep(secs(1)).await;
    (0..100).for_each(|_| fake.next("acquire", Fate::Late(secs(60))));
    let outcome = lock.lock_for(ms(300)).await;
    assert!(is_timeout(&outcome), "{outcome:?}");
    contender.abort();
    fake.calm();
    fake.delete("x");
    sleep(secs(60)).await;
    done(client, &fake).await;
}

/// An earlier wait saw a holder. The holder is gone, and no answer came within this wait.
#[tokio::test(start_paused = true)]
async fn waiter_does_not_report_busy_for_holder_seen_earlier() {
    let (client, fake) = client(|_| ());
    let lock = client.reentrant("x");
    fake.steal("x", secs(3600));
    assert!(lock.lock_for(ms(200)).await.unwrap().is_none());
    fake.delete("x");
    fake.next("acquire", Fate::Late(ms(80)));
    let contender = waiter(&lock);
    sleep(ms(2)).await;
    let outcome = lock.lock_for(ms(50)).await;
    assert!(is_timeout(&outcome), "{outcome:?}");
    contender.await.unwrap().unlock().await.unwrap();
    done(client, &fake).await;
}

/// The contender saw a hold of this process. The hold is lost, and the contender's next attempt is unanswered.
#[tokio::test(start_paused = true)]
async fn waiter_does_not_report_busy_for_a_lost_hold() {
    let (client, fake) = client(|_| ());
    let lock = client.reentrant("x");
    let held = lock.lock_leased(secs(600)).await.unwrap();
    let contender = waiter(&lock);
    settle().await;
    fake.delete("x");
    fake.next("acquire", Fate::Late(ms(90)));
    fake.listener().reconnected();
    held.lost().await;
    let outcome = lock.lock_for(ms(50)).await;
    assert!(is_timeout(&outcome), "{outcome:?}");
    contender.await.unwrap().unlock().await.unwrap();
    drop(held);
    settle().await;
    done(client, &fake).await;
}

/// The task ahead saw the holder within this wait, and left. This task's own attempt is cut off.
#[tokio::test(start_paused = true)]
async fn waiter_reports_busy_for_holder_seen_by_task_ahead() {
    let (client, fake) = client(|_| ());
    let lock = client.reentrant("x");
    fake.steal("x", secs(3600));
    fake.next("acquire", Fate::Late(ms(20)));
    let ahead = waiter(&lock);
    sleep(ms(5)).await;
    let behind = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock_for(ms(150)).await }
    });
    sleep(ms(95)).await;
    fake.next("acquire", Fate::Late(ms(90)));
    ahead.abort();
    let outcome = behind.await.unwrap();
    assert!(matches!(outcome, Ok(None)), "{outcome:?}");
    fake.delete("x");
    sleep(secs(1)).await;
    done(client, &fake).await;
}

/// The waiter saw a holder and lost its place in the queue. Its next attempt is cut off by the end of its wait.
#[tokio::test(start_paused = true)]
async fn displaced_fair_waiter_reports_busy_for_holder_seen_before() {
    let (client, fake) = client(|_| ());
    fake.next("fair/acquire", Fate::Answer(busy()));
    fake.next("fair/acquire", Fate::Later(Reply::Int(-4), ms(80)));
    fake.next("fair/acquire", Fate::Late(ms(80)));
    let outcome = client.fair("x").lock_for(ms(120)).await;
    assert_eq!(fake.sent("fair/acquire").len(), 3);
    assert!(matches!(outcome, Ok(None)), "{outcome:?}");
    sleep(secs(1)).await;
    // The fake's fair release frees nothing.
    fake.delete("x");
    done(client, &fake).await;
}

/// The only reply reports a lost place, at any time around the end of the wait, and shows no holder.
#[tokio::test(start_paused = true)]
async fn displaced_fair_waiter_without_a_seen_holder_fails() {
    for takes in (0..300).step_by(5).map(ms) {
        let (client, fake) = client(|_| ());
        fake.next("fair/acquire", Fate::Lost(true));
        fake.next("fair/acquire", Fate::Later(Reply::Int(-4), takes));
        (0..10).for_each(|_| fake.next("fair/acquire", Fate::Late(secs(1))));
        let outcome = client.fair("x").lock_for(ms(300)).await;
        assert!(outcome.is_err(), "an answer after {takes:?}: {outcome:?}");
        sleep(secs(2)).await;
        fake.calm();
        fake.delete("x");
        client.shutdown(secs(60)).await.unwrap();
    }
}

/// A member of the multi lock was busy. The attempt that waits for it is cut off.
#[tokio::test(start_paused = true)]
async fn multi_lock_reports_busy_when_wait_for_busy_member_is_cut_off() {
    let (client, fake) = client(|_| ());
    fake.steal("b", secs(3600));
    fake.next("reentrant/acquire", Fate::Late(ms(200)));
    let outcome = client.multi(["a", "b"]).lock_for(ms(60)).await;
    assert_eq!(fake.sent("reentrant/acquire").len(), 1);
    assert!(matches!(outcome, Ok(None)), "{outcome:?}");
    fake.delete("b");
    sleep(secs(1)).await;
    done(client, &fake).await;
}

/// The same with a silent server.
#[tokio::test(start_paused = true)]
async fn multi_lock_that_waits_for_a_busy_member_at_a_silent_server_fails() {
    let (client, fake) = client(|_| ());
    fake.steal("b", secs(3600));
    fake.next("reentrant/acquire", Fate::Late(secs(2)));
    let outcome = client.multi(["a", "b"]).lock_for(ms(300)).await;
    assert!(is_timeout(&outcome), "{outcome:?}");
    fake.delete("b");
    sleep(secs(3)).await;
    done(client, &fake).await;
}

/// The first task attempts and is refused. The other tasks wait behind it.
#[tokio::test(start_paused = true)]
async fn waiters_behind_a_refused_attempt_report_the_refusal() {
    let (client, fake) = client(|_| ());
    let lock = client.reentrant("x");
    (0..100).for_each(|_| fake.next("acquire", Fate::Refused("NOREPLICAS Not enough good replicas to write.")));
    for outcome in join_all((0..4).map(|_| lock.lock_for(ms(300)))).await {
        assert!(
            matches!(&outcome, Err(Error::Server { message, .. }) if message.starts_with("NOREPLICAS")),
            "{outcome:?}"
        );
    }
    fake.calm();
    done(client, &fake).await;
}
