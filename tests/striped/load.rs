//! Many tasks at once, and tasks that are dropped.

use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock::{Acquire, DistLock, Flavour, Striped};
use distlock_support::Numbers;

use crate::segments::{SEGMENTS, any};
use bed::{Counter, eventually, idle, ms, reentrant, secs};

/// Dropped while it waits for all of them: no key, no place in a queue, no subscription stays; and again at random points.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_at_any_point_it_leaves_nothing() {
    reentrant(async |bed| {
        let client = bed.connect(bed.builder().subscription_linger(ms(100))).await;
        let holder = bed.client().await;
        for flavour in [Flavour::Reentrant, Flavour::Fair, Flavour::Spin] {
            let striped = Striped::over(&client, flavour, "s", SEGMENTS);
            let all = Striped::over(&holder, flavour, "s", SEGMENTS).all().lock().await.unwrap();
            for _ in 0..5 {
                let lock = striped.clone();
                let waiter = tokio::spawn(async move { any(&lock).await });
                eventually("it waits for each", secs(5), async || client.stats().waiting == SEGMENTS).await;
                waiter.abort();
                idle(&client).await;
                assert_eq!(bed.admin.keys().await.len(), SEGMENTS, "no queue");
            }
            all.unlock().await.unwrap();
            let tasks: Vec<_> = (0..8)
                .map(|n| {
                    let striped = striped.clone();
                    tokio::spawn(async move {
                        let mut numbers = Numbers::new(n + 1);
                        for _ in 0..60 {
                            let pause = Duration::from_micros(numbers.below(4_000));
                            match tokio::time::timeout(pause, striped.any(Acquire::new())).await {
                                Ok(Ok(Some((_, guard)))) if numbers.below(2) == 0 => drop(guard),
                                Ok(Ok(Some((_, guard)))) => drop(guard.unlock().await.unwrap()),
                                Ok(Ok(None)) => panic!("no wait ran out"),
                                Ok(Err(error)) => panic!("{error}"),
                                Err(_) => {}
                            }
                        }
                        let (_, guard) = tokio::time::timeout(secs(20), any(&striped)).await.expect("stuck");
                        guard.unlock().await.unwrap();
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
            idle(&client).await;
            eventually("no key is left", secs(5), async || bed.admin.keys().await.is_empty()).await;
            eventually("no name leaves a trace", secs(5), async || client.stats().names == 0).await;
        }
        eventually("no subscription is left", secs(5), async || bed.admin.channels().await.is_empty()).await;
    })
    .await;
}

/// 2 000 sections of 16 tasks of two clients over 8 segments: never two in one, none is left out, and all are used.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_sections_of_sixteen_tasks() {
    const EACH: u64 = 125;
    reentrant(async |bed| {
        let clients = [bed.client().await, bed.client().await];
        let counters: Arc<Vec<Counter>> = Arc::new((0..8).map(|_| Counter::default()).collect());
        let began = Instant::now();
        let tasks: Vec<_> = (0..16)
            .map(|n| {
                let (striped, counters) = (clients[n % 2].striped("tickets", 8), Arc::clone(&counters));
                tokio::spawn(async move {
                    let mut longest = Duration::ZERO;
                    for _ in 0..EACH {
                        let began = Instant::now();
                        let (at, guard) = tokio::time::timeout(secs(20), any(&striped)).await.expect("stuck");
                        longest = longest.max(began.elapsed());
                        counters[at].bump(Duration::ZERO).await;
                        guard.unlock().await.unwrap();
                    }
                    longest
                })
            })
            .collect();
        let mut longest = Duration::ZERO;
        for task in tasks {
            longest = longest.max(task.await.unwrap());
        }
        let each: Vec<_> = counters.iter().map(Counter::get).collect();
        println!("2 000 sections in {:?}, the longest wait {longest:?}, by segment {each:?}", began.elapsed());
        assert_eq!(each.iter().sum::<u64>(), 16 * EACH);
        assert!(each.iter().all(|count| *count > 50), "{each:?}");
        assert!(longest < secs(5), "{longest:?}");
    })
    .await;
}

/// By key: who is in a key's segment is alone with it, and others are beside.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_key() {
    reentrant(async |bed| {
        let clients = [bed.client().await, bed.client().await];
        let counters: Arc<Vec<Counter>> = Arc::new((0..20).map(|_| Counter::default()).collect());
        let tasks: Vec<_> = (0..8_usize)
            .map(|n| {
                let (striped, counters) = (clients[n % 2].striped("map", 8), Arc::clone(&counters));
                tokio::spawn(async move {
                    let mut numbers = Numbers::new(n as u64);
                    for _ in 0..40 {
                        let key = numbers.below(20) as usize;
                        let at = striped.of(format!("key {key}")).unwrap();
                        let guard = striped.segment(at).unwrap().lock().await.unwrap();
                        counters[key].bump(Duration::ZERO).await;
                        guard.unlock().await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(counters.iter().map(Counter::get).sum::<u64>(), 8 * 40);
    })
    .await;
}
