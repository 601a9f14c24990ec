//! Who lives is served, however long it takes and whatever is lost of the queue meanwhile.

use std::time::Instant;

use crate::rig::{deadlines, deadlines_key, keys_gone, line_up, passer, queue, queue_key, queued, waiter};
use bed::lag::Lag;
use bed::{eventually, fair, ms, secs};

/// Redisson's complaint #3004: who waited longer than the wait of the queue was taken out for good.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_longer_than_any_deadline_keeps_its_place() {
    fair(async |bed| {
        // A deadline is 900 ms ahead.
        let builder = || bed.builder().fair_wait(secs(1));
        let holder = bed.connect(builder()).await;
        let waiters = [bed.connect(builder()).await, bed.connect(builder()).await];
        let guard = holder.fair("a").lock().await.unwrap();
        let locks: Vec<_> = waiters.iter().map(|client| client.fair("a")).collect();
        let line = line_up(bed, &locks, 6, ms(0)).await;
        let (places, start) = (queue(bed, "a").await, Instant::now());
        while start.elapsed() < secs(5) {
            assert_eq!(queue(bed, "a").await, places, "after {:?}", start.elapsed());
            let left = deadlines(bed, "a").await;
            assert!(left.len() == 6 && left.values().all(|left| *left <= 900.0), "{left:?}");
            tokio::time::sleep(ms(20)).await;
        }
        guard.unlock().await.unwrap();
        line.served_in_order().await;
        keys_gone(bed, secs(5)).await;
    })
    .await;
}

/// The deadlines are lost: every waiter keeps its place, and has a deadline again within a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_deadlines_are_set_anew() {
    fair(async |bed| {
        let (holder, waiting) = (bed.client().await, [bed.client().await, bed.client().await]);
        let guard = holder.fair("a").lock().await.unwrap();
        let locks: Vec<_> = waiting.iter().map(|client| client.fair("a")).collect();
        let line = line_up(bed, &locks, 6, ms(0)).await;
        let places = queue(bed, "a").await;
        for round in 0..2 {
            assert!(bed.admin.cmd::<bool>(&["DEL", &deadlines_key("a")]).await);
            let healed =
                eventually("all have a deadline", async || deadlines(bed, "a").await.len() == 6).await;
            println!("round {round}: healed after {healed:?}");
            assert_eq!(queue(bed, "a").await, places);
        }
        // And once more, with the release before anybody has seen it.
        assert!(bed.admin.cmd::<bool>(&["DEL", &deadlines_key("a")]).await);
        guard.unlock().await.unwrap();
        line.served_in_order().await;
        keys_gone(bed, secs(5)).await;
    })
    .await;
}

/// The queue is lost, with the deadlines or without: every waiter takes a new place, and is served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_queue_is_taken_up_anew() {
    fair(async |bed| {
        let (holder, clients) = (bed.client().await, [bed.client().await, bed.client().await]);
        let (queue_key, deadlines_key) = (queue_key("a"), deadlines_key("a"));
        for lost in [vec![&queue_key], vec![&queue_key, &deadlines_key]] {
            for release_first in [false, true] {
                let guard = holder.fair("a").lock().await.unwrap();
                let waiting: Vec<_> = (0..8).map(|n| passer(&clients[n % 2], "a")).collect();
                queued(bed, "a", 8).await;
                let lose = async || {
                    for key in &lost {
                        bed.admin.cmd::<u64>(&["DEL", key.as_str()]).await;
                    }
                };
                lose().await;
                let start = Instant::now();
                if !release_first {
                    queued(bed, "a", 8).await;
                    println!("{} keys lost: all stand again after {:?}", lost.len(), start.elapsed());
                    assert!(start.elapsed() < secs(3), "{:?}", start.elapsed());
                }
                guard.unlock().await.unwrap();
                for waiting in waiting {
                    tokio::time::timeout(secs(10), waiting).await.expect("served").unwrap();
                }
                println!("{} keys lost, {release_first}: all served after {:?}", lost.len(), start.elapsed());
                keys_gone(bed, secs(5)).await;
            }
        }
    })
    .await;
}

/// A place whose owner stands twice in the queue, or in the deadlines alone: nobody is held up for good.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_out_of_step_with_its_deadlines_is_mended() {
    fair(async |bed| {
        let (holder, waiting) = (bed.client().await, bed.client().await);
        let guard = holder.fair("a").lock().await.unwrap();
        let waiter = waiter(&waiting, "a");
        queued(bed, "a", 1).await;
        let stray = format!("{}:4711", holder.id());
        // Nobody stands for this deadline; and this place, at the head, has none.
        let _: u64 = bed.admin.cmd(&["ZADD", &deadlines_key("a"), "9e15", &format!("{stray}1")]).await;
        let _: u64 = bed.admin.cmd(&["LPUSH", &queue_key("a"), &stray]).await;
        let (start, lag) = (Instant::now(), Lag::start());
        guard.unlock().await.unwrap();
        let (guard, granted) = waiter.await.unwrap();
        let cost = granted.saturating_duration_since(start);
        println!("served after {cost:?}");
        assert!(cost <= lag.allow(secs(5)), "{cost:?}");
        guard.unlock().await.unwrap();
        keys_gone(bed, secs(5)).await;
    })
    .await;
}
