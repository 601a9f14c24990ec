//! The calls of a semaphore, on one client and on two.

use distlock::Error;
use futures::future::join_all;

use crate::rig::{TOKENS, available, semaphores, with};
use bed::{becomes, ends, ms, secs};

#[tokio::test]
async fn permits_are_taken_up_to_their_number() {
    semaphores(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let (here, there) = (with(&client, "seats", 3).await, other.semaphore("seats"));
        assert!(!there.try_set_permits(9).await.unwrap(), "the number is set already");
        assert!(here.try_acquire(1).await.unwrap() && there.try_acquire(2).await.unwrap());
        assert!(!here.try_acquire(1).await.unwrap());
        assert_eq!(available(&here).await, 0);
        there.release(1).await.unwrap();
        assert!(!here.try_acquire(2).await.unwrap() && here.try_acquire(1).await.unwrap());
        assert!(!there.acquire_for(1, ms(30)).await.unwrap());
        here.release(3).await.unwrap();
        assert_eq!((here.drain().await.unwrap(), available(&there).await), (3, 0));
    })
    .await;
}

#[tokio::test]
async fn release_and_added_permits_wake_waiters_everywhere() {
    semaphores(async |bed| {
        let (client, other) = (bed.still_client().await, bed.still_client().await);
        let here = with(&client, "seats", 0).await;
        for waits in [&client, &other] {
            let there = waits.semaphore("seats");
            let next = tokio::spawn(async move { there.acquire(2).await });
            becomes("waiters", 1, async || waits.stats().waiting).await;
            here.release(1).await.unwrap();
            here.add_permits(1).await.unwrap();
            ends("the waiter", next).await.unwrap().unwrap();
            assert_eq!(available(&here).await, 0);
        }
    })
    .await;
}

#[tokio::test]
async fn number_follows_every_way_to_change_it() {
    semaphores(async |bed| {
        let client = bed.client().await;
        let seats = client.semaphore("seats");
        assert_eq!((available(&seats).await, seats.drain().await.unwrap()), (0, 0));
        assert!(!seats.release_if_exists(2).await.unwrap() && !bed.admin.exists("seats").await);
        // Zero permits: no command, and no key.
        seats.acquire(0).await.unwrap();
        seats.release(0).await.unwrap();
        assert!(!bed.admin.exists("seats").await);
        seats.release(2).await.unwrap();
        assert!(seats.release_if_exists(1).await.unwrap());
        seats.acquire(2).await.unwrap();
        seats.add_permits(-5).await.unwrap();
        assert_eq!(available(&seats).await, -4);
        assert_eq!((seats.drain().await.unwrap(), seats.drain().await.unwrap()), (-4, 0));
        seats.set_permits(7).await.unwrap();
        assert_eq!(available(&seats).await, 7);
        assert!(seats.delete().await.unwrap() && !seats.delete().await.unwrap());
        assert!(seats.try_set_permits_for(2, secs(600)).await.unwrap());
        seats.add_permits(1).await.unwrap();
        seats.acquire(1).await.unwrap();
        assert_eq!(seats.drain().await.unwrap(), 2);
        assert!(bed.admin.pttl("seats").await > 0, "the number keeps its end");
    })
    .await;
}

#[tokio::test]
async fn wrong_type_and_impossible_names_are_refused() {
    semaphores(async |bed| {
        let client = bed.client().await;
        bed.admin.cmd::<()>(&["HSET", "odd", "a", "1"]).await;
        let odd = client.semaphore("odd");
        assert!(matches!(odd.try_acquire(1).await, Err(Error::WrongType { .. })));
        assert!(odd.release(1).await.is_err() && odd.available().await.is_err() && odd.drain().await.is_err());
        assert!(matches!(client.semaphore("").release(1).await, Err(Error::Config { .. })));
        assert!(matches!(odd.try_set_permits_for(1, ms(1)).await, Err(Error::Config { .. })));
        let tokens = bed.admin.keys().await.into_iter().filter(|key| key.starts_with(TOKENS)).count();
        assert_eq!(tokens, 0, "a refused command leaves no token");
    })
    .await;
}

/// A client has as many tokens for a name as it has had commands in flight at once.
#[tokio::test]
async fn tokens_are_used_again() {
    semaphores(async |bed| {
        let client = bed.client().await;
        let seats = with(&client, "seats", 4).await;
        for _ in 0..20 {
            seats.acquire(1).await.unwrap();
            seats.release(1).await.unwrap();
        }
        let tokens = async || bed.admin.keys().await.into_iter().filter(|key| key.starts_with(TOKENS)).count();
        assert_eq!(tokens().await, 1);
        for taken in join_all((0..4).map(|_| seats.try_acquire(1))).await {
            assert!(taken.unwrap());
        }
        assert!(tokens().await <= 4);
        assert_eq!(available(&seats).await, 0);
    })
    .await;
}

#[tokio::test]
async fn dropped_waiters_take_nothing_and_the_next_one_is_served() {
    semaphores(async |bed| {
        let client = bed.client().await;
        let seats = with(&client, "seats", 0).await;
        for round in 0..20 {
            let there = seats.clone();
            let next = tokio::spawn(async move { there.acquire(1).await });
            becomes("waiters", 1, async || client.stats().waiting).await;
            let mut dropped = Box::pin(seats.acquire(1));
            for _ in 0..round % 4 {
                assert!(futures::poll!(&mut dropped).is_pending());
                tokio::task::yield_now().await;
            }
            seats.release(1).await.unwrap();
            drop(dropped);
            ends("the waiter", next).await.unwrap().unwrap();
            becomes("free permits", 0, async || available(&seats).await).await;
        }
    })
    .await;
}
