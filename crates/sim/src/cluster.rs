//! A simulated cluster: servers that each have their own, possibly stale, view of the others.

mod link;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use distlock::{Client, Options};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::events::What;
use super::faults::LinkOptions;
use super::place::{self, Gossip, Moving, Peer, Place, SLOTS};
use super::random::Random;
use super::reply::SimReply;
use super::server::SimServer;
pub use link::SimClusterLink;

/// The longest time until a node hears of a change at another node.
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
/// Each node has its own view of who owns a slot. It hears of changes elsewhere a little later, and not at all while
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

    /// Returns a node, to inspect, stop, freeze or change it alone. To start it again, use [`start`](Self::start).
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

    /// Returns the node that owns a slot: among the nodes that claim it, the one with the highest epoch, whether it
    /// answers or not. A node gives up a slot only to another node, so there always is an owner.
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

    /// Returns the keys of all primaries, sorted, without keys in slots that their node does not own. (A promotion
    /// may restore keys of slots that have moved away.)
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

    /// Begins to move a slot key by key: `SETSLOT IMPORTING` and `SETSLOT MIGRATING`. Does nothing if `to` owns the
    /// slot or is a replica.
    pub fn open_slot(&self, slot: u16, to: usize) {
        let from = self.owner(slot);
        if from != to && self.primaries().contains(&to) {
            self.nodes[to].change(|core, _| core.place().open(slot, Moving::From(from)));
            self.nodes[from].change(|core, _| core.place().open(slot, Moving::To(to)));
        }
    }

    /// Moves up to `most` keys of an open slot, in the order of their names. Returns how many it moved.
    pub fn move_keys(&self, slot: u16, most: usize) -> usize {
        let from = self.owner(slot);
        let Some(Moving::To(to)) = self.nodes[from].change(|core, _| core.place().moving(slot)) else { return 0 };
        let keys: Vec<_> =
            self.nodes[from].keys().into_iter().filter(|key| place::slot_of(key) == slot).take(most).collect();
        for key in &keys {
            let Some((value, left)) = self.nodes[from].now(|core| core.store.take(key)) else { continue };
            self.nodes[to].now(|core| {
                let until = left.map(|left| core.store.now_ms() + left);
                core.store.put(key, value, until);
            });
        }
        for node in [from, to] {
            self.nodes[node].change(|core, _| core.note());
        }
        keys.len()
    }

    /// Ends the move of a slot: moves its remaining keys and makes the target the owner.
    pub fn close_slot(&self, slot: u16) {
        let from = self.owner(slot);
        let Some(Moving::To(to)) = self.nodes[from].change(|core, _| core.place().moving(slot)) else { return };
        self.move_keys(slot, usize::MAX);
        let epoch = self.next_epoch();
        self.nodes[to].change(|core, _| {
            core.place().close(slot);
            core.place().give(slot, to);
            core.place().set_epoch(epoch);
        });
        self.nodes[from].change(|core, now| {
            core.place().close(slot);
            core.place().give(slot, to);
            core.end_subscriptions(now);
        });
        self.spread(to);
    }

    /// Moves a slot at once, like `CLUSTER MIGRATESLOTS`.
    pub fn move_slot(&self, slot: u16, to: usize) {
        self.open_slot(slot, to);
        self.close_slot(slot);
    }

    /// Hands a primary's slots over to its replica without loss, like `CLUSTER FAILOVER`.
    pub fn fail_over(&self, primary: usize) {
        let Some(replica) = self.replica(primary) else { return };
        self.promote(primary, 0);
        let news = self.nodes[replica].change(|core, _| core.place().gossip());
        self.nodes[primary].change(|core, now| {
            // The old primary learns both facts together: the new owner of its slots, and that owner's epoch.
            core.place().hear(&news);
            core.place().become_replica(replica);
            core.store.clear();
            core.end_subscriptions(now);
        });
    }

    /// Promotes the replica of a primary. The promoted node lacks the primary's last `lost` writes (up to 8, however
    /// old), and everything that the primary wrote while it was isolated.
    ///
    /// The old primary may be stopped, frozen or running. It learns of the promotion by gossip only.
    pub fn promote(&self, primary: usize, lost: usize) {
        let Some(replica) = self.replica(primary) else { return };
        let epoch = self.next_epoch();
        let all = self.nodes[primary].change(|core, _| {
            let past = core.past.as_ref().filter(|past| !past.is_empty())?;
            past.get((past.len() - 1).saturating_sub(lost)).cloned()
        });
        let slots = self.nodes[primary].change(|core, _| core.place().gossip());
        self.nodes[replica].change(|core, _| {
            // A replica knows the slots of its primary.
            core.place().hear(&slots);
            core.store.replace(all.clone().unwrap_or_default());
            core.past = Some([all.unwrap_or_default()].into());
            core.place().become_primary(primary, epoch);
        });
        {
            let mut state = self.state.lock();
            state.replica_of[replica] = None;
            state.replica_of[primary] = Some(replica);
        }
        self.spread(replica);
    }

    /// Makes the other nodes agree that a node has failed, or that it has not. The cluster stays up: see
    /// [`serve`](Self::serve).
    pub fn set_failed(&self, failed: usize, is_failed: bool) {
        for node in (0..self.len()).filter(|node| *node != failed) {
            self.tell(node, Gossip::Failed { node: failed, failed: is_failed });
        }
    }

    /// Sets whether the nodes consider the cluster up. Isolated nodes keep their own view. (With
    /// `cluster-require-full-coverage`, a real cluster serves nobody while a primary is away.)
    pub fn serve(&self, serves: bool) {
        let isolated = self.state.lock().isolated.clone();
        for (node, _) in self.nodes.iter().zip(isolated).filter(|(_, isolated)| !isolated) {
            node.change(|core, _| core.place().serves = serves);
        }
    }

    /// Cuts a node off from all other nodes, its replica included, or heals the partition. Clients still reach the
    /// node. It stops serving them after 400 ms (the `cluster-node-timeout`), and serves them again 500 ms after the
    /// partition has healed.
    pub fn isolate(&self, node: usize, cut: bool) {
        self.state.lock().isolated[node] = cut;
        let takes = if cut { NODE_TIMEOUT } else { REJOINS_AFTER };
        self.nodes[node].change(|core, now| {
            core.note();
            core.unreplicated = cut;
            core.schedule(now + takes, What::Heard(Gossip::Serves(!cut)));
        });
        if !cut {
            self.spread(node);
            self.catch_up(node);
        }
    }

    /// Starts a stopped node, with its data or empty. The node keeps its old role until it hears from the others, and
    /// refuses commands for 2 s, as Redis does. Do not use [`SimServer::start`] instead: the node would hear from
    /// nobody.
    pub fn start(&self, node: usize, keep_data: bool) {
        self.set_failed(node, false);
        self.nodes[node].change(|core, now| {
            core.place().serves = false;
            core.start(keep_data, now);
            core.schedule(now + SERVES_AFTER, What::Heard(Gossip::Serves(true)));
        });
        self.catch_up(node);
    }

    /// Exchanges all views at once, between nodes that are neither stopped nor isolated. A frozen node gets them when
    /// it wakes.
    pub fn settle(&self) {
        for node in 0..self.len() {
            for other in (0..self.len()).filter(|other| *other != node) {
                let gossip = self.nodes[other].change(|core, _| core.place().gossip());
                let isolated = self.state.lock().isolated[node] || self.state.lock().isolated[other];
                if !isolated && !self.nodes[other].is_down() {
                    self.nodes[node].change(|core, now| core.hear(gossip, now));
                }
            }
        }
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
