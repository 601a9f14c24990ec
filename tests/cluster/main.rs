//! Locks in a Redis Cluster: every flavour, through failovers and slot moves.

mod company;
mod cost;
mod errors;
mod failover;
mod flavours;
mod leaks;
mod moves;
mod names;
mod odd_maps;
mod outage;
mod rights;
mod stale;

use std::sync::Arc;

use bed::{FLAVOURS, becomes, connections, end, eventually, ms, secs};
use distlock::{Builder, Client, DistLock, Flavour, Guard};
use distlock_support::{Admin, Cluster, ClusterOptions};
use tokio::task::JoinHandle;

async fn client(cluster: &Cluster) -> Client {
    bed::builder(&cluster.url()).connect().await.expect("connect to the cluster")
}

/// A client whose waiters never poll during a test. Only messages and changes of the cluster wake them.
fn woken_by_messages(cluster: &Cluster) -> Builder {
    bed::builder(&cluster.url()).watchdog(secs(3600)).configure(|options| {
        options.poll_cap = secs(3600);
        options.scan_interval = Some(secs(3600));
    })
}

/// Waits until one renewal round renews all locks that a client holds. No round may report one as lost.
async fn kept(client: &Client, holds: usize) {
    eventually("all holds are renewed", async || {
        let renewed = client.renew_now().await;
        assert_eq!(renewed.lost, 0, "the client holds all of them: {renewed:?}");
        (renewed.renewed, renewed.failed) == (holds, 0)
    })
    .await;
}

async fn primaries(n: usize) -> Cluster {
    Cluster::start(ClusterOptions::default().primaries(n).replicas(0).node_timeout(60_000)).await
}

/// The number of connections that servers have accepted so far.
async fn accepted(admin: &Admin) -> u64 {
    let info: String = admin.cmd(&["INFO", "stats"]).await;
    let counts = info.lines().filter_map(|line| line.strip_prefix("total_connections_received:"));
    counts.map(|count| count.trim().parse::<u64>().unwrap()).sum()
}

fn lock(client: &Client, flavour: Flavour, name: &str) -> Arc<dyn DistLock> {
    client.lock(flavour, name)
}

async fn turn(client: &Client, flavour: Flavour, name: &str) {
    let guard = lock(client, flavour, name).lock().await.unwrap_or_else(|error| panic!("lock {name}: {error:?}"));
    guard.unlock().await.unwrap_or_else(|error| panic!("unlock {name}: {error:?}"));
}

/// Spawns a task that waits for a lock. Returns once the task waits and has no command in flight.
async fn waiter(client: &Client, flavour: Flavour, name: &str) -> JoinHandle<Guard> {
    let lock = lock(client, flavour, name);
    let before = client.stats().waiting;
    let waiting = tokio::spawn(async move { lock.lock().await.unwrap_or_else(|error| panic!("lock(): {error:?}")) });
    eventually("the waiter is idle", async || client.stats().waiting > before && client.stats().under_way == 0).await;
    waiting
}

/// Returns the guard that a [`waiter`] gets.
async fn woken(what: &str, waiting: JoinHandle<Guard>) -> Guard {
    bed::ends(&format!("{what}: the wait"), waiting).await.expect("the waiting task does not panic")
}
