//! #1542: when a writer leaves, all who wait for reading come in together, of all processes.

use std::time::{Duration, Instant};

use distlock_support::agent::monotonic_ns;

use crate::peer::Peer;
use crate::rig::waits;
use bed::{median, ms, rw, secs, waiter};

/// `testWriteRead`: 20 readers, 800 ms each. One after the other they would take 16 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_readers_of_800_ms_are_done_in_a_second() {
    rw(async |bed| {
        let (holder, clients) = (bed.client().await, [bed.client().await, bed.client().await]);
        let mut times = Vec::new();
        for _ in 0..3 {
            let writing = holder.rw("a").write().lock().await.unwrap();
            let readers: Vec<_> = (0..20)
                .map(|n| {
                    let lock = clients[n % 2].rw("a").read();
                    tokio::spawn(async move {
                        let guard = lock.lock().await.unwrap();
                        tokio::time::sleep(ms(800)).await;
                        guard.unlock().await.unwrap();
                    })
                })
                .collect();
            for client in &clients {
                waits(bed, client, "a", 10).await;
            }
            let start = Instant::now();
            writing.unlock().await.unwrap();
            for reader in readers {
                reader.await.unwrap();
            }
            times.push(start.elapsed());
        }
        println!("20 readers of 800 ms: {times:?}");
        assert!(*times.iter().max().unwrap() < ms(1_600), "{times:?}");
        assert!(median(times) <= secs(1));
    })
    .await;
}

/// 100 readers of four processes, and 20 of this one: all are in within 100 ms of the release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_many_processes_are_in_within_100_ms() {
    rw(async |bed| {
        let (holder, here) = (bed.client().await, bed.client().await);
        let mut peers = Peer::several(bed, 4, &[]).await;
        let mut times = Vec::new();
        for _ in 0..7 {
            let writing = holder.rw("a").write().lock().await.unwrap();
            for peer in &mut peers {
                peer.take("read", "a", 25, 1);
                peer.waits(25).await;
            }
            let tasks: Vec<_> = (0..20).map(|_| waiter(here.rw("a").read())).collect();
            waits(bed, &here, "a", 20).await;
            let (start, start_ns) = (Instant::now(), monotonic_ns());
            writing.unlock().await.unwrap();
            let mut last = Duration::ZERO;
            let mut inside = Vec::new();
            for task in tasks {
                let (guard, at) = task.await.unwrap();
                last = last.max(at.saturating_duration_since(start));
                inside.push(guard);
            }
            for peer in &mut peers {
                last = last.max(Duration::from_nanos(peer.taken().await - start_ns));
            }
            times.push(last);
            assert_eq!(bed.admin.hgetall("a").await.len(), 121, "all side by side");
            for guard in inside {
                guard.unlock().await.unwrap();
            }
            for peer in &mut peers {
                peer.leave().await;
            }
        }
        println!("120 readers of 5 processes were in after {times:?}");
        assert!(*times.iter().max().unwrap() < secs(1), "{times:?}");
        assert!(median(times) <= ms(100));
        for peer in peers {
            peer.close().await;
        }
    })
    .await;
}

/// The last of the readers lets writers in: one of each process tries, and all get their turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_reader_lets_a_writer_in_at_once() {
    rw(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let mut late = Vec::new();
        for round in 0..20 {
            let readers = [client.rw("a").read().lock().await.unwrap(), other.rw("a").read().lock().await.unwrap()];
            let writer = waiter([&client, &other][round % 2].rw("a").write());
            waits(bed, [&client, &other][round % 2], "a", 1).await;
            let [first, last] = readers;
            first.unlock().await.unwrap();
            assert!(!writer.is_finished());
            let start = Instant::now();
            last.unlock().await.unwrap();
            let (guard, granted) = writer.await.unwrap();
            late.push(granted.saturating_duration_since(start));
            guard.unlock().await.unwrap();
        }
        let worst = *late.iter().max().unwrap();
        let median = median(late);
        println!("a writer after the last reader: median {median:?}, worst {worst:?}");
        assert!(median < ms(20) && worst < ms(500), "median {median:?}, worst {worst:?}");
    })
    .await;
}

/// Readers and writers that wait in one process: each release wakes those it should, and nobody waits for the poll.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_halves_wait_in_one_process() {
    rw(async |bed| {
        // On its own a waiter would not look again in time.
        let builder = || bed.builder().poll_cap(secs(60));
        let (client, other) = (bed.connect(builder()).await, bed.connect(builder()).await);
        for holder in [&client, &other] {
            let start = Instant::now();
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
                task.await.unwrap();
            }
            assert!(start.elapsed() < secs(5), "{:?}", start.elapsed());
        }
    })
    .await;
}
