//! Nodes that die, freeze and return, and replicas that are promoted.

use std::time::{Duration, Instant};

use super::Cluster;
use super::node::Node;
use crate::until::until;

/// A replica gives up a requested failover after 5 s without votes. Then the request can be repeated.
const ASK_AGAIN: Duration = Duration::from_secs(6);

/// A replica that has become a primary.
#[derive(Debug)]
pub struct Promotion<'a> {
    pub node: &'a Node,
    /// The time from the cause until the new primary knew of its role.
    pub took: Duration,
}

impl Cluster {
    /// Kills a node (SIGKILL), even a frozen one. Does nothing if it is dead.
    pub async fn kill(&self, node: &Node) {
        node.note_slots().await;
        node.member.kill();
    }

    /// Freezes a node (SIGSTOP): its connections stay open, but nothing is answered.
    pub async fn stop(&self, node: &Node) {
        node.note_slots().await;
        node.member.stop();
    }

    pub fn cont(&self, node: &Node) {
        node.member.cont();
    }

    /// Restarts a killed node at its port and with its `nodes.conf`. Without an append-only file, the node has no keys
    /// until it gets some as a replica. [`Cluster::whole`] waits until it has rejoined.
    pub fn restart(&self, node: &Node) {
        node.member.restart();
    }

    /// Restarts a killed node, and waits until it is a replica of the node that was promoted in its place.
    ///
    /// Redis makes the node a replica if a single message reports a new owner of all its slots. After a slot move there
    /// may be two messages. Then the node stays a primary without slots, and this function makes it a replica.
    /// Otherwise the promoted node might never have a replica.
    pub async fn restart_behind(&self, node: &Node, promoted: &Node) {
        node.member.restart();
        until("a restarted node to become a replica", async || {
            let view = node.view().await;
            let myself = view.myself();
            if myself.primary.as_deref() == Some(promoted.id()) {
                return Ok(());
            }
            if myself.is("master") && myself.slots.is_empty() {
                node.admin().cmd::<()>(&["CLUSTER", "REPLICATE", promoted.id()]).await;
            }
            Err(format!("{}: {view:?}", node.addr()))
        })
        .await;
    }

    /// Cuts a node off from all others on the bus, or reconnects the node. Nodes that are cut off can reach each other.
    /// No connection is closed: messages arrive later. Clients and replicas still reach the node, unless its
    /// [`Node::proxy`] prevents that.
    pub fn cut_off(&self, node: &Node, is_off: bool) {
        assert!(node.is_cuttable(), "the bus of {} has no proxy: see ClusterOptions::cuttable", node.addr());
        self.cut_off.send_modify(|away| {
            if is_off {
                away.insert(node.id().to_owned());
            } else {
                away.remove(node.id());
            }
        });
    }

    /// Waits until a replica has taken over the slots of a killed or frozen node ([`Cluster::kill`],
    /// [`Cluster::stop`]). The returned duration is exact if this is called before the promotion. Other nodes may not
    /// know the new primary yet: see [`Cluster::agreed`].
    pub async fn promotion(&self, of: &Node) -> Promotion<'_> {
        let Some((since, slots)) = of.away() else { panic!("{} runs: nobody takes over from it", of.addr()) };
        let Some(slot) = slots.first().map(|range| *range.start()) else {
            panic!("{} served no slots: nobody takes over from it", of.addr())
        };
        let node = until("a replica to take over", async || {
            for node in self.running() {
                let view = node.view().await;
                if view.myself().is("master") && view.myself().serves(slot) {
                    return Ok(node);
                }
            }
            Err(format!("slot {slot} of {} is nobody's", of.addr()))
        })
        .await;
        Promotion { node, took: since.elapsed() }
    }

    /// Makes a replica take over from its running primary (`CLUSTER FAILOVER`), and waits until the cluster is whole
    /// again.
    pub async fn failover<'a>(&self, replica: &'a Node) -> Promotion<'a> {
        let start = Instant::now();
        let mut asked = None;
        until("a replica to take over by hand", async || {
            if replica.is_primary().await {
                return Ok(());
            }
            if asked.is_none_or(|at: Instant| at.elapsed() > ASK_AGAIN) {
                asked = Some(Instant::now());
                replica.admin().cmd::<()>(&["CLUSTER", "FAILOVER"]).await;
            }
            Err(format!("{} is a replica", replica.addr()))
        })
        .await;
        let took = start.elapsed();
        self.whole().await;
        Promotion { node: replica, took }
    }
}
