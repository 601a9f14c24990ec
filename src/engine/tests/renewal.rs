//! Rounds of renewal: bad entries, odd or late replies, and state that a renewal must not change.

use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::fake::{Fake, Fate};
use super::{client, done, ms, secs, settle, with_lock_and_owner};
use crate::client::Client;
use crate::transport::Reply;
use crate::{Acquire, Error, Guard, Lost, Renewed};

/// The numbers of holds that a round has renewed, failed to renew, and found lost.
pub(super) async fn renew(client: &Client) -> (usize, usize, usize) {
    let Renewed { renewed, failed, lost } = client.renew_now().await;
    (renewed, failed, lost)
}

fn renew_later(client: &Client) -> JoinHandle<(usize, usize, usize)> {
    let client = client.clone();
    tokio::spawn(async move { renew(&client).await })
}

async fn hold(client: &Client, names: &[&str]) -> Vec<Guard> {
    let locks: Vec<_> = names.iter().map(|name| client.reentrant(name)).collect();
    join_all(locks.iter().map(|lock| lock.lock())).await.into_iter().map(Result::unwrap).collect()
}

fn text(text: &'static str) -> Reply {
    Reply::Text(Bytes::from_static(text.as_bytes()))
}

fn left(fake: &Fake, names: &[&str]) -> Vec<Duration> {
    names.iter().map(|name| fake.left(name).unwrap_or_default()).collect()
}

#[tokio::test(start_paused = true)]
async fn bad_reply_entry_does_not_affect_other_holds() {
    let (client, fake) = client(|_| ());
    let guards = hold(&client, &["a", "b", "c", "d"]).await;
    sleep(secs(5)).await;
    // The entries are in the order of the command's holds, which the test does not know.
    for odd in [text("ERR bad"), Reply::Nil, Reply::Int(7), text("OOM")] {
        let entries = vec![Reply::Int(1), odd, Reply::Int(1), Reply::Int(1)];
        fake.next("renew", Fate::Answer(Reply::List(entries)));
        assert_eq!(renew(&client).await, (3, 1, 0));
    }
    assert!(guards.iter().all(Guard::is_held));
    // The next round renews all holds, including the failed ones.
    assert_eq!(renew(&client).await, (4, 0, 0));
    let two_lost = vec![Reply::Int(1), text("WRONGTYPE x"), Reply::Int(0), Reply::Int(1)];
    fake.next("renew", Fate::Answer(Reply::List(two_lost)));
    assert_eq!(renew(&client).await, (2, 0, 2));
    assert_eq!(guards.iter().filter(|guard| guard.is_held()).count(), 2);
    settle().await;
    assert_eq!(client.stats().holds, 2);
    drop(guards);
    settle().await;
    // The fake invented these replies, so the server still has the locks.
    ["a", "b", "c", "d"].iter().for_each(|name| fake.delete(name));
    done(client, &fake).await;
}

/// Other clients may shorten a reader's long lease, so each round checks this lease, whatever else fails.
#[tokio::test(start_paused = true)]
async fn failing_renewals_skip_no_regular_round() {
    let (client, fake) = client(|_| ());
    let reads = client.rw("r").read().lock_leased(secs(600)).await.unwrap();
    fake.times(1000, "common/renew", || Fate::Answer(Reply::List(vec![text("ERR bad")])));
    let take = async |name| client.reentrant(name).lock().await.unwrap();
    let mut fails = vec![take("x").await];
    for period in 1..=10 {
        // Neither lease ends, and one of the two always needs a retry.
        for name in ["y", "x"] {
            sleep(secs(5)).await;
            if fails.len() == 2 {
                fails.remove(0).unlock().await.unwrap();
            }
            fails.push(take(name).await);
        }
        let (sent, failed) = (fake.sent("rwlock/renew").len(), fake.sent("common/renew").len());
        assert!(sent + 2 >= period && sent <= period + 1, "{sent} in {period} periods");
        assert!(failed + 10 >= period * 9, "{failed} in {period} periods");
    }
    fake.calm();
    for guard in fails {
        guard.unlock().await.unwrap();
    }
    reads.unlock().await.unwrap();
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn names_of_several_slots_are_renewed_one_by_one() {
    let (client, fake) = client(|_| ());
    let names = ["a", "b", "c"];
    let guards = hold(&client, &names).await;
    sleep(secs(5)).await;
    fake.next("renew", Fate::Refused("CROSSSLOT Keys in request don't hash to the same slot"));
    fake.next("renew", Fate::Refused("ERR just this one"));
    fake.next("renew", Fate::Answer(Reply::List(vec![Reply::Int(0)])));
    assert_eq!(renew(&client).await, (1, 1, 1));
    assert_eq!(fake.sent("renew").iter().map(|sent| sent.keys).collect::<Vec<_>>(), [3, 1, 1, 1]);
    assert_eq!(left(&fake, &names).iter().filter(|left| **left > secs(29)).count(), 1);
    // A refusal of a single name is a failure.
    drop(guards);
    settle().await;
    names.iter().for_each(|name| fake.delete(name));
    let guards = hold(&client, &["a"]).await;
    fake.next("renew", Fate::Refused("CROSSSLOT"));
    assert_eq!(renew(&client).await, (0, 1, 0));
    drop(guards);
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn renewal_reply_of_wrong_size_or_kind_renews_no_hold() {
    let (client, fake) = client(|_| ());
    let guards = hold(&client, &["a", "b"]).await;
    let ones = |count| Reply::List(vec![Reply::Int(1); count]);
    for odd in [ones(1), ones(3), ones(0), Reply::Nil, Reply::Int(1), text("OK")] {
        fake.next("renew", Fate::Answer(odd));
        assert_eq!(renew(&client).await, (0, 2, 0));
    }
    assert!(guards.iter().all(Guard::is_held));
    drop(guards);
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn renewal_reply_after_expiry_revives_no_hold() {
    let (client, fake) = client(|_| ());
    let guards = hold(&client, &["a", "b"]).await;
    let lost = tokio::spawn(join_all(guards.iter().map(Guard::lost).collect::<Vec<_>>()));
    // The server renews the locks, but its reply takes 35 s. All other renewals fail until then.
    fake.next("renew", Fate::Late(secs(35)));
    fake.times(200, "renew", || Fate::NotSent);
    let round = renew_later(&client);
    sleep(secs(29)).await;
    assert!(guards.iter().all(Guard::is_held));
    assert_eq!(fake.held().len(), 2);
    sleep(ms(690)).await;
    assert!(guards.iter().all(|guard| guard.is_held()));
    sleep(ms(20)).await;
    assert!(!guards.iter().any(|guard| guard.is_held()), "29.7 s after the acquire they are over");
    let reasons = lost.await.unwrap();
    assert!(reasons.iter().all(|reason| matches!(reason, Error::Lost { why: Lost::Expired, .. })));
    let outcome = round.await.unwrap();
    assert_eq!(outcome.0, 0, "{outcome:?}");
    settle().await;
    assert!(!guards.iter().any(|guard| guard.is_held()), "revived");
    // The server had renewed the locks. The client releases them although their guards still exist.
    assert_eq!(fake.held(), Vec::<String>::new());
    assert_eq!(client.stats().holds, 0);
    assert!(matches!(guards.into_iter().next().unwrap().unlock().await, Err(Error::Lost { why: Lost::Expired, .. })));
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn hold_renewed_too_late_is_released() {
    let (client, fake) = client(|_| ());
    let guards = hold(&client, &["a"]).await;
    // This is the only round until the reply, about 10 s from now.
    fake.next("renew", Fate::Late(secs(25)));
    assert!(matches!(guards[0].lost().await, Error::Lost { why: Lost::Expired, .. }));
    assert!(!guards[0].is_held());
    assert!(fake.left("a").unwrap() > secs(8), "the server has it still");
    // The release is retried.
    fake.next("release", Fate::NotSent);
    sleep(secs(7)).await;
    assert_eq!(fake.sent("renew").len(), 1);
    assert!(!guards[0].is_held(), "revived");
    assert_eq!(fake.held(), Vec::<String>::new());
    drop(guards);
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn late_reply_does_not_end_newer_hold() {
    let (client, fake, lock, me) = with_lock_and_owner();
    let first = lock.acquire(Acquire::new().owner(&me)).await.unwrap().unwrap();
    // The renewal is sent during the first hold, runs after its release, and is answered after the second acquire.
    fake.next("renew", Fate::Later(Reply::List(vec![Reply::Int(0)]), ms(200)));
    let round = renew_later(&client);
    settle().await;
    // A task that waits for the release keeps the entry in the table.
    fake.next("release", Fate::Slow(ms(100)));
    let unlock = tokio::spawn(first.unlock());
    tokio::task::yield_now().await;
    let second = lock.acquire(Acquire::new().owner(&me)).await.unwrap().unwrap();
    unlock.await.unwrap().unwrap();
    assert!(!round.is_finished() && second.is_held());
    assert_eq!(round.await.unwrap(), (0, 0, 0));
    assert!(second.is_held());
    assert_eq!(renew(&client).await, (1, 0, 0));
    second.unlock().await.unwrap();
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn renewal_shortens_no_lease_of_its_owner() {
    let (client, fake, lock, me) = with_lock_and_owner();
    let long = lock.acquire(Acquire::new().owner(&me).lease(secs(120))).await.unwrap().unwrap();
    let watched = lock.acquire(Acquire::new().owner(&me)).await.unwrap().unwrap();
    for _ in 0..10 {
        sleep(secs(10)).await;
        assert!(fake.left("x").unwrap() >= long.remaining(), "{:?} {:?}", fake.left("x"), long.remaining());
        assert!(fake.left("x").unwrap() >= watched.remaining());
        assert!(watched.is_held() && long.is_held());
    }
    // After the guard of the watched hold is given up, that hold is not renewed. The other hold lasts for its own
    // lease.
    drop(watched.into_owner());
    sleep(secs(18)).await;
    assert!(long.is_held() && fake.left("x").unwrap() >= long.remaining());
    sleep(secs(1)).await;
    assert!(!long.is_held());
    drop(long);
    settle().await;
    fake.delete("x");
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn renewal_is_retried_after_errors_until_the_lease_ends() {
    let (client, fake) = client(|_| ());
    let guards = hold(&client, &["x"]).await;
    // The first round comes at 10 s. A retry follows every second up to 29 s.
    fake.times(19, "renew", || Fate::Lost(false));
    sleep(secs(60)).await;
    assert!(guards[0].is_held());
    fake.times(200, "renew", || Fate::Lost(false));
    let reason = guards[0].lost().await;
    assert!(matches!(reason, Error::Lost { why: Lost::Expired, .. }), "{reason:?}");
    assert!(fake.left("x").is_some(), "the loss was told before the server's lease was over");
    drop(guards);
    sleep(secs(1)).await;
    done(client, &fake).await;
}

/// If others may know the owner, a renewal names each hold. The reply lists the positions of the holds that are gone.
#[tokio::test(start_paused = true)]
async fn renewal_reports_which_holds_of_an_owner_are_gone() {
    for (place, lost) in [(1, [true, false]), (2, [false, true]), (0, [false; 2]), (3, [false; 2]), (-1, [false; 2])] {
        let (client, fake, lock, me) = with_lock_and_owner();
        let how = || Acquire::new().owner(&me);
        let guards = [lock.acquire(how()).await.unwrap().unwrap(), lock.acquire(how()).await.unwrap().unwrap()];
        fake.next("renew", Fate::Answer(Reply::List(vec![Reply::List(vec![Reply::Int(place), Reply::Nil])])));
        assert_eq!(renew(&client).await, (1, 0, usize::from(lost != [false; 2])), "{place}");
        assert_eq!([!guards[0].is_held(), !guards[1].is_held()], lost, "{place}");
        let asked = fake.sent("renew").remove(0).text(3);
        assert_eq!(asked.split([',', '~']).count(), 3, "{asked}");
        settle().await;
        fake.delete("x");
        drop(guards);
        done(client, &fake).await;
    }
}

#[tokio::test(start_paused = true)]
async fn round_reports_why_its_last_renewal_failed() {
    let (client, fake) = client(|_| ());
    let guards = hold(&client, &["a"]).await;
    let cause = async |fate| {
        fake.next("renew", fate);
        let round = crate::engine::renewal::round(client.engine(), crate::engine::renewal::Which::All).await;
        assert_eq!(round.failed, 1);
        round.cause.unwrap().to_string()
    };
    for (fate, part) in [
        (Fate::Refused("MISCONF the disk is full"), "refused: MISCONF the disk is full"),
        (Fate::Lost(false), "no answer from the server"),
        (Fate::Answer(Reply::List(vec![text("ERR bad")])), "ERR bad"),
        (Fate::Answer(Reply::Nil), "unexpected reply"),
    ] {
        let cause = cause(fate).await;
        assert!(cause.contains(part) && !cause.contains("the lock"), "{cause}");
    }
    drop(guards);
    done(client, &fake).await;
}
