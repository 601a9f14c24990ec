//! A simulated cluster, as tests hold it: servers that each know of the others what they have heard.

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

/// How long it takes a node at the most to hear of a change at another one.
const GOSSIP_TAKES: Duration = Duration::from_millis(100);

/// After so long a node that hears of no other one takes itself for the one that is cut off.
const NODE_TIMEOUT: Duration = Duration::from_millis(400);

/// So long a node that was cut off serves nobody yet.
const REJOINS_AFTER: Duration = Duration::from_millis(500);

/// So long a node that has started serves nobody.
const SERVES_AFTER: Duration = Duration::from_secs(2);

/// A Redis cluster in memory. Clones are the same cluster. Its nodes have numbers: at first the primaries, and behind them their
/// replicas in the same order.
///
/// Who has which slot is what each node believes by itself: it hears of changes elsewhere a little later, and not at all while it
/// stands still or is isolated. Channels are a slot's own.
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
    /// The node whose replica each one is.
    replica_of: Vec<Option<usize>>,
    isolated: Vec<bool>,
}

impl SimCluster {
    /// So many primaries with equal shares of the slots, each with a replica or without. The seed decides everything that is left to
    /// chance.
    ///
    /// # Panics
    /// Without a primary, and with more than 100.
    pub fn new(seed: u64, primaries: usize, replicas: bool) -> Self {
        assert!((1..=100).contains(&primaries), "a cluster of {primaries} primaries");
        distlock::transport::deterministic_tables();
        let count = if replicas { 2 * primaries } else { primaries };
        let of = |node: usize| node.checked_sub(primaries);
        let peer = |node: usize| Peer {
            id: format!("{:040x}", node + 1),
            address: format!("node-{node}.sim:{}", 7000 + node),
            // Primaries have one each, as after a real start.
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

    /// The slot of a name, or of a key.
    pub fn slot_of(name: &[u8]) -> u16 {
        place::slot_of(name)
    }

    /// A node, to be looked at, stopped, frozen or changed by itself; it is started again by [`start`](Self::start).
    ///
    /// # Panics
    /// Where there is no node of this number.
    pub fn node(&self, node: usize) -> &SimServer {
        &self.nodes[node]
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Never: there is a primary at the least.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Connects a client, whose connections to all nodes have these options.
    pub fn link(&self, options: LinkOptions) -> SimClusterLink {
        let mut state = self.state.lock();
        state.clients += 1;
        SimClusterLink::new(self.clone(), options, Random::new(state.seed, (2 << 32) + state.clients))
    }

    /// Connects a client with default options.
    ///
    /// *Errors*: as [`SimClusterLink::client`].
    pub async fn client(&self) -> distlock::Result<Client> {
        self.link(LinkOptions::default()).client(|_: &mut Options| {}).await
    }

    /// The node that has a slot: of those that think so, the one with the newest right to it, whether it answers or not. There always is
    /// one: slots are given up only to another node.
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

    /// The nodes that are primaries now, whether they answer or not.
    pub fn primaries(&self) -> Vec<usize> {
        let state = self.state.lock();
        (0..self.len()).filter(|node| state.replica_of[*node].is_none()).collect()
    }

    /// The replica of a primary.
    pub fn replica(&self, primary: usize) -> Option<usize> {
        self.state.lock().replica_of.iter().position(|of| *of == Some(primary))
    }

    /// Every key that is in the slots of its node, sorted: not what a promotion has brought back of slots that had been moved away.
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

    /// Carries out one command at a node, its name first, as a client of that node has it done: what is not the node's is sent away.
    /// `asking`: it comes behind an `ASKING`.
    pub fn command(&self, node: usize, asking: bool, words: &[&[u8]]) -> SimReply {
        self.nodes[node].now(|core| core.command_of_client(asking, words))
    }

    /// Begins to move a slot, key by key: `SETSLOT IMPORTING` and `MIGRATING`. Nothing happens where it is there, or that is a replica.
    pub fn open_slot(&self, slot: u16, to: usize) {
        let from = self.owner(slot);
        if from != to && self.primaries().contains(&to) {
            self.nodes[to].change(|core, _| core.place().open(slot, Moving::From(from)));
            self.nodes[from].change(|core, _| core.place().open(slot, Moving::To(to)));
        }
    }

    /// Moves so many keys of an open slot, the first ones by their names; how many there were.
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

    /// Ends the move of a slot: what is still there of its keys is moved, and it belongs to the node that it was opened to.
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

    /// Moves a slot at once, as `CLUSTER MIGRATESLOTS` does.
    pub fn move_slot(&self, slot: u16, to: usize) {
        self.open_slot(slot, to);
        self.close_slot(slot);
    }

    /// `CLUSTER FAILOVER`: a primary hands over to its replica, and nothing is lost.
    pub fn fail_over(&self, primary: usize) {
        let Some(replica) = self.replica(primary) else { return };
        self.promote(primary, 0);
        let news = self.nodes[replica].change(|core, _| core.place().gossip());
        self.nodes[primary].change(|core, now| {
            // It hears of both together: who has its slots, and by which right.
            core.place().hear(&news);
            core.place().become_replica(replica);
            core.store.clear();
            core.end_subscriptions(now);
        });
    }

    /// The replica takes the place of a primary, without the last writes of that: `lost` of them, 8 at the most, however old they are,
    /// and whatever it wrote while it was isolated. Whether the primary is dead, stands still or goes on, it knows of nothing until it
    /// hears of it.
    pub fn promote(&self, primary: usize, lost: usize) {
        let Some(replica) = self.replica(primary) else { return };
        let epoch = self.next_epoch();
        let all = self.nodes[primary].change(|core, _| {
            let past = core.past.as_ref().filter(|past| !past.is_empty())?;
            past.get((past.len() - 1).saturating_sub(lost)).cloned()
        });
        let slots = self.nodes[primary].change(|core, _| core.place().gossip());
        self.nodes[replica].change(|core, _| {
            // Who follows a primary knows its slots.
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

    /// The other nodes agree that one has failed, or that it has not. They go on serving: see [`serve`](Self::serve).
    pub fn set_failed(&self, failed: usize, is_failed: bool) {
        for node in (0..self.len()).filter(|node| *node != failed) {
            self.tell(node, Gossip::Failed { node: failed, failed: is_failed });
        }
    }

    /// Whether the cluster serves, by all that its nodes know, but for those that are isolated: none does while a primary is away, where
    /// `cluster-require-full-coverage` is on.
    pub fn serve(&self, serves: bool) {
        let isolated = self.state.lock().isolated.clone();
        for (node, _) in self.nodes.iter().zip(isolated).filter(|(_, isolated)| !isolated) {
            node.change(|core, _| core.place().serves = serves);
        }
    }

    /// Cuts a node off from the others, its replica among them, or heals that. Its clients reach it all the same; after 400 ms (the
    /// `cluster-node-timeout`) it serves them no more, and does so again 500 ms after it has been healed.
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

    /// Starts a node again that was stopped, with its data or empty. It takes itself for what it was until it hears of the others, and
    /// serves nobody at first, as Redis does. Not [`SimServer::start`], by which it would hear of nothing.
    pub fn start(&self, node: usize, keep_data: bool) {
        self.set_failed(node, false);
        self.nodes[node].change(|core, now| {
            core.place().serves = false;
            core.start(keep_data, now);
            core.schedule(now + SERVES_AFTER, What::Heard(Gossip::Serves(true)));
        });
        self.catch_up(node);
    }

    /// Every node that is not stopped or isolated knows what the others know, at once.
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

    /// The others hear of a node.
    fn spread(&self, node: usize) {
        let gossip = self.nodes[node].change(|core, _| core.place().gossip());
        for other in (0..self.len()).filter(|other| *other != node) {
            if !self.state.lock().isolated[node] {
                self.tell(other, gossip.clone());
            }
        }
    }

    /// A node hears of the others.
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

    /// What is held anywhere by subscriptions, sorted: node and channel.
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

/// The node at this address.
fn node_at(nodes: &[SimServer], address: &str) -> Option<usize> {
    nodes.iter().position(|node| node.address() == address)
}
