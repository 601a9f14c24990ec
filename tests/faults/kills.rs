//! The server closes connections and forgets scripts, again and again.

use std::time::Duration;

use distlock_support::TtlSampler;

use crate::rig::{accepted, stubborn};
use bed::pest::{Deed, Pest, contend};
use bed::{ms, reentrant};

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
