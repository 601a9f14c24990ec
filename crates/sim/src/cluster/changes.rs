//! Changes of a cluster: slots that move, failovers, servers that fail, are cut off or start.

use super::{NODE_TIMEOUT, REJOINS_AFTER, SERVES_AFTER, SimCluster};
use crate::events::What;
use crate::place::{self, Gossip, Moving};

impl SimCluster {
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
    /// `cluster-require-full-coverage`, a real cluster serves nobody while a primary with slots has failed.)
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
    /// refuses commands for 2 s, as Redis does. Do not use `SimServer::start` instead: the node would hear from
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
}
