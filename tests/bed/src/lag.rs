//! How late a busy machine is. A bound of a promise holds for a machine that has time; what is slow is not wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

/// Measures by how much sleeps are late, from its start on.
#[derive(Debug)]
pub struct Lag {
    worst: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Lag {
    /// Begins to measure.
    pub fn start() -> Self {
        const PAUSE: Duration = Duration::from_millis(5);
        let worst = Arc::new(AtomicU64::new(0));
        let noted = Arc::clone(&worst);
        let task = tokio::spawn(async move {
            loop {
                let start = Instant::now();
                tokio::time::sleep(PAUSE).await;
                let late = start.elapsed().saturating_sub(PAUSE);
                noted.fetch_max(u64::try_from(late.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
            }
        });
        Self { worst, task }
    }

    /// What this may take here and now, of a promise of so long: several processes, each as late as the latest sleep so far.
    pub fn allow(&self, promised: Duration) -> Duration {
        promised + 6 * Duration::from_micros(self.worst.load(Ordering::Relaxed))
    }
}

impl Drop for Lag {
    fn drop(&mut self) {
        self.task.abort();
    }
}
