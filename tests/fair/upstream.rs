//! What Redisson's own tests of its fair lock show (`RedissonFairLockTest`), asked of ours. Those that every flavour has
//! to pass are in the conformance suite; those about deadlines in `drift`.

use std::time::{Duration, Instant};

use distlock::{Acquire, Error};

use crate::rig::{keys_gone, line_up, queue, queued, waiter};
use bed::{eventually, fair, idle, ms, secs};

/// `testLeaseTimeout`: the ends of leases, not releases, drive the order; 8 come 100 ms apart, wait 10 s, hold 1 s, and
/// never unlock. Redisson has 11 s for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_that_end_without_an_unlock_keep_the_order() {
    fair(async |bed| {
        let clients = [bed.client().await, bed.client().await];
        let start = Instant::now();
        let mut tasks = Vec::new();
        for n in 0..8 {
            let lock = clients[n % 2].fair("a");
            tasks.push(tokio::spawn(async move {
                let guard = lock.acquire(Acquire::new().wait(secs(10)).lease(secs(1))).await.unwrap();
                (guard.unwrap_or_else(|| panic!("number {n} was not served")), Instant::now())
            }));
            tokio::time::sleep(ms(100)).await;
        }
        let mut guards = Vec::new();
        let mut last = start;
        for task in tasks {
            let (guard, granted) = task.await.unwrap();
            println!("{:?}", granted - start);
            assert!(granted > last, "out of order");
            last = granted;
            guards.push(guard);
        }
        assert!(last - start < secs(11), "{:?}", last - start);
        drop(guards);
        keys_gone(bed, secs(5)).await;
    })
    .await;
}

/// `testExpire`: a lease of 2 s ends, and the waiter has the lock within a moment; who held it is told so.
#[tokio::test]
async fn the_end_of_a_lease_is_noticed_in_time() {
    fair(async |bed| {
        let (holder, waiting) = (bed.client().await, bed.client().await);
        let guard = holder.fair("a").lock_leased(secs(2)).await.unwrap();
        let start = Instant::now();
        let (next, granted) = waiter(&waiting, "a").await.unwrap();
        let took = granted - start;
        println!("served {took:?} after the start of a lease of 2 s");
        assert!(took < ms(2000) + ms(150), "{took:?}");
        assert!(matches!(guard.unlock().await, Err(Error::NotHeld { .. } | Error::Lost { .. })));
        next.unlock().await.unwrap();
    })
    .await;
}

/// `testMultipleLocks`: 500 waiters on one name, all served; in order. One client, and then two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_waiters_are_served() {
    fair(async |bed| {
        let (holder, clients) = (bed.client().await, [bed.client().await, bed.client().await]);
        for count in [1, 2] {
            let locks: Vec<_> = clients[..count].iter().map(|client| client.fair("a")).collect();
            let guard = holder.fair("a").lock().await.unwrap();
            let begun = Instant::now();
            let line = line_up(bed, &locks, 500, ms(1)).await;
            let (stood, places) = (begun.elapsed(), queue(bed, "a").await);
            // Through a few refreshes.
            tokio::time::sleep(ms(2500)).await;
            assert_eq!(queue(bed, "a").await, places);
            let start = Instant::now();
            guard.unlock().await.unwrap();
            line.served_in_order().await;
            println!("{count} clients: 500 stood after {stood:?}, and were served in {:?}", start.elapsed());
            assert!(start.elapsed() < secs(20), "{:?}", start.elapsed());
            keys_gone(bed, secs(5)).await;
        }
    })
    .await;
}

/// `testTryLockNonDelayed`: a waiter that failed has left the queue, so that the next `try_lock` is served at once; and
/// `try_lock` itself leaves nothing in the queue.
#[tokio::test]
async fn a_waiter_that_failed_delays_nobody() {
    fair(async |bed| {
        let clients = [bed.client().await, bed.client().await, bed.client().await];
        let guard = clients[0].fair("a").try_lock().await.unwrap().unwrap();
        let start = Instant::now();
        assert!(clients[1].fair("a").lock_for(ms(200)).await.unwrap().is_none());
        assert!(start.elapsed() >= ms(200) && start.elapsed() < ms(500), "{:?}", start.elapsed());
        assert!(clients[2].fair("a").try_lock().await.unwrap().is_none());
        eventually("the queue is empty", async || queue(bed, "a").await.is_empty()).await;
        guard.unlock().await.unwrap();
        let next = clients[2].fair("a").try_lock().await.unwrap().expect("nobody is ahead");
        next.unlock().await.unwrap();
    })
    .await;
}

/// `testTryLockWait`: a wait of 3 s takes 3 s.
#[tokio::test]
async fn a_wait_takes_its_time_and_no_longer() {
    fair(async |bed| {
        let (holder, waiting) = (bed.client().await, bed.client().await);
        let guard = holder.fair("a").lock().await.unwrap();
        let start = Instant::now();
        assert!(waiting.fair("a").lock_for(secs(3)).await.unwrap().is_none());
        let took = start.elapsed();
        assert!(took >= secs(3) && took < ms(3350), "{took:?}");
        guard.unlock().await.unwrap();
    })
    .await;
}

/// `testConcurrency_MultiInstance_Ordering`: started 10 ms apart on different clients, each is the first of those who
/// wait when it gets the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_clients_are_served_in_the_order_of_their_start() {
    fair(async |bed| {
        let mut locks = Vec::new();
        for _ in 0..8 {
            locks.push(bed.client().await.fair("a"));
        }
        let guard = locks[0].lock().await.unwrap();
        let line = line_up(bed, &locks, 32, ms(20)).await;
        guard.unlock().await.unwrap();
        line.served_in_order().await;
    })
    .await;
}

/// `testNameMapper`: the prefix of the client is in the names of all keys and channels (#6759).
#[tokio::test]
async fn the_prefix_is_in_the_names_of_all_keys() {
    fair(async |bed| {
        let client = bed.connect(bed.builder().name_prefix("app:").subscription_linger(ms(0))).await;
        let guard = client.fair("a").lock().await.unwrap();
        let next = waiter(&client, "a");
        queued(bed, "app:a", 1).await;
        let queue_keys = ["redisson_lock_queue:{app:a}", "redisson_lock_timeout:{app:a}"];
        let keys = ["app:a", queue_keys[0], queue_keys[1], "redisson_lock_waiters:{app:a}:app:a"];
        assert_eq!(bed.admin.keys().await, keys);
        let own = format!("redisson_lock__channel:{{app:a}}:{}", queue(bed, "app:a").await[0]);
        eventually("it listens", async || bed.admin.channels().await == [own.as_str()]).await;
        assert_eq!(client.fair("a").queue_len().await.unwrap(), 1);
        guard.unlock().await.unwrap();
        next.await.unwrap().0.unlock().await.unwrap();
        assert_eq!(bed.admin.keys().await, [""; 0]);
    })
    .await;
}

/// `testAcquireFailedNotCalledOnRedisTimeout` (#5019): a waiter gives up while writes stand still for longer than its
/// commands may take; when they go on, nothing of it is left in the queue, and the other waiter has seen no error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_removal_of_a_waiter_survives_a_pause() {
    fair(async |bed| {
        for (pause, timed) in [(2500, false), (2500, true), (4500, false), (4500, true)] {
            let builder = || bed.builder().command_timeout(ms(300)).retry_attempts(10).retry_delay((ms(100), ms(300)));
            let (holder, client) = (bed.client().await, bed.connect(builder()).await);
            let guard = holder.fair("a").lock_leased(secs(20)).await.unwrap();
            let untimed = waiter(&client, "a");
            queued(bed, "a", 1).await;
            let lock = client.fair("a");
            let waiting = tokio::spawn(async move { lock.lock_for(if timed { ms(700) } else { secs(60) }).await });
            queued(bed, "a", 2).await;
            bed.admin.pause(pause, "WRITE").await;
            let paused = Instant::now();
            if timed {
                let outcome = tokio::time::timeout(secs(3), waiting).await.expect("its wait is over").unwrap();
                assert!(outcome.as_ref().map_or_else(Error::is_retryable, Option::is_none), "{outcome:?}");
            } else {
                tokio::time::sleep(ms(500)).await;
                waiting.abort();
            }
            let left = async || queue(bed, "a").await.len() == 1;
            let within = Duration::from_millis(pause) + secs(3);
            eventually("it has left the queue", left).await;
            println!("pause {pause}, {timed}: gone {:?} after the start of the pause", paused.elapsed());
            guard.unlock().await.unwrap();
            untimed.await.unwrap().0.unlock().await.unwrap();
            idle(&client).await;
            keys_gone(bed, secs(5)).await;
        }
    })
    .await;
}
