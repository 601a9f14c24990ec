//! The rows of `RedissonReadWriteLockTest` that are about both halves and about no one else's subject here.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use distlock::{Client, DistLock as _, Flavour, Prefer};
use distlock_support::cluster::{SLOTS, add_slots};
use distlock_support::{Admin, Numbers, RedisServer};
use tokio::task::JoinSet;

use bed::{Bed, enter, eventually, ms, rw, secs, waiter};

/// RW1: says so when somebody is inside beside a writer.
#[derive(Debug, Default)]
pub struct Inside {
    readers: AtomicI64,
    writers: AtomicI64,
    most: AtomicI64,
}

impl Inside {
    pub async fn read(&self, span: Duration) {
        let readers = self.readers.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(readers, Ordering::SeqCst);
        assert_eq!(self.writers.load(Ordering::SeqCst), 0, "a reader beside a writer");
        stay(span).await;
        assert_eq!(self.writers.load(Ordering::SeqCst), 0, "a writer came in beside a reader");
        self.readers.fetch_sub(1, Ordering::SeqCst);
    }

    pub async fn write(&self, span: Duration) {
        assert_eq!(self.writers.fetch_add(1, Ordering::SeqCst), 0, "two writers");
        assert_eq!(self.readers.load(Ordering::SeqCst), 0, "a writer beside a reader");
        stay(span).await;
        assert_eq!(self.readers.load(Ordering::SeqCst), 0, "a reader came in beside a writer");
        assert_eq!(self.writers.fetch_sub(1, Ordering::SeqCst), 1, "two writers");
    }
}

async fn stay(span: Duration) {
    if span.is_zero() {
        tokio::task::yield_now().await;
    } else {
        tokio::time::sleep(span).await;
    }
}

/// Reads, writes, writes and downgrades, or writes and reads inside, by chance; gives back by unlock or by drop.
async fn visit(client: Client, inside: Arc<Inside>, rounds: u64, seed: u64) {
    let (lock, mut numbers) = (client.rw("a"), Numbers::new(seed));
    for _ in 0..rounds {
        let span = ms(numbers.below(3));
        let guard = match numbers.below(10) {
            0..5 => {
                let guard = lock.read().lock().await.unwrap();
                inside.read(span).await;
                guard
            }
            5..8 => {
                let guard = lock.write().lock().await.unwrap();
                inside.write(span).await;
                guard
            }
            8 => {
                let guard = lock.write().lock().await.unwrap();
                inside.write(ms(0)).await;
                let guard = guard.downgrade().await.unwrap();
                inside.read(span).await;
                guard
            }
            _ => {
                let me = client.owner();
                let outer = enter(&lock.write(), &me).await;
                let inner = enter(&lock.read(), &me).await;
                inside.write(span).await;
                outer.unlock().await.unwrap();
                inside.read(ms(0)).await;
                inner
            }
        };
        if numbers.below(2) == 0 {
            drop(guard);
        } else {
            guard.unlock().await.unwrap();
        }
    }
}

async fn crowd(clients: &[Client], tasks: usize, rounds: u64) -> i64 {
    let (inside, mut crowd) = (Arc::<Inside>::default(), JoinSet::new());
    for (n, client) in clients.iter().cycle().take(tasks).enumerate() {
        crowd.spawn(visit(client.clone(), Arc::clone(&inside), rounds, n as u64));
    }
    while let Some(done) = crowd.join_next().await {
        done.unwrap();
    }
    inside.most.load(Ordering::SeqCst)
}

/// `testConcurrency_SingleInstance`, `testConcurrencyLoop_MultiInstance`, `testConcurrency_MultiInstance`: 15 tasks of one
/// client; 16 clients with many rounds each, half of them preferring writers; and 100 clients once each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_writers_at_random_never_meet() {
    rw(async |bed| {
        crowd(&[bed.client().await], 15, 25).await;
        let mut clients = Vec::new();
        for n in 0..16 {
            let prefer = if n % 2 == 0 { Prefer::Readers } else { Prefer::Writers };
            clients.push(bed.connect(bed.builder().prefer(prefer)).await);
        }
        let most = crowd(&clients, 16, 30).await;
        assert!(most > 1, "never two readers at a time");
        let builders = (0..84).map(|_| bed.builder().connect());
        for client in futures::future::join_all(builders).await {
            clients.push(client.unwrap());
        }
        crowd(&clients, 100, 1).await;
        for client in &clients[16..] {
            bed::idle(client).await;
            client.shutdown(bed::PATIENCE).await.unwrap();
        }
    })
    .await;
}

/// `testName`: braces and colons (#1219), ten tasks on each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_with_braces_and_colons_work() {
    rw(async |bed| {
        let client = bed.client().await;
        let mut tasks = JoinSet::new();
        for name in ["{abc}:def", "a:b:c", "{x}", "with {} in it", "}{", "{{a}}:b"] {
            for n in 0..10 {
                let lock = client.rw(name);
                tasks.spawn(async move {
                    for _ in 0..10 {
                        lock.read().lock().await.unwrap().unlock().await.unwrap();
                    }
                    if n == 0 {
                        let reading = lock.write().lock().await.unwrap().downgrade().await.unwrap();
                        assert!(lock.read().is_locked().await.unwrap());
                        reading.unlock().await.unwrap();
                    }
                });
            }
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
        assert_eq!(bed.admin.keys().await, [""; 0]);
    })
    .await;
}

/// `testInCluster`: all keys of a lock in one slot, those that scripts make included, by renewals and marks as well.
#[tokio::test]
async fn both_halves_on_a_cluster_node() {
    let server = RedisServer::builder().arg("--cluster-enabled", "yes").start();
    let admin = Admin::connect(&server).await;
    add_slots(&admin, 0..=SLOTS - 1).await;
    let up = async || admin.cmd::<String>(&["CLUSTER", "INFO"]).await.contains("cluster_state:ok");
    eventually("the cluster is up", up).await;
    drop(admin);
    let body = async |bed: &Bed| {
        let client = bed.connect(bed.builder().prefer(Prefer::Writers)).await;
        for name in ["a", "pre{tag}suf", "a:b", "{x}:y"] {
            let (lock, me) = (client.rw(name), client.owner());
            let (writing, reading) = (enter(&lock.write(), &me).await, enter(&lock.read(), &me).await);
            let writer = waiter(lock.write());
            eventually("it waits", async || bed.admin.keys().await.len() == 3).await;
            assert_eq!(client.renew_now().await.renewed, 2, "{name}");
            writing.extend(secs(40)).await.unwrap();
            reading.extend(secs(40)).await.unwrap();
            assert!(lock.read().is_locked().await.unwrap() && lock.write().is_locked().await.unwrap());
            writing.downgrade().await.unwrap().unlock().await.unwrap();
            reading.unlock().await.unwrap();
            writer.await.unwrap().0.unlock().await.unwrap();
            assert!(!lock.read().force_unlock().await.unwrap());
            assert_eq!(bed.admin.keys().await, [""; 0], "{name}");
        }
    };
    bed::run_on(server, |client, name| client.lock(Flavour::Write, name), body).await;
}

/// `testWriteReadReentrancy`, `testWriteLock`, `testWR`: who writes may read, others may not; after the write hold others
/// read, and nobody writes, not even the owner; then all is free.
#[tokio::test]
async fn a_writer_reads_beside_itself_and_nobody_else() {
    rw(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let (lock, there, me) = (client.rw("a"), other.rw("a"), client.owner());
        let may = async || {
            let read = there.read().try_lock().await.unwrap();
            let reads = read.is_some();
            if let Some(guard) = read {
                guard.unlock().await.unwrap();
            }
            (reads, there.write().try_lock().await.unwrap().is_some())
        };
        let outer = enter(&lock.write(), &me).await;
        let inner = enter(&lock.write(), &me).await;
        let reading = enter(&lock.read(), &me).await;
        assert_eq!(may().await, (false, false));
        inner.unlock().await.unwrap();
        assert_eq!(may().await, (false, false));
        reading.unlock().await.unwrap();
        assert!(outer.is_held() && lock.write().is_held_by(&me).await.unwrap(), "#891");
        assert_eq!(may().await, (false, false));
        let reading = enter(&lock.read(), &me).await;
        outer.unlock().await.unwrap();
        assert_eq!(may().await, (true, false));
        reading.unlock().await.unwrap();
        let (first, second) = (lock.read().lock().await.unwrap(), there.read().lock().await.unwrap());
        assert_eq!(may().await, (true, false));
        first.unlock().await.unwrap();
        assert_eq!(may().await, (true, false));
        second.unlock().await.unwrap();
        assert_eq!(may().await, (true, true));
        bed::idle(&other).await;
    })
    .await;
}
