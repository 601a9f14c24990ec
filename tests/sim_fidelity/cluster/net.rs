//! A simulated or real cluster with the events of a test.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use distlock::Client;
use distlock_sim::{LinkOptions, SimCluster};
use distlock_support::{Cluster, ClusterOptions, Node, slot_of};
use parking_lot::Mutex;

/// In ms. Longer than a busy machine may pause a node, so that only this test promotes replicas.
const NODE_TIMEOUT: u64 = 5_000;

/// Redis 7.0 counts the votes of a replica's last election for four times the node timeout, at least 4 s. A replica
/// that is asked to take over again within this time leaves its primary paused.
const VOTES_STAY: Duration = Duration::from_millis(4 * NODE_TIMEOUT + 500);

pub enum Net {
    Sim(SimCluster),
    /// With the time of each node's last election, by node id.
    Real(Cluster, Mutex<BTreeMap<String, Instant>>),
}

impl Net {
    pub fn sim(seed: u64) -> Self {
        Self::Sim(SimCluster::new(seed, 3, true))
    }

    pub async fn real() -> Self {
        let options = ClusterOptions::default().primaries(3).replicas(1).node_timeout(NODE_TIMEOUT);
        let options = options.require_full_coverage(false).config("cluster-replica-no-failover yes");
        Self::Real(Cluster::start(options).await, Mutex::default())
    }

    pub async fn client(&self) -> Client {
        let watchdog = Duration::from_secs(90);
        match self {
            Self::Sim(cluster) => {
                let link = cluster.link(LinkOptions::default());
                link.client(|options| options.watchdog = watchdog).await
            }
            Self::Real(cluster, _) => bed::builder(&cluster.url()).watchdog(watchdog).connect().await,
        }
        .expect("the cluster answers")
    }

    /// All keys of the primaries, without the owners' ids, sorted.
    pub async fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = match self {
            Self::Sim(cluster) => {
                cluster.keys().into_iter().map(|key| String::from_utf8_lossy(&key).into_owned()).collect()
            }
            Self::Real(cluster, _) => {
                let mut keys = Vec::new();
                for node in cluster.nodes() {
                    if node.is_running() && node.is_primary().await {
                        keys.extend(node.admin().keys().await);
                    }
                }
                keys
            }
        };
        let without = |key: &String| {
            let parts = key.split(':').map(|part| if part.len() >= 32 { "<id>" } else { part });
            parts.collect::<Vec<_>>().join(":")
        };
        keys = keys.iter().map(without).collect();
        keys.sort();
        keys
    }

    /// Starts to move the slot of a name to the node of another name. Returns false if that is the same node.
    pub async fn open(&self, name: &str, to: &str) -> bool {
        match self {
            Self::Sim(cluster) => {
                let (slot, to) = (SimCluster::slot_of(name.as_bytes()), SimCluster::slot_of(to.as_bytes()));
                let to = cluster.owner(to);
                let apart = cluster.owner(slot) != to;
                if apart {
                    cluster.open_slot(slot, to);
                }
                apart
            }
            Self::Real(cluster, _) => {
                let to = cluster.primary_of(to).await;
                let apart = cluster.primary_of(name).await.id() != to.id();
                if apart {
                    cluster.open_slot(slot_of(name), to).await;
                }
                apart
            }
        }
    }

    /// Moves up to `most` keys of an open slot, in the order of their names.
    pub async fn move_keys(&self, name: &str, most: usize) {
        match self {
            Self::Sim(cluster) => {
                cluster.move_keys(SimCluster::slot_of(name.as_bytes()), most);
            }
            Self::Real(cluster, _) => {
                let mut keys = cluster.keys_in_slot(slot_of(name)).await;
                keys.sort();
                keys.truncate(most);
                cluster.move_keys(slot_of(name), &keys).await;
            }
        }
    }

    pub async fn close(&self, name: &str) {
        match self {
            Self::Sim(cluster) => cluster.close_slot(SimCluster::slot_of(name.as_bytes())),
            Self::Real(cluster, _) => {
                self.move_keys_all(cluster, name).await;
                cluster.close_slot(slot_of(name)).await;
            }
        }
    }

    async fn move_keys_all(&self, cluster: &Cluster, name: &str) {
        // Keys that clients write meanwhile are created at the target.
        let keys = cluster.keys_in_slot(slot_of(name)).await;
        cluster.move_keys(slot_of(name), &keys).await;
    }

    pub async fn hand_over(&self, name: &str) {
        match self {
            Self::Sim(cluster) => cluster.fail_over(cluster.owner(SimCluster::slot_of(name.as_bytes()))),
            Self::Real(cluster, elected) => {
                let primary = cluster.primary_of(name).await;
                let replica = cluster.replicas_of(primary).await[0];
                votes_forgotten(elected, replica).await;
                cluster.failover(replica).await;
                elected.lock().insert(replica.id().to_owned(), Instant::now());
            }
        }
    }

    /// The primary of a name dies, its replica is promoted with all data, and the old primary returns as a replica.
    pub async fn die(&self, name: &str) {
        match self {
            Self::Sim(cluster) => {
                let primary = cluster.owner(SimCluster::slot_of(name.as_bytes()));
                cluster.node(primary).stop();
                tokio::time::sleep(Duration::from_millis(1_000)).await;
                cluster.set_failed(primary, true);
                cluster.promote(primary, 0);
                cluster.start(primary, false);
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            Self::Real(cluster, _) => {
                let primary = cluster.primary_of(name).await;
                let replica = cluster.replicas_of(primary).await[0];
                // The replica must have everything. `WAIT` covers only what precedes this connection's last write,
                // hence the `PUBLISH`.
                let _: i64 = primary.admin().cmd(&["PUBLISH", "so far", ""]).await;
                let replicas: i64 = primary.admin().cmd(&["WAIT", "1", "90000"]).await;
                assert_eq!(replicas, 1, "the replica does not have all that was written");
                let before = primary.admin().keys().await;
                cluster.kill(primary).await;
                // At once, with a new epoch, so that the dead primary's knowledge is outdated when it returns.
                replica.admin().cmd::<()>(&["CLUSTER", "FAILOVER", "TAKEOVER"]).await;
                let promotion = cluster.promotion(primary).await;
                let after = promotion.node.admin().keys().await;
                let gone: Vec<_> = before.iter().filter(|key| !after.contains(key)).collect();
                assert!(gone.is_empty(), "the promotion of {} has lost {gone:?}", promotion.node.addr());
                cluster.restart(primary);
                cluster.whole().await;
            }
        }
    }
}

/// Waits until the votes of this node's last election no longer count, because it is elected next.
async fn votes_forgotten(elected: &Mutex<BTreeMap<String, Instant>>, node: &Node) {
    let before = elected.lock().get(node.id()).copied();
    if let Some(left) = before.and_then(|at| VOTES_STAY.checked_sub(at.elapsed())) {
        tokio::time::sleep(left).await;
    }
}
