//! A cluster shared with real Redisson. On every node, a holder in one language excludes the other language. Releases
//! wake waiters of both languages. Neither a failover nor a moved slot admits two holders.

use std::collections::BTreeSet;

use distlock_support::cluster::key_in;
use distlock_support::{Admin, Cluster, ClusterOptions, Node};

use crate::held::{self, HeldByJava, HeldByUs, Spot};
use crate::rig::{LATCH, until_is};
use crate::sides::Sides;

struct Shared {
    cluster: Cluster,
    sides: Sides,
}

impl Shared {
    /// Starts the cluster and both sides, with leases that are renewed ([`Sides::watched`]).
    async fn watched(version: &str, options: ClusterOptions) -> Self {
        let cluster = start(options).await;
        let sides = Sides::watched(version, &cluster.url()).await;
        Self { cluster, sides }
    }

    fn node(&self, node: usize) -> &Node {
        &self.cluster.nodes()[node]
    }

    /// Waits until one channel of this name is subscribed to at the node, as a sharded channel. Without sharded channels
    /// (Redis 6.2), looks for the channel on all servers.
    async fn is_listened_to_at(&self, node: &Node, name: &str) {
        if self.node(0).admin().raw(&["PUBSUB", "SHARDCHANNELS"]).await.is_err() {
            return self.is_listened_to(name).await;
        }
        let channels = async || of_name(node.admin().shard_channels().await, name);
        until_is("shard channels", channels, |channels| channels.len() == 1).await;
        let plain = of_name(node.admin().channels().await, name);
        assert!(plain.is_empty(), "{plain:?}");
    }

    async fn is_listened_to(&self, name: &str) {
        let channels = async || {
            let mut all = BTreeSet::new();
            for node in self.cluster.nodes().iter().filter(|node| node.is_running()) {
                all.extend(of_name(node.admin().channels().await, name));
                all.extend(of_name(node.admin().shard_channels().await, name));
            }
            all
        };
        until_is("channels", channels, |channels| channels.len() == 1).await;
    }

    async fn end(self) {
        self.sides.end().await;
        let left = async || {
            let mut left = Vec::new();
            for node in self.cluster.nodes() {
                left.extend(node.admin().keys().await);
                left.extend(node.admin().shard_channels().await);
            }
            // Ignores token counters, which outlive their locks, and latches, which old versions of Redisson leave
            // until they expire.
            left.retain(|key| !key.starts_with(LATCH) && !key.starts_with("redisson_lock_token:"));
            left
        };
        until_is("keys and channels", left, Vec::is_empty).await;
        self.sides.java.close().await;
    }
}

fn of_name(mut channels: Vec<String>, name: &str) -> Vec<String> {
    let tag = format!("{{{name}}}");
    channels.retain(|channel| channel.contains(&tag));
    channels
}

/// A slot, and the node that has its locks.
struct AtNode<'a>(&'a Shared, &'a Node, u16);

impl Spot for AtNode<'_> {
    fn sides(&self) -> &Sides {
        &self.0.sides
    }

    fn admin(&self) -> &Admin {
        self.1.admin()
    }

    fn name(&self, prefix: &str) -> String {
        key_in(self.2, prefix)
    }

    async fn ours_listens(&self, name: &str) {
        self.0.is_listened_to_at(self.1, name).await;
    }

    async fn java_listens(&self, name: &str) {
        self.0.is_listened_to(name).await;
    }
}

/// The node timeout is long, so that no slow node is suspected of having failed.
async fn start(options: ClusterOptions) -> Cluster {
    Cluster::start(options.node_timeout(30_000)).await
}

/// A slot of this primary.
async fn slot_at(node: &Node) -> u16 {
    *node.view().await.myself().slots.first().expect("a node with slots").start() + 1
}

fn primaries(n: usize) -> ClusterOptions {
    ClusterOptions::default().primaries(n).replicas(0)
}

/// Each side holds a lock of every flavour, and wakes the other side, under names on all three primaries.
pub async fn cluster_locks_exclude_and_wake_the_other_side(version: &str) {
    let cluster = start(primaries(3)).await;
    let sides = Sides::lasting(version, &cluster.url()).await;
    let shared = Shared { cluster, sides };
    for node in shared.cluster.nodes() {
        held::exclude_and_wake(&AtNode(&shared, node, slot_at(node).await)).await;
    }
    shared.end().await;
}

/// A requested failover happens while one side holds and the other waits, then again with the sides swapped. Each node
/// is promoted only once, because Redis counts the votes of a node's last election for four times the node timeout.
pub async fn cluster_failover_admits_no_second_holder(version: &str) {
    let shared = Shared::watched(version, primaries(1).replicas(3)).await;
    let primary = shared.node(0);
    let replicas = shared.cluster.replicas_of(primary).await;
    let slot = slot_at(primary).await;

    let held = HeldByJava::at(&AtNode(&shared, primary, slot), "java").await;
    shared.cluster.failover(replicas[0]).await;
    held.are_kept(&AtNode(&shared, replicas[0], slot)).await;
    held.are_handed_over().await;

    let mut held = HeldByUs::at(&AtNode(&shared, replicas[0], slot), "rust").await;
    shared.cluster.failover(replicas[1]).await;
    held.are_kept(&AtNode(&shared, replicas[1], slot)).await;
    held.are_handed_over().await;

    // The releases happen just before or just after the waiters have subscribed at the new primary.
    let held = HeldByJava::at(&AtNode(&shared, replicas[1], slot), "java at once").await;
    shared.cluster.failover(replicas[2]).await;
    held.are_handed_over().await;
    let held = HeldByUs::at(&AtNode(&shared, replicas[2], slot), "rust at once").await;
    shared.cluster.failover(primary).await;
    held.are_handed_over().await;
    shared.end().await;
}

/// A slot moves while one side holds and the other waits. Redisson fails to subscribe at the new primary (its codec is
/// null there). Therefore Redisson's waiters retry when the last known lease has ended.
pub async fn cluster_slot_move_admits_no_second_holder(version: &str) {
    let shared = Shared::watched(version, primaries(2)).await;
    let (from, to) = (shared.node(0), shared.node(1));
    let slot = slot_at(from).await;

    let held = HeldByJava::at(&AtNode(&shared, from, slot), "java").await;
    shared.cluster.move_slot(slot, to).await;
    held.are_kept(&AtNode(&shared, to, slot)).await;
    held.are_handed_over().await;

    let mut held = HeldByUs::at(&AtNode(&shared, to, slot), "rust").await;
    shared.cluster.move_slot(slot, from).await;
    held.are_kept(&AtNode(&shared, from, slot)).await;
    held.are_handed_over().await;

    let held = HeldByJava::at(&AtNode(&shared, from, slot), "java at once").await;
    shared.cluster.move_slot(slot, to).await;
    held.are_handed_over().await;
    shared.end().await;
}
