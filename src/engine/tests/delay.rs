//! Lock delays: batches of renewals, late grants and replies, doubt, and hand-over.

use tokio::time::sleep;

use super::fake::Fate;
use super::renewal::renew;
use super::{begin, client, done, got, ms, secs, settle, with_lock};
use crate::engine::ledger::Book;
use crate::{Acquire, Error, Lost};

#[test]
fn book_keeps_the_longest_delay_of_a_tenure() {
    let mut book = Book::default();
    assert!(!book.stays_closed(0));
    let watched = book.open(0, 1, None, 0, 100);
    assert!(book.delay().is_zero() && !book.stays_closed(200));
    book.delay_by(ms(2));
    let leased = book.open(0, 2, Some(300), 0, 300);
    book.delay_by(ms(1));
    assert_eq!((book.delay(), book.until_in_server()), (ms(2), 2_000_300));
    // While one guard is held, the owner has not lost the lock.
    assert_eq!([100, 299, 300].map(|now| book.stays_closed(now)), [false, false, true]);
    for guard in [watched, leased] {
        book.close(guard);
        book.counted_down(book.tenure());
    }
    assert_eq!((book.delay(), book.until_in_server()), (ms(0), 0));
    book.open(400, 3, None, 400, 500);
    assert!(book.delay().is_zero(), "another tenure");
}

#[tokio::test(start_paused = true)]
async fn holds_with_equal_delays_share_a_renewal() {
    let (client, fake) = client(|_| ());
    let mut guards = Vec::new();
    for (name, delay) in [("a", 0), ("b", 15), ("c", 0), ("d", 15)] {
        let how = Acquire::new().lock_delay(secs(delay));
        guards.push(client.reentrant(name).acquire(how).await.unwrap().unwrap());
    }
    assert_eq!(renew(&client).await, (4, 0, 0));
    let mut sent: Vec<_> = fake.sent("renew").iter().map(|sent| (sent.keys, sent.text(0))).collect();
    sent.sort();
    assert_eq!(sent, [(2, "30000".to_owned()), (2, "45000".to_owned())]);
    drop(guards);
    done(client, &fake).await;
}

/// No work was done under this grant, so the name may open.
#[tokio::test(start_paused = true)]
async fn grant_that_arrives_after_its_lease_closes_no_name() {
    let (client, fake, lock) = with_lock();
    fake.next("acquire", Fate::Late(secs(2)));
    let how = Acquire::new().wait(ms(0)).lease(secs(1)).lock_delay(secs(60));
    let late = lock.acquire(how).await;
    assert!(late.as_ref().is_err_and(Error::is_retryable), "{late:?}");
    settle().await;
    assert_eq!(fake.held(), Vec::<String>::new());
    done(client, &fake).await;
}

/// The server renews the lock, but its reply arrives after the deadline.
#[tokio::test(start_paused = true)]
async fn renewal_reply_after_expiry_keeps_the_name_closed() {
    let (client, fake, lock) = with_lock();
    let guard = lock.acquire(Acquire::new().lock_delay(secs(60))).await.unwrap().unwrap();
    // This is the only round until the reply.
    fake.next("renew", Fate::Late(secs(25)));
    assert!(matches!(guard.lost().await, Error::Lost { why: Lost::Expired, .. }));
    sleep(secs(10)).await;
    assert!(!guard.is_held() && fake.left("x").unwrap() > secs(50), "{:?}", fake.left("x"));
    assert_eq!((fake.sent("renew").len(), fake.sent("release").len(), client.stats().holds), (1, 0, 0));
    drop(guard);
    settle().await;
    assert_eq!(fake.sent("release").len(), 0);
    fake.delete("x");
    done(client, &fake).await;
}

/// A clean-up that looks for a late copy of the acquire would release the hold.
#[tokio::test(start_paused = true)]
async fn lost_hold_of_a_repeated_acquire_stays_closed() {
    let (client, fake, lock) = with_lock();
    fake.next("acquire", Fate::Lost(true));
    let guard = lock.acquire(Acquire::new().lease(secs(1)).lock_delay(secs(60))).await.unwrap().unwrap();
    assert_eq!(fake.sent("acquire").len(), 2);
    sleep(ms(1_100)).await;
    drop(guard);
    sleep(secs(10)).await;
    assert!(fake.left("x").is_some_and(|left| left > secs(45)), "{:?}", fake.left("x"));
    fake.delete("x");
    done(client, &fake).await;
}

/// The delay belongs to one holder, so its hold does not pass to a waiter of the same process.
#[tokio::test(start_paused = true)]
async fn lock_with_a_delay_is_not_handed_over() {
    let (client, fake, lock) = with_lock();
    let how = || Acquire::new().lock_delay(secs(15));
    for (first, second) in [(how(), Acquire::new()), (Acquire::new(), how())] {
        let before = fake.sent("release").len();
        let guard = lock.acquire(first).await.unwrap().unwrap();
        let next = begin(&lock, second);
        settle().await;
        guard.unlock().await.unwrap();
        let guard = got(secs(1), next).await;
        assert_eq!(fake.sent("release").len(), before + 1, "handed over");
        guard.unlock().await.unwrap();
    }
    done(client, &fake).await;
}
