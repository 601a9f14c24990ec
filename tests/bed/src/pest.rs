//! The server closes connections and forgets scripts, again and again, while tasks acquire a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use distlock::Client;
use distlock_support::Admin;
use tokio::task::{JoinHandle, JoinSet};

use crate::{Bed, Counter};

#[derive(Clone, Copy, Debug)]
pub enum Deed {
    Kill(&'static str),
    Flush,
}

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

    /// Stops the actions. Returns how many took effect.
    pub async fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap()
    }
}

/// Runs `tasks` tasks of these clients. Each task acquires one reentrant lock `rounds` times.
///
/// # Panics
/// When two tasks hold the lock at once, or a task fails.
pub async fn contend(clients: &[Client], tasks: usize, rounds: usize, hold: Duration) {
    let counter = Arc::new(Counter::default());
    let mut running = JoinSet::new();
    for n in 0..tasks {
        let (lock, counter) = (clients[n % clients.len()].reentrant("hot"), Arc::clone(&counter));
        running.spawn(async move {
            for _ in 0..rounds {
                let guard = lock.lock().await.unwrap_or_else(|error| panic!("lock() of task {n}: {error:?}"));
                counter.bump(hold).await;
                if let Err(error) = guard.unlock().await {
                    assert!(matches!(error, distlock::Error::ReleasePending { .. }), "unlock() of task {n}: {error:?}");
                }
            }
        });
    }
    running.join_all().await;
    assert_eq!(counter.get() as usize, tasks * rounds, "exclusion broken: an increment was lost");
}
