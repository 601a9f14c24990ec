//! Many tasks at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock_support::Numbers;

use crate::segments::any;
use bed::{Counter, reentrant, secs};

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
