//! The server closes connections and forgets scripts, again and again.

use std::time::Duration;

use distlock_support::TtlSampler;

use crate::rig::{accepted, stubborn};
use bed::pest::{Deed, Pest, contend};
use bed::{becomes, ends, eventually, ms, reentrant};

/// Tasks of four clients contend while connections are closed every 50 ms. After each reconnect the client subscribes
/// again, and every waiter tries once. Polls are an hour apart, so the test fails if a wake-up is lost.
async fn killed_connections_lose_no_waiter_and_count_nothing_twice(deeds: &'static [Deed]) {
    reentrant(async |bed| {
        let sampler = TtlSampler::start(&bed.server.url()).await;
        let mut clients = Vec::new();
        for _ in 0..4 {
            clients.push(bed.connect(stubborn(&bed.server.url())).await);
        }
        let before = accepted(&bed.admin).await;
        let pest = Pest::start(bed, ms(50), deeds).await;
        while accepted(&bed.admin).await < before + 20 {
            contend(&clients, 64, 2, ms(5)).await;
        }
        pest.stop().await;
        assert_eq!(sampler.stop().await, [], "keys without an end");
    })
    .await;
}

bed::cases!(on two threads, killed_connections_lose_no_waiter_and_count_nothing_twice:
    for_messages = &[Deed::Kill("pubsub")],
    for_commands_and_messages = &[Deed::Kill("normal"), Deed::Kill("pubsub")],
);

/// The connection of a waiter is closed, and the lock is released before the client has subscribed again.
#[tokio::test]
async fn waiter_acquires_lock_released_while_subscription_is_closed() {
    reentrant(async |bed| {
        // The holder never subscribes, so the closed connection is the waiter's.
        let holder = bed.connect(bed.builder().take_turns(false)).await;
        let waiter = bed.connect(stubborn(&bed.server.url())).await;
        for _ in 0..5 {
            let guard = holder.reentrant("a").lock().await.unwrap();
            let lock = waiter.reentrant("a");
            let waiting = tokio::spawn(async move { lock.lock().await.unwrap() });
            becomes("waiting tasks", 1, async || waiter.stats().waiting).await;
            becomes("subscribers", 1, async || bed.admin.numsub("redisson_lock__channel:{a}").await).await;
            // The client may just have closed this connection itself.
            let kill = async || bed.admin.client_kill_type("pubsub").await >= 1;
            eventually("a subscription is closed", kill).await;
            guard.unlock().await.unwrap();
            ends("the waiter", waiting).await.unwrap().unlock().await.unwrap();
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contention_goes_on_through_script_flushes() {
    reentrant(async |bed| {
        let clients = [bed.client().await, bed.client().await];
        let pest = Pest::start(bed, ms(1), &[Deed::Flush]).await;
        while bed.admin.calls("eval").await < 20 {
            contend(&clients, 8, 50, Duration::ZERO).await;
        }
        pest.stop().await;
        assert_eq!(bed.admin.calls("script|load").await, 0);
    })
    .await;
}
