//! Behaviour that Redisson's own tests of its fair lock show (`RedissonFairLockTest`). Tests that apply to every
//! flavour are in the conformance suite, and tests of times and deadlines in `sim/timing/fair.rs`.

use std::sync::Arc;

use distlock::Error;
use parking_lot::Mutex;

use crate::rig::{client_of, holders, keys_gone, patient, patient_client, queue, queued, waiter};
use bed::{becomes, ends, eventually, fair, idle, in_vain, ms, secs, with_longer_waits};

/// `testMultipleLocks` and `testConcurrency_MultiInstance_Ordering`: 500 waiters of one client, and of several clients.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_waiters_are_served_in_order() {
    fair(async |bed| {
        let holder = patient_client(bed).await;
        for count in [1, 8] {
            let mut locks = Vec::new();
            for _ in 0..count {
                locks.push(patient_client(bed).await.fair("a"));
            }
            let guard = holder.fair("a").lock_leased(secs(600)).await.unwrap();
            let (served, mut tasks) = (Arc::new(Mutex::new(Vec::new())), Vec::new());
            for n in 0..500 {
                let (lock, served) = (locks[n % count].clone(), Arc::clone(&served));
                tasks.push(tokio::spawn(async move {
                    let guard = lock.lock().await.unwrap();
                    served.lock().push(n);
                    guard.unlock().await.unwrap();
                }));
                queued(bed, "a", n + 1).await;
            }
            guard.unlock().await.unwrap();
            for task in tasks {
                ends("a waiter in the line", task).await.unwrap();
            }
            assert_eq!(*served.lock(), (0..500).collect::<Vec<_>>());
            keys_gone(bed).await;
        }
    })
    .await;
}

/// `testTryLockNonDelayed`: a failed waiter has left the queue, so the next `try_lock` succeeds at once. `try_lock`
/// itself leaves nothing in the queue.
#[tokio::test]
async fn timed_out_waiter_leaves_no_queue_entry() {
    fair(async |bed| {
        let waiting = patient_client(bed).await;
        let [one, three] = [patient_client(bed).await, patient_client(bed).await].map(|client| client.fair("a"));
        let guard = one.try_lock().await.unwrap().unwrap();
        // If the wait ended before the waiter had its place, the test tries again with a longer wait.
        let outcome = with_longer_waits(ms(200), async |wait| {
            let lock = waiting.fair("a");
            let task = tokio::spawn(async move { lock.lock_for(wait).await });
            let mut was_queued = false;
            eventually("the waiter has a place, or has failed", async || {
                was_queued |= !queue(bed, "a").await.is_empty();
                was_queued || task.is_finished()
            })
            .await;
            let outcome = ends("a waiter with a limit", task).await.unwrap();
            idle(&waiting).await;
            assert_eq!(queue(bed, "a").await, [""; 0], "the waiter that failed has left its place");
            was_queued.then_some(outcome)
        })
        .await;
        assert!(in_vain(&outcome), "{outcome:?}");
        assert!(three.try_lock().await.unwrap().is_none());
        assert_eq!(queue(bed, "a").await, [""; 0], "try_lock has left a place");
        guard.unlock().await.unwrap();
        let next = three.try_lock().await.unwrap().expect("nobody is ahead");
        next.unlock().await.unwrap();
    })
    .await;
}

/// `testNameMapper`: all keys and channels contain the client's prefix (#6759).
#[tokio::test]
async fn prefix_is_part_of_all_key_and_channel_names() {
    fair(async |bed| {
        let client = bed
            .connect(
                patient(bed.builder()).name_prefix("app:").configure(|options| options.subscription_linger = ms(0)),
            )
            .await;
        let guard = client.fair("a").lock().await.unwrap();
        let next = waiter(&client, "a");
        queued(bed, "app:a", 1).await;
        let queue_keys = ["redisson_lock_queue:{app:a}", "redisson_lock_timeout:{app:a}"];
        let keys = ["app:a", queue_keys[0], queue_keys[1], "redisson_lock_waiters:{app:a}:app:a"];
        assert_eq!(bed.admin.keys().await, keys);
        let own = format!("redisson_lock__channel:{{app:a}}:{}", queue(bed, "app:a").await[0]);
        becomes("channels", vec![own], async || bed.admin.channels().await).await;
        assert_eq!(client.fair("a").queue_len().await.unwrap(), 1);
        guard.unlock().await.unwrap();
        ends("the waiter", next).await.unwrap().unlock().await.unwrap();
        assert_eq!(bed.admin.keys().await, [""; 0]);
    })
    .await;
}

/// `testAcquireFailedNotCalledOnRedisTimeout` (#5019): writes are paused for longer than the command timeout, and a
/// waiter gives up. When writes resume, the waiter leaves nothing in the queue. The other waiter gets no error.
async fn waiter_that_gives_up_during_a_pause_leaves_the_queue(timed: bool) {
    fair(async |bed| {
        let builder = patient(bed.builder())
            .command_timeout(ms(300))
            .retry_attempts(1_000)
            .configure(|options| options.retry_delay = (ms(100), ms(300)));
        let (holder, client) = (patient_client(bed).await, bed.connect(builder).await);
        let guard = holder.fair("a").lock_leased(secs(600)).await.unwrap();
        let stays = waiter(&client, "a");
        queued(bed, "a", 1).await;
        with_longer_waits(if timed { secs(3) } else { secs(600) }, async |wait| {
            let lock = client.fair("a");
            let leaves = tokio::spawn(async move { lock.lock_for(wait).await });
            let has_place = async || leaves.is_finished() || queue(bed, "a").await.len() == 2;
            eventually("the second waiter has a place, or its wait is over", has_place).await;
            bed.admin.pause(600_000, "WRITE").await;
            let in_time = queue(bed, "a").await.len() == 2;
            if timed {
                let outcome = ends("a waiter with a limit", leaves).await.unwrap();
                assert!(outcome.as_ref().map_or_else(Error::is_retryable, Option::is_none), "{outcome:?}");
            } else {
                leaves.abort();
            }
            tokio::time::sleep(secs(1)).await;
            let () = bed.admin.cmd(&["CLIENT", "UNPAUSE"]).await;
            queued(bed, "a", 1).await;
            in_time.then_some(())
        })
        .await;
        assert!(!stays.is_finished(), "the other waiter has failed");
        guard.unlock().await.unwrap();
        ends("the other waiter", stays).await.unwrap().unlock().await.unwrap();
        idle(&client).await;
        keys_gone(bed).await;
    })
    .await;
}

bed::cases!(on two threads, waiter_that_gives_up_during_a_pause_leaves_the_queue:
    when_its_wait_ends = true,
    when_it_is_dropped = false,
);

/// Redisson #4661, #4323: queues stay after an application's restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_removes_its_waiters_from_the_queue() {
    fair(async |bed| {
        let [holder, going, alive] = [patient_client(bed).await, patient_client(bed).await, patient_client(bed).await];
        let guard = holder.fair("a").lock().await.unwrap();
        let leaving: Vec<_> = (0..16)
            .map(|_| {
                let lock = going.fair("a");
                tokio::spawn(async move { lock.lock().await })
            })
            .collect();
        queued(bed, "a", 16).await;
        let behind = waiter(&alive, "a");
        queued(bed, "a", 17).await;
        going.shutdown(bed::PATIENCE).await.unwrap();
        let left = queue(bed, "a").await;
        let clients: Vec<_> = left.iter().map(|owner| client_of(owner)).collect();
        assert_eq!(clients, [alive.id()], "places that the shutdown left");
        for task in leaving {
            let outcome = ends("a waiter of the client that shuts down", task).await.unwrap();
            assert!(matches!(outcome, Err(Error::Closed)), "{outcome:?}");
        }
        // The release grants the lock, so no dead waiter has to be detected.
        guard.unlock().await.unwrap();
        assert_eq!(holders(bed, "a").await, [(left[0].clone(), "1".to_owned())].into(), "the waiter behind them holds");
        ends("the waiter behind them", behind).await.unwrap().unlock().await.unwrap();
        keys_gone(bed).await;
    })
    .await;
}
