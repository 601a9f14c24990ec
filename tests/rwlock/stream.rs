//! An endless stream of readers and one writer (#5379): with readers preferred the rate is what it is; with writers
//! preferred the writer is in within a bound.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use distlock::{Client, Prefer};
use distlock_support::Numbers;

use crate::upstream::Inside;
use bed::{Bed, in_vain, median, ms, rw, secs};

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
async fn readers_preferred_the_rate_is_told() {
    rw(async |bed| {
        let [one, two, writer] = clients(bed, Prefer::Readers).await;
        let stream = Stream::start(&[one, two]);
        let (start, mut written) = (Instant::now(), 0);
        while start.elapsed() < secs(3) {
            let tried = writer.rw("a").write().lock_for(ms(500)).await;
            if !in_vain(&tried) {
                let guard = tried.unwrap().unwrap();
                stream.inside.write(ms(1)).await;
                guard.unlock().await.unwrap();
                written += 1;
            }
        }
        let took = start.elapsed();
        let reads = stream.end().await;
        println!("readers preferred: {written} writes and {reads} reads in {took:?}");
        assert!(reads > 500, "{reads}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_preferred_the_writer_is_in_soon() {
    rw(async |bed| {
        let [one, two, writer] = clients(bed, Prefer::Writers).await;
        let stream = Stream::start(&[one, two]);
        let (start, mut waits) = (Instant::now(), Vec::new());
        for _ in 0..30 {
            let asked = Instant::now();
            let guard = writer.rw("a").write().lock().await.unwrap();
            waits.push(asked.elapsed());
            stream.inside.write(ms(1)).await;
            guard.unlock().await.unwrap();
            // The stream is at full breadth again.
            tokio::time::sleep(ms(50)).await;
        }
        let took = start.elapsed();
        let reads = stream.end().await;
        let worst: Duration = *waits.iter().max().unwrap();
        let median = median(waits);
        println!(
            "writers preferred: in after {median:?}, {worst:?} at worst; {reads} reads beside 30 writes in {took:?}"
        );
        // Those that are in take 30 ms; nobody new comes within the second for which readers are held back, unless a busy
        // machine lets that pass.
        assert!(median < ms(150) && worst < secs(3), "median {median:?}, worst {worst:?}");
        assert!(reads > 500, "{reads}");
    })
    .await;
}
