//! Many concurrent tasks.

use std::sync::Arc;
use std::time::Duration;

use crate::segments::any;
use bed::{Counter, ends, reentrant};

/// 16 tasks of two clients run 1 600 sections over 8 segments. The sections alternate between any segment and the
/// segment of a key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn segment_has_one_holder_and_all_segments_are_used() {
    const EACH: u64 = 100;
    reentrant(async |bed| {
        let clients = [bed.client().await, bed.client().await];
        let counters: Arc<Vec<Counter>> = Arc::new((0..8).map(|_| Counter::default()).collect());
        let tasks: Vec<_> = (0..16)
            .map(|n| {
                let (striped, counters) = (clients[n % 2].striped("tickets", 8), Arc::clone(&counters));
                tokio::spawn(async move {
                    for turn in 0..EACH {
                        let (at, guard) = if turn % 4 == 0 {
                            let at = striped.segment_of(format!("key {n} {turn}")).unwrap();
                            (at, ends("the segment of a key", striped.segment(at).unwrap().lock()).await.unwrap())
                        } else {
                            ends("any segment", any(&striped)).await
                        };
                        counters[at].bump(Duration::ZERO).await;
                        guard.unlock().await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let each: Vec<_> = counters.iter().map(Counter::get).collect();
        assert_eq!(each.iter().sum::<u64>(), 16 * EACH);
        assert!(each.iter().all(|count| *count > 20), "sections by segment: {each:?}");
    })
    .await;
}
