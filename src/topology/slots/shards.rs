//! Counts the replicas of each primary while roles change.
//!
//! After a failover, the unreachable old primary counts as a replica of the new primary, until it is back. So do former
//! replicas that do not follow the new primary yet. `CLUSTER NODES` does not show this: there, the old primary has no
//! slots and no link to its former replicas.
//!
//! So nodes are counted by shard. A node has a *place* if it has slots or follows a primary. Two nodes are in one shard
//! if the last view lists one node as a replica of the other. They stay in one shard while one of the two has no place.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::view::{Peer, SlotView};

/// Pairs of node ids: one node was a replica of the other, and one of the two has no place now.
#[derive(Clone, Debug, Default)]
pub(super) struct Shards(BTreeSet<(Arc<str>, Arc<str>)>);

impl Shards {
    /// Updates the pairs from a view. `owners` are the nodes that have slots after the view was merged. `last` are the
    /// nodes of the previous view.
    pub(super) fn hear(&mut self, owners: &HashSet<Arc<str>>, last: &[Arc<Peer>], view: &SlotView) {
        let replicas: HashSet<_> = follows(view.peers()).map(|(replica, _)| replica).collect();
        // For a node that the new view lists as a replica, only its present primary counts.
        let pairs = follows(last).filter(|(replica, _)| !replicas.contains(replica));
        self.0.extend(pairs.map(|(replica, primary)| (Arc::clone(replica), Arc::clone(primary))));
        let has_place = |id: &Arc<str>| owners.contains(id) || replicas.contains(id);
        self.0.retain(|(one, other)| !has_place(one) || !has_place(other));
    }

    /// Returns the nodes of pairs that have no place and that this view does not list as unreachable: nodes that are
    /// back without a place, or were removed from the cluster. A node with slots in this view is left out, because then
    /// the view is stale.
    pub(super) fn left_over(&self, owners: &HashSet<Arc<str>>, view: &SlotView) -> HashSet<Arc<str>> {
        let is_there = |peer: &Peer| peer.is_away || peer.primary.is_some();
        let there = view.peers().iter().filter(|peer| is_there(peer));
        let there: HashSet<_> = there.chain(view.claims.iter().map(|claim| &claim.peer)).map(|peer| &peer.id).collect();
        let ends = self.0.iter().flat_map(|(one, other)| [one, other]);
        ends.filter(|id| !owners.contains(*id) && !there.contains(id)).cloned().collect()
    }

    /// Removes a node from its shard. The other nodes of the shard stay in one shard.
    pub(super) fn forget(&mut self, id: &str) {
        let is_of = |(one, other): &(Arc<str>, Arc<str>)| **one == *id || **other == *id;
        let gone: Vec<_> = self.0.extract_if(.., |pair| is_of(pair)).collect();
        let others: Vec<_> = gone.into_iter().map(|(one, other)| if *one == *id { other } else { one }).collect();
        self.0.extend(others.windows(2).map(|pair| (Arc::clone(&pair[0]), Arc::clone(&pair[1]))));
    }

    /// Returns for each node the number of other nodes in its shard. A node that is alone in its shard is left out.
    /// `known` are the nodes of the last view.
    pub(super) fn others<'a>(&'a self, known: &'a [Arc<Peer>]) -> HashMap<&'a Arc<str>, usize> {
        let pairs = self.0.iter().map(|(one, other)| (one, other)).chain(follows(known));
        // A union-find forest: each node points to another node of its shard, and the root points to itself.
        let (mut numbers, mut next) = (HashMap::new(), Vec::new());
        for (one, other) in pairs {
            let [one, other] = [one, other].map(|id| {
                let number = *numbers.entry(id).or_insert(next.len());
                if number == next.len() {
                    next.push(number);
                }
                root(&mut next, number)
            });
            next[one] = other;
        }
        let mut sizes = vec![0_usize; next.len()];
        for number in 0..next.len() {
            sizes[root(&mut next, number)] += 1;
        }
        numbers.into_iter().map(|(id, number)| (id, sizes[root(&mut next, number)] - 1)).collect()
    }
}

/// Returns the root of a node, and halves the path for later calls.
fn root(next: &mut [usize], mut number: usize) -> usize {
    while next[number] != number {
        next[number] = next[next[number]];
        number = next[number];
    }
    number
}

/// Returns each replica with its primary.
fn follows(peers: &[Arc<Peer>]) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
    peers.iter().filter_map(|peer| Some((&peer.id, peer.primary.as_ref()?)))
}

#[cfg(test)]
mod tests;
