//! Cancel safety on a real server: a future that is dropped at any point leaves nothing behind. Asserted in `cancel.rs`
//! of each flavour.

use std::time::Duration;

use distlock::{Acquire, Client, DistLock, Error, Guard, Result, Step};
use distlock_support::Numbers;

use crate::harm::{cut, cut_at};
use crate::{Bed, becomes, ends, idle, in_vain, ms, secs};

/// Longer than a test, so that no lease expires and hides a leftover.
const LASTING: Duration = secs(3600);

pub const DROPS: u64 = 10_000;

pub async fn acquire_and_drop(lock: &dyn DistLock, client: &Client, numbers: &mut Numbers) -> bool {
    let how = match numbers.below(5) {
        0 => Acquire::new().wait(ms(numbers.below(3))),
        1 => Acquire::new().lease(LASTING),
        2 => Acquire::new().owner(&client.owner()),
        _ => Acquire::new(),
    };
    let pause = if numbers.below(2) == 0 { Duration::ZERO } else { Duration::from_micros(numbers.below(3000)) };
    let polls = numbers.below(6);
    match cut(lock.acquire(how), polls, pause).await {
        Some(outcome) => {
            let guard = match outcome {
                Ok(Some(guard)) => guard,
                // A wait of a few milliseconds may end while a command is in flight. The command is then undone.
                Ok(None) | Err(Error::Timeout { step: Step::Command, .. }) => return false,
                Err(error) => panic!("{error}"),
            };
            // Half of the holders drop the `unlock` future before it ends. The others drop the guard.
            if numbers.below(2) == 0 {
                let polls = numbers.below(4);
                cut(guard.unlock(), polls, Duration::ZERO).await;
            }
            false
        }
        None => true,
    }
}

/// Checks that the client is idle, that only these keys exist, and that no channel has a subscriber.
pub async fn only_left(bed: &Bed, client: &Client, keys: &[String], when: &str) {
    idle(client).await;
    let left = async || (bed.keys().await, bed.admin.channels().await);
    becomes(&format!("{when}: keys and channels"), (keys.to_vec(), Vec::new()), left).await;
    becomes(&format!("{when}: names in the registry"), 0, async || client.stats().names).await;
}

pub async fn nothing_left(bed: &Bed, client: &Client, names: u64) {
    idle(client).await;
    let left = async || (bed.keys().await, bed.admin.channels().await);
    becomes("keys and channels", (Vec::<String>::new(), Vec::<String>::new()), left).await;
    becomes("names in the registry", 0, async || client.stats().names).await;
    let other = bed.client().await;
    for n in 0..names {
        let lock = bed.lock(&other, &format!("c{n}"));
        lock.try_lock().await.unwrap().expect("the lock is free").unlock().await.unwrap();
    }
}

/// Drops an acquire at its first await, the next acquire at its second, and so on, until one completes. Then does the
/// same with the release of its guard. After each drop, `look` checks for leftovers. Its argument names the await.
///
/// Requires a single-threaded runtime. With more threads, a reply may arrive before it is awaited.
pub async fn at_each_await(acquire: impl AsyncFn() -> Result<Option<Guard>>, look: impl AsyncFn(String)) {
    let mut waits = 0;
    let guard = loop {
        match cut_at(acquire(), waits).await {
            None => look(format!("dropped at await {waits} of the acquire")).await,
            Some(_) if waits == 0 => panic!("it has waited for nothing"),
            Some(Ok(Some(guard))) => break guard,
            Some(outcome) if in_vain(&outcome) => {
                return look("the wait ran out".to_owned()).await;
            }
            Some(outcome) => panic!("{outcome:?}"),
        }
        waits += 1;
        assert!(waits < 1_000, "the acquire does not end");
    };
    let (mut guard, mut at) = (Some(guard), 0);
    loop {
        let held = match guard.take() {
            Some(held) => held,
            None => acquire().await.unwrap().expect("free, as it was"),
        };
        let outcome = cut_at(held.unlock(), at).await;
        look(format!("dropped at await {at} of the release, {outcome:?}")).await;
        if outcome.is_some_and(|released| released.is_ok()) {
            assert!(at > 0, "the release has waited for nothing");
            return;
        }
        at += 1;
        assert!(at < 1_000, "the release does not end");
    }
}

/// Drops `count` acquires in all, a third of them while another client holds the lock.
pub async fn drops(bed: &Bed, count: u64) {
    const NAMES: u64 = 12;
    let client =
        bed.connect(bed.builder().watchdog(LASTING).configure(|options| options.subscription_linger = ms(100))).await;
    let holder = bed.client().await;
    let mut held = Vec::new();
    for n in (0..NAMES).step_by(3) {
        held.push(bed.lock(&holder, &format!("c{n}")).lock().await.unwrap());
    }
    let tasks: Vec<_> = (0..NAMES)
        .map(|n| {
            let (client, lock) = (client.clone(), bed.lock(&client, &format!("c{n}")));
            tokio::spawn(async move {
                let mut numbers = Numbers::new(n + 1);
                let mut dropped = 0;
                while dropped < count / NAMES + 1 {
                    dropped += u64::from(acquire_and_drop(&*lock, &client, &mut numbers).await);
                }
                dropped
            })
        })
        .collect();
    let mut dropped = 0;
    for task in tasks {
        // No time limit here: the bed's limit ends the test.
        dropped += task.await.unwrap();
    }
    assert!(dropped >= count, "{dropped} dropped");
    for guard in held {
        guard.unlock().await.unwrap();
    }
    nothing_left(bed, &client, NAMES).await;
}

/// Drops many local waiters of one name anywhere in the queue, while the lock is passed around.
pub async fn waiters_dropped_in_the_queue(bed: &Bed) {
    let client =
        bed.connect(bed.builder().watchdog(LASTING).configure(|options| options.subscription_linger = ms(100))).await;
    let tasks: Vec<_> = (0..64)
        .map(|n| {
            let (client, lock) = (client.clone(), bed.lock(&client, "c0"));
            tokio::spawn(async move {
                let mut numbers = Numbers::new(1000 + n);
                for _ in 0..50 {
                    acquire_and_drop(&*lock, &client, &mut numbers).await;
                }
                // The last acquire completes, so no waiter is stuck.
                let guard = ends("a waiter in the queue", lock.lock()).await;
                guard.unwrap().unlock().await.unwrap();
            })
        })
        .collect();
    for task in tasks {
        ends("a waiter in the queue", task).await.unwrap();
    }
    nothing_left(bed, &client, 1).await;
}
