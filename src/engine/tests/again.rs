//! Owners that acquire again: the hold that each command names, the undo, and the search for late copies.

use tokio::time::sleep;

use super::fake::Fate;
use super::release::acquire;
use super::{client, done, ms, secs, settle};
use crate::lock::DistLock as _;
use crate::transport::Reply;
use crate::{Acquire, Error, Released};

/// A time on the server's clock, in ms.
const AT: i64 = 1_700_000_000_000;

/// The retry finds the hold of the first attempt, so no undo is needed.
#[tokio::test(start_paused = true)]
async fn acquire_found_by_its_retry_is_not_undone() {
    let (client, fake) = client(|_| ());
    let me = client.owner();
    acquire(&client, &me).await.unlock().await.unwrap();
    fake.next("acquire", Fate::Lost(true));
    let guard = acquire(&client, &me).await;
    sleep(secs(5)).await;
    assert!(guard.is_held());
    assert_eq!((fake.held().len(), fake.sent("release").len()), (1, 1));
    guard.unlock().await.unwrap();
    sleep(secs(5)).await;
    done(client, &fake).await;
}

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
    let (client, fake) = client(|_| ());
    let (lock, me) = (client.reentrant("x"), client.owner());
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

#[tokio::test(start_paused = true)]
async fn late_copy_of_acquire_is_released_however_its_hold_ended() {
    for way in ["given up", "marked", "not marked", "lost"] {
        let (client, fake) = client(|_| ());
        let (lock, me) = (client.reentrant("x"), client.owner());
        acquire(&client, &me).await.unlock().await.unwrap();
        fake.next("acquire", Fate::Ghost(secs(2)));
        let guard = acquire(&client, &me).await;
        match way {
            "lost" => {
                fake.delete("x");
                client.renew_now().await;
                assert!(!guard.is_held());
                drop(guard);
            }
            "not marked" => {
                fake.next("disown", Fate::Refused("NOPERM no"));
                drop(guard.into_owner());
                settle().await;
                fake.delete("x");
            }
            _ => {
                drop(guard.into_owner());
                if way == "marked" {
                    settle().await;
                }
                assert_eq!(lock.release(&me).await.unwrap(), Released::Free, "{way}");
            }
        }
        sleep(ms(2_200)).await;
        assert_eq!(fake.held().len(), 1, "the late copy: {way}");
        sleep(secs(2)).await;
        assert_eq!(fake.held().len(), 0, "{way}");
        done(client, &fake).await;
    }
}

/// An owner uses a name as one flavour only. Re-entry of a fenced lock keeps the token of the section.
#[tokio::test(start_paused = true)]
async fn fenced_reentry_keeps_token_and_second_flavour_is_refused() {
    let (client, fake) = client(|_| ());
    let me = client.owner();
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
    assert!(guards.iter().all(|guard| guard.token() == Some(5)), "{guards:?}");
    for (left, guard) in [1, 0].into_iter().zip(guards) {
        fake.next("fenced/release", Fate::Answer(Reply::Int(left)));
        guard.unlock().await.unwrap();
    }
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn acquire_is_refused_with_zero_lease_or_closed_client() {
    let (client, fake) = client(|_| ());
    let lock = client.reentrant("x");
    for how in [Acquire::new().lease(ms(0)), Acquire::new().wait(ms(0)).lease(ms(0))] {
        assert!(matches!(lock.acquire(how).await, Err(Error::Config { .. })));
    }
    fake.steal("x", secs(60));
    assert!(lock.lock_for(ms(300)).await.unwrap().is_none());
    settle().await;
    assert_eq!(fake.sent("release").len(), 0, "it stands nowhere");
    let asked = fake.sent("acquire").len();
    fake.delete("x");
    done(client.clone(), &fake).await;
    assert!(matches!(lock.try_lock().await, Err(Error::Closed)));
    assert!(matches!(lock.lock().await, Err(Error::Closed)));
    assert_eq!(fake.sent("acquire").len(), asked);
}
