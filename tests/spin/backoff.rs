//! How often one who waits looks, and how soon it is in.

use std::time::{Duration, Instant};

use distlock::Backoff;
use tokio::task::JoinSet;

use crate::rig::{scripts, spin, warm};
use bed::{eventually, median, ms, secs};

/// The pauses are those that were asked for, each up to a half shorter: testConstantBackoff and testExponentialBackoff,
/// by what the server sees. And the wait is kept whatever they are: testTryLockWait.
#[tokio::test]
async fn a_wait_of_a_second_looks_as_often_as_the_back_off_says() {
    spin(async |bed| {
        let client = warm(bed).await;
        let holder = bed.client().await;
        let guard = holder.spin("job").lock_leased(secs(60)).await.unwrap();
        let exponential = |first, times, most| Backoff::exponential(ms(first), times, ms(most)).unwrap();
        // The fewest on a machine that has time for half of them, and the most there can be: an attempt, and one after
        // every pause of half its length.
        let backoffs = [
            (Backoff::constant(ms(50)).unwrap(), 10, 42),
            // 1, 2, 4, .. 128, 128, ..
            (Backoff::default(), 8, 24),
            // 100, 300, 400, 400
            (exponential(100, 3.0, 400), 3, 7),
            // Longer than the wait.
            (Backoff::constant(secs(10)).unwrap(), 1, 2),
        ];
        for (backoff, fewest, most) in backoffs {
            let lock = client.spin("job").backoff(backoff);
            bed.admin.reset_stats().await;
            let start = Instant::now();
            assert!(lock.lock_for(secs(1)).await.unwrap().is_none());
            let (waited, looks) = (start.elapsed(), scripts(bed).await);
            println!("{backoff:?}: {looks} looks in {waited:?}");
            assert!((fewest..=most).contains(&looks), "{backoff:?}: {looks} looks in {waited:?}");
            assert!(waited >= ms(995) && waited <= ms(1_350), "{backoff:?}: {waited:?}");
        }
        guard.unlock().await.unwrap();
    })
    .await;
}

/// testTryLockAsync, testTimedTryLockAsync: who waits while another process holds is in within 200 ms of the release, waiting
/// with an end or without.
#[tokio::test]
async fn a_release_is_found_within_the_longest_pause() {
    spin(async |bed| {
        let (ours, theirs) = (bed.client().await, bed.client().await);
        let mut rounds = JoinSet::new();
        for n in 0..8 {
            let (lock, other) = (ours.spin(&format!("job {n}")), theirs.spin(&format!("job {n}")));
            rounds.spawn(async move {
                let guard = lock.lock().await.unwrap();
                let waiter = tokio::spawn(async move {
                    let guard = if n % 2 == 0 {
                        other.lock().await.unwrap()
                    } else {
                        other.lock_for(secs(5)).await.unwrap().unwrap()
                    };
                    (Instant::now(), guard)
                });
                // Long enough for the pauses to have grown to their longest.
                tokio::time::sleep(ms(600 + 17 * n)).await;
                assert!(!waiter.is_finished());
                let released = Instant::now();
                guard.unlock().await.unwrap();
                let (at, guard) = waiter.await.unwrap();
                guard.unlock().await.unwrap();
                at.saturating_duration_since(released)
            });
        }
        let times = rounds.join_all().await;
        let (worst, median) = (*times.iter().max().unwrap(), median(times));
        println!("released to in: median {median:?}, worst {worst:?}");
        // What a busy machine adds, it does not add to all of them.
        assert!(median < ms(200) && worst < secs(1), "median {median:?}, worst {worst:?}");
    })
    .await;
}

/// A lease that ends before the pause does is not slept over.
#[tokio::test]
async fn a_pause_ends_with_the_lease() {
    spin(async |bed| {
        let (ours, theirs) = (bed.client().await, bed.client().await);
        let lock = theirs.spin("job").backoff(Backoff::constant(secs(60)).unwrap());
        let start = Instant::now();
        let guard = ours.spin("job").lock_leased(ms(400)).await.unwrap();
        let second = lock.lock().await.unwrap();
        let waited: Duration = start.elapsed();
        assert!(waited + ms(1) >= ms(400) && waited < ms(1_400), "{waited:?}");
        assert!(!guard.is_held());
        assert!(guard.unlock().await.is_err());
        assert_eq!(second.unlock().await.unwrap(), distlock::Released::Free);
        eventually("nobody waits", async || theirs.stats().waiting == 0).await;
    })
    .await;
}
