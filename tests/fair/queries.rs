//! Queries of the queue: `queue()`, `queue_len()`, `position()`.

use distlock::Acquire;

use crate::rig::{DEAD_JAVA, deadlines_key, patient_client, plant, queue, queue_key, queued};
use bed::{ends, fair, idle, ms, secs};

#[tokio::test]
async fn queue_queries_return_waiters_in_order() {
    fair(async |bed| {
        let (holder, client) = (patient_client(bed).await, patient_client(bed).await);
        let lock = holder.fair("a");
        assert!(lock.queue().await.unwrap().is_empty());
        assert_eq!((lock.queue_len().await.unwrap(), lock.position(&holder.owner()).await.unwrap()), (0, None));
        let guard = lock.lock().await.unwrap();
        let owners = [client.owner(), holder.owner(), client.owner()];
        let mut tasks = Vec::new();
        for (n, owner) in owners.iter().enumerate() {
            let client = if n == 1 { &holder } else { &client };
            let (waiting, how) = (client.fair("a"), Acquire::new().owner(owner));
            tasks.push(tokio::spawn(async move { waiting.acquire(how).await.unwrap().unwrap() }));
            queued(bed, "a", n + 1).await;
        }
        let found = lock.queue().await.unwrap();
        let texts: Vec<_> = found.waiters.iter().map(|waiter| waiter.owner.clone()).collect();
        assert_eq!(texts, owners.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(texts, queue(bed, "a").await);
        for waiter in &found.waiters {
            let remaining = waiter.remaining.unwrap();
            assert!(remaining > ms(0) && remaining <= ms(299_500), "{waiter:?}");
        }
        assert_eq!((found.len(), found.is_empty(), lock.queue_len().await.unwrap()), (3, false, 3));
        for (n, owner) in owners.iter().enumerate() {
            assert_eq!((found.position(owner), client.fair("a").position(owner).await.unwrap()), (Some(n), Some(n)));
        }
        assert_eq!(lock.position(guard.owner()).await.unwrap(), None, "who holds does not wait");
        let mut guard = guard;
        for (n, task) in tasks.into_iter().enumerate() {
            guard.unlock().await.unwrap();
            guard = ends("a waiter", task).await.unwrap();
            assert!(lock.is_held_by(&owners[n]).await.unwrap());
            assert_eq!(lock.position(&owners[n]).await.unwrap(), None);
            assert_eq!(lock.queue_len().await.unwrap(), 2 - n);
        }
        guard.unlock().await.unwrap();
        assert_eq!(lock.queue_len().await.unwrap(), 0);
        idle(&client).await;
    })
    .await;
}

/// The queue has three waiters of Java: the deadline of the first has passed, and the last has none.
#[tokio::test]
async fn queue_queries_read_expired_and_missing_deadlines_and_change_nothing() {
    fair(async |bed| {
        let client = bed.client().await;
        let lock = client.fair("a");
        plant(bed, "a", "over", -1000.0).await;
        plant(bed, "a", DEAD_JAVA, 300_000.0).await;
        let _: u64 = bed.admin.cmd(&["RPUSH", &queue_key("a"), "none"]).await;
        let look = async || {
            let deadlines: Vec<String> = bed.admin.cmd(&["ZRANGE", &deadlines_key("a"), "0", "-1", "WITHSCORES"]).await;
            (bed.admin.keys().await, queue(bed, "a").await, deadlines)
        };
        let before = look().await;
        assert_eq!(before.1, ["over", DEAD_JAVA, "none"]);
        let found = lock.queue().await.unwrap();
        let remaining: Vec<_> = found.waiters.iter().map(|waiter| waiter.remaining).collect();
        assert!(remaining[1].is_some_and(|left| left > ms(0) && left <= secs(300)), "{remaining:?}");
        assert_eq!((remaining[0], remaining[2], remaining.len()), (Some(ms(0)), None, 3));
        assert_eq!(lock.position(&DEAD_JAVA.parse().unwrap()).await.unwrap(), Some(1));
        assert_eq!(lock.queue_len().await.unwrap(), 3);
        assert_eq!(look().await, before);
        let _: u64 = bed.admin.cmd(&["DEL", &queue_key("a"), &deadlines_key("a")]).await;
    })
    .await;
}
