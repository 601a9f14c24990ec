//! Acquires of RedLocks, dropped wherever they stand: no vote is left on any server.

use std::time::Duration;

use distlock::{Acquire, Client, DistLock as _, Error, Flavour, RedLock};
use distlock_support::Numbers;

use crate::rig::{Path, SOON, five, patient};
use bed::harm::cut;
use bed::{eventually, ms, secs};

const NAMES: u64 = 3;

/// So many acquires, and what is done with those that were granted before they were dropped.
async fn drops(lock: RedLock, client: Client, seed: u64, count: u64) -> u64 {
    let mut numbers = Numbers::new(seed);
    let mut dropped = 0;
    while dropped < count {
        let how = match numbers.below(4) {
            0 => Acquire::new().wait(ms(numbers.below(3))),
            1 => Acquire::new().owner(&client.owner()).lease(secs(60)),
            // What is left behind does not go by itself while the test runs.
            _ => Acquire::new().lease(secs(60)),
        };
        let pause = if numbers.below(2) == 0 { Duration::ZERO } else { Duration::from_micros(numbers.below(6_000)) };
        match cut(lock.acquire(how), numbers.below(10), pause).await {
            None => dropped += 1,
            Some(Ok(Some(guard))) => match numbers.below(3) {
                0 => drop(cut(guard.unlock(), numbers.below(4), Duration::ZERO).await),
                1 => drop(guard),
                _ => drop(guard.unlock().await.unwrap()),
            },
            // A wait of a few milliseconds may end before most have answered.
            Some(Ok(None) | Err(Error::NoQuorum { .. })) => {}
            Some(Err(error)) => panic!("{error}"),
        }
    }
    dropped
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquires_of_redlocks_dropped_at_random_points_leave_nothing() {
    five(async |five| {
        let users = [five.warm(Path::Direct, patient).await, five.warm(Path::Direct, patient).await];
        for flavour in [Flavour::Reentrant, Flavour::Fair] {
            let name = |n: u64| format!("{flavour}/{}", n % NAMES);
            let tasks = (0..6_u64).map(|n| {
                let user = &users[n as usize % 2];
                let lock = user.over(flavour, &name(n));
                tokio::spawn(drops(lock, user.clients[0].clone(), n + 1, 50))
            });
            let mut dropped = 0;
            for task in tasks.collect::<Vec<_>>() {
                dropped += task.await.unwrap();
            }
            for user in &users {
                user.idle_at(&[0, 1, 2, 3, 4]).await;
            }
            let took = five.clean(SOON).await;
            println!("{flavour}: {dropped} dropped before their end; clean after {took:?}");
            for n in 0..NAMES {
                let lock = users[1].over(flavour, &name(n));
                lock.lock_for(secs(10)).await.unwrap().expect("free").unlock().await.unwrap();
            }
        }
    })
    .await;
}

/// Waiters behind a holder, dropped in the queue where they all stand, at one server: those behind them come in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_waiters_hold_nobody_up() {
    five(async |five| {
        let users = [five.warm(Path::Direct, patient).await, five.warm(Path::Direct, patient).await];
        let guard = users[0].red("x").lock().await.unwrap();
        let tasks: Vec<_> = (0..12_usize)
            .map(|n| {
                let lock = users[n % 2].red("x");
                tokio::spawn(async move {
                    let mut numbers = Numbers::new(n as u64 + 100);
                    for _ in 0..10 {
                        let pause = Duration::from_micros(1 + numbers.below(20_000));
                        drop(cut(lock.acquire(Acquire::new().lease(secs(60))), 0, pause).await);
                    }
                    let guard = tokio::time::timeout(secs(60), lock.lock()).await.expect("stuck").unwrap();
                    assert!(guard.is_held());
                    guard.unlock().await.unwrap();
                })
            })
            .collect();
        eventually("somebody waits", secs(5), async || users[1].clients.iter().any(|one| one.stats().waiting > 0))
            .await;
        guard.unlock().await.unwrap();
        for task in tasks {
            task.await.unwrap();
        }
        five.clean(SOON).await;
    })
    .await;
}
