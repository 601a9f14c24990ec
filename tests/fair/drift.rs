//! Deadlines stay what they should be, whatever waiters do (Redisson's `…TimeoutDrift` tests, #1104, #2099).

use std::time::Instant;

use distlock::DistLock as _;

use crate::peer::{HISTORY, Peer};
use crate::rig::{DEAD_JAVA, deadlines, keys_gone, plant, queue, queued, waiter};
use bed::lag::Lag;
use bed::{Bed, eventually, fair, ms, secs};

/// The default of what a deadline is ahead of the last refresh.
const PLACE: f64 = 4500.0;

/// No deadline is further away than the own wait.
async fn bounded(bed: &Bed) -> usize {
    let left = deadlines(bed, "a").await;
    assert!(left.values().all(|left| *left <= PLACE), "{left:?}");
    left.len()
}

/// `testWaitTimeoutDrift`: workers try again and again in vain, one waiter is killed without cleaning up, and the lock is
/// forced open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waits_in_vain_do_not_move_deadlines() {
    fair(async |bed| {
        let (holder, client) = (bed.client().await, bed.client().await);
        let guard = holder.fair("a").lock().await.unwrap();
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let lock = client.fair("a");
                tokio::spawn(async move {
                    for _ in 0..15 {
                        assert!(lock.lock_for(ms(150)).await.unwrap().is_none());
                    }
                })
            })
            .collect();
        let mut peer = Peer::start(bed, &[]).await;
        peer.wait("a", 1);
        let stands = async || queue(bed, "a").await.iter().any(|owner| owner.starts_with(&peer.id));
        eventually("the peer waits", stands).await;
        while workers.iter().any(|worker| !worker.is_finished()) {
            bounded(bed).await;
            tokio::time::sleep(ms(10)).await;
        }
        for worker in workers {
            worker.await.unwrap();
        }
        peer.child.kill9();
        queued(bed, "a", 1).await;
        assert_eq!(bounded(bed).await, 1);
        assert!(holder.fair("a").force_unlock().await.unwrap());
        assert!(guard.unlock().await.is_err());
        // The dead one was passed the lock; the next waits for the end of that.
        let (start, lag) = (Instant::now(), Lag::start());
        let (guard, _) = waiter(&client, "a").await.unwrap();
        assert!(start.elapsed() <= lag.allow(secs(5)), "{:?}", start.elapsed());
        guard.unlock().await.unwrap();
        let _: u64 = bed.admin.cmd(&["DEL", HISTORY]).await;
        keys_gone(bed, secs(5)).await;
    })
    .await;
}

/// `testLockAcquiredTimeoutDrift`, `testFirstThreadDeathTimeoutDrift`: after acquisitions, and with one waiter left that
/// died, whoever stands behind has no deadline further away than one wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquisitions_do_not_move_deadlines() {
    fair(async |bed| {
        let client = bed.client().await;
        let mut peer = Peer::start(bed, &[]).await;
        for round in 0..3 {
            let guard = client.fair("a").lock().await.unwrap();
            let mut waiting = Vec::new();
            for n in 1..=3 {
                waiting.push(waiter(&client, "a"));
                queued(bed, "a", n).await;
            }
            if round == 2 {
                peer.wait("a", 1);
                queued(bed, "a", 4).await;
                peer.child.kill9();
            }
            bounded(bed).await;
            guard.unlock().await.unwrap();
            for waiting in waiting {
                bounded(bed).await;
                waiting.await.unwrap().0.unlock().await.unwrap();
            }
            bounded(bed).await;
        }
        // The dead one has the lock now, or has been taken out.
        let (start, lag) = (Instant::now(), Lag::start());
        waiter(&client, "a").await.unwrap().0.unlock().await.unwrap();
        println!("the next was in {:?} after the dead one's turn", start.elapsed());
        assert!(start.elapsed() <= lag.allow(secs(5)), "{:?}", start.elapsed());
        keys_gone(bed, secs(5)).await;
    })
    .await;
}

/// `testAcquireFailedTimeoutDrift_Descrete`, `testLockAcquiredTimeoutDrift_Descrete`: what is left when somebody of the
/// middle gives up and when the first gets the lock, with waiters of Java's in between, whose deadlines are those of the
/// ones ahead plus their own wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deadlines_of_java_waiters_keep_their_distance() {
    const WAIT: f64 = 60_000.0;
    fair(async |bed| {
        let (holder, client) = (bed.client().await, bed.client().await);
        let guard = holder.fair("a").lock().await.unwrap();
        let mut ours = Vec::new();
        let mut stand = async || {
            let before = queue(bed, "a").await.len();
            ours.push(waiter(&client, "a"));
            queued(bed, "a", before + 1).await;
            queue(bed, "a").await.pop().unwrap()
        };
        // Ours, Java's, ours, Java's; each of Java's comes as Redisson's script does it.
        let first = stand().await;
        let java = |n: u32| DEAD_JAVA.replace(":1", &format!(":{n}"));
        let ahead = deadlines(bed, "a").await[&first];
        plant(bed, "a", &java(1), ahead + WAIT).await;
        let third = stand().await;
        let ahead = deadlines(bed, "a").await[&third];
        plant(bed, "a", &java(2), ahead + WAIT).await;
        let near = |found: f64, expected: f64| (found - expected).abs() < 1200.0;
        let check = async |what: &str, expected: &[(&String, f64)]| {
            let start = Instant::now();
            while start.elapsed() < ms(2200) {
                let left = deadlines(bed, "a").await;
                let all = expected.iter().all(|(owner, due)| left.get(*owner).is_some_and(|left| near(*left, *due)));
                assert!(all && left.len() == expected.len(), "{what}: {left:?}, expected {expected:?}");
                tokio::time::sleep(ms(50)).await;
            }
        };
        // Deadlines of ours are between 2.3 and 4.5 s ahead of now, and what is counted from them as well.
        let place = PLACE - 1100.0;
        check(
            "all stand",
            &[(&first, place), (&java(1), place + WAIT), (&third, place + WAIT), (&java(2), place + 2.0 * WAIT)],
        )
        .await;
        // Ours in the middle gives up: the one behind it stands behind Java's first one now.
        let third_task = ours.pop().unwrap();
        third_task.abort();
        queued(bed, "a", 3).await;
        check("one gave up", &[(&first, place), (&java(1), place + WAIT), (&java(2), place + 2.0 * WAIT)]).await;
        // The first gets the lock: those of Java come nearer by its wait, and nobody moves them any more.
        guard.unlock().await.unwrap();
        let (guard, _) = ours.pop().unwrap().await.unwrap();
        let left = deadlines(bed, "a").await;
        assert!(near(left[&java(1)], WAIT - 500.0) && near(left[&java(2)], 2.0 * WAIT - 500.0), "{left:?}");
        // Both are dead. Their time is over.
        for n in [1, 2] {
            let _: u64 = bed.admin.cmd(&["ZADD", &crate::rig::deadlines_key("a"), "1", &java(n)]).await;
        }
        guard.unlock().await.unwrap();
        keys_gone(bed, secs(5)).await;
    })
    .await;
}

/// `testAbandonedTimeoutDrift_Descrete`, `testLockAcquiredBooleanTimeoutDrift_Descrete`: waiters that nobody stands for
/// any more are out when their deadlines have passed, and the one behind them has the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abandoned_waiters_are_out_after_their_deadlines() {
    fair(async |bed| {
        let client = bed.client().await;
        for n in 1..=3 {
            plant(bed, "a", &DEAD_JAVA.replace(":1", &format!(":{n}")), f64::from(n) * 400.0).await;
        }
        let start = Instant::now();
        assert!(client.fair("a").try_lock().await.unwrap().is_none(), "others are ahead");
        let (guard, granted) = waiter(&client, "a").await.unwrap();
        let took = granted - start;
        println!("in after {took:?}");
        // A look a second.
        assert!(took > ms(1100) && took < ms(2700), "{took:?}");
        guard.unlock().await.unwrap();
        keys_gone(bed, secs(5)).await;
        // With nobody there to look, the first who comes finds out.
        plant(bed, "a", DEAD_JAVA, -1.0).await;
        client.fair("a").try_lock().await.unwrap().expect("nobody is ahead").unlock().await.unwrap();
        keys_gone(bed, secs(5)).await;
    })
    .await;
}
