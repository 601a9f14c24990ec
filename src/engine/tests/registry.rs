//! The local queue, the shared subscription, and wake-ups.

use std::sync::Arc;

use tokio::task::JoinHandle;

use super::fake::Fake;
use super::{
    client, done, leaves_no_trace, lock_in_turn, ms, no_trace, secs, settle, takes, waiter, with_lock, with_registry,
};
use crate::Guard;
use crate::engine::registry::{Parked, Until};
use crate::names::LockName;

#[tokio::test(start_paused = true)]
async fn waiters_acquire_in_order_of_arrival() {
    for limit in [0, 3, 16] {
        let (client, fake) = client(|options| options.local_handoff_limit = limit);
        let order = lock_in_turn(&client, "x", 50, ms(1)).await;
        assert_eq!(order, (0..50).collect::<Vec<_>>(), "limit {limit}");
        leaves_no_trace(client, &fake).await;
    }
}

#[tokio::test(start_paused = true)]
async fn lock_without_waiters_leaves_no_registry_entry() {
    let (client, fake, lock) = with_lock();
    for _ in 0..3 {
        let guard = lock.lock().await.unwrap();
        assert_eq!(client.engine().registry.names(), 1);
        guard.unlock().await.unwrap();
        assert_eq!(client.engine().registry.names(), 0);
        drop(lock.lock().await.unwrap());
        settle().await;
        assert_eq!(client.engine().registry.names(), 0);
    }
    assert_eq!(fake.subscriptions().0.len(), 0);
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn turn_goes_to_next_waiter_when_a_waiter_leaves() {
    for limit in [0, 16] {
        let (client, fake) = client(|options| options.local_handoff_limit = limit);
        let lock = client.reentrant("x");
        let held = lock.lock().await.unwrap();
        let waiters = [(); 4].map(|()| waiter(&lock));
        settle().await;
        assert_eq!(client.stats().waiting, 4);
        // These are the contender and a waiter in the middle of the queue.
        waiters[0].abort();
        waiters[2].abort();
        settle().await;
        assert_eq!(client.stats().waiting, 2);
        let [_, second, _, fourth] = waiters;
        let acquired = async {
            held.unlock().await.unwrap();
            drop(second.await.unwrap());
            drop(fourth.await.unwrap());
        };
        takes(ms(0)..ms(50), acquired).await;
        leaves_no_trace(client, &fake).await;
    }
}

#[tokio::test]
async fn queue_shrinks_after_many_waiters_have_left() {
    let (client, fake, registry) = with_registry();
    let name = LockName::new("", "x");
    let contender = registry.enter(&name, Some(("reentrant", 0)));
    assert!(contender.has_turn());
    let last = registry.enter(&name, Some(("reentrant", 0)));
    for _ in 0..100_000 {
        drop(registry.enter(&name, Some(("reentrant", 0))));
    }
    assert!(registry.queued(&name) < 100, "{}", registry.queued(&name));
    // Drops all waiters but `last` at once, in order, in reverse order, or every second one first.
    for way in 0..3 {
        let mut places: Vec<_> = (0..100_000).map(|_| registry.enter(&name, Some(("reentrant", 0)))).collect();
        assert_eq!(registry.waiting(), 100_001);
        match way {
            0 => drop(places),
            1 => places.into_iter().rev().for_each(drop),
            _ => {
                let mut nth = 0;
                places.retain(|_| {
                    nth += 1;
                    nth % 2 == 0
                });
                drop(places);
            }
        }
        assert!(registry.queued(&name) < 1000, "{}", registry.queued(&name));
        assert_eq!(registry.waiting(), 1);
        assert!(!last.has_turn());
    }
    drop(contender);
    assert!(last.has_turn());
    drop(last);
    assert_eq!((registry.names(), registry.waiting()), (0, 0));
    drop(registry);
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn message_wakes_only_contender_and_waiters_share_a_subscription() {
    let (client, fake, lock) = with_lock();
    fake.steal("x", secs(3600));
    let waiters: Vec<_> = (0..100).map(|_| waiter(&lock)).collect();
    settle().await;
    // The contender looked, subscribed and looked again. The other waiters sent nothing.
    assert_eq!((fake.sent("acquire").len(), fake.subscriptions().0.len()), (2, 1));
    for messages in 1..=5 {
        fake.publish("x");
        settle().await;
        assert_eq!(fake.sent("acquire").len(), 2 + messages);
    }
    // After a reconnect, the contender of each name looks once.
    let names: Vec<_> = (0..9).map(|n| format!("other {n}")).collect();
    names.iter().for_each(|name| fake.steal(name, secs(3600)));
    let others: Vec<_> = names.iter().map(|name| waiter(&client.reentrant(name))).collect();
    settle().await;
    let before = fake.sent("acquire").len();
    fake.listener().missed();
    settle().await;
    assert_eq!(fake.sent("acquire").len(), before + 10);
    waiters.iter().chain(&others).for_each(JoinHandle::abort);
    names.iter().for_each(|name| fake.delete(name));
    fake.delete("x");
    settle().await;
    assert_eq!((client.stats().waiting, fake.subscriptions().0.len()), (0, 10));
    leaves_no_trace(client, &fake).await;
}

/// The lock becomes free, and its waiter acquires it by the message.
async fn gets_freed_lock(waits: JoinHandle<Guard>, fake: &Fake, name: &str) {
    fake.free(name);
    drop(takes(ms(0)..ms(10), waits).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn subscription_lingers_and_restarts_if_needed_while_it_ends() {
    let (client, fake, lock) = with_lock();
    // Uses within the linger time share one subscription.
    for _ in 0..5 {
        fake.steal("x", secs(3600));
        let waits = waiter(&lock);
        settle().await;
        fake.free("x");
        drop(waits.await.unwrap());
        tokio::time::sleep(secs(4)).await;
    }
    let counts = |fake: &Fake| (fake.subscriptions().0.len(), fake.subscriptions().1.len());
    assert_eq!(counts(&fake), (1, 0));
    // A waiter arrives while the subscription is being ended.
    fake.gate(false);
    tokio::time::sleep(secs(2)).await;
    assert_eq!(counts(&fake), (1, 1));
    fake.steal("x", secs(3600));
    let waits = waiter(&lock);
    settle().await;
    assert_eq!(counts(&fake), (1, 1));
    fake.gate(true);
    settle().await;
    assert_eq!(counts(&fake), (2, 1));
    gets_freed_lock(waits, &fake, "x").await;
    settle().await;
    no_trace(&client, &fake).await;
    // A waiter leaves while its subscribe is in flight. An unsubscribe follows.
    fake.gate(false);
    fake.steal("x", secs(3600));
    let waits = waiter(&lock);
    settle().await;
    waits.abort();
    settle().await;
    fake.gate(true);
    fake.delete("x");
    leaves_no_trace(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn subscription_completes_and_ends_whenever_its_waiter_leaves() {
    let (client, fake, registry) = with_registry();
    let name = LockName::new("", "x");
    for polls in 0..3 {
        let mut waiter = registry.enter(&name, Some(("reentrant", 0)));
        waiter.sit();
        let mut listen = Box::pin(waiter.listen(secs(1)));
        if polls == 0 {
            // The task has used up its tokio budget, so the subscribe cannot proceed.
            while futures::poll!(Box::pin(tokio::task::consume_budget())).is_ready() {}
            assert!(futures::poll!(&mut listen).is_pending());
            assert_eq!(fake.subscriptions().0.len(), 0);
        }
        for _ in 0..polls {
            assert!(futures::poll!(&mut listen).is_pending());
            tokio::time::sleep(ms(1)).await;
        }
        drop(listen);
        drop(waiter);
        no_trace(&client, &fake).await;
        assert_eq!(fake.subscriptions().0.len(), polls + 1);
    }
    drop(registry);
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn wake_up_before_park_is_not_lost() {
    let (client, fake, registry) = with_registry();
    let name = LockName::new("", "x");
    let mut waiter = registry.enter(&name, Some(("reentrant", 0)));
    waiter.sit();
    waiter.listen(secs(1)).await;
    assert!(waiter.is_listening() && waiter.handed().is_none());
    // A release is announced during the contender's attempt.
    fake.publish("x");
    assert_eq!(waiter.park(secs(5), Until::Message).await, Parked::Woken);
    assert!(waiter.handed().is_none());
    // The call of `handed` has taken all earlier messages.
    assert_eq!(waiter.park(secs(5), Until::Message).await, Parked::TimedOut);
    // Messages do not wake the waiters behind the contender.
    let behind = registry.enter(&name, Some(("reentrant", 0)));
    let mut parked = Box::pin(behind.park(secs(5), Until::Turn));
    assert!(futures::poll!(&mut parked).is_pending());
    fake.publish("x");
    assert!(futures::poll!(&mut parked).is_pending());
    fake.listener().missed();
    assert!(futures::poll!(&mut parked).is_ready(), "after a break everybody looks up");
    drop(parked);
    drop(behind);
    drop(waiter);
    drop(registry);
    leaves_no_trace(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn names_that_share_a_channel_keep_its_subscription() {
    let (client, fake) = client(|_| ());
    // `a` and `{a}` share a channel, because Redisson derives the same channel from both names.
    let (plain, braced) = (client.reentrant("a"), client.reentrant("{a}"));
    for round in 0..3 {
        for name in ["a", "{a}"] {
            fake.steal(name, secs(3600));
        }
        let (first, second) = (waiter(&plain), waiter(&braced));
        settle().await;
        // The later waiter leaves. The shared subscription must stay.
        fake.delete("{a}");
        fake.publish("a");
        drop(second.await.unwrap());
        tokio::time::sleep(secs(8 * round)).await;
        gets_freed_lock(first, &fake, "a").await;
    }
    assert_eq!(fake.subscriptions().1.len(), 0, "one of the two listened all the time");
    // A waiter arrives while the other name's subscription is being ended.
    fake.gate(false);
    tokio::time::sleep(secs(6)).await;
    fake.steal("{a}", secs(3600));
    let second = waiter(&braced);
    settle().await;
    fake.gate(true);
    settle().await;
    gets_freed_lock(second, &fake, "{a}").await;
    tokio::time::sleep(secs(6)).await;
    assert_eq!(client.engine().registry.names(), 0);
    assert_eq!(fake.channels(), 0);
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn wake_up_at_end_of_a_wait_goes_to_the_next_waiter() {
    let (client, fake) = client(|_| ());
    let engine = client.engine();
    for looks_at_the_end in [false, true] {
        let name = Arc::new(LockName::new("", "x"));
        let mut first = engine.registry.enter(&name, None);
        let mut second = engine.registry.enter(&name, None);
        first.sit();
        second.sit();
        assert!(first.has_turn() && !second.has_turn());
        engine.registry.wake(&name);
        assert!(first.is_woken());
        if looks_at_the_end {
            first.stops_looking();
        }
        assert!(first.handed().is_none());
        drop(first);
        assert_eq!((second.has_turn(), second.is_woken()), (true, looks_at_the_end));
        // A waiter that arrives now queues behind the second.
        let third = engine.registry.enter(&name, None);
        assert!(!third.has_turn());
        drop(second);
        assert!(third.has_turn());
    }
    done(client, &fake).await;
}

/// A waiter arrives while another name unsubscribes from the same channel, and further subscribes fail. The waiter must
/// not assume that it is subscribed.
#[tokio::test(start_paused = true)]
async fn subscription_ended_by_another_name_is_restarted() {
    let (client, fake) = client(|_| ());
    let (plain, braced) = (client.reentrant("a"), client.reentrant("{a}"));
    fake.steal("a", secs(3600));
    let first = waiter(&plain);
    settle().await;
    fake.free("a");
    drop(first.await.unwrap());
    fake.gate(false);
    tokio::time::sleep(secs(6)).await;
    fake.steal("{a}", secs(3600));
    let second = waiter(&braced);
    settle().await;
    fake.subscribe_fails(true);
    fake.gate(true);
    tokio::time::sleep(secs(1)).await;
    fake.subscribe_fails(false);
    // A waiter without messages polls, and tries to subscribe again.
    tokio::time::sleep(client.engine().options.poll_cap).await;
    assert_eq!(fake.channels(), 1, "nobody is told of releases");
    gets_freed_lock(second, &fake, "{a}").await;
    no_trace(&client, &fake).await;
    assert_eq!(fake.channels(), 0);
    done(client, &fake).await;
}
