//! #1542: when a writer leaves, all who wait for reading come in together, of all processes.

use std::sync::Arc;

use tokio::sync::Barrier;

use crate::peer::Peer;
use crate::rig::waits;
use bed::{ends, ms, rw, secs, waiter};

/// `testWriteRead`: nobody leaves before all twenty are in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_readers_are_inside_at_the_same_time() {
    rw(async |bed| {
        let (holder, clients) = (bed.client().await, [bed.client().await, bed.client().await]);
        for _ in 0..3 {
            let inside = Arc::new(Barrier::new(20));
            let writing = holder.rw("a").write().lock().await.unwrap();
            let readers: Vec<_> = (0..20)
                .map(|n| {
                    let (lock, inside) = (clients[n % 2].rw("a").read(), Arc::clone(&inside));
                    tokio::spawn(async move {
                        let guard = lock.lock().await.unwrap();
                        inside.wait().await;
                        guard.unlock().await.unwrap();
                    })
                })
                .collect();
            for client in &clients {
                waits(bed, client, "a", 10).await;
            }
            writing.unlock().await.unwrap();
            for reader in readers {
                ends("a reader that leaves when all twenty are in", reader).await.unwrap();
            }
        }
    })
    .await;
}

/// 100 readers of four processes, and 20 of this one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_many_processes_come_in_together() {
    rw(async |bed| {
        let (holder, here) = (bed.client().await, bed.client().await);
        let mut peers = Peer::several(bed, 4, &[]).await;
        for _ in 0..7 {
            let writing = holder.rw("a").write().lock().await.unwrap();
            for peer in &mut peers {
                peer.take("read", "a", 25, 1);
                peer.waits(25).await;
            }
            let tasks: Vec<_> = (0..20).map(|_| waiter(here.rw("a").read())).collect();
            waits(bed, &here, "a", 20).await;
            writing.unlock().await.unwrap();
            let mut inside = Vec::new();
            for task in tasks {
                let (guard, _) = ends("a reader", task).await.unwrap();
                inside.push(guard);
            }
            for peer in &mut peers {
                peer.taken().await;
            }
            assert_eq!(bed.admin.hgetall("a").await.len(), 121, "all side by side");
            for guard in inside {
                guard.unlock().await.unwrap();
            }
            for peer in &mut peers {
                peer.leave().await;
            }
        }
        for peer in peers {
            peer.close().await;
        }
    })
    .await;
}

/// The last of the readers lets writers in: one of each process tries, and all get their turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_reader_lets_a_writer_in() {
    rw(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        for round in 0..20 {
            let readers = [client.rw("a").read().lock().await.unwrap(), other.rw("a").read().lock().await.unwrap()];
            let writer = waiter([&client, &other][round % 2].rw("a").write());
            waits(bed, [&client, &other][round % 2], "a", 1).await;
            let [first, last] = readers;
            first.unlock().await.unwrap();
            assert!(!writer.is_finished());
            last.unlock().await.unwrap();
            let (guard, _) = ends("the writer", writer).await.unwrap();
            guard.unlock().await.unwrap();
        }
    })
    .await;
}

/// Readers and writers that wait in one process: each release wakes those it should, and nobody waits for the poll.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_halves_wait_in_one_process() {
    rw(async |bed| {
        // On its own a waiter would not look again in time.
        let builder = || bed.builder().poll_cap(secs(3600));
        let (client, other) = (bed.connect(builder()).await, bed.connect(builder()).await);
        for holder in [&client, &other] {
            let writing = holder.rw("a").write().lock().await.unwrap();
            let mut tasks = Vec::new();
            for n in 0..12 {
                let lock = client.rw("a");
                tasks.push(tokio::spawn(async move {
                    let guard = if n % 3 == 0 { lock.write().lock().await } else { lock.read().lock().await }.unwrap();
                    tokio::time::sleep(ms(5)).await;
                    guard.unlock().await.unwrap();
                }));
            }
            waits(bed, &client, "a", 12).await;
            writing.unlock().await.unwrap();
            for task in tasks {
                ends("a reader or writer", task).await.unwrap();
            }
        }
    })
    .await;
}
