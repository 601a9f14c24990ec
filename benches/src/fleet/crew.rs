//! The clients of one process and their waiters.

use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock::{Client, Flavour};
use distlock_support::agent::monotonic_ns;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

use super::{WAITERS, Wanted};
use crate::drive::Kind;

/// The time at which a waiter got the lock, and the time at which it sent the release, in ns of the machine's
/// monotonic clock.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Stay(pub u64, pub u64);

/// Time limit until all waiters wait.
const COME_WITHIN: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct Crew {
    clients: Vec<Client>,
    waiters: Vec<JoinHandle<()>>,
    stays: Arc<Mutex<Vec<Stay>>>,
}

impl Crew {
    /// Connects all clients and starts all their waiters.
    pub async fn gather(url: &str, wanted: &Wanted) -> Self {
        let mut crew = Self::default();
        for number in 0..wanted.clients {
            let client = Client::connect(url).await.unwrap_or_else(|error| panic!("distlock: {error}"));
            for waiter in 0..WAITERS {
                let flavour = match wanted.kind {
                    Kind::Fair => Flavour::Fair,
                    // `reads` percent of the waiters read.
                    Kind::Mix(reads) if (number * WAITERS + waiter) * 100 / WAITERS % 100 < usize::from(reads) => {
                        Flavour::Read
                    }
                    Kind::Mix(_) => Flavour::Write,
                    _ => Flavour::Reentrant,
                };
                let (lock, stays) = (client.lock(flavour, &wanted.name), Arc::clone(&crew.stays));
                crew.waiters.push(tokio::spawn(async move {
                    loop {
                        let guard = lock.lock().await.unwrap_or_else(|error| panic!("distlock: lock: {error}"));
                        let from = monotonic_ns();
                        tokio::task::yield_now().await;
                        stays.lock().push(Stay(from, monotonic_ns()));
                        guard.unlock().await.map_or_else(|error| panic!("distlock: unlock: {error}"), drop);
                    }
                }));
            }
            crew.clients.push(client);
        }
        let began = Instant::now();
        let wait = |client: &Client| client.stats().waiting == WAITERS && client.stats().under_way == 0;
        while !crew.clients.iter().all(wait) {
            assert!(began.elapsed() < COME_WITHIN, "not all wait within {COME_WITHIN:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        crew
    }

    /// Closes the clients. Returns the stays of all waiters.
    pub async fn disband(self) -> Vec<Stay> {
        self.waiters.iter().for_each(JoinHandle::abort);
        for waiter in self.waiters {
            if let Err(error) = waiter.await {
                assert!(error.is_cancelled(), "a waiter: {error}");
            }
        }
        let end = |client: Client| async move { client.shutdown(Duration::from_secs(60)).await };
        for ended in futures::future::join_all(self.clients.into_iter().map(end)).await {
            ended.unwrap_or_else(|error| panic!("distlock: shutdown: {error}"));
        }
        std::mem::take(&mut *self.stays.lock())
    }
}

/// Returns for each stay the time since the last release before it, in µs.
pub fn handed(stays: &mut [Stay]) -> Vec<f64> {
    let mut releases: Vec<u64> = stays.iter().map(|stay| stay.1).collect();
    releases.sort_unstable();
    stays.sort_unstable_by_key(|stay| stay.0);
    let last = |stay: &Stay| {
        let before = releases.partition_point(|release| *release <= stay.0);
        before.checked_sub(1).map(|at| (stay.0 - releases[at]) as f64 / 1e3)
    };
    stays.iter().filter_map(last).collect()
}
