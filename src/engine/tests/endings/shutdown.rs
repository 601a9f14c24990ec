//! A shutdown waits for guards, and releases the remaining holds.

use futures::FutureExt as _;
use tokio::time::Instant;

use crate::engine::tests::fake::Fate;
use crate::engine::tests::release::acquire;
use crate::engine::tests::{begin, client, ms, secs, settle, takes, with_owner};
use crate::{Acquire, Error, Released};

/// Until `within` ends, guards are renewed and may be released. Waiting and new acquires return `Closed` at once.
#[tokio::test(start_paused = true)]
async fn shutdown_waits_until_held_locks_are_released() {
    let (client, fake) = client(|_| ());
    let (lock, other) = (client.reentrant("x"), client.reentrant("y"));
    let (guard, second) = (lock.lock().await.unwrap(), other.lock().await.unwrap());
    let waiting = begin(&lock, Acquire::new());
    settle().await;
    let began = Instant::now();
    let shutting = tokio::spawn({
        let client = client.clone();
        async move { client.shutdown(secs(120)).await }
    });
    settle().await;
    assert!(matches!(waiting.await.unwrap(), Err(Error::Closed)));
    for outcome in [lock.try_lock().await, lock.lock().await.map(Some), lock.lock_for(secs(1)).await] {
        assert!(matches!(outcome, Err(Error::Closed)), "{outcome:?}");
    }
    // The work takes 100 s, longer than the watchdog's lease.
    guard.run(tokio::time::sleep(secs(100))).await.unwrap();
    assert!(second.is_held() && lock.is_locked().await.unwrap());
    second.extend(secs(60)).await.unwrap();
    drop(second);
    assert!(!shutting.is_finished());
    assert_eq!(guard.unlock().await.unwrap(), Released::Free);
    shutting.await.unwrap().unwrap();
    let took = began.elapsed();
    assert!((secs(100)..secs(101)).contains(&took), "{took:?}");
    assert_eq!(fake.held(), Vec::<String>::new());
    assert!(matches!(lock.is_locked().await, Err(Error::Closed)));
}

#[tokio::test(start_paused = true)]
async fn shutdown_releases_held_locks_when_its_time_is_up() {
    for within in [ms(0), secs(5)] {
        let (client, fake) = client(|_| ());
        let guard = client.reentrant("x").lock().await.unwrap();
        let lost = guard.lost();
        // A release has a whole command timeout, even if `within` has passed.
        fake.next("release", Fate::Slow(secs(2)));
        takes(within + secs(2)..within + secs(3), client.shutdown(within)).await.unwrap();
        assert!(matches!(lost.now_or_never(), Some(Error::Closed)));
        assert!(matches!(guard.unlock().await, Err(Error::Closed)));
        assert_eq!(fake.held(), Vec::<String>::new());
    }
}

/// The server permanently refused the release of one of two holds, so the owner's next release must include this hold.
#[tokio::test(start_paused = true)]
async fn shutdown_releases_owed_holds() {
    let (client, fake, me) = with_owner();
    let (_outer, inner) = (acquire(&client, &me).await, acquire(&client, &me).await);
    fake.next("release", Fate::Refused("NOPERM no right"));
    assert!(matches!(inner.unlock().await, Err(Error::Server { .. })));
    assert_eq!(fake.held(), ["x 1 2"]);
    client.shutdown(ms(0)).await.unwrap();
    assert_eq!(fake.held(), Vec::<String>::new());
}

/// A server that is out of memory accepts only the last release of an owner.
#[tokio::test(start_paused = true)]
async fn shutdown_sends_refused_releases_of_one_owner_in_one_command() {
    let (client, fake, me) = with_owner();
    let _guards = (acquire(&client, &me).await, acquire(&client, &me).await);
    fake.next("release", Fate::Refused("OOM command not allowed"));
    client.shutdown(ms(0)).await.unwrap();
    let sent = fake.sent("release");
    assert!(sent.len() == 2 && sent[1].text(4).len() > sent[0].text(4).len(), "{}", sent.len());
    assert_eq!(fake.held(), Vec::<String>::new());
}
