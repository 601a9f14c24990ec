//! What a striped lock costs: a command for each segment that is tried.

use bed::{eventually, idle, ms, reentrant, secs};
use distlock::{DistLock as _, Released};

use crate::segments::{SEGMENTS, any};

/// One free segment is found at one command for each that is tried; all busy: each is asked once.
#[tokio::test]
async fn it_costs_a_command_for_each_segment_that_is_tried() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let striped = client.striped("s", SEGMENTS);
        any(&striped).await.1.unlock().await.unwrap();
        let sent = async || {
            let count = bed.admin.calls("evalsha").await;
            bed.admin.reset_stats().await;
            count
        };
        sent().await;
        let (_, first) = any(&striped).await;
        assert_eq!(sent().await, 1);
        let mut guards = vec![first];
        for n in 1..SEGMENTS {
            guards.push(any(&striped).await.1);
            assert!((1..=n as u64 + 1).contains(&sent().await));
        }
        assert!(striped.try_lock().await.unwrap().is_none());
        assert_eq!(sent().await, SEGMENTS as u64);
        // Who waits is silent.
        let waiting = striped.clone();
        let waiter = tokio::spawn(async move { any(&waiting).await });
        let listens = async || bed.admin.channels().await.len() == SEGMENTS && client.stats().waiting == SEGMENTS;
        eventually("it waits for each", listens).await;
        tokio::time::sleep(ms(100)).await;
        sent().await;
        tokio::time::sleep(ms(400)).await;
        assert!(sent().await <= 1, "it asks while it waits");
        drop(guards);
        waiter.await.unwrap().1.unlock().await.unwrap();
    })
    .await;
}

/// Tasks that wait by one object have one attempt at each segment between them; what is asked of all segments is one command
/// for each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_waiting_tasks_have_one_attempt_at_each_segment() {
    const TASKS: usize = 100;
    reentrant(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let (striped, theirs) = (client.striped("s", SEGMENTS), other.striped("s", SEGMENTS));
        any(&striped).await.1.unlock().await.unwrap();
        let all = theirs.all().lock().await.unwrap();
        bed.admin.reset_stats().await;
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                let lock = striped.clone();
                tokio::spawn(async move { any(&lock).await.1.unlock().await.unwrap() })
            })
            .collect();
        let listens = async || bed.admin.channels().await.len() == SEGMENTS && client.stats().waiting == SEGMENTS;
        eventually("they wait for each", listens).await;
        // Those that came before the first had found all busy have asked once for themselves.
        assert!(bed.admin.calls("subscribe").await <= SEGMENTS as u64);
        // On a busy machine tasks may come that late.
        let mut asked = u64::MAX;
        for _ in 0..5 {
            bed.admin.reset_stats().await;
            tokio::time::sleep(ms(400)).await;
            asked = bed.admin.calls("evalsha").await;
            if asked <= 1 {
                break;
            }
        }
        assert!(asked <= 1, "they ask while they wait: {asked} times");
        bed.admin.reset_stats().await;
        let state = striped.state().await.unwrap();
        assert_eq!(state.holders.len(), 1);
        assert_eq!(bed.admin.calls("evalsha").await, SEGMENTS as u64);
        all.unlock().await.unwrap();
        for task in tasks {
            assert_eq!(task.await.unwrap(), Released::Free);
        }
        idle(&client).await;
        bed.admin.reset_stats().await;
        assert!(!striped.force_unlock().await.unwrap());
        assert_eq!(bed.admin.calls("evalsha").await, SEGMENTS as u64);
    })
    .await;
}
