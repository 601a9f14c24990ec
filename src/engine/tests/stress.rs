//! Many tasks on several threads that hold, wait, give up and leave at any moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use distlock_support::Numbers;
use tokio::time::{sleep, timeout};

use super::{client, ms, secs};
use crate::Client;

const NAMES: usize = 6;
const TASKS: u64 = 48;
const ROUNDS: u64 = 40;

async fn lock_at_random(client: Client, inside: Arc<Vec<AtomicBool>>, held: Arc<AtomicU64>, mut numbers: Numbers) {
    for _ in 0..ROUNDS {
        let name = numbers.below(NAMES as u64) as usize;
        let lock = client.reentrant(&format!("stress {name}"));
        let patience = Duration::from_micros(numbers.below(6_000));
        let guard = match numbers.below(5) {
            0 => lock.lock_for(patience).await.unwrap_or_default(),
            1 => timeout(patience, lock.lock()).await.ok().map(Result::unwrap),
            2 => lock.try_lock().await.unwrap(),
            3 => Some(lock.lock_leased(secs(60)).await.unwrap()),
            _ => Some(lock.lock().await.unwrap()),
        };
        let Some(guard) = guard else { continue };
        assert!(!inside[name].swap(true, Ordering::SeqCst), "two are inside {name}");
        assert!(guard.is_held());
        held.fetch_add(1, Ordering::Relaxed);
        if numbers.below(2) == 0 {
            sleep(Duration::from_micros(numbers.below(500))).await;
        }
        inside[name].store(false, Ordering::SeqCst);
        match numbers.below(3) {
            0 => drop(guard),
            1 => drop(timeout(Duration::from_micros(numbers.below(1_500)), guard.unlock()).await),
            _ => drop(guard.unlock().await.unwrap()),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn random_tasks_hold_each_name_one_at_a_time_and_leave_no_state() {
    for (limit, batching) in [(4, true), (0, false)] {
        let (client, fake) = client(|options| {
            options.local_handoff_limit = limit;
            options.local_handoff_time = ms(3);
            options.subscription_linger = ms(5);
            options.batching = batching;
            // So long that a lost wake-up fails the test.
            options.poll_cap = secs(60);
        });
        let inside: Arc<Vec<_>> = Arc::new((0..NAMES).map(|_| AtomicBool::new(false)).collect());
        let held = Arc::new(AtomicU64::new(0));
        let tasks: Vec<_> = (0..TASKS)
            .map(|seed| {
                tokio::spawn(lock_at_random(client.clone(), Arc::clone(&inside), Arc::clone(&held), Numbers::new(seed)))
            })
            .collect();
        for task in tasks {
            timeout(secs(25), task).await.expect("stuck").unwrap();
        }
        assert!(held.load(Ordering::Relaxed) > TASKS * ROUNDS / 3);
        for left in (0..=500).rev() {
            let stats = client.stats();
            if (stats.holds, stats.waiting, stats.names, stats.under_way) == (0, 0, 0, 0) && fake.channels() == 0 {
                break;
            }
            assert!(left > 0, "left: {stats:?}, {} channels", fake.channels());
            sleep(ms(10)).await;
        }
        assert_eq!(fake.held(), Vec::<String>::new());
        client.shutdown(secs(10)).await.unwrap();
    }
}
