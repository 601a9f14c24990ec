//! Tests of `RedissonReadWriteLockTest` about both halves that fit no other file: crowds and names.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use distlock::{Client, Flavour, Prefer};
use distlock_support::Numbers;
use tokio::task::JoinSet;

use crate::rig::{HOUR, Inside, served, unlock_all, waiter};
use bed::{Bed, PATIENCE, becomes, enter, ms, rw};

/// Reads, writes, writes and downgrades, or writes and also reads, by chance. Releases by unlock or by drop. Sometimes
/// a renewal runs at the same time, and must find every hold (`testReadLockExpirationRenewal`).
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
        if numbers.below(8) == 0 {
            let round = client.renew_now().await;
            assert_eq!((round.failed, round.lost), (0, 0), "a renewal beside releases");
        }
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
    crowd.join_all().await;
    inside.most.load(Ordering::SeqCst)
}

/// `testConcurrency_SingleInstance`, `testConcurrencyLoop_MultiInstance`, `testConcurrency_MultiInstance`: 15 tasks of
/// one client; 16 clients with many rounds each, half of them with preferred writers; and 100 clients once each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_readers_and_writers_exclude_each_other() {
    rw(async |bed| {
        // The clients do not poll, so only messages and hand-overs wake waiters.
        let builder =
            || bed.builder().watchdog(HOUR).command_timeout(PATIENCE).configure(|options| options.poll_cap = HOUR);
        crowd(&[bed.connect(builder()).await], 15, 25).await;
        let mut clients = Vec::new();
        for n in 0..16 {
            let prefer = if n % 2 == 0 { Prefer::Readers } else { Prefer::Writers };
            clients.push(bed.connect(builder().configure(|options| options.prefer = prefer)).await);
        }
        let most = crowd(&clients, 16, 30).await;
        assert!(most > 1, "never two readers at a time");
        clients.extend(futures::future::join_all((0..84).map(|_| bed.connect(builder()))).await);
        crowd(&clients, 100, 1).await;
    })
    .await;
}

/// Acquires both halves of each name while a writer waits. The only keys are the hash, a cover and the mark.
async fn both_halves_of(names: &[&str], bed: &Bed) {
    let client = bed.connect(bed.builder().configure(|options| options.prefer = Prefer::Writers)).await;
    for name in names {
        let (lock, me) = (client.rw(name), client.owner());
        let (writing, reading) = (enter(&lock.write(), &me).await, enter(&lock.read(), &me).await);
        let writer = waiter(&client, Flavour::Write, name);
        becomes("keys", 3, async || bed.admin.keys().await.len()).await;
        assert_eq!(client.renew_now().await.renewed, 2, "{name}");
        writing.extend(HOUR).await.unwrap();
        reading.extend(HOUR).await.unwrap();
        assert!(lock.read().is_locked().await.unwrap() && lock.write().is_locked().await.unwrap());
        unlock_all([writing.downgrade().await.unwrap(), reading]).await;
        served(name, writer).await;
        assert!(!lock.read().force_unlock().await.unwrap());
        assert_eq!(bed.admin.keys().await, [""; 0], "{name}");
    }
}

/// `testInCluster`: all keys of a lock are in one slot, also for renewals and marks.
#[tokio::test]
async fn both_halves_work_on_a_cluster_node() {
    let make = |client: &Client, name: &str| client.lock(Flavour::Write, name);
    let body = async |bed: &Bed| both_halves_of(&["a", "pre{tag}suf", "a:b", "{x}:y"], bed).await;
    bed::run_on(bed::cluster_node().await, make, body).await;
}

/// `testName`, #1219. The conformance suite has more names for each half.
#[tokio::test]
async fn both_halves_work_under_names_with_braces_and_colons() {
    rw(async |bed| both_halves_of(&["{abc}:def", "a:b:c", "{x}", "with {} in it", "}{", "{{a}}:b"], bed).await).await;
}
