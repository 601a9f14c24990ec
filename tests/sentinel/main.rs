//! Locks at the primary that sentinels look after, and at replicated servers: every flavour, and whoever takes its place.

mod errors;
mod flavours;
mod promoted;
mod replicated;
mod watching;

use std::sync::Arc;

use bed::{FLAVOURS, end, ms, secs};
use distlock::{Client, DistLock, Flavour};
use distlock_support::{Member, Replicas, Sentinels, SentinelsOptions};

/// For what is measured, and wants the machine for itself.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

async fn sentinels() -> Sentinels {
    Sentinels::start(SentinelsOptions::default()).await
}

async fn client(url: &str) -> Client {
    bed::builder(url).connect().await.expect("the primary is there")
}

fn lock(client: &Client, flavour: Flavour, name: &str) -> Arc<dyn DistLock> {
    client.lock(flavour, name)
}

/// How many connections a server has that are no administrator's, no replica's and no sentinel's.
async fn connections(server: &Member) -> usize {
    let others = server.admin().others().await;
    others.iter().filter(|client| client.name.starts_with("distlock-")).count()
}

/// How many connections of ours all servers have.
async fn all_connections(servers: &Replicas) -> usize {
    let mut all = 0;
    for node in servers.nodes().iter().filter(|node| node.is_running()) {
        all += connections(node).await;
    }
    all
}
