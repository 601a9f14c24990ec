//! Connections that are closed by the server, and scripts that it forgets, over and over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use distlock::{Client, Flavour};
use distlock_support::{Admin, TtlSampler, must};
use tokio::task::{JoinHandle, JoinSet};

use bed::fault::brisk;
use bed::{Bed, Counter, eventually, ms, reentrant, secs};

/// What a [`Pest`] does.
#[derive(Clone, Copy, Debug)]
pub enum Deed {
    Kill(&'static str),
    Flush,
}

/// Does something to the server again and again until it is told to stop.
pub struct Pest {
    stop: Arc<AtomicBool>,
    task: JoinHandle<u64>,
}

impl Pest {
    pub async fn start(bed: &Bed, every: Duration, deeds: &'static [Deed]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, admin) = (Arc::clone(&stop), Admin::connect(&bed.server).await);
        let task = tokio::spawn(async move {
            let mut done = 0;
            while !stopped.load(Ordering::Relaxed) {
                for deed in deeds {
                    done += match deed {
                        Deed::Kill(kind) => admin.client_kill_type(kind).await,
                        Deed::Flush => {
                            admin.script_flush().await;
                            1
                        }
                    };
                }
                tokio::time::sleep(every).await;
            }
            done
        });
        Self { stop, task }
    }

    /// Ends it; how often it struck.
    pub async fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap()
    }
}

/// `tasks` tasks of some clients take one lock `rounds` times each, and never two at once.
pub async fn contend(clients: &[Client], tasks: usize, rounds: usize, hold: Duration) -> Vec<Duration> {
    contend_for(Flavour::Reentrant, clients, tasks, rounds, hold).await
}

/// As [`contend`], for a lock of this flavour.
pub async fn contend_for(
    flavour: Flavour,
    clients: &[Client],
    tasks: usize,
    rounds: usize,
    hold: Duration,
) -> Vec<Duration> {
    let counter = Arc::new(Counter::default());
    let mut running = JoinSet::new();
    for n in 0..tasks {
        let (lock, counter) = (clients[n % clients.len()].lock(flavour, "hot"), Arc::clone(&counter));
        running.spawn(async move {
            let mut waits = Vec::new();
            for _ in 0..rounds {
                let start = Instant::now();
                let guard = lock.lock().await.unwrap_or_else(|error| panic!("{error:?}"));
                waits.push(start.elapsed());
                counter.bump(hold).await;
                if let Err(error) = guard.unlock().await {
                    assert!(error.is_retryable(), "{error:?}");
                }
            }
            waits
        });
    }
    let mut waits = running.join_all().await.concat();
    must(counter.get() as usize == tasks * rounds, "two were inside at once");
    waits.sort();
    waits
}

/// Every connection for messages is closed every 50 ms while 64 tasks of 4 clients wait: the subscriptions are made anew,
/// and every waiter looks for itself once, so nobody sleeps through a release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_subscriptions_lose_no_waiter() {
    reentrant(async |bed| {
        let mut clients = Vec::new();
        for _ in 0..4 {
            // Asleep for long if nobody wakes them.
            clients.push(bed.connect(brisk(&bed.server.url()).watchdog(secs(30)).poll_cap(secs(30))).await);
        }
        let pest = Pest::start(bed, ms(50), &[Deed::Kill("pubsub")]).await;
        let start = Instant::now();
        let waits = contend(&clients, 64, 3, ms(5)).await;
        let took = start.elapsed();
        let kills = pest.stop().await;
        println!("192 locks in {took:?} under {kills} kills; longest wait {:?}", waits.last().unwrap());
        assert!(kills > 20 && took < secs(30), "{kills} kills, {took:?}");
    })
    .await;
}

/// Every connection for commands as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_connections_lose_no_waiter_and_count_nothing_twice() {
    reentrant(async |bed| {
        let sampler = TtlSampler::start(&bed.server.url()).await;
        let mut clients = Vec::new();
        for _ in 0..4 {
            let builder = brisk(&bed.server.url()).watchdog(secs(30)).poll_cap(secs(30)).retry_attempts(100);
            clients.push(bed.connect(builder).await);
        }
        let pest = Pest::start(bed, ms(50), &[Deed::Kill("normal"), Deed::Kill("pubsub")]).await;
        let start = Instant::now();
        let waits = contend(&clients, 64, 3, ms(2)).await;
        let took = start.elapsed();
        let kills = pest.stop().await;
        println!("192 locks in {took:?} under {kills} kills; longest wait {:?}", waits.last().unwrap());
        assert!(kills > 20 && took < secs(60), "{kills} kills, {took:?}");
        assert_eq!(sampler.stop().await, [], "keys without an end");
    })
    .await;
}

/// One kill in the very moment of waiting, and the release in the gap: the waiter is in as soon as it is connected again.
#[tokio::test]
async fn a_release_while_the_subscription_is_away_is_noticed() {
    reentrant(async |bed| {
        let holder = bed.client().await;
        let waiter = bed.connect(brisk(&bed.server.url()).watchdog(secs(30)).poll_cap(secs(30))).await;
        for round in 0..5 {
            let guard = holder.reentrant("a").lock().await.unwrap();
            let lock = waiter.reentrant("a");
            let waiting = tokio::spawn(async move { (lock.lock().await.unwrap(), Instant::now()) });
            eventually("the waiter waits", secs(2), async || waiter.stats().waiting == 1).await;
            let channel = "redisson_lock__channel:{a}";
            eventually("the waiter listens", secs(2), async || bed.admin.numsub(channel).await == 1).await;
            assert!(bed.admin.client_kill_type("pubsub").await >= 1);
            guard.unlock().await.unwrap();
            let released = Instant::now();
            let (guard, granted) = tokio::time::timeout(secs(10), waiting).await.expect("noticed").unwrap();
            let late = granted.saturating_duration_since(released);
            println!("round {round}: granted {late:?} after the release");
            assert!(late < secs(2), "{late:?}");
            guard.unlock().await.unwrap();
        }
    })
    .await;
}

/// The server forgets its scripts all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forgotten_scripts_are_not_noticed() {
    reentrant(async |bed| {
        let clients = [bed.client().await, bed.client().await];
        let pest = Pest::start(bed, ms(1), &[Deed::Flush]).await;
        let start = Instant::now();
        let waits = contend(&clients, 8, 100, Duration::ZERO).await;
        let flushes = pest.stop().await;
        println!(
            "800 locks in {:?} under {flushes} flushes; longest wait {:?}",
            start.elapsed(),
            waits.last().unwrap()
        );
        let stats = bed.admin.commandstats().await;
        assert!(flushes > 20 && stats.get("eval").is_some_and(|evals| *evals > 20), "{flushes}, {stats:?}");
        assert!(!stats.contains_key("script|load"));
    })
    .await;
}
