//! Many locks held at once: their memory, and the cost of a round of renewal.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::raw::RawLock;
use crate::subject::{Any, Lock, Subject};

/// Acquires in flight at once.
const AT_ONCE: usize = 64;
/// Locks renewed by one command; the default of distlock and Redisson.
const BATCH: usize = 100;

/// The cost of acquiring the locks.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Held {
    pub seconds: f64,
    /// Resident memory of the process in bytes, before the first lock and after the last one.
    pub before: u64,
    pub after: u64,
}

/// The cost of a round of renewal.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Round {
    pub renewed: u64,
    pub seconds: f64,
    /// Processor time of this process.
    pub cpu_seconds: f64,
    /// Resident memory of the process in bytes, after the round.
    pub after: u64,
}

/// The guards of the held locks.
#[derive(Default)]
pub struct Hoard {
    distlock: Vec<Vec<distlock::Guard>>,
    raw: Vec<RawLock>,
    rlock: Vec<Vec<rlock::async_lock::RLockGuard>>,
}

impl Hoard {
    /// Acquires `count` locks and keeps them.
    pub async fn fill(&mut self, client: &Any, count: usize) -> Held {
        // Does all one-time work before the measurement.
        match client {
            Any::Distlock(client) => once(client).await,
            Any::Raw(client) => once(client).await,
            Any::Rlock(client) => once(client).await,
            Any::Rslock(_) | Any::Red(_) | Any::Tickets(_) => panic!("not measured"),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        let before = resident();
        let began = Instant::now();
        match client {
            Any::Distlock(client) => self.distlock = take(client, count, |_, guard| guard).await,
            Any::Raw(client) => self.raw = take(client, count, |lock, ()| lock).await.into_iter().flatten().collect(),
            Any::Rlock(client) => self.rlock = take(client, count, |_, guard| guard).await,
            Any::Rslock(_) | Any::Red(_) | Any::Tickets(_) => {}
        }
        let seconds = began.elapsed().as_secs_f64();
        tokio::time::sleep(Duration::from_millis(200)).await;
        Held { seconds, before, after: resident() }
    }

    /// Renews all locks once.
    pub async fn renew(&self, client: &Any) -> Round {
        let (cpu, began) = (cpu_seconds(), Instant::now());
        let renewed = match client {
            Any::Distlock(client) => {
                let round = client.renew_now().await;
                assert_eq!((round.failed, round.lost), (0, 0), "every lock is renewed");
                round.renewed
            }
            Any::Raw(raw) => {
                let all = self.raw.chunks(BATCH).map(|locks| raw.renew(locks));
                futures::future::join_all(all).await.iter().sum()
            }
            Any::Rslock(_) | Any::Rlock(_) | Any::Red(_) | Any::Tickets(_) => panic!("no rounds of renewal here"),
        };
        let seconds = began.elapsed().as_secs_f64();
        let cpu_seconds = cpu_seconds() - cpu;
        Round { renewed: renewed as u64, seconds, cpu_seconds, after: resident() }
    }
}

async fn once<S: Subject>(subject: &S) {
    let mut lock = subject.lock("once".to_owned());
    let guard = lock.acquire().await;
    lock.release(guard).await;
}

/// Acquires `count` locks, several at a time, and returns the results of `keep`.
async fn take<S, K>(subject: &S, count: usize, keep: fn(S::Lock, <S::Lock as Lock>::Guard) -> K) -> Vec<Vec<K>>
where
    S: Subject + Clone,
    K: Send + 'static,
{
    let tasks: Vec<_> = (0..AT_ONCE)
        .map(|task| {
            let subject = subject.clone();
            tokio::spawn(async move {
                let mut kept = Vec::with_capacity(count / AT_ONCE + 1);
                for number in (task..count).step_by(AT_ONCE) {
                    let mut lock = subject.lock(format!("held:{number}"));
                    let guard = lock.acquire().await;
                    kept.push(keep(lock, guard));
                }
                kept
            })
        })
        .collect();
    let mut all = Vec::with_capacity(AT_ONCE);
    for task in tasks {
        all.push(task.await.unwrap_or_else(|error| panic!("taking locks: {error}")));
    }
    all
}

fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
