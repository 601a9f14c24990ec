//! Waiting in a queue in Redis: what is asked, what is taken without being asked for, and whose owner is used again.

use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::fake::{Fake, Fate, Sent};
use super::{client, done, got, ms, secs, settle};
use crate::lock::DistLock as _;
use crate::names::LockName;
use crate::transport::Reply;
use crate::{Acquire, Client, Guard, Result};

/// Some time of the server's.
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

/// Waits with a place in the queue, and messages come in.
async fn stands(client: &Client, fake: &Fake, how: Acquire) -> JoinHandle<Result<Option<Guard>>> {
    let before = asked(fake).len();
    (0..2).for_each(|_| fake.next("fair/acquire", busy(60_000)));
    let lock = client.fair("x");
    let waits = tokio::spawn(async move { lock.acquire(how).await });
    settle().await;
    assert_eq!(asked(fake).len(), before + 2, "once more behind the subscription");
    waits
}

/// Tells whoever asked last something at its channel; what it is registered by stands behind a lease.
fn tell(fake: &Fake, lease: Option<u32>) {
    let last = asked(fake).pop().unwrap();
    let payload = lease.map_or_else(|| "0".to_owned(), |lease| format!("{lease} {}", last.text(7)));
    fake.listener().message(&LockName::new("", "x").inbox(&last.text(0)).channel, payload.as_bytes());
}

/// The first attempt is made without a place in any queue, and the next one after the pause that follows every other.
#[tokio::test(start_paused = true)]
async fn what_was_not_acknowledged_at_first_is_asked_for_later() {
    let (client, fake) = client(|_| ());
    for fate in [Fate::Unacknowledged, HELD] {
        fake.next("fair/acquire", fate);
    }
    let lock = client.fair("x");
    let waits = tokio::spawn(async move { lock.lock().await });
    sleep(ms(400)).await;
    settle().await;
    assert_eq!((asked(&fake).len(), fake.sent("fair/leave").len()), (1, 1));
    let guard = waits.await.unwrap().unwrap();
    assert_eq!(asked(&fake).len(), 2);
    guard.unlock().await.unwrap();
    // The server of these tests knows no queue, and does not carry out who leaves it.
    fake.delete("x");
    done(client, &fake).await;
}

/// For as long as the message says, from the last word of the server that the place is there; then the watchdog keeps it.
#[tokio::test(start_paused = true)]
async fn who_is_passed_the_lock_has_it_without_asking_where_that_is_safe() {
    let table = [
        (5_000, "fresh", Some((ms(4_400), ms(4_600)))),
        (100_000, "fresh", Some((ms(29_100), ms(29_400)))),
        (900, "fresh", None),
        // The beat that is to renew it may come in a second, behind one that is under way.
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
        // Confirmed once, 0.4 s ago.
        sleep(ms(1_380)).await;
        assert_eq!((fake.sent("refresh").len(), asked(&fake).len()), (1, 2));
        fake.next("fair/acquire", int(-2));
        tell(&fake, Some(lease));
        let guard = got(ms(10), waits).await;
        assert_eq!(asked(&fake).len(), if left.is_some() { 2 } else { 3 }, "{lease} {whose}");
        if let Some((least, most)) = left {
            assert!((least..most).contains(&guard.remaining()), "{:?} of {lease}", guard.remaining());
            // What lasts long enough waits for the regular round.
            (0..2).for_each(|_| fake.next("renew", Fate::Answer(Reply::List(vec![Reply::Int(1)]))));
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

/// A message for the owner that was not heard, or a copy of a command, would be taken for the next one's.
#[tokio::test(start_paused = true)]
async fn an_owner_is_used_again_where_nothing_for_it_can_be_on_its_way() {
    let ways = [
        ("heard", true),
        ("answered", true),
        ("unheard", false),
        ("doubt", false),
        ("passed in doubt", false),
        ("release", false),
        ("known", false),
    ];
    for (way, again) in ways {
        let (client, fake) = client(|_| ());
        let waits = stands(&client, &fake, Acquire::new()).await;
        match way {
            "answered" => fake.next("fair/acquire", HELD),
            "unheard" => fake.next("fair/acquire", int(-2)),
            "doubt" => {
                fake.next("fair/acquire", Fate::Lost(false));
                fake.next("fair/acquire", HELD);
            }
            "passed in doubt" => {
                fake.next("fair/acquire", Fate::Lost(false));
                tell(&fake, None);
                sleep(ms(10)).await;
            }
            _ => {}
        }
        tell(&fake, (!["answered", "unheard", "doubt"].contains(&way)).then_some(30_000));
        sleep(ms(200)).await;
        let guard = got(ms(10), waits).await;
        match way {
            "known" => drop(guard.owner().as_str().to_owned()),
            "release" => fake.next("fair/release", Fate::Lost(false)),
            _ => {}
        }
        guard.unlock().await.unwrap();
        let owner = asked(&fake).pop().unwrap().text(0);
        fake.next("fair/acquire", HELD);
        let next = client.fair("x").lock().await.unwrap();
        let sent = asked(&fake).pop().unwrap();
        assert_eq!(sent.text(0) == owner, again, "{way}");
        // Its hold is listed, and nobody else's may be there.
        assert_eq!((sent.text(2).is_empty(), sent.text(5).as_str()), if again { (false, "1") } else { (true, "0") });
        if again {
            fake.next("renew", Fate::Answer(Reply::List(vec![Reply::Int(1)])));
            client.renew_now().await;
            assert_eq!(fake.sent("renew").pop().unwrap().text(3), format!(",{}", sent.text(2)));
        }
        // Held at once: a message may still come.
        next.unlock().await.unwrap();
        sleep(secs(5)).await;
        // A copy of what was in doubt may have taken a place.
        assert_eq!(fake.sent("leave").len(), usize::from(way.contains("doubt")), "{way}");
        done(client, &fake).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_place_is_asked_for_once_and_kept_by_refreshing_it() {
    let (client, fake) = client(|_| ());
    let waits = stands(&client, &fake, Acquire::new()).await;
    let sent = asked(&fake);
    // The server's clock is known from the first answer on.
    let last: Vec<i64> = sent.iter().map(|sent| sent.text(4).parse().unwrap()).collect();
    assert!(last[0] == 0 && last[1] > AT, "{last:?}");
    assert_eq!(sent.iter().map(|sent| sent.text(6)).collect::<Vec<_>>(), ["1", "2"]);
    sleep(secs(30)).await;
    assert_eq!((asked(&fake).len(), fake.sent("refresh").len()), (2, 30));
    // Nobody knows any more whether it is there.
    (0..8).for_each(|_| fake.next("refresh", Fate::NotSent));
    (0..8).for_each(|_| fake.next("fair/acquire", busy(60_000)));
    sleep(secs(8)).await;
    let more = asked(&fake).len() - 2;
    assert!((1..=4).contains(&more), "{more}");
    // It is not.
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

/// The lock was passed on before the answer came that the place is there, and at a channel that was listened to from the start.
#[tokio::test(start_paused = true)]
async fn a_message_that_overtakes_an_answer_is_heard() {
    let (client, fake) = client(|_| ());
    let waits = stands(&client, &fake, Acquire::new()).await;
    tell(&fake, Some(30_000));
    got(ms(10), waits).await.unlock().await.unwrap();
    fake.next("fair/acquire", Fate::Later(Reply::List(vec![Reply::Int(60_000), Reply::Int(AT)]), ms(100)));
    let lock = client.fair("x");
    let waits = tokio::spawn(async move { lock.acquire(Acquire::new()).await });
    sleep(ms(50)).await;
    let sent = asked(&fake).pop().unwrap();
    assert!(sent.text(7).ends_with(&format!("={}", sent.text(2))), "{sent:?}");
    tell(&fake, Some(30_000));
    sleep(ms(55)).await;
    got(ms(10), waits).await.unlock().await.unwrap();
    // Somebody has read the owner in Redis, and come in as it: it is nobody's any more.
    fake.next("fair/acquire", int(-6));
    fake.next("fair/acquire", HELD);
    client.fair("x").lock().await.unwrap().unlock().await.unwrap();
    let [.., met, held] = &asked(&fake)[..] else { panic!("not asked") };
    assert!(met.text(0) == sent.text(0) && held.text(0) != sent.text(0), "{met:?} {held:?}");
    // So it goes for one that has a place by then, which is given up.
    sleep(secs(6)).await;
    let waits = stands(&client, &fake, Acquire::new()).await;
    tell(&fake, Some(30_000));
    got(ms(10), waits).await.unlock().await.unwrap();
    fake.calm();
    fake.next("fair/acquire", busy(60_000));
    let lock = client.fair("x");
    let waits = tokio::spawn(async move { lock.acquire(Acquire::new()).await });
    settle().await;
    let left = fake.sent("leave").len();
    fake.next("fair/acquire", int(-6));
    fake.next("fair/acquire", HELD);
    tell(&fake, None);
    got(ms(10), waits).await.unlock().await.unwrap();
    assert_eq!(fake.sent("leave").len(), left + 1);
    // One attempt takes no place, however long it is a part of.
    let mut how = Acquire::new().wait(ms(0));
    how.waited_before = secs(5);
    fake.next("fair/acquire", busy(60_000));
    assert!(client.fair("x").acquire(how).await.unwrap().is_none());
    assert_eq!(asked(&fake).pop().unwrap().text(6), "0");
    // The first attempt of another went without an answer: it may have a place.
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

/// Nobody tells when a lease runs out: that is looked at when it is due, and a longer one with the next beat.
#[tokio::test(start_paused = true)]
async fn a_lease_that_ends_soon_is_looked_at_then() {
    for (left, looks) in [(300, 1), (1_500, 0)] {
        let (client, fake) = client(|_| ());
        (0..2).for_each(|_| fake.next("fair/acquire", busy(left)));
        let lock = client.fair("x");
        let waits = tokio::spawn(async move { lock.lock_for(ms(700)).await });
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

/// Whoever was told may be dead: who told it looks whether the lock was taken.
#[tokio::test(start_paused = true)]
async fn who_told_others_looks_after_the_lock() {
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
                    fake.next("fair/force", if told { int(1) } else { Fate::Refused("NOPERM no") });
                    assert_eq!(lock.force_unlock().await.is_ok(), told);
                }
                _ => {
                    fake.next("fair/acquire", Fate::Lost(false));
                    fake.next("fair/leave", reply());
                    assert!(lock.try_lock().await.is_err());
                }
            }
            sleep(secs(5)).await;
            assert_eq!(fake.sent("refresh").len(), usize::from(told), "{way}");
            done(client, &fake).await;
        }
    }
}

/// The second does not queue up itself: it may hold the lock already, by another acquire.
#[tokio::test(start_paused = true)]
async fn a_second_waiter_of_an_owner_asks_once_and_takes_no_place() {
    let (client, fake) = client(|_| ());
    let me = client.owner();
    let first = stands(&client, &fake, Acquire::new().owner(&me)).await;
    fake.next("fair/acquire", busy(60_000));
    let second = tokio::spawn({
        let (lock, me) = (client.fair("x"), me.clone());
        async move { lock.acquire(Acquire::new().owner(&me)).await }
    });
    sleep(secs(10)).await;
    let turns = |fake: &Fake| asked(fake).iter().map(|sent| sent.text(6)).collect::<Vec<_>>();
    assert_eq!(turns(&fake), ["1", "2", "0"]);
    // After a break whoever has the turn asks.
    fake.next("fair/acquire", busy(60_000));
    fake.listener().missed();
    settle().await;
    assert_eq!(turns(&fake), ["1", "2", "0", "2"]);
    // The first comes in: so may the second.
    (0..2).for_each(|_| fake.next("fair/acquire", HELD));
    let registered = asked(&fake)[1].text(7);
    assert!(registered.starts_with('!'), "{registered}");
    tell(&fake, None);
    let (first, second) = (got(ms(10), first).await, got(ms(10), second).await);
    assert_eq!(turns(&fake)[4..], ["2", "1"]);
    fake.next("fair/release", int(1));
    first.unlock().await.unwrap();
    second.unlock().await.unwrap();
    sleep(secs(6)).await;
    // It comes in by an acquire that does not wait: whoever waits as this owner is told.
    let waits = stands(&client, &fake, Acquire::new().owner(&me)).await;
    (0..2).for_each(|_| fake.next("fair/acquire", HELD));
    let held = client.fair("x").acquire(Acquire::new().owner(&me).wait(ms(0))).await.unwrap().unwrap();
    let waited = got(ms(10), waits).await;
    fake.next("fair/release", int(1));
    held.unlock().await.unwrap();
    waited.unlock().await.unwrap();
    done(client, &fake).await;
}
