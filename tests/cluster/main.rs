//! Locks in a Redis Cluster: every flavour, wherever its slot is and goes.

mod company;
mod cost;
mod endings;
mod errors;
mod failover;
mod flavours;
mod leaks;
mod load;
mod moves;
mod odd_maps;
mod outage;
mod quiet;
mod rights;
mod silent;
mod to_and_fro;
mod turns;
mod waking;

use std::time::Duration;

use distlock::{Client, DistLock, Flavour};
use distlock_support::{Cluster, ClusterOptions};

/// For what is measured, and wants the machine for itself.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Every flavour that is one lock.
const FLAVOURS: [Flavour; 7] =
    [Flavour::Reentrant, Flavour::Fair, Flavour::Read, Flavour::Write, Flavour::Fenced, Flavour::Spin, Flavour::Plain];

/// Those whose holder keeps everybody out.
fn exclusive() -> impl Iterator<Item = Flavour> {
    FLAVOURS.into_iter().filter(|flavour| *flavour != Flavour::Read)
}

async fn client(cluster: &Cluster) -> Client {
    bed::builder(&cluster.url()).connect().await.expect("the cluster is there")
}

async fn end(client: Client) {
    bed::idle(&client).await;
    client.shutdown(secs(10)).await.expect("nothing keeps it");
}

/// All that a client holds, so many locks, is renewed in a while, and nothing of it is ever told as lost.
async fn kept(client: &Client, holds: usize) {
    bed::eventually("all is renewed", secs(20), async || {
        let renewed = client.renew_now().await;
        assert_eq!(renewed.lost, 0);
        (renewed.renewed, renewed.failed) == (holds, 0)
    })
    .await;
}

/// How many connections the nodes have that are no administrator's, no replica's and no other node's.
async fn connections(cluster: &Cluster) -> usize {
    let mut all = 0;
    for node in cluster.nodes() {
        let others = node.admin().others().await;
        all += others.iter().filter(|client| !client.flags.contains(['S', 'M'])).count();
    }
    all
}

async fn primaries(n: usize) -> Cluster {
    Cluster::start(ClusterOptions::default().primaries(n).replicas(0)).await
}

fn lock(client: &Client, flavour: Flavour, name: &str) -> std::sync::Arc<dyn DistLock> {
    client.lock(flavour, name)
}
