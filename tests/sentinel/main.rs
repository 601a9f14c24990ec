//! Locks over Sentinel and over replicated servers: every flavour, and failovers.

mod confirmed;
mod errors;
mod flavours;
mod promoted;
mod replicated;
mod watching;

use std::sync::Arc;

use bed::{FLAVOURS, end, eventually, ms, secs};
use distlock::{Client, DistLock, Flavour, Guard};
use distlock_support::{Member, Replicas, Sentinels, SentinelsOptions};
use tokio::task::JoinHandle;

async fn sentinels() -> Sentinels {
    Sentinels::start(SentinelsOptions::default()).await
}

/// Sentinels that suspect no server even on a slow machine, for tests without a failover.
async fn still_sentinels() -> Sentinels {
    Sentinels::start(SentinelsOptions::default().down_after(60_000)).await
}

async fn client(url: &str) -> Client {
    bed::builder(url).connect().await.unwrap_or_else(|error| panic!("connect to {url}: {error:?}"))
}

fn lock(client: &Client, flavour: Flavour, name: &str) -> Arc<dyn DistLock> {
    client.lock(flavour, name)
}

async fn turn(client: &Client, name: &str) {
    lock(client, Flavour::Reentrant, name).lock().await.unwrap().unlock().await.unwrap();
}

fn waiter(lock: Arc<dyn DistLock>) -> JoinHandle<Guard> {
    tokio::spawn(async move { lock.lock().await.unwrap_or_else(|error| panic!("lock(): {error:?}")) })
}

async fn connections(server: &Member) -> usize {
    let others = server.admin().others().await;
    others.iter().filter(|client| client.name.starts_with("distlock-")).count()
}

async fn all_connections(servers: &Replicas) -> usize {
    let mut all = 0;
    for node in servers.nodes().iter().filter(|node| node.is_running()) {
        all += connections(node).await;
    }
    all
}
