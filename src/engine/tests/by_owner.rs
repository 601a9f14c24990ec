//! Releases by owner, and marks for holds without a guard: retries, and the choice of the hold.

use tokio::time::sleep;

use super::fake::Fate;
use super::release::acquire;
use super::{done, ms, secs, settle, takes, with_lock_and_owner, with_owner};
use crate::transport::Reply;
use crate::{Error, NotHeld, Released};

fn list<const N: usize>(ints: [i64; N]) -> Fate {
    Fate::Answer(Reply::List(ints.map(Reply::Int).to_vec()))
}

/// A guard was given up, and its hold may not be marked yet, so the release looks again.
#[tokio::test(start_paused = true)]
async fn release_by_owner_looks_for_hold_without_guard_first() {
    let (client, fake, lock, me) = with_lock_and_owner();
    let asked = || fake.sent("release").iter().filter(|sent| sent.text(4) == "*").count();
    drop(acquire(&client, &me).await.into_owner());
    let guard = acquire(&client, &me).await;
    settle().await;
    assert_eq!(takes(ms(0)..ms(10), lock.release(&me)).await.unwrap(), Released::StillHeld(1));
    assert_eq!((guard.is_held(), asked()), (true, 1));
    // Only the guard's hold is left. The release looks for a marked hold eight times, with pauses of 4 ms to 256 ms.
    assert_eq!(takes(ms(508)..ms(570), lock.release(&me)).await.unwrap(), Released::Free);
    assert_eq!((guard.is_held(), asked()), (false, 1 + 8));
    drop(guard);
    done(client, &fake).await;
}

/// Another client always releases first. After a while this release reports that the owner holds nothing.
#[tokio::test(start_paused = true)]
async fn release_by_owner_ends_not_held_after_repeated_races() {
    let (client, fake, lock, me) = with_lock_and_owner();
    fake.times(100, "release", || list([-2, 1]));
    assert!(matches!(lock.release(&me).await, Err(Error::NotHeld { why: NotHeld::Never, .. })));
    assert_eq!(fake.sent("release").len(), 17);
    fake.calm();
    // A release that is refused as too late is retried.
    drop(acquire(&client, &me).await.into_owner());
    settle().await;
    fake.next("release", list([-7, 1_700_000_000_000]));
    assert_eq!(lock.release(&me).await.unwrap(), Released::Free);
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn release_by_owner_names_hold_without_guard_in_every_retry() {
    let (client, fake, lock, me) = with_lock_and_owner();
    drop(acquire(&client, &me).await.into_owner());
    fake.times(3, "release", || Fate::NotSent);
    assert_eq!(lock.release(&me).await.unwrap(), Released::Free);
    let sent = fake.sent("release");
    assert!(sent.len() == 4 && sent.iter().all(|sent| sent.text(4).len() > 1), "{sent:?}");
    settle().await;
    assert_eq!(fake.sent("disown").len(), 0, "given back before");
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn disown_is_retried_until_its_lease_is_over() {
    let (client, fake, me) = with_owner();
    let sent = || fake.sent("disown").len();
    fake.times(3, "disown", || Fate::NotSent);
    drop(acquire(&client, &me).await.into_owner());
    sleep(secs(10)).await;
    assert_eq!(sent(), 4);
    fake.next("disown", Fate::Refused("NOPERM no"));
    drop(acquire(&client, &me).await.into_owner());
    sleep(secs(10)).await;
    assert_eq!(sent(), 5, "refused for good");
    fake.times(1000, "disown", || Fate::NotSent);
    drop(acquire(&client, &me).await.into_owner());
    sleep(secs(30)).await;
    let tried = sent() - 5;
    assert!((12..40).contains(&tried), "{tried}");
    sleep(secs(60)).await;
    assert_eq!(sent() - 5, tried);
    fake.calm();
    fake.delete("x");
    done(client, &fake).await;
}
