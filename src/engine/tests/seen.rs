//! A wait reports busy only if it saw another holder, by itself or through the contender of its process.

use futures::future::join_all;
use tokio::time::sleep;

use super::fake::Fate;
use super::{begin, client, done, ms, secs, settle, waiter, with_lock};
use crate::transport::Reply;
use crate::{Acquire, Error, Guard, Result};

fn is_timeout(outcome: &Result<Option<Guard>>) -> bool {
    let is_named = |error: &Error| error.to_string().contains("no answer in time from fake while");
    matches!(outcome, Err(error @ Error::Timeout { .. }) if is_named(error))
}

fn busy() -> Reply {
    Reply::List(vec![Reply::Int(60_000), Reply::Int(1_700_000_000_000)])
}

/// The contender saw the holder before the server failed.
#[tokio::test(start_paused = true)]
async fn waiter_behind_contender_times_out_when_server_has_died() {
    let (client, fake, lock) = with_lock();
    fake.steal("x", secs(3600));
    let contender = waiter(&lock);
    sleep(secs(1)).await;
    fake.times(100, "acquire", || Fate::Late(secs(60)));
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
    let (client, fake, lock) = with_lock();
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
    let (client, fake, lock) = with_lock();
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
    done(client, &fake).await;
}

/// The task ahead saw the holder within this wait, and left. This task's own attempt is cut off.
#[tokio::test(start_paused = true)]
async fn waiter_reports_busy_for_holder_seen_by_task_ahead() {
    let (client, fake, lock) = with_lock();
    fake.steal("x", secs(3600));
    fake.next("acquire", Fate::Late(ms(20)));
    let ahead = waiter(&lock);
    sleep(ms(5)).await;
    let behind = begin(&lock, Acquire::new().wait(ms(150)));
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
        fake.times(10, "fair/acquire", || Fate::Late(secs(1)));
        let outcome = client.fair("x").lock_for(ms(300)).await;
        assert!(outcome.is_err(), "an answer after {takes:?}: {outcome:?}");
        sleep(secs(2)).await;
        fake.calm();
        fake.delete("x");
        client.shutdown(secs(60)).await.unwrap();
    }
}

/// A member of the multi lock was busy. The attempt that waits for it is cut off, by the end of the wait or by a silent
/// server.
#[tokio::test(start_paused = true)]
async fn multi_lock_reports_busy_when_wait_for_busy_member_is_cut_off_unless_server_is_silent() {
    for (answer, wait, silent) in [(ms(200), ms(60), false), (secs(2), ms(300), true)] {
        let (client, fake) = client(|_| ());
        fake.steal("b", secs(3600));
        fake.next("reentrant/acquire", Fate::Late(answer));
        let outcome = client.multi(["a", "b"]).lock_for(wait).await;
        assert_eq!(fake.sent("reentrant/acquire").len(), 1);
        assert!(
            if silent { is_timeout(&outcome) } else { matches!(outcome, Ok(None)) },
            "silent: {silent}, {outcome:?}"
        );
        fake.delete("b");
        sleep(secs(3)).await;
        done(client, &fake).await;
    }
}

/// The first task attempts and is refused. The other tasks wait behind it.
#[tokio::test(start_paused = true)]
async fn waiters_behind_a_refused_attempt_report_the_refusal() {
    let (client, fake, lock) = with_lock();
    fake.times(100, "acquire", || Fate::Refused("NOREPLICAS Not enough good replicas to write."));
    for outcome in join_all((0..4).map(|_| lock.lock_for(ms(300)))).await {
        assert!(
            matches!(&outcome, Err(Error::Server { message, .. }) if message.starts_with("NOREPLICAS")),
            "{outcome:?}"
        );
    }
    fake.calm();
    done(client, &fake).await;
}
