//! The client's slot map, merged from the views of several servers. A view is *stale* if an earlier view had a higher
//! epoch.
//!
//! Rules for each slot:
//!
//! - The higher config epoch wins, because a node that takes a slot over gets a higher epoch than all other nodes. So
//!   the old view of a node that was frozen changes nothing. At equal epochs the map stays as it is, unless the same
//!   node has a new address.
//! - A `MOVED` carries no epoch. It is applied at once, because the old primary would only redirect again. The new
//!   owner is *hearsay*: the slot keeps its epoch, and the next view of at least that epoch decides. For a moment after
//!   the redirect, only a view of a higher epoch decides, because other servers learn of the change later
//!   (`hold_hearsay`).
//! - A wrong `MOVED` does little harm. The map ignores a `MOVED` if the slot has moved since the command was sent. A
//!   node without the slot refuses the redirected command with a `MOVED` of its own. The router follows a limited
//!   number of redirects in a row, then pauses. After each redirect, a view is queried.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::SLOTS;
use super::shards::Shards;
use super::view::{Peer, SlotView};
use crate::topology::address::Address;

/// Maps each slot to its primary. Takes 6 bytes a slot.
#[derive(Clone, Debug)]
pub(crate) struct SlotMap {
    /// For each slot an index into `owners`, or [`NOBODY`].
    owner_of: Box<[u16]>,
    /// For each slot the number of times that it has moved.
    moves: Box<[u32]>,
    /// The primaries that have at least one slot.
    owners: Vec<Owner>,
    /// All nodes of the last view that was not stale.
    known: Vec<Arc<Peer>>,
    shards: Shards,
    /// While true, only a view of a higher epoch overrules hearsay.
    holds_hearsay: bool,
}

/// Marks a slot without an owner. No owner has this index: there are at most as many owners as slots, and twice as many
/// while a view is merged.
const NOBODY: u16 = u16::MAX;

/// The primary of some slots, and whether a view or only a redirect has named it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owner {
    /// Id of the node. `None` if only a redirect has named it.
    id: Option<Arc<str>>,
    address: Address,
    /// Config epoch of the node in the view that named this owner. For hearsay, the epoch of the previous owner.
    epoch: u64,
    /// True if only a redirect has named this primary.
    is_hearsay: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// The slots with a new primary, in ascending order.
    pub(crate) slots: Vec<u16>,
    /// Addresses that had no slot before.
    pub(crate) joined: Vec<Address>,
    /// Addresses that have no slot any more.
    pub(crate) left: Vec<Address>,
}

impl Default for SlotMap {
    fn default() -> Self {
        let slots = usize::from(SLOTS);
        let (owner_of, moves) = (vec![NOBODY; slots].into(), vec![0; slots].into());
        let (owners, known, shards) = (Vec::new(), Vec::new(), Shards::default());
        Self { owner_of, moves, owners, known, shards, holds_hearsay: false }
    }
}

impl SlotMap {
    pub(crate) fn primary(&self, slot: u16) -> Option<&Address> {
        self.owner(slot).map(|owner| &owner.address)
    }

    /// Returns the config epoch of a slot's owner.
    pub(crate) fn epoch(&self, slot: u16) -> Option<u64> {
        self.owner(slot).map(|owner| owner.epoch)
    }

    /// Number of times that a slot has moved.
    pub(crate) fn generation(&self, slot: u16) -> u32 {
        self.moves.get(usize::from(slot)).copied().unwrap_or(0)
    }

    /// Sets whether hearsay resists views of the same epoch. It does so for a moment after a redirect, until other
    /// servers have learned of the change. A view of a promoted replica has a higher epoch, so the map always accepts
    /// that view.
    pub(crate) const fn hold_hearsay(&mut self, holds: bool) {
        self.holds_hearsay = holds;
    }

    /// True if every slot has a primary.
    pub(crate) fn is_whole(&self) -> bool {
        !self.owner_of.contains(&NOBODY)
    }

    /// True if some slot has a primary that only a redirect has named.
    pub(crate) fn is_hearsay(&self) -> bool {
        self.owners.iter().any(|owner| owner.is_hearsay)
    }

    /// Returns the address of each primary that has a slot, once.
    pub(crate) fn addresses(&self) -> Vec<Address> {
        let addresses: HashSet<_> = self.owners.iter().map(|owner| &owner.address).collect();
        let mut addresses: Vec<_> = addresses.into_iter().cloned().collect();
        // Sorted, so that simulated runs repeat exactly.
        addresses.sort_unstable();
        addresses
    }

    /// Returns the address of each primary that has a slot, with its epoch.
    pub(crate) fn epochs(&self) -> BTreeMap<&Address, u64> {
        self.owners.iter().map(|owner| (&owner.address, owner.epoch)).collect()
    }

    /// Returns every node of the last view that was not stale. Each node can be queried for its view.
    pub(crate) fn known(&self) -> &[Arc<Peer>] {
        &self.known
    }

    /// Returns the number of replicas of each primary, by address. Unreachable replicas count too, and so does the
    /// former primary until it is back. Primaries without slots are included, because slots may be moving to them.
    pub(crate) fn replicas(&self) -> HashMap<&Address, usize> {
        let counts = self.shards.others(&self.known);
        let count = |id: &Arc<str>| counts.get(id).copied().unwrap_or(0);
        let mut replicas: HashMap<&Address, usize> = HashMap::new();
        for peer in self.known.iter().filter(|peer| peer.primary.is_none()) {
            replicas.extend(peer.address.as_ref().map(|address| (address, count(&peer.id))));
        }
        // A primary that no view has reported yet is assumed to have the largest replica count of any shard.
        let most = counts.values().copied().max().unwrap_or(0);
        for Owner { id, address, .. } in &self.owners {
            let count = id.as_ref().map_or(most, count);
            let known = replicas.entry(address).or_default();
            *known = count.max(*known);
        }
        replicas
    }

    /// Returns the address under which views know the node at this address. A node may have a host name and an IP
    /// address.
    pub(crate) fn as_known(&self, address: &Address) -> Address {
        let peer = self.known.iter().find(|peer| peer.is_at(address));
        peer.and_then(|peer| peer.address.as_ref()).unwrap_or(address).clone()
    }

    /// Merges a view. Returns `None` for a view of another cluster.
    ///
    /// A node of another cluster may have taken the address of a node of this cluster. The view of such a node lists no
    /// node that is known here, and the epochs of that view mean nothing here. If another cluster has replaced all
    /// nodes, only a new client can follow.
    pub(crate) fn merge(&mut self, view: &SlotView) -> Option<Changes> {
        if !self.is_kin(view) {
            return None;
        }
        let before = self.addresses();
        let known_owners = self.owners.len();
        let mut slots = Vec::new();
        for claim in &view.claims {
            let Some(address) = &claim.peer.address else { continue };
            let (id, epoch) = (Some(Arc::clone(&claim.peer.id)), claim.peer.epoch);
            let owner = Owner { id, address: address.clone(), epoch, is_hearsay: false };
            let mut index = None;
            let runs: Vec<_> = claim.ranges.iter().flat_map(|range| self.runs(*range)).collect();
            for run in runs {
                let ours = self.owner(*run.start());
                if ours.is_none_or(|ours| ours.yields_to(&owner, claim.peer.is_linked, self.holds_hearsay)) {
                    let index = *index.get_or_insert_with(|| self.enlist(owner.clone()));
                    run.for_each(|slot| self.put(slot, index, &mut slots));
                }
            }
        }
        slots.sort_unstable();
        // Without a new owner, nothing has changed.
        let changes = if self.owners.len() > known_owners { self.changes(slots, &before) } else { Changes::default() };
        if view.epoch() >= self.known.iter().map(|peer| peer.epoch).max().unwrap_or(0) {
            // Read after the merge, when the owners no longer include nodes that have lost all their slots.
            let owners = self.owner_ids();
            self.shards.hear(&owners, &self.known, view);
            self.known = view.peers().to_vec();
        }
        Some(changes)
    }

    /// Applies a `MOVED`. `seen` is the slot's generation when the redirected command was sent. Does nothing if the
    /// slot has moved since. If many commands are redirected together, the first redirect changes the map for all of
    /// them.
    pub(crate) fn patch(&mut self, slot: u16, seen: u32, to: &Address) -> Changes {
        let epoch = self.epoch(slot).unwrap_or(0);
        // Uses the address by which views know the node, so that the node has only one member.
        let peer = self.known.iter().find(|peer| peer.is_at(to));
        let (id, address) = match peer {
            Some(peer) => (Some(Arc::clone(&peer.id)), peer.address.as_ref().unwrap_or(to)),
            None => (None, to),
        };
        if slot >= SLOTS || seen != self.generation(slot) || self.primary(slot) == Some(address) {
            return Changes::default();
        }
        let owner = Owner { id, address: address.clone(), epoch, is_hearsay: true };
        let before = self.addresses();
        let mut slots = Vec::new();
        let index = self.owners.iter().position(|known| *known == owner);
        // The index fits, as in `enlist`.
        let index = index.and_then(|index| u16::try_from(index).ok()).unwrap_or_else(|| self.enlist(owner));
        self.put(slot, index, &mut slots);
        self.changes(slots, &before)
    }

    /// Returns the ids of the nodes that are gone, according to this view: nodes with slots that the view does not
    /// list, and the nodes of [`Shards::left_over`].
    pub(crate) fn gone_in(&self, view: &SlotView) -> HashSet<Arc<str>> {
        let listed: HashSet<_> = view.peers().iter().map(|peer| &peer.id).collect();
        let owners = self.owner_ids();
        let mut gone = self.shards.left_over(&owners, view);
        gone.extend(owners.into_iter().filter(|id| !listed.contains(id)));
        gone
    }

    /// Treats a node as removed from the cluster. Any view that names another node for one of these slots wins,
    /// whatever its epoch. The removed node no longer counts as a replica.
    pub(crate) fn orphan(&mut self, id: &str) {
        self.shards.forget(id);
        for owner in self.owners.iter_mut().filter(|owner| owner.id.as_deref() == Some(id)) {
            (owner.epoch, owner.is_hearsay) = (0, true);
        }
    }

    /// True if a view is of this cluster: it lists a known node, or no node is known yet.
    pub(crate) fn is_kin(&self, view: &SlotView) -> bool {
        let known: HashSet<_> = self.known.iter().map(|peer| &peer.id).collect();
        known.is_empty() || view.peers().iter().any(|peer| known.contains(&peer.id))
    }

    fn owner_ids(&self) -> HashSet<Arc<str>> {
        self.owners.iter().filter_map(|owner| owner.id.clone()).collect()
    }

    fn owner(&self, slot: u16) -> Option<&Owner> {
        self.owners.get(usize::from(*self.owner_of.get(usize::from(slot))?))
    }

    /// Cuts a range of slots into runs with one owner each. A range has few runs, so comparing runs instead of slots
    /// is cheap.
    fn runs(&self, (first, last): (u16, u16)) -> Vec<RangeInclusive<u16>> {
        let owner_of = self.owner_of.get(usize::from(first)..=usize::from(last)).unwrap_or_default();
        let mut start = first;
        let run = |run: &[u16]| {
            // A run is no longer than its range.
            let end = u16::try_from(run.len()).map_or(last, |length| start + (length - 1));
            let slots = start..=end;
            start = end.saturating_add(1);
            slots
        };
        owner_of.chunk_by(PartialEq::eq).map(run).collect()
    }

    fn enlist(&mut self, owner: Owner) -> u16 {
        self.owners.push(owner);
        // The index fits: there are at most as many old owners as slots, and as many new ones from the view.
        u16::try_from(self.owners.len() - 1).unwrap_or(NOBODY)
    }

    /// Gives a slot to an owner. Notes the slot as changed if the address differs.
    fn put(&mut self, slot: u16, index: u16, changed: &mut Vec<u16>) {
        let before = self.primary(slot).cloned();
        let at = usize::from(slot);
        self.owner_of[at] = index;
        if self.primary(slot) != before.as_ref() {
            self.moves[at] = self.moves[at].wrapping_add(1);
            changed.push(slot);
        }
    }

    /// Drops the owners without slots, and computes what changed.
    fn changes(&mut self, slots: Vec<u16>, before: &[Address]) -> Changes {
        let mut renumbered = vec![NOBODY; self.owners.len()];
        let mut owners = Vec::new();
        for index in self.owner_of.iter_mut().filter(|index| **index != NOBODY) {
            let old = usize::from(*index);
            if renumbered[old] == NOBODY {
                // There are no more owners than slots.
                renumbered[old] = u16::try_from(owners.len()).unwrap_or(NOBODY);
                owners.push(self.owners[old].clone());
            }
            *index = renumbered[old];
        }
        self.owners = owners;
        let after = self.addresses();
        let without = |all: &[Address], some: &[Address]| -> Vec<Address> {
            all.iter().filter(|address| some.binary_search(address).is_err()).cloned().collect()
        };
        Changes { slots, joined: without(&after, before), left: without(before, &after) }
    }
}

impl Owner {
    /// True if a view that names `other` for this owner's slot overrules this owner.
    fn yields_to(&self, other: &Self, is_linked: bool, holds_hearsay: bool) -> bool {
        if self.is_hearsay && holds_hearsay {
            return other.epoch > self.epoch;
        }
        if self.is_hearsay || other.epoch != self.epoch {
            return other.epoch >= self.epoch;
        }
        // At the same epoch, a new address of the same node counts if the view's sender is connected to that node.
        self.id == other.id && self.address != other.address && is_linked
    }
}

impl Changes {
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

#[cfg(test)]
mod tests;
