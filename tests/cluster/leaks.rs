//! What changes of a cluster leave behind.

use bed::eventually;
use distlock::{Client, Flavour};
use distlock_support::{Cluster, ClusterOptions};

use crate::{client, end, lock, secs};

/// How many connections the nodes have that are no administrator's, no replica's and no other node's.
async fn connections(cluster: &Cluster) -> usize {
    let mut all = 0;
    for node in cluster.nodes() {
        let others = node.admin().others().await;
        all += others.iter().filter(|client| !client.flags.contains(['S', 'M'])).count();
    }
    all
}

async fn work(client: &Client) {
    for n in 0..12 {
        lock(client, Flavour::Fair, &format!("left:{n}")).lock().await.unwrap().unlock().await.unwrap();
    }
}

/// Thirty promotions: two connections to each primary stay, and none to those that were.
#[tokio::test]
async fn changes_leave_nothing_behind() {
    let cluster = Cluster::start(ClusterOptions::default()).await;
    let one = client(&cluster).await;
    work(&one).await;
    for round in 0..30 {
        let mut replicas = Vec::new();
        for node in cluster.nodes() {
            if !node.is_primary().await {
                replicas.push(node);
            }
        }
        cluster.failover(replicas[round % replicas.len()]).await;
        work(&one).await;
    }
    eventually("two connections to each primary", secs(20), async || connections(&cluster).await == 3 * 2).await;
    let stats = one.stats();
    assert_eq!((stats.holds, stats.waiting), (0, 0));
    end(one).await;
    eventually("nothing is left", secs(20), async || connections(&cluster).await == 0).await;
}
