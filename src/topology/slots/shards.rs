//! How many replicas each primary has while places change. One that went away counts as a replica of whoever has its place now, until
//! it is back, and so do those that followed it and have yet to hear of the change. `CLUSTER NODES` does not say that: a primary that
//! went away has no slots there, and nothing to do with its replicas of before.
//!
//! So nodes are counted by shards: those that follow each other by the last view, and those that did before one of them went away.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::view::{Peer, SlotView};

/// Who followed whom, by their ids, of which one has no place now: no slots, and nobody to follow.
#[derive(Clone, Debug, Default)]
pub(super) struct Shards(BTreeSet<(Arc<str>, Arc<str>)>);

impl Shards {
    /// Takes over a view. `owners`: who has slots, once its claims were taken over; `last`: the nodes of the view before.
    pub(super) fn hear(&mut self, owners: &HashSet<Arc<str>>, last: &[Arc<Peer>], view: &SlotView) {
        let replicas: HashSet<_> = follows(view.peers()).map(|(replica, _)| replica).collect();
        // Whom a replica follows now is what counts of it.
        let pairs = follows(last).filter(|(replica, _)| !replicas.contains(replica));
        self.0.extend(pairs.map(|(replica, primary)| (Arc::clone(replica), Arc::clone(primary))));
        let has_place = |id: &Arc<str>| owners.contains(id) || replicas.contains(id);
        self.0.retain(|(one, other)| !has_place(one) || !has_place(other));
    }

    /// The nodes that have no place, and that a view does not list as away: they are back without one, or were told to leave. A node to
    /// which the view gives slots is not left over, because that view is stale.
    pub(super) fn left_over(&self, owners: &HashSet<Arc<str>>, view: &SlotView) -> HashSet<Arc<str>> {
        let is_there = |peer: &Peer| peer.is_away || peer.primary.is_some();
        let there = view.peers().iter().filter(|peer| is_there(peer));
        let there: HashSet<_> = there.chain(view.claims.iter().map(|claim| &claim.peer)).map(|peer| &peer.id).collect();
        let ends = self.0.iter().flat_map(|(one, other)| [one, other]);
        ends.filter(|id| !owners.contains(*id) && !there.contains(id)).cloned().collect()
    }

    /// This one is nobody's replica. Those that it connected stay together.
    pub(super) fn forget(&mut self, id: &str) {
        let is_of = |(one, other): &(Arc<str>, Arc<str>)| **one == *id || **other == *id;
        let gone: Vec<_> = self.0.extract_if(.., |pair| is_of(pair)).collect();
        let others: Vec<_> = gone.into_iter().map(|(one, other)| if *one == *id { other } else { one }).collect();
        self.0.extend(others.windows(2).map(|pair| (Arc::clone(&pair[0]), Arc::clone(&pair[1]))));
    }

    /// How many others there are in the shard of each node; those that are alone are left out. `known`: the nodes of the last view.
    pub(super) fn others<'a>(&'a self, known: &'a [Arc<Peer>]) -> HashMap<&'a Arc<str>, usize> {
        let pairs = self.0.iter().map(|(one, other)| (one, other)).chain(follows(known));
        // A forest: each node points at another one of its shard, and the last at itself.
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

/// The last one from a node on; the way there is halved for whoever comes next.
fn root(next: &mut [usize], mut number: usize) -> usize {
    while next[number] != number {
        next[number] = next[next[number]];
        number = next[number];
    }
    number
}

/// Each replica, and the primary that it follows.
fn follows(peers: &[Arc<Peer>]) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
    peers.iter().filter_map(|peer| Some((&peer.id, peer.primary.as_ref()?)))
}

#[cfg(test)]
mod tests;
