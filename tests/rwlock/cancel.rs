//! Acquires of both halves, mixed and dropped at random points. `tests/sim/enumeration.rs` also drops re-entries and
//! downgrades.

use std::sync::Arc;

use distlock::{Client, DistLock, Flavour, Prefer, RwLock};
use distlock_support::Numbers;
use tokio::task::JoinSet;

use crate::rig::unlock_all;
use bed::dropped::{DROPS, acquire_and_drop, nothing_left};
use bed::{Bed, ends, ms, rw, secs};

fn half(lock: &RwLock, numbers: &mut Numbers) -> Arc<dyn DistLock> {
    if numbers.below(2) == 0 { Arc::new(lock.read()) } else { Arc::new(lock.write()) }
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

async fn dropped_readers_and_writers_leave_nothing_behind(prefer: Prefer) {
    rw(async |bed| {
        let builder = || {
            bed.builder().configure(|options| {
                options.subscription_linger = ms(100);
                options.max_reader_delay = secs(3600);
                options.prefer = prefer;
            })
        };
        let clients = [bed.connect(builder()).await, bed.connect(builder()).await];
        on_many_names(bed, &clients).await;
        in_the_queue_of_one_name(&clients).await;
        free_at_once(bed, &clients, 1).await;
    })
    .await;
}

bed::cases!(on two threads, dropped_readers_and_writers_leave_nothing_behind:
    where_readers_are_preferred = Prefer::Readers,
    where_writers_are_preferred = Prefer::Writers,
);

/// Two clients use both halves of 12 names. Other owners hold a third of the names throughout.
async fn on_many_names(bed: &Bed, clients: &[Client]) {
    const NAMES: u64 = 12;
    let holder = bed.client().await;
    let mut held = Vec::new();
    for n in (0..NAMES).step_by(3) {
        let flavour = if n % 2 == 0 { Flavour::Read } else { Flavour::Write };
        held.push(holder.lock(flavour, &format!("c{n}")).lock().await.unwrap());
    }
    let mut tasks = JoinSet::new();
    for n in 0..NAMES * 2 {
        let client = clients[n as usize % 2].clone();
        let lock = client.rw(&format!("c{}", n / 2));
        tasks.spawn(async move {
            let (mut numbers, mut dropped) = (Numbers::new(n + 1), 0);
            while dropped < DROPS / 2 / (NAMES * 2) + 1 {
                let half = half(&lock, &mut numbers);
                dropped += u64::from(acquire_and_drop(&*half, &client, &mut numbers).await);
            }
        });
    }
    tasks.join_all().await;
    unlock_all(held).await;
    free_at_once(bed, clients, NAMES).await;
}

/// Many local waiters for both halves are dropped, wherever they are in the queue, while the lock passes between them.
/// The last wait of each task is not dropped. No task hangs, and no reader yields to a dropped writer.
async fn in_the_queue_of_one_name(clients: &[Client]) {
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
            ends("a waiter in the queue", last.lock()).await.unwrap().unlock().await.unwrap();
        });
    }
    tasks.join_all().await;
}
