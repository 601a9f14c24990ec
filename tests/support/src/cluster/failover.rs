//! Nodes that die, freeze and come back, and replicas that take over.

use std::time::{Duration, Instant};

use super::Cluster;
use super::node::Node;
use crate::until::until;

/// A failover by hand that was not voted for is given up by the replica after 5 s; then it may be asked for again.
const ASK_AGAIN: Duration = Duration::from_secs(6);

/// A replica that has become a primary.
#[derive(Debug)]
pub struct Promotion<'a> {
    /// The new primary.
    pub node: &'a Node,
    /// The time from what caused it to when the new primary knew of it.
    pub took: Duration,
}

impl Cluster {
    /// Kills a node (SIGKILL), a frozen one as well; nothing happens when it is dead.
    pub async fn kill(&self, node: &Node) {
        let slots = if node.is_running() { Some(node.view().await.myself().slots.clone()) } else { None };
        node.kill9(slots);
    }

    /// Freezes a node (SIGSTOP): its connections stay open, nothing is answered.
    ///
    /// # Panics
    /// When it does not run.
    pub async fn stop(&self, node: &Node) {
        assert!(node.is_running(), "{} does not run", node.addr());
        let view = node.view().await;
        node.freeze(view.myself().slots.clone());
    }

    /// Lets a frozen node go on (SIGCONT).
    ///
    /// # Panics
    /// When it is not frozen.
    pub fn cont(&self, node: &Node) {
        node.thaw();
    }

    /// Starts a killed node again, at its port and with its `nodes.conf`; without an append-only file its keys are gone, but
    /// for those it gets as a replica. [`Cluster::whole`] waits until it is one of them again.
    ///
    /// # Panics
    /// When it does not come up.
    pub fn restart(&self, node: &Node) {
        node.restart();
    }

    /// Cuts a node off from all others on the bus, or connects it again; several that are cut off hear of each other. Nothing is closed: what is sent arrives later. Clients and
    /// replicas reach it as before, unless its [`Node::proxy`] sees to that.
    ///
    /// # Panics
    /// When the cluster was started without [`super::ClusterOptions::cuttable`].
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

    /// Waits until a replica has taken over the slots of a node that is away since [`Cluster::kill`] or [`Cluster::stop`],
    /// and says how long after that it had, if this is called in time. Other nodes may have to hear of it yet: see
    /// [`Cluster::agreed`].
    ///
    /// # Panics
    /// When nobody takes over, when the node runs, or served no slots.
    pub async fn promotion(&self, of: &Node) -> Promotion<'_> {
        let Some(away) = of.away() else { panic!("{} runs: nobody takes over from it", of.addr()) };
        let Some(slot) = away.slots.first().map(|range| *range.start()) else {
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
        Promotion { node, took: away.since.elapsed() }
    }

    /// Has a replica take over from its primary, which knows of it (`CLUSTER FAILOVER`), and waits until it has and the
    /// cluster is whole again.
    ///
    /// # Panics
    /// When the node is no replica, or does not get to be a primary.
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
