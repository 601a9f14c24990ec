//! An endless stream of readers and one writer (#5379): with writers preferred the writer is in again and again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use distlock::{Client, Prefer};
use distlock_support::Numbers;

use crate::upstream::Inside;
use bed::{Bed, ends, ms, rw};

/// 50 readers on two clients, that read again and again for some ms each.
struct Stream {
    stop: Arc<AtomicBool>,
    reads: Arc<AtomicU64>,
    inside: Arc<Inside>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Stream {
    fn start(clients: &[Client]) -> Self {
        let (stop, reads, inside): (Arc<AtomicBool>, Arc<AtomicU64>, Arc<Inside>) = Default::default();
        let tasks = (0..50)
            .map(|n| {
                let lock = clients[n % clients.len()].rw("a").read();
                let (stop, reads, inside) = (Arc::clone(&stop), Arc::clone(&reads), Arc::clone(&inside));
                let mut numbers = Numbers::new(n as u64);
                tokio::spawn(async move {
                    while !stop.load(Ordering::Relaxed) {
                        let guard = lock.lock().await.unwrap();
                        inside.read(ms(10 + numbers.below(20))).await;
                        guard.unlock().await.unwrap();
                        reads.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        Self { stop, reads, inside, tasks }
    }

    async fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
        self.reads.load(Ordering::Relaxed)
    }
}

async fn clients(bed: &Bed, prefer: Prefer) -> [Client; 3] {
    let connect = async || bed.connect(bed.builder().prefer(prefer)).await;
    [connect().await, connect().await, connect().await]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_preferred_writer_is_in_beside_an_endless_stream_of_readers() {
    rw(async |bed| {
        let [one, two, writer] = clients(bed, Prefer::Writers).await;
        let stream = Stream::start(&[one, two]);
        for _ in 0..30 {
            let guard = ends("the writer", writer.rw("a").write().lock()).await.unwrap();
            stream.inside.write(ms(1)).await;
            guard.unlock().await.unwrap();
            // The stream is at full breadth again.
            tokio::time::sleep(ms(50)).await;
        }
        let reads = stream.end().await;
        assert!(reads > 100, "{reads} reads beside 30 writes");
    })
    .await;
}
