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

use bed::{FLAVOURS, connections, end, ms, secs};
use distlock::{Client, DistLock, Flavour};
use distlock_support::{Cluster, ClusterOptions};

/// For what is measured, and wants the machine for itself.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Those whose holder keeps everybody out.
fn exclusive() -> impl Iterator<Item = Flavour> {
    FLAVOURS.into_iter().filter(|flavour| *flavour != Flavour::Read)
}

async fn client(cluster: &Cluster) -> Client {
    bed::builder(&cluster.url()).connect().await.expect("the cluster is there")
}

/// All that a client holds, so many locks, is renewed in a while, and nothing of it is ever told as lost.
async fn kept(client: &Client, holds: usize) {
    bed::eventually("all is renewed", async || {
        let renewed = client.renew_now().await;
        assert_eq!(renewed.lost, 0);
        (renewed.renewed, renewed.failed) == (holds, 0)
    })
    .await;
}

async fn primaries(n: usize) -> Cluster {
    Cluster::start(ClusterOptions::default().primaries(n).replicas(0)).await
}

fn lock(client: &Client, flavour: Flavour, name: &str) -> std::sync::Arc<dyn DistLock> {
    client.lock(flavour, name)
}
