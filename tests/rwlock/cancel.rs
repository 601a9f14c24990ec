//! Calls of both halves of the read-write lock, mixed and dropped at random points.

use std::sync::Arc;
use std::time::Duration;

use distlock::{Acquire, Client, DistLock, Error, Flavour, Guard, Prefer, Result, RwLock};
use distlock_support::Numbers;
use tokio::task::JoinSet;

use bed::dropped::{DROPS, acquire_and_drop, nothing_left};
use bed::harm::cut;
use bed::{Bed, ends, in_vain, ms, rw, secs};

fn half(lock: &RwLock, numbers: &mut Numbers) -> Arc<dyn DistLock> {
    if numbers.below(2) == 0 { Arc::new(lock.read()) } else { Arc::new(lock.write()) }
}

/// The guard of a short wait. `None` if the wait ended without the lock.
fn got_or_in_vain(what: &str, outcome: Result<Option<Guard>>) -> Option<Guard> {
    assert!(matches!(outcome, Ok(Some(_))) || in_vain(&outcome), "{what}: {outcome:?}");
    outcome.ok().flatten()
}

/// Acquires the write half, and drops the downgrade at a random point.
async fn downgrade_and_drop(lock: &RwLock, numbers: &mut Numbers) {
    let lease = (numbers.below(2) == 0).then_some(secs(3600));
    let how = Acquire::new().wait(ms(20));
    let how = lease.map_or(how.clone(), |lease| how.lease(lease));
    if let Some(guard) = got_or_in_vain("write", lock.write().acquire(how).await) {
        let pause = if numbers.below(2) == 0 { Duration::ZERO } else { Duration::from_micros(numbers.below(1500)) };
        if let Some(Err(error)) = cut(guard.downgrade(), numbers.below(6), pause).await {
            panic!("downgrade: {error:?}");
        }
    }
}

/// An owner acquires either half a second time, and the acquire is dropped. The first hold must stay unchanged.
async fn come_in_again_and_drop(lock: &RwLock, client: &Client, numbers: &mut Numbers) {
    let me = client.owner();
    let how = || Acquire::new().owner(&me).wait(ms(20));
    let reads = numbers.below(2) == 0;
    let taken = if reads { lock.read().acquire(how()).await } else { lock.write().acquire(how()).await };
    let Some(first) = got_or_in_vain("the first hold", taken) else { return };
    let polls = numbers.below(6);
    match cut(half(lock, numbers).acquire(how()), polls, Duration::ZERO).await {
        Some(Err(Error::WouldDeadlock { .. })) if reads => {}
        Some(outcome) => drop(got_or_in_vain("the second hold", outcome)),
        None => {}
    }
    if let Err(error) = first.unlock().await {
        panic!("unlock of the first hold: {error:?}");
    }
}

/// Asserts that another client can acquire both halves of all names at once.
async fn free_at_once(bed: &Bed, clients: &[Client], names: u64) {
    for client in clients {
        bed::idle(client).await;
    }
    for client in clients {
        // This check covers the write half.
        nothing_left(bed, client, names).await;
    }
    let other = bed.client().await;
    for n in 0..names {
        // One attempt must be enough at any time: a leftover mark would refuse the reader.
        let guard = other.rw(&format!("c{n}")).read().try_lock().await.unwrap();
        guard.expect("the reading half is free").unlock().await.unwrap();
    }
}

/// Half of the drops use one preference: two clients use both halves of 12 names. Other owners hold a third of the
/// names throughout.
async fn dropped_readers_and_writers_leave_nothing_behind(prefer: Prefer) {
    rw(async |bed| drops(bed, prefer).await).await;
}

async fn drops(bed: &Bed, prefer: Prefer) {
    const NAMES: u64 = 12;
    let builder = || bed.builder().subscription_linger(ms(100));
    let clients = [bed.connect(builder()).await, bed.connect(builder()).await];
    let holder = bed.client().await;
    let mut held = Vec::new();
    for n in (0..NAMES).step_by(3) {
        let flavour = if n % 2 == 0 { Flavour::Read } else { Flavour::Write };
        held.push(holder.lock(flavour, &format!("c{n}")).lock().await.unwrap());
    }
    let mut tasks = JoinSet::new();
    for n in 0..NAMES * 2 {
        let client = clients[n as usize % 2].clone();
        let lock = client.rw(&format!("c{}", n / 2)).prefer(prefer);
        tasks.spawn(async move {
            let mut numbers = Numbers::new(n + 1);
            let mut dropped = 0;
            while dropped < DROPS / 2 / (NAMES * 2) + 1 {
                match numbers.below(12) {
                    0 => downgrade_and_drop(&lock, &mut numbers).await,
                    1 => come_in_again_and_drop(&lock, &client, &mut numbers).await,
                    _ => {
                        let half = half(&lock, &mut numbers);
                        dropped += u64::from(acquire_and_drop(&*half, &client, &mut numbers).await);
                    }
                }
            }
            dropped
        });
    }
    let dropped: u64 = tasks.join_all().await.into_iter().sum();
    assert!(dropped >= DROPS / 2);
    for guard in held {
        guard.unlock().await.unwrap();
    }
    free_at_once(bed, &clients, NAMES).await;
}

bed::cases!(on two threads, dropped_readers_and_writers_leave_nothing_behind:
    where_readers_are_preferred = Prefer::Readers,
    where_writers_are_preferred = Prefer::Writers,
);

/// Many local waiters for both halves of one name are dropped, wherever they are in the queue, while the lock passes
/// between them. The last wait of each task is not dropped. No task hangs, and no reader yields to a dropped writer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_writers_dropped_in_queue_do_not_block_others() {
    rw(async |bed| {
        for prefer in [Prefer::Readers, Prefer::Writers] {
            let builder = || bed.builder().subscription_linger(ms(100)).hold_back(secs(3600)).prefer(prefer);
            let clients = [bed.connect(builder()).await, bed.connect(builder()).await];
            let mut tasks = JoinSet::new();
            for n in 0..64 {
                let client = clients[n as usize % 2].clone();
                let lock = client.rw("c0");
                tasks.spawn(async move {
                    let mut numbers = Numbers::new(1000 + n);
                    for _ in 0..30 {
                        acquire_and_drop(&*half(&lock, &mut numbers), &client, &mut numbers).await;
                    }
                    let last = half(&lock, &mut numbers);
                    let guard = ends("a waiter in the queue", last.lock()).await.unwrap();
                    guard.unlock().await.unwrap();
                });
            }
            tasks.join_all().await;
            free_at_once(bed, &clients, 1).await;
        }
    })
    .await;
}
