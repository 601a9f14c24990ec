//! How many replicas each primary has while places change. One that went away counts as a replica of whoever has its place now, until
//! it is back, and so do those that followed it and have yet to hear of the change. `CLUSTER NODES` does not say that: the one of
//! before is a primary without slots there.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::view::{Peer, SlotView};

/// So many promotions in a row are followed: of one shard, while its servers are away.
const MOST: usize = 8;

/// The primaries that went away, by their ids, and which of their replicas got the place of each.
#[derive(Clone, Debug, Default)]
pub(super) struct Succession(BTreeMap<Arc<str>, Arc<str>>);

impl Succession {
    /// Takes over what an up to date view says. `owners`: who has slots, with what it says of these; `known`: the nodes of the view
    /// before.
    pub(super) fn hear(&mut self, owners: &HashSet<Arc<str>>, known: &[Arc<Peer>], view: &SlotView) {
        let listed: HashMap<_, _> = view.peers().iter().map(|peer| (&peer.id, peer)).collect();
        let is_replica = |id: &Arc<str>| listed.get(id).is_some_and(|peer| peer.primary.is_some());
        for (before, heir) in promoted(owners, known) {
            // Where it is a replica, the change has yet to be heard of.
            if !is_replica(heir) {
                self.0.insert(Arc::clone(before), Arc::clone(heir));
            }
        }
        let serves: HashSet<_> = view.claims.iter().map(|claim| &claim.peer.id).collect();
        self.0.retain(|id, _| !serves.contains(id) && !is_replica(id));
    }

    /// Those that a view does not list as away: they are back without a place, or were told to leave.
    pub(super) fn without_place(&self, view: &SlotView) -> impl Iterator<Item = &Arc<str>> {
        let away: HashSet<_> =
            view.peers().iter().filter(|peer| peer.is_away).map(|peer| Arc::clone(&peer.id)).collect();
        self.0.keys().filter(move |id| !away.contains(*id))
    }

    /// This one is a replica of nobody.
    pub(super) fn forget(&mut self, id: &str) {
        self.0.remove(id);
    }

    /// How many replicas each of the owners has, those that are away included.
    pub(super) fn replicas(&self, owners: &HashSet<Arc<str>>, known: &[Arc<Peer>]) -> HashMap<Arc<str>, usize> {
        let told: HashMap<_, _> = known.iter().filter_map(|peer| Some((&peer.id, peer.primary.as_ref()?))).collect();
        let heirs: HashMap<_, _> = self.0.iter().chain(promoted(owners, known)).collect();
        let next = |id| heirs.get(id).or_else(|| told.get(id).filter(|_| !owners.contains(id))).copied();
        let mut counts: HashMap<Arc<str>, usize> = HashMap::new();
        for id in told.keys().chain(heirs.keys()).copied().collect::<HashSet<_>>() {
            let last = std::iter::successors(next(id), |id| next(id)).take(MOST).last();
            // Where these differ it may be the one's still, or the other's already.
            let of: HashSet<_> = told.get(id).copied().into_iter().chain(last).collect();
            for primary in of.into_iter().filter(|primary| *primary != id && owners.contains(*primary)) {
                *counts.entry(Arc::clone(primary)).or_default() += 1;
            }
        }
        counts
    }
}

/// The owners that were replicas by what was known before: each behind the one that it followed.
fn promoted<'a>(
    owners: &HashSet<Arc<str>>,
    known: &'a [Arc<Peer>],
) -> impl Iterator<Item = (&'a Arc<str>, &'a Arc<str>)> {
    let owners = known.iter().filter(|peer| owners.contains(&peer.id));
    owners.filter_map(|peer| Some((peer.primary.as_ref()?, &peer.id)))
}

#[cfg(test)]
mod tests;
