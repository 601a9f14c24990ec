//! Replicas whose clocks differ by up to 2 s, over the simulator, in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bed::{ms, secs};
use distlock_sim::SimServer;
use distlock_support::Numbers;
use futures::future::join_all;
use tokio::time::{interval, sleep};

use crate::NAME;

const TICKS: usize = 200;

/// Five replicas have a tick a minute. The clock of replica n is n * 400 ms late, and its timer up to 400 ms more.
async fn replica(server: &SimServer, n: u64, at_least: Duration, runs: Arc<Vec<AtomicU64>>) {
    let client = server.client().unwrap();
    let mut numbers = Numbers::new(n);
    sleep(ms(400 * n)).await;
    let mut clock = interval(secs(60));
    for run in runs.iter() {
        clock.tick().await;
        sleep(numbers.between(0, 399)).await;
        let takes = numbers.between(0, 1_000);
        let work = async {
            run.fetch_add(1, Ordering::Relaxed);
            sleep(takes).await;
        };
        client.once(NAME, at_least, secs(30), work).await.unwrap();
    }
    client.shutdown(secs(5)).await.unwrap();
}

/// Returns the number of runs of each tick.
fn runs(at_least: Duration) -> Vec<u64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let (server, runs) = (SimServer::new(1), Arc::new((0..TICKS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>()));
        join_all((0..5).map(|n| replica(&server, n, at_least, Arc::clone(&runs)))).await;
        runs.iter().map(|runs| runs.load(Ordering::Relaxed)).collect()
    })
}

#[test]
fn job_runs_once_per_tick_if_at_least_exceeds_the_difference_of_the_clocks() {
    let runs = runs(secs(3));
    assert!(runs.iter().all(|runs| *runs == 1), "{runs:?}");
}

/// The red control: a late replica finds the name open.
#[test]
fn job_runs_again_on_a_late_replica_without_at_least() {
    let runs = runs(Duration::ZERO);
    assert!(runs.iter().sum::<u64>() > TICKS as u64, "{runs:?}");
}
