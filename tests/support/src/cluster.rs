//! A real cluster for each test. Nodes have their own ports and end with the test process. Tests reproduce events step
//! by step: a half-moved slot, a killed primary, a promoted replica.
//!
//! ```no_run
//! # async fn example() {
//! use distlock_support::{Cluster, ClusterOptions};
//!
//! let cluster = Cluster::start(ClusterOptions::default()).await;
//! let primary = cluster.primary_of("lock").await;
//! cluster.kill(primary).await;
//! let promotion = cluster.promotion(primary).await;
//! println!("{} after {:?}", promotion.node.url(), promotion.took);
//! # }
//! ```

mod agree;
mod bus;
mod failover;
mod form;
mod migrate;
mod node;
mod options;
mod slot;
mod view;

use std::sync::Arc;

use bus::CutOff;

pub use failover::Promotion;
pub use form::add_slots;
pub use node::Node;
pub use options::ClusterOptions;
pub use slot::{SLOTS, key_in, slot_of};
pub use view::{Seen, SlotMap, View};

/// A cluster on the loopback interface. Dropping it kills all nodes and removes their folders.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Node>,
    cut_off: Arc<CutOff>,
}

impl Cluster {
    /// Starts the nodes, makes them a cluster, and waits until it is whole (see [`Cluster::whole`]).
    pub async fn start(options: ClusterOptions) -> Self {
        let cut_off = Arc::default();
        let cluster = Self { nodes: form::launch(&options, &cut_off).await, cut_off };
        form::form(&cluster.nodes, options.primaries).await;
        cluster.whole().await;
        cluster
    }

    /// `redis-cluster://host:port,host:port,...` with all nodes, in the order of [`Cluster::nodes`];
    /// `rediss-cluster://` if they use TLS.
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.nodes.iter().map(|node| node.addr().to_string()).collect();
        let secure = if self.nodes.iter().any(Node::is_tls) { "s" } else { "" };
        format!("redis{secure}-cluster://{}", hosts.join(","))
    }

    /// The nodes: first the initial primaries, then each primary's first replica, then each primary's second replica,
    /// and so on.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The node with this id.
    pub fn node(&self, id: &str) -> &Node {
        let node = self.nodes.iter().find(|node| node.id() == id);
        node.unwrap_or_else(|| panic!("the cluster has no node {id}"))
    }

    /// The node that serves a key's slot, once all running nodes agree.
    pub async fn primary_of(&self, key: impl AsRef<[u8]>) -> &Node {
        self.owner(slot_of(key)).await
    }

    /// The node that serves a slot, once all running nodes agree.
    pub async fn owner(&self, slot: u16) -> &Node {
        match self.agreed().await.owner(slot) {
            Some(id) => self.node(id),
            None => panic!("slot {slot} is nobody's"),
        }
    }

    /// A primary other than this one.
    pub async fn other_primary(&self, than: &Node) -> &Node {
        for node in self.running() {
            if node.id() != than.id() && node.is_primary().await {
                return node;
            }
        }
        panic!("{} is the only primary", than.addr())
    }

    pub async fn replicas_of(&self, primary: &Node) -> Vec<&Node> {
        let mut replicas = Vec::new();
        for node in self.running() {
            if node.view().await.myself().primary.as_deref() == Some(primary.id()) {
                replicas.push(node);
            }
        }
        replicas
    }

    fn running(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| node.is_running())
    }
}
