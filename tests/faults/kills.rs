//! Connections that are closed by the server, and scripts that it forgets, over and over.

use std::time::{Duration, Instant};

use distlock_support::TtlSampler;

use bed::fault::brisk;
use bed::pest::{Deed, Pest, contend};
use bed::{eventually, ms, reentrant, secs};

/// Every connection for messages is closed every 50 ms while 64 tasks of 4 clients wait: the subscriptions are made anew,
/// and every waiter looks for itself once, so nobody sleeps through a release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_subscriptions_lose_no_waiter() {
    reentrant(async |bed| {
        let mut clients = Vec::new();
        for _ in 0..4 {
            // Asleep for long if nobody wakes them.
            clients.push(bed.connect(brisk(&bed.server.url()).watchdog(secs(30)).poll_cap(secs(30))).await);
        }
        let pest = Pest::start(bed, ms(50), &[Deed::Kill("pubsub")]).await;
        let start = Instant::now();
        let waits = contend(&clients, 64, 3, ms(5)).await;
        let took = start.elapsed();
        let kills = pest.stop().await;
        println!("192 locks in {took:?} under {kills} kills; longest wait {:?}", waits.last().unwrap());
        assert!(kills > 20 && took < secs(30), "{kills} kills, {took:?}");
    })
    .await;
}

/// Every connection for commands as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_connections_lose_no_waiter_and_count_nothing_twice() {
    reentrant(async |bed| {
        let sampler = TtlSampler::start(&bed.server.url()).await;
        let mut clients = Vec::new();
        for _ in 0..4 {
            let builder = brisk(&bed.server.url()).watchdog(secs(30)).poll_cap(secs(30)).retry_attempts(100);
            clients.push(bed.connect(builder).await);
        }
        let pest = Pest::start(bed, ms(50), &[Deed::Kill("normal"), Deed::Kill("pubsub")]).await;
        let start = Instant::now();
        let waits = contend(&clients, 64, 3, ms(2)).await;
        let took = start.elapsed();
        let kills = pest.stop().await;
        println!("192 locks in {took:?} under {kills} kills; longest wait {:?}", waits.last().unwrap());
        assert!(kills > 20 && took < secs(60), "{kills} kills, {took:?}");
        assert_eq!(sampler.stop().await, [], "keys without an end");
    })
    .await;
}

/// One kill in the very moment of waiting, and the release in the gap: the waiter is in as soon as it is connected again.
#[tokio::test]
async fn a_release_while_the_subscription_is_away_is_noticed() {
    reentrant(async |bed| {
        // Never waits itself: only the waiter listens.
        let holder = bed.connect(bed.builder().take_turns(false)).await;
        let waiter = bed.connect(brisk(&bed.server.url()).watchdog(secs(30)).poll_cap(secs(30))).await;
        for round in 0..5 {
            let guard = holder.reentrant("a").lock().await.unwrap();
            let lock = waiter.reentrant("a");
            let waiting = tokio::spawn(async move { (lock.lock().await.unwrap(), Instant::now()) });
            eventually("the waiter waits", async || waiter.stats().waiting == 1).await;
            let channel = "redisson_lock__channel:{a}";
            eventually("the waiter listens", async || bed.admin.numsub(channel).await == 1).await;
            assert!(bed.admin.client_kill_type("pubsub").await >= 1);
            guard.unlock().await.unwrap();
            let released = Instant::now();
            let (guard, granted) = tokio::time::timeout(secs(10), waiting).await.expect("noticed").unwrap();
            let late = granted.saturating_duration_since(released);
            println!("round {round}: granted {late:?} after the release");
            assert!(late < secs(2), "{late:?}");
            guard.unlock().await.unwrap();
        }
    })
    .await;
}

/// The server forgets its scripts all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forgotten_scripts_are_not_noticed() {
    reentrant(async |bed| {
        let clients = [bed.client().await, bed.client().await];
        let pest = Pest::start(bed, ms(1), &[Deed::Flush]).await;
        let start = Instant::now();
        let waits = contend(&clients, 8, 100, Duration::ZERO).await;
        let flushes = pest.stop().await;
        println!(
            "800 locks in {:?} under {flushes} flushes; longest wait {:?}",
            start.elapsed(),
            waits.last().unwrap()
        );
        let stats = bed.admin.commandstats().await;
        assert!(flushes > 20 && stats.get("eval").is_some_and(|evals| *evals > 20), "{flushes}, {stats:?}");
        assert!(!stats.contains_key("script|load"));
    })
    .await;
}
