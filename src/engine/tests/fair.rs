//! Waiting in a queue in Redis: attempts, and grants by a message or by an answer.

mod owners;

use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::fake::{Fake, Fate, Sent};
use super::{begin, client, done, got, ms, secs, settle};
use crate::names::LockName;
use crate::transport::Reply;
use crate::{Acquire, Client, Guard, Result};

/// A time on the server's clock, in ms.
const AT: i64 = 1_700_000_000_000;

fn busy(ms: i64) -> Fate {
    Fate::Answer(Reply::List(vec![Reply::Int(ms), Reply::Int(AT)]))
}

const fn int(int: i64) -> Fate {
    Fate::Answer(Reply::Int(int))
}

const HELD: Fate = Fate::Answer(Reply::Nil);

fn asked(fake: &Fake) -> Vec<Sent> {
    fake.sent("fair/acquire")
}

/// Starts an acquire that gets a queue entry and subscribes to its inbox.
async fn stands(client: &Client, fake: &Fake, how: Acquire) -> JoinHandle<Result<Option<Guard>>> {
    let before = asked(fake).len();
    fake.times(2, "fair/acquire", || busy(60_000));
    let waits = begin(&client.fair("x"), how);
    settle().await;
    assert_eq!(asked(fake).len(), before + 2, "once more behind the subscription");
    waits
}

/// Sends a message to the inbox (the waiter's channel) of the last attempt. With a lease, the message grants the lock,
/// and has the waiter's nonce.
fn tell(fake: &Fake, lease: Option<u32>) {
    let last = asked(fake).pop().unwrap();
    let payload = lease.map_or_else(|| "0".to_owned(), |lease| format!("{lease} {}", last.text(7)));
    fake.listener().message(&LockName::new("", "x").inbox(&last.text(0)).channel, payload.as_bytes());
}

/// The first attempt is made without a queue entry. The retry follows after the usual pause.
#[tokio::test(start_paused = true)]
async fn unacknowledged_acquire_is_undone_and_retried_later() {
    let (client, fake) = client(|_| ());
    [Fate::Unacknowledged, HELD].into_iter().for_each(|fate| fake.next("fair/acquire", fate));
    let waits = begin(&client.fair("x"), Acquire::new());
    sleep(ms(420)).await;
    assert_eq!((asked(&fake).len(), fake.sent("fair/leave").len()), (1, 1));
    let guard = waits.await.unwrap().unwrap().unwrap();
    assert_eq!(asked(&fake).len(), 2);
    guard.unlock().await.unwrap();
    // The fake runs no `fair/leave`, so the undo did not remove the key.
    fake.delete("x");
    done(client, &fake).await;
}

/// The lease in the message counts from the last confirmation of the queue entry. The watchdog renews it afterwards.
#[tokio::test(start_paused = true)]
async fn waiter_acquires_by_message_without_command_where_safe() {
    let table = [
        (5_000, "fresh", Some((ms(4_400), ms(4_600)))),
        (100_000, "fresh", Some((ms(29_100), ms(29_400)))),
        (900, "fresh", None),
        // The beat (refresh of queue entries) that renews the lease may wait a second for a beat in flight.
        (1_900, "fresh", None),
        (5_000, "leased", None),
        (5_000, "given", None),
    ];
    for (lease, whose, left) in table {
        let (client, fake) = client(|_| ());
        let other = client.reentrant("other").lock().await.unwrap();
        let how = match whose {
            "leased" => Acquire::new().lease(secs(20)),
            "given" => Acquire::new().owner(&client.owner()),
            _ => Acquire::new(),
        };
        let waits = stands(&client, &fake, how).await;
        // The entry was confirmed once, 0.4 s ago.
        sleep(ms(1_380)).await;
        assert_eq!((fake.sent("refresh").len(), asked(&fake).len()), (1, 2));
        fake.next("fair/acquire", int(-2));
        tell(&fake, Some(lease));
        let guard = got(ms(10), waits).await;
        assert_eq!(asked(&fake).len(), if left.is_some() { 2 } else { 3 }, "{lease} {whose}");
        if let Some((least, most)) = left {
            assert!((least..most).contains(&guard.remaining()), "{:?} of {lease}", guard.remaining());
            // A regular round renews a lease that lasts until then.
            fake.times(2, "renew", || Fate::Answer(Reply::List(vec![Reply::Int(1)])));
            sleep(ms(1_100)).await;
            let renewed: Vec<usize> = fake.sent("renew").iter().map(|sent| sent.keys).collect();
            assert_eq!(renewed, if lease == 5_000 { vec![1] } else { vec![] });
            assert!(guard.remaining() > secs(27), "{:?}", guard.remaining());
        }
        guard.unlock().await.unwrap();
        other.unlock().await.unwrap();
        fake.calm();
        done(client, &fake).await;
    }
}

#[tokio::test(start_paused = true)]
async fn queue_entry_is_requested_once_and_kept_by_refreshes() {
    let (client, fake) = client(|_| ());
    let waits = stands(&client, &fake, Acquire::new()).await;
    let sent = asked(&fake);
    // The first answer teaches the client the server's clock.
    let last: Vec<i64> = sent.iter().map(|sent| sent.text(4).parse().unwrap()).collect();
    assert!(last[0] == 0 && last[1] > AT, "{last:?}");
    assert_eq!(sent.iter().map(|sent| sent.text(6)).collect::<Vec<_>>(), ["1", "2"]);
    sleep(secs(30)).await;
    assert_eq!((asked(&fake).len(), fake.sent("refresh").len()), (2, 30));
    // From here on, no refresh confirms the entry.
    fake.times(8, "refresh", || Fate::NotSent);
    fake.times(8, "fair/acquire", || busy(60_000));
    sleep(secs(8)).await;
    let more = asked(&fake).len() - 2;
    assert!((1..=4).contains(&more), "{more}");
    // The server answers that the entry is lost.
    fake.calm();
    let before = asked(&fake).len();
    fake.next("fair/acquire", int(-4));
    fake.next("fair/acquire", HELD);
    tell(&fake, None);
    let guard = got(ms(10), waits).await;
    let sent = asked(&fake);
    assert_eq!(sent.len(), before + 2);
    assert_ne!(sent[before].text(0), sent[before + 1].text(0), "a message for the old one may come still");
    assert_eq!(sent[before + 1].text(6), "1");
    guard.unlock().await.unwrap();
    sleep(secs(5)).await;
    assert_eq!(fake.sent("leave").len(), 0);
    done(client, &fake).await;
}

/// The grant arrives before the answer that the entry exists. The inbox was subscribed from the start.
#[tokio::test(start_paused = true)]
async fn grant_by_message_counts_before_the_reply_arrives() {
    let (client, fake) = client(|_| ());
    let waits = stands(&client, &fake, Acquire::new()).await;
    tell(&fake, Some(30_000));
    got(ms(10), waits).await.unlock().await.unwrap();
    fake.next("fair/acquire", Fate::Later(Reply::List(vec![Reply::Int(60_000), Reply::Int(AT)]), ms(100)));
    let waits = begin(&client.fair("x"), Acquire::new());
    sleep(ms(50)).await;
    let sent = asked(&fake).pop().unwrap();
    assert!(sent.text(7).ends_with(&format!("={}", sent.text(2))), "{sent:?}");
    tell(&fake, Some(30_000));
    sleep(ms(55)).await;
    got(ms(10), waits).await.unlock().await.unwrap();
    // Another client has read the owner in Redis and acquired as that owner. So this client does not reuse the owner.
    fake.next("fair/acquire", int(-6));
    fake.next("fair/acquire", HELD);
    client.fair("x").lock().await.unwrap().unlock().await.unwrap();
    let [.., met, held] = &asked(&fake)[..] else { panic!("not asked") };
    assert!(met.text(0) == sent.text(0) && held.text(0) != sent.text(0), "{met:?} {held:?}");
    // The same for an owner that has a queue entry. The waiter gives the entry up.
    sleep(secs(6)).await;
    let waits = stands(&client, &fake, Acquire::new()).await;
    tell(&fake, Some(30_000));
    got(ms(10), waits).await.unlock().await.unwrap();
    fake.calm();
    fake.next("fair/acquire", busy(60_000));
    let waits = begin(&client.fair("x"), Acquire::new());
    settle().await;
    let left = fake.sent("leave").len();
    fake.next("fair/acquire", int(-6));
    fake.next("fair/acquire", HELD);
    tell(&fake, None);
    got(ms(10), waits).await.unlock().await.unwrap();
    assert_eq!(fake.sent("leave").len(), left + 1);
    // A single attempt takes no queue entry, however long its group acquire has waited.
    let mut how = Acquire::new().wait(ms(0));
    how.waited_before = secs(5);
    fake.next("fair/acquire", busy(60_000));
    assert!(client.fair("x").acquire(how).await.unwrap().is_none());
    assert_eq!(asked(&fake).pop().unwrap().text(6), "0");
    // The first attempt got no answer, so it may have taken an entry.
    fake.next("fair/acquire", Fate::Lost(false));
    fake.next("fair/acquire", HELD);
    let me = client.owner();
    client.fair("x").acquire(Acquire::new().owner(&me)).await.unwrap().unwrap().unlock().await.unwrap();
    let turns: Vec<_> =
        asked(&fake).iter().filter(|sent| sent.text(0) == me.as_str()).map(|sent| sent.text(6)).collect();
    assert_eq!(turns, ["1", "2"]);
    sleep(secs(5)).await;
    done(client, &fake).await;
}

/// No message announces the end of a lease. If the lease ends before the next beat, the client checks the lock then.
#[tokio::test(start_paused = true)]
async fn waiter_checks_lock_when_a_short_lease_ends() {
    for (left, looks) in [(300, 1), (1_500, 0)] {
        let (client, fake) = client(|_| ());
        fake.times(2, "fair/acquire", || busy(left));
        let waits = begin(&client.fair("x"), Acquire::new().wait(ms(700)));
        sleep(ms(350)).await;
        assert_eq!(fake.sent("refresh").len(), looks, "{left}");
        fake.next("fair/acquire", busy(60_000));
        assert!(waits.await.unwrap().unwrap().is_none());
        settle().await;
        assert_eq!(fake.sent("leave").len(), 1, "its place is given up");
        fake.calm();
        done(client, &fake).await;
    }
}

/// The waiter that was notified may be dead, so the client that notified it checks whether the waiter took the lock.
#[tokio::test(start_paused = true)]
async fn client_checks_lock_after_its_release_notified_a_waiter() {
    for way in ["release", "by owner", "force", "undo"] {
        for told in [true, false] {
            let (client, fake) = client(|_| ());
            let lock = client.fair("x");
            let reply = || int(-i64::from(told));
            match way {
                "release" => {
                    fake.next("fair/acquire", HELD);
                    let guard = lock.lock().await.unwrap();
                    fake.next("fair/release", reply());
                    guard.unlock().await.unwrap();
                }
                "by owner" => {
                    fake.next("fair/release", if told { int(0) } else { Fate::Answer(Reply::Nil) });
                    assert_eq!(lock.release(&client.owner()).await.is_ok(), told);
                }
                "force" => {
                    let told_one = Fate::Answer(Reply::List(vec![Reply::Int(1), Reply::Int(1)]));
                    fake.next("fair/force", if told { told_one } else { Fate::Refused("NOPERM no") });
                    assert_eq!(lock.force_unlock().await.is_ok(), told);
                }
                _ => {
                    fake.next("fair/acquire", Fate::Lost(false));
                    fake.next("fair/leave", reply());
                    assert!(lock.try_lock().await.is_err());
                }
            }
            sleep(secs(6)).await;
            assert_eq!(fake.sent("refresh").len(), usize::from(told), "{way}");
            done(client, &fake).await;
        }
    }
}
