//! Acquires of striped locks, dropped wherever they stand.

use std::time::Duration;

use distlock::{Acquire, DistLock, Flavour, Striped};
use distlock_support::Numbers;

use crate::segments::{SEGMENTS, any};
use bed::{eventually, idle, ms, reentrant, secs};

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
