//! Requests to a holder to finish: hand-over, tenures, and late replies.

use futures::FutureExt as _;

use super::fake::Fate;
use super::renewal::renew;
use super::{client, done, settle, waiter, with_lock, with_lock_and_owner};
use crate::engine::ledger::Book;
use crate::transport::Reply;
use crate::{Acquire, Guard};

fn hears(guard: &Guard) -> bool {
    guard.revoked().now_or_never().is_some()
}

#[test]
fn request_ends_with_its_tenure() {
    let mut book = Book::default();
    let first = book.open(0, 1, None, 0, 100);
    assert!(!book.is_revoked_for(first));
    book.revoke();
    let second = book.open(0, 2, None, 0, 100);
    assert!(book.is_revoked());
    assert_eq!([first, second].map(|guard| book.is_revoked_for(guard)), [true, true]);
    for guard in [first, second] {
        book.close(guard);
        book.counted_down(book.tenure());
    }
    assert!(!book.is_revoked_for(first));
    let third = book.open(0, 3, None, 0, 100);
    assert!(!book.is_revoked() && !book.is_revoked_for(third));
}

/// Another client waits for the lock, so its release goes to the server.
#[tokio::test(start_paused = true)]
async fn revoked_lock_is_not_handed_over() {
    let (client, fake, lock) = with_lock();
    let guard = lock.lock().await.unwrap();
    let next = waiter(&lock);
    settle().await;
    assert!(lock.revoke().await.unwrap() && hears(&guard));
    guard.unlock().await.unwrap();
    assert_eq!(fake.sent("release").len(), 1);
    let next = next.await.unwrap();
    assert!(!hears(&next), "the request ended with the hash");
    next.unlock().await.unwrap();
    done(client, &fake).await;
}

/// The client does not know of the request yet, and hands the lock over. The next guard hears the request.
#[tokio::test(start_paused = true)]
async fn request_reaches_the_guard_that_was_handed_the_lock() {
    let (client, fake, lock) = with_lock();
    let guard = lock.lock().await.unwrap();
    let next = waiter(&lock);
    settle().await;
    guard.unlock().await.unwrap();
    let next = next.await.unwrap();
    assert_eq!(fake.sent("release").len(), 0);
    fake.next("renew", Fate::Answer(Reply::List(vec![Reply::List(vec![Reply::Int(0)])])));
    assert_eq!(renew(&client).await, (1, 0, 0));
    assert!(hears(&next) && next.is_held());
    next.unlock().await.unwrap();
    done(client, &fake).await;
}

/// One hold is gone, and the holder was asked to finish.
#[tokio::test(start_paused = true)]
async fn renewal_reports_a_request_beside_a_lost_hold() {
    let (client, fake, lock, me) = with_lock_and_owner();
    let how = || Acquire::new().owner(&me);
    let guards = [lock.acquire(how()).await.unwrap().unwrap(), lock.acquire(how()).await.unwrap().unwrap()];
    fake.next("renew", Fate::Answer(Reply::List(vec![Reply::List(vec![Reply::Int(1), Reply::Int(0)])])));
    assert_eq!(renew(&client).await, (1, 0, 1));
    assert_eq!(guards.each_ref().map(Guard::is_held), [false, true]);
    assert_eq!(guards.each_ref().map(hears), [false, true]);
    settle().await;
    fake.delete("x");
    drop(guards);
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn multi_guard_hears_a_request_to_a_member() {
    let (client, fake) = client(|_| ());
    let both = client.multi(["a", "b"]).lock().await.unwrap();
    assert!(!hears(&both));
    assert!(client.reentrant("b").revoke().await.unwrap());
    assert!(hears(&both));
    both.unlock().await.unwrap();
    done(client, &fake).await;
}
