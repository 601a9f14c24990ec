//! Events that reach a waiter through its seat (a waiter's flags, set by wake-ups and hand-overs): messages that pass
//! the lock on, and permission to attempt while another holder exists.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;

use super::{done, leaves_no_trace, ms, no_trace, secs, settle, takes, with_registry};
use crate::engine::hold::Hold;
use crate::engine::registry::{HeldAs, Parked, Passed, Until, Waiter};
use crate::names::LockName;

/// Any message wakes a waiter. Only a message with the nonce of the waiter's queue entry passes the lock on.
#[tokio::test(start_paused = true)]
async fn message_passes_lock_on_only_with_the_registered_nonce() {
    let (client, fake, registry) = with_registry();
    for seated in [false, true] {
        let inbox = LockName::new("", "x").inbox("me");
        // A waiter behind another one has its seat from the start.
        let before = seated.then(|| registry.enter(&inbox, None));
        let mut waiter = registry.enter(&inbox, None);
        waiter.expects(&"nonce".into());
        drop(before);
        waiter.sit();
        waiter.listen(secs(1)).await;
        let heard = |waiter: &Waiter, payload: &str| {
            fake.listener().message(&inbox.channel, payload.as_bytes());
            assert!(waiter.is_woken(), "{payload}");
            let passed = waiter.passed();
            assert!(!waiter.is_woken(), "{payload}: seen");
            passed.map(|passed| (passed.lease, passed.since))
        };
        for other in ["0", "1", "", "30000", "30000 ", "30000 other", "x nonce", "nonce", "30000 nonce2"] {
            assert_eq!((heard(&waiter, other), waiter.has_heard()), (None, false), "{other}");
        }
        assert_eq!((heard(&waiter, "30000 nonce"), waiter.has_heard()), (Some((secs(30), None)), true));
        // An answer of the server passed the lock on.
        let since = Some(client.engine().now());
        drop(registry.passed_on(&inbox, Passed { lease: secs(3), since }));
        assert!(waiter.is_woken());
        assert_eq!(waiter.passed().map(|passed| (passed.lease, passed.since)), Some((secs(3), since)));
        assert!(waiter.passed().is_none() && !waiter.is_woken());
        registry.wake(&inbox);
        assert!(waiter.is_woken() && waiter.passed().is_none());
        // An empty nonce matches no message.
        waiter.expects(&"".into());
        assert_eq!(heard(&waiter, "30000 "), None);
        drop(waiter);
        no_trace(&client, &fake).await;
    }
    drop(registry);
    done(client, &fake).await;
}

/// A reader acquires, so the waiters behind it may attempt without the turn. A waiter that fails rejoins the queue.
#[tokio::test(start_paused = true)]
async fn waiters_behind_a_shared_hold_may_try_without_a_turn() {
    let (client, fake, registry) = with_registry();
    let name = LockName::new("", "x");
    let hold = Hold::new(Arc::clone(client.reentrant("x").protocol()), client.owner());
    let mut first = registry.enter(&name, None);
    first.sit();
    first.listen(secs(1)).await;
    let behind: [Waiter; 4] = std::array::from_fn(|_| registry.enter(&name, None));
    // Waiters of the other half come first for a while. The waiters behind the contender may have yielded for long
    // enough, so they are woken once.
    let told = |told: bool| {
        for waiter in &behind {
            assert_eq!(waiter.park(Duration::MAX, Until::Turn).now_or_never(), told.then_some(Parked::Woken));
        }
    };
    told(false);
    for (held_back, news) in [(false, false), (true, true), (true, false), (false, false), (true, true)] {
        first.note_held_back(held_back);
        assert_eq!(behind[0].is_held_back(), held_back);
        told(news);
    }
    let mut parked = Box::pin(behind[3].park(Duration::MAX, Until::Turn));
    assert!(futures::poll!(&mut parked).is_pending());
    first.acquired(&hold, client.engine().now(), HeldAs::Shared);
    assert_eq!(parked.await, Parked::Woken);
    assert!(behind.iter().all(|waiter| waiter.joins() && !waiter.has_turn() && !waiter.is_held_back()));
    told(true);
    assert_eq!((registry.queued(&name), registry.waiting()), (0, 4));
    let [second, third, fourth, fifth] = behind;
    // No waiter has the turn, so the first waiter that rejoins gets it.
    second.rejoin();
    assert!(second.has_turn() && !second.joins());
    third.rejoin();
    fourth.rejoin();
    assert!(!third.has_turn() && !third.joins() && fifth.joins());
    assert_eq!(registry.queued(&name), 2);
    registry.wake(&name);
    assert!(second.is_woken() && !third.is_woken(), "the contender");
    drop(fifth);
    drop(second);
    assert!(third.has_turn() && !fourth.has_turn());
    assert!(third.park(ms(1), Until::Message).await == Parked::Woken, "what the one before was woken for");
    third.acquired(&hold, client.engine().now(), HeldAs::Alone);
    assert!(fourth.has_turn() && !fourth.joins());
    drop(fourth);
    assert_eq!(registry.waiting(), 0);
    no_trace(&client, &fake).await;
    drop((registry, hold));
    done(client, &fake).await;
}

/// Only the first waiter of an owner is woken. When it leaves, it wakes the owner's next waiter.
#[tokio::test(start_paused = true)]
async fn same_owner_wake_up_goes_to_one_waiter_at_a_time() {
    let (client, fake, registry) = with_registry();
    let name = LockName::new("", "x");
    let [nobody, me, other] = std::array::from_fn(|_| client.owner());
    let waits = |owner| {
        let mut waiter = registry.enter(&name, None);
        waiter.sit_as(owner);
        waiter
    };
    let all = [waits(&other), waits(&me), waits(&me), waits(&me)];
    let woken = |all: &[Waiter]| all.iter().map(Waiter::is_woken).collect::<Vec<_>>();
    registry.wake_same_owner(&name, &nobody);
    assert_eq!(woken(&all), [false; 4]);
    registry.wake_same_owner(&name, &me);
    assert_eq!(woken(&all), [false, true, false, false]);
    let [first, second, third, fourth] = all;
    drop(second);
    assert_eq!((third.is_woken(), fourth.is_woken()), (true, false));
    drop(third);
    assert!(fourth.is_woken() && !first.is_woken());
    registry.wake_same_owner(&name, &other);
    assert!(first.is_woken());
    drop((first, fourth));
    assert_eq!((registry.names(), registry.waiting()), (0, 0));
    drop(registry);
    done(client, &fake).await;
}

/// Another task is changing the subscription. The waiter sleeps until the change is done, without polling.
#[tokio::test(start_paused = true)]
async fn subscribing_waiter_continues_at_a_message_or_after_its_time() {
    let (client, fake, registry) = with_registry();
    let name = LockName::new("", "x");
    let mut waiter = registry.enter(&name, None);
    waiter.sit();
    // One change is done, and another change is in flight.
    fake.subscribe_fails(true);
    waiter.listen(secs(1)).await;
    fake.subscribe_fails(false);
    fake.gate(false);
    for _ in 0..2 {
        takes(ms(10)..ms(15), waiter.listen(ms(10))).await;
    }
    let mut listens = Box::pin(waiter.listen(secs(5)));
    assert!(futures::poll!(&mut listens).is_pending());
    registry.wake(&name);
    assert!(futures::poll!(&mut listens).is_ready());
    drop(listens);
    fake.gate(true);
    settle().await;
    assert!(waiter.is_listening());
    drop(waiter);
    drop(registry);
    leaves_no_trace(client, &fake).await;
}
