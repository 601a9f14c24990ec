//! A cluster shared with real Redisson. On every node, a holder in one language excludes the other language. Releases
//! wake waiters of both languages. Neither a failover nor a moved slot admits two holders.

use std::collections::BTreeSet;
use std::ops::Deref;

use distlock_support::agent::Kind;
use distlock_support::cluster::key_in;
use distlock_support::{Admin, Cluster, ClusterOptions, Node, slot_of};

use crate::held::{HeldByJava, HeldByUs, Spot};
use crate::rig::{LATCH, NEVER, PATIENCE, replied, until, until_is, wait_for_lock};
use crate::rw_rig::sits;
use crate::sides::{RIVALS, Sides, announced, flavour};

struct Shared {
    cluster: Cluster,
    sides: Sides,
}

impl Deref for Shared {
    type Target = Sides;

    fn deref(&self) -> &Sides {
        &self.sides
    }
}

impl Shared {
    /// Starts the cluster and both sides, with leases that outlast the test.
    async fn lasting(version: &str, options: ClusterOptions) -> Self {
        let cluster = start(options).await;
        let sides = Sides::lasting(version, &cluster.url()).await;
        Self { cluster, sides }
    }

    /// Starts the cluster and both sides, with leases that are renewed ([`Sides::watched`]).
    async fn watched(version: &str, options: ClusterOptions) -> Self {
        let cluster = start(options).await;
        let sides = Sides::watched(version, &cluster.url()).await;
        Self { cluster, sides }
    }

    fn node(&self, node: usize) -> &Node {
        &self.cluster.nodes()[node]
    }

    /// A name with this prefix in a slot of the node.
    async fn name(&self, node: usize, prefix: &str) -> String {
        let view = self.node(node).view().await;
        let slot = view.myself().slots.first().expect("a node with slots").start() + 1;
        key_in(slot, prefix)
    }

    /// The command by which releases send their message: `publish` for Redis 6.2, which has no sharded channels.
    async fn publish(&self) -> &'static str {
        let is_sharded = self.node(0).admin().raw(&["PUBSUB", "SHARDCHANNELS"]).await.is_ok();
        if is_sharded { "spublish" } else { "publish" }
    }

    /// Waits until the node has `count` subscribed channels of this name, all of them sharded. Without sharded channels
    /// (Redis 6.2), counts the channels on all servers.
    async fn listened_to(&self, node: &Node, name: &str, count: usize) {
        if self.publish().await != "spublish" {
            return self.listened_to_anywhere(name, count).await;
        }
        let channels = async || of_name(node.admin().shard_channels().await, name);
        until_is("shard channels", channels, |channels| channels.len() == count).await;
        let plain = of_name(node.admin().channels().await, name);
        assert!(plain.is_empty(), "{plain:?}");
    }

    async fn listened_to_anywhere(&self, name: &str, count: usize) {
        let channels = async || {
            let mut all = BTreeSet::new();
            for node in self.cluster.nodes().iter().filter(|node| node.is_running()) {
                all.extend(of_name(node.admin().channels().await, name));
                all.extend(of_name(node.admin().shard_channels().await, name));
            }
            all
        };
        until_is("channels", channels, |channels| channels.len() == count).await;
    }

    /// The state to print if a waiter was not woken.
    async fn state(&self, node: usize, name: &str) -> String {
        let admin = self.node(node).admin();
        let (fields, channels) = (admin.hgetall_whole(name).await, admin.shard_channels().await);
        format!("{fields:?}, for {} ms, listened to: {channels:?}, {:?}", admin.pttl(name).await, self.ours.stats())
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
        self.0
    }

    fn admin(&self) -> &Admin {
        self.1.admin()
    }

    fn name(&self, prefix: &str) -> String {
        key_in(self.2, prefix)
    }

    async fn ours_listens(&self, name: &str) {
        self.0.listened_to(self.1, name, 1).await;
    }

    async fn java_listens(&self, name: &str) {
        self.0.listened_to_anywhere(name, 1).await;
    }
}

/// The node timeout is long, so that no slow node is suspected of having failed.
async fn start(options: ClusterOptions) -> Cluster {
    Cluster::start(options.node_timeout(30_000)).await
}

fn primaries(n: usize) -> ClusterOptions {
    ClusterOptions::default().primaries(n).replicas(0)
}

/// Each side holds a lock of every flavour, under names on all three primaries.
pub async fn cluster_locks_exclude_the_other_side_on_every_primary(version: &str) {
    let shared = Shared::lasting(version, primaries(3)).await;
    for node in 0..3 {
        for (held, out) in RIVALS {
            let name = shared.name(node, &format!("{held:?}:{out:?}:")).await;
            let guard = shared.lock(held, &name).await;
            assert!(shared.node(node).admin().exists(&name).await, "{name} is elsewhere");
            assert!(!shared.is_free_for_java(out, &name).await, "{name}: Java is in beside us");
            assert!(held != Kind::Read || shared.is_free_for_java(held, &name).await, "{name}: Java may read too");
            guard.unlock().await.expect("unlock");

            let java = shared.java.at(held, &name, 1);
            replied(java.lock()).await;
            assert!(shared.node(node).admin().exists(&name).await, "{name} is elsewhere");
            assert!(!shared.is_free_for_us(out, &name).await, "{name}: we are in beside Java");
            assert!(held != Kind::Read || shared.is_free_for_us(held, &name).await, "{name}: we may read too");
            replied(java.unlock()).await;
            assert!(shared.is_free_for_us(out, &name).await && shared.is_free_for_java(out, &name).await, "{name}");
        }
    }
    shared.end().await;
}

pub async fn cluster_releases_wake_the_other_side(version: &str) {
    let shared = Shared::lasting(version, primaries(3)).await;
    for (held, waits) in announced() {
        for node in 0..3 {
            java_to_us(&shared, node, (held, waits)).await;
            us_to_java(&shared, node, (held, waits)).await;
        }
    }
    shared.end().await;
}

async fn java_to_us(shared: &Shared, node: usize, (held, waits): (Kind, Kind)) {
    let name = shared.name(node, &format!("java:{held:?}:{waits:?}:")).await;
    let java = shared.java.at(held, &name, 1);
    replied(java.lock_for(NEVER)).await;
    let waiter = wait_for_lock(shared.ours.lock(flavour(waits), &name));
    shared.waits(1).await;
    shared.listened_to(shared.node(node), &name, 1).await;
    until("no question under way", async || shared.ours.stats().under_way == 0).await;
    replied(java.unlock()).await;
    let woken = tokio::time::timeout(PATIENCE, waiter).await;
    let Ok(woken) = woken else { panic!("{name}: our waiter sleeps: {}", shared.state(node, &name).await) };
    woken.expect("the waiter").unlock().await.expect("unlock");
}

async fn us_to_java(shared: &Shared, node: usize, (held, waits): (Kind, Kind)) {
    let name = shared.name(node, &format!("rust:{held:?}:{waits:?}:")).await;
    let java = shared.java.at(waits, &name, 1);
    let lock = shared.ours.lock(flavour(held), &name);
    let guard = lock.lock_leased(NEVER).await.expect("lock_leased");
    let mut waiter = java.start_lock();
    shared.listened_to(shared.node(node), &name, 1).await;
    sits(&shared.java, 1).await;
    guard.unlock().await.expect("unlock");
    let Some(woken) = waiter.within(PATIENCE).await else {
        panic!("{name}: Java's waiter sleeps: {}", shared.state(node, &name).await)
    };
    woken.expect("an operation in Java");
    replied(java.unlock()).await;
    shared.listened_to(shared.node(node), &name, 0).await;
}

/// A requested failover happens while one side holds and the other waits, then again with the sides swapped. Each node
/// is promoted only once, because Redis counts the votes of a node's last election for four times the node timeout.
pub async fn cluster_failover_admits_no_second_holder(version: &str) {
    let shared = Shared::watched(version, primaries(1).replicas(3)).await;
    let primary = shared.node(0);
    let replicas = shared.cluster.replicas_of(primary).await;
    let slot = *primary.view().await.myself().slots[0].start();

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
    let slot = slot_of(shared.name(0, "moved:").await);

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
