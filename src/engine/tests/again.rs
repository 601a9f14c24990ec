//! Owners that acquire again: the hold that each command names, and the token.

use super::fake::Fate;
use super::release::acquire;
use super::{client, done, ms, secs, with_lock_and_owner, with_owner};
use crate::transport::Reply;
use crate::{Acquire, Error};

/// A time on the server's clock, in ms.
const AT: i64 = 1_700_000_000_000;

/// A grant that came too late is released by its hold id. The retry uses another id, so that a late copy of this
/// release cannot remove the retry's hold.
#[tokio::test(start_paused = true)]
async fn retry_after_late_grant_uses_another_hold_id() {
    let (client, fake) = client(|_| ());
    fake.next("acquire", Fate::Late(ms(60)));
    let guard = client.reentrant("x").lock_leased(ms(50)).await.unwrap();
    let sent = fake.sent("acquire");
    let last = sent.last().unwrap();
    assert!(sent[0].text(2).is_empty() && last.text(2).len() > 1, "{sent:?}");
    assert!(last.text(4).parse::<i64>().unwrap() > AT, "{last:?}");
    guard.unlock().await.unwrap();
    done(client, &fake).await;
}

/// A re-entry shortens no lease. A release names the remaining holds, and has a last moment.
#[tokio::test(start_paused = true)]
async fn reentry_and_release_respect_other_holds_of_owner() {
    let (client, fake, lock, me) = with_lock_and_owner();
    let leased = |secs_| Acquire::new().owner(&me).lease(secs(secs_));
    let long = lock.acquire(leased(100)).await.unwrap().unwrap();
    let short = lock.acquire(leased(10)).await.unwrap().unwrap();
    let sent = fake.sent("acquire").pop().unwrap();
    assert!(sent.text(1).parse::<i64>().unwrap() >= 99_000, "{sent:?}");
    let id = fake.sent("acquire")[0].text(2);
    short.unlock().await.unwrap();
    let sent = fake.sent("release").pop().unwrap();
    assert_eq!(sent.text(5), format!(",{id}"));
    assert!(sent.text(6).parse::<i64>().unwrap() > AT, "{sent:?}");
    long.unlock().await.unwrap();
    // No other task knows this owner, so its release has no list of holds and no last moment.
    lock.lock().await.unwrap().unlock().await.unwrap();
    let sent = fake.sent("release").pop().unwrap();
    assert_eq!([sent.text(4), sent.text(5), sent.text(6)], ["", "", ""]);
    done(client, &fake).await;
}

/// An owner uses a name as one flavour only. Re-entry of a fenced lock keeps the token of the section.
#[tokio::test(start_paused = true)]
async fn fenced_reentry_keeps_token_and_second_flavour_is_refused() {
    let (client, fake, me) = with_owner();
    let guard = acquire(&client, &me).await;
    let how = || Acquire::new().owner(&me);
    assert!(matches!(client.fenced("x").acquire(how()).await, Err(Error::Config { .. })));
    assert!(guard.is_held());
    guard.unlock().await.unwrap();
    let fenced = client.fenced("y");
    let mut guards = Vec::new();
    for token in [5, 6] {
        fake.next("fenced/acquire", Fate::Answer(Reply::List(vec![Reply::Int(token)])));
        guards.push(fenced.acquire(how()).await.unwrap().unwrap());
    }
    assert!(guards.iter().all(|guard| guard.fencing_token().ok() == Some(5)), "{guards:?}");
    for (left, guard) in [1, 0].into_iter().zip(guards) {
        fake.next("fenced/release", Fate::Answer(Reply::Int(left)));
        guard.unlock().await.unwrap();
    }
    done(client, &fake).await;
}
