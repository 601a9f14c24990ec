//! A simulated cluster: servers that each have their own, possibly stale, view of the others.

mod changes;
mod link;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use distlock::{Client, Options};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::events::What;
use super::faults::LinkOptions;
use super::place::{self, Gossip, Peer, Place, SLOTS};
use super::random::Random;
use super::reply::SimReply;
use super::server::SimServer;
pub use link::SimClusterLink;

/// The longest time until a node learns of a change at another node.
const GOSSIP_TAKES: Duration = Duration::from_millis(100);

/// A node that hears from no other node for this long considers itself cut off.
const NODE_TIMEOUT: Duration = Duration::from_millis(400);

/// Time during which a node refuses commands after a partition has healed.
const REJOINS_AFTER: Duration = Duration::from_millis(500);

/// Time during which a node refuses commands after its start.
const SERVES_AFTER: Duration = Duration::from_secs(2);

/// A Redis cluster in memory. Clones share one cluster.
///
/// Nodes have numbers: first the primaries, then their replicas in the same order.
///
/// Each node has its own view of who owns a slot. A node learns of changes at other nodes a little later, but not while
/// it is frozen or isolated. Pub/sub is sharded: a channel belongs to its slot.
#[derive(Clone)]
pub struct SimCluster {
    nodes: Arc<[SimServer]>,
    state: Arc<Mutex<State>>,
}

struct State {
    seed: u64,
    random: Random,
    epoch: u64,
    clients: u64,
    /// The primary of each node; None for a primary.
    replica_of: Vec<Option<usize>>,
    isolated: Vec<bool>,
}

impl SimCluster {
    /// Creates a cluster of `primaries` primaries with equal shares of the slots, with one replica each if `replicas`
    /// is set. The seed decides everything that is random.
    ///
    /// # Panics
    /// With no primary, or with more than 100.
    pub fn new(seed: u64, primaries: usize, replicas: bool) -> Self {
        assert!((1..=100).contains(&primaries), "a cluster of {primaries} primaries");
        distlock::transport::deterministic_tables();
        let count = if replicas { 2 * primaries } else { primaries };
        let of = |node: usize| node.checked_sub(primaries);
        let peer = |node: usize| Peer {
            id: format!("{:040x}", node + 1),
            address: format!("node-{node}.sim:{}", 7000 + node),
            // Each primary has its own epoch, as after a real start.
            epoch: if node < primaries { node as u64 + 1 } else { 0 },
            replica_of: of(node),
            failed: false,
        };
        let peers: Vec<Peer> = (0..count).map(peer).collect();
        let start = Instant::now();
        let nodes = peers.iter().enumerate().map(|(node, peer)| {
            let seed = seed ^ (node as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let server = SimServer::at(peer.address.clone(), seed, start);
            let mut place = Place::new(node, peers.clone());
            for slot in 0..SLOTS {
                place.give(slot, usize::from(slot) * primaries / usize::from(SLOTS));
            }
            server.change(|core, _| {
                core.store.place = Some(Box::new(place));
                core.past = replicas.then(|| [core.store.all().clone()].into());
            });
            server
        });
        let nodes = nodes.collect();
        let state = State {
            seed,
            random: Random::new(seed, 1 << 32),
            epoch: primaries as u64,
            clients: 0,
            replica_of: (0..count).map(of).collect(),
            isolated: vec![false; count],
        };
        Self { nodes, state: Arc::new(Mutex::new(state)) }
    }

    /// Returns the slot of a name or key.
    pub fn slot_of(name: &[u8]) -> u16 {
        place::slot_of(name)
    }

    /// Returns one node, to inspect, stop, freeze or change only this node. To start it again, use
    /// [`start`](Self::start).
    ///
    /// # Panics
    /// If no node has this number.
    pub fn node(&self, node: usize) -> &SimServer {
        &self.nodes[node]
    }

    /// Returns the number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns false: a cluster has at least one primary.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Connects a client. Its connections to all nodes have these options.
    pub fn link(&self, options: LinkOptions) -> SimClusterLink {
        let mut state = self.state.lock();
        state.clients += 1;
        SimClusterLink::new(self.clone(), options, Random::new(state.seed, (2 << 32) + state.clients))
    }

    /// Connects a client with default options.
    ///
    /// # Errors
    /// As [`SimClusterLink::client`].
    pub async fn client(&self) -> distlock::Result<Client> {
        self.link(LinkOptions::default()).client(|_: &mut Options| {}).await
    }

    /// Returns the owner of a slot: the node with the highest epoch of all that claim the slot, even if it does not
    /// answer. There always is an owner, because a node gives up a slot only to another node.
    pub fn owner(&self, slot: u16) -> usize {
        let claims = (0..self.len()).filter_map(|node| {
            self.nodes[node].change(|core, _| {
                let place = core.place();
                let Gossip::Node { epoch, .. } = place.gossip() else { return None };
                (place.owner(slot) == Some(node)).then_some((epoch, node))
            })
        });
        claims.max().map_or(0, |(_, node)| node)
    }

    /// Returns the nodes that are primaries now, whether they answer or not.
    pub fn primaries(&self) -> Vec<usize> {
        let state = self.state.lock();
        (0..self.len()).filter(|node| state.replica_of[*node].is_none()).collect()
    }

    /// Returns the replica of a primary.
    pub fn replica(&self, primary: usize) -> Option<usize> {
        self.state.lock().replica_of.iter().position(|of| *of == Some(primary))
    }

    /// Returns the keys of all primaries, sorted, without keys in slots that their node does not own. (A promotion may
    /// restore old data, with keys of slots that have moved away since.)
    pub fn keys(&self) -> Vec<Vec<u8>> {
        let of = |node: usize| {
            let has = move |key: &Vec<u8>| {
                self.nodes[node].change(|core, _| core.place().owner(place::slot_of(key)) == Some(node))
            };
            self.nodes[node].keys().into_iter().filter(has)
        };
        let mut keys: Vec<_> = self.primaries().into_iter().flat_map(of).collect();
        keys.sort();
        keys
    }

    /// Runs one command at a node as a client would; `words` starts with the command's name. If the node does not
    /// serve the key, the reply is an error such as `MOVED`. `asking` sends an `ASKING` first.
    pub fn command(&self, node: usize, asking: bool, words: &[&[u8]]) -> SimReply {
        self.nodes[node].now(|core| core.command_of_client(asking, words))
    }

    fn next_epoch(&self) -> u64 {
        let mut state = self.state.lock();
        state.epoch += 1;
        state.epoch
    }

    /// Tells the other nodes about a node.
    fn spread(&self, node: usize) {
        let gossip = self.nodes[node].change(|core, _| core.place().gossip());
        for other in (0..self.len()).filter(|other| *other != node) {
            if !self.state.lock().isolated[node] {
                self.tell(other, gossip.clone());
            }
        }
    }

    /// Tells a node about the others.
    fn catch_up(&self, node: usize) {
        for other in (0..self.len()).filter(|other| *other != node) {
            if !self.nodes[other].is_down() && !self.state.lock().isolated[other] {
                let gossip = self.nodes[other].change(|core, _| core.place().gossip());
                self.tell(node, gossip);
            }
        }
    }

    fn tell(&self, node: usize, gossip: Gossip) {
        let takes = {
            let mut state = self.state.lock();
            if state.isolated[node] {
                return;
            }
            state.random.between(Duration::from_millis(1), GOSSIP_TAKES)
        };
        self.nodes[node].change(|core, now| core.schedule(now + takes, What::Heard(gossip)));
    }

    /// Returns every node and channel with a subscriber, sorted.
    pub fn channels(&self) -> Vec<(usize, Vec<u8>)> {
        let of = |node: usize| self.nodes[node].channels().into_iter().map(move |channel| (node, channel));
        (0..self.len()).flat_map(of).collect()
    }
}

impl fmt::Debug for SimCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimCluster").field("nodes", &self.len()).finish_non_exhaustive()
    }
}

fn node_at(nodes: &[SimServer], address: &str) -> Option<usize> {
    nodes.iter().position(|node| node.address() == address)
}
