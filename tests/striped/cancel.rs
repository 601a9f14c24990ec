//! Acquires of striped locks are dropped at random points.

use std::collections::HashSet;
use std::time::Duration;

use distlock::{Acquire, Flavour, Striped};
use distlock_support::{Numbers, slot_of};

use crate::segments::{SEGMENTS, any, waits_for_each};
use bed::dropped::{at_each_await, only_left};
use bed::{ends, idle, ms, reentrant, secs};

/// Drops an acquire of any segment at its first await, then one at its second, and so on. Does the same with acquires
/// of all segments, and with releases. Another owner holds no segment, one segment, or all.
#[tokio::test]
async fn acquire_or_release_dropped_at_each_await_leaves_no_keys() {
    reentrant(async |bed| {
        let client = bed.connect(bed.builder().configure(|options| options.subscription_linger = ms(20))).await;
        let other = bed.connect(bed.builder().watchdog(secs(600))).await;
        let thirds: HashSet<_> = (0..SEGMENTS).map(|n| slot_of(format!("s:{n}")) / 5_462).collect();
        assert!(thirds.len() > 1, "in a cluster they are not all on one primary");
        for flavour in Flavour::ALL.iter().copied().filter(|flavour| *flavour != Flavour::Read) {
            let striped = Striped::over(&client, flavour, "s", SEGMENTS);
            let theirs = Striped::over(&other, flavour, "s", SEGMENTS);
            for taken in [0, 1, SEGMENTS] {
                let mut guards = Vec::new();
                for n in 0..taken {
                    guards.push(theirs.segment(n).unwrap().lock().await.unwrap());
                }
                let keys = bed.keys().await;
                // The lease is longer than the test, so leftovers stay visible.
                let how = |is_free| Acquire::new().lease(secs(600)).wait(if is_free { secs(600) } else { ms(60) });
                let look = async |when: String| only_left(bed, &client, &keys, &when).await;
                let any = async || Ok(striped.acquire_any(how(taken < SEGMENTS)).await?.map(|(_, guard)| guard));
                at_each_await(any, look).await;
                let all = striped.all();
                at_each_await(async || all.acquire(how(taken == 0)).await, look).await;
                for guard in guards {
                    guard.unlock().await.unwrap();
                }
            }
            theirs.all().try_lock().await.unwrap().expect("all are free").unlock().await.unwrap();
        }
    })
    .await;
}

/// The acquire is dropped while it waits for all segments, and at random points.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquires_dropped_at_random_points_leave_no_keys() {
    reentrant(async |bed| {
        let builder = || bed.builder().configure(|options| options.subscription_linger = ms(100)).watchdog(secs(600));
        let (client, holder) = (bed.connect(builder()).await, bed.connect(builder()).await);
        for flavour in [Flavour::Reentrant, Flavour::Fair, Flavour::Spin] {
            let striped = Striped::over(&client, flavour, "s", SEGMENTS);
            let all = Striped::over(&holder, flavour, "s", SEGMENTS).all().lock().await.unwrap();
            for _ in 0..5 {
                let lock = striped.clone();
                let waiter = tokio::spawn(async move { any(&lock).await });
                waits_for_each(&client).await;
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
                            match tokio::time::timeout(pause, striped.acquire_any(Acquire::new())).await {
                                Ok(Ok(Some((_, guard)))) if numbers.below(2) == 0 => drop(guard),
                                Ok(Ok(Some((_, guard)))) => drop(guard.unlock().await.unwrap()),
                                Ok(Ok(None)) => panic!("a wait without limit ran out"),
                                Ok(Err(error)) => panic!("an acquire failed: {error}"),
                                Err(_) => {}
                            }
                        }
                        ends("an acquire that is not dropped", any(&striped)).await.1.unlock().await.unwrap();
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
            only_left(bed, &client, &[], flavour.as_str()).await;
        }
    })
    .await;
}
