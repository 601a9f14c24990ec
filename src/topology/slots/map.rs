//! A client's own map of its cluster, made of what several servers say, of which each may be out of date.
//!
//! Slot by slot the higher config epoch wins, because whoever takes a slot over has a higher one than everybody before: a node
//! that was frozen, and comes back with its old picture, turns nothing back. Of equal epochs what is known already stays.
//!
//! `MOVED` carries no epoch. It is believed at once, because going on asking the old primary is of no use, but only as hearsay:
//! the slot keeps its epoch, and the next view that has at least that decides; for a moment only one with a higher epoch does,
//! because the server that sends away knows of the change before the others (`hold_hearsay`). A `MOVED` that is wrong does no harm
//! for long either: it counts only where the map has not changed since the command was sent, so an old one turns nothing back; the
//! node that it leads to refuses the command and says `MOVED` in its turn; the router follows so many in a row, and then pauses; and
//! each of them has it ask for a view.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::SLOTS;
use super::shards::Shards;
use super::view::{Peer, SlotView};
use crate::topology::address::Address;

/// Which primary has which slot: 6 bytes a slot.
#[derive(Clone, Debug)]
pub(crate) struct SlotMap {
    /// For each slot an index into `owners`, or [`NOBODY`].
    owner_of: Box<[u16]>,
    /// For each slot how often it has moved.
    moves: Box<[u32]>,
    /// Each has a slot at the least.
    owners: Vec<Owner>,
    /// All nodes of the last view that was up to date.
    known: Vec<Arc<Peer>>,
    shards: Shards,
    /// Hearsay gives way to views of a higher epoch only.
    holds_hearsay: bool,
}

/// No owner has this index: there are at most as many as slots, and as many again while a view is merged.
const NOBODY: u16 = u16::MAX;

/// Who has a slot, and how that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owner {
    /// The id of the node. Unknown where only a redirect has told of it.
    id: Option<Arc<str>>,
    address: Address,
    /// The highest epoch so far of those that said so.
    epoch: u64,
    /// Known from a redirect only.
    is_hearsay: bool,
}

/// What a view or a redirect has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// The slots that have another primary now, in order.
    pub(crate) slots: Vec<u16>,
    /// The addresses that had no slot before.
    pub(crate) joined: Vec<Address>,
    /// The addresses that have no slot any more.
    pub(crate) left: Vec<Address>,
}

impl Default for SlotMap {
    /// A map in which nobody has anything.
    fn default() -> Self {
        let slots = usize::from(SLOTS);
        let (owner_of, moves) = (vec![NOBODY; slots].into(), vec![0; slots].into());
        let (owners, known, shards) = (Vec::new(), Vec::new(), Shards::default());
        Self { owner_of, moves, owners, known, shards, holds_hearsay: false }
    }
}

impl SlotMap {
    /// Where the primary of a slot is. Nothing as long as nobody is known to have it.
    pub(crate) fn primary(&self, slot: u16) -> Option<&Address> {
        self.owner(slot).map(|owner| &owner.address)
    }

    /// The config epoch that decided on a slot.
    pub(crate) fn epoch(&self, slot: u16) -> Option<u64> {
        self.owner(slot).map(|owner| owner.epoch)
    }

    /// How often a slot has moved. What a server said of a slot that has moved since it was asked says nothing about now.
    pub(crate) fn generation(&self, slot: u16) -> u32 {
        self.moves.get(usize::from(slot)).copied().unwrap_or(0)
    }

    /// A redirect that came just now is news that other servers have yet to hear: views of the same epoch do not take it back, as long
    /// as this holds. A replica that has taken over has a higher one.
    pub(crate) const fn hold_hearsay(&mut self, holds: bool) {
        self.holds_hearsay = holds;
    }

    /// True when every slot has a primary.
    pub(crate) fn is_whole(&self) -> bool {
        !self.owner_of.contains(&NOBODY)
    }

    /// True when a redirect has told of a primary that no view has confirmed yet.
    pub(crate) fn is_hearsay(&self) -> bool {
        self.owners.iter().any(|owner| owner.is_hearsay)
    }

    /// The address of each primary that has a slot, once.
    pub(crate) fn addresses(&self) -> Vec<Address> {
        let addresses: HashSet<_> = self.owners.iter().map(|owner| &owner.address).collect();
        let mut addresses: Vec<_> = addresses.into_iter().cloned().collect();
        // In one order in every run.
        addresses.sort_unstable();
        addresses
    }

    /// The address of each primary that has a slot, with its epoch.
    pub(crate) fn epochs(&self) -> BTreeMap<&Address, u64> {
        self.owners.iter().map(|owner| (&owner.address, owner.epoch)).collect()
    }

    /// Every node of the last view that was up to date: whom else to ask for one.
    pub(crate) fn known(&self) -> &[Arc<Peer>] {
        &self.known
    }

    /// How many replicas the primaries have, by their addresses: those that are away included, and the primary of before until it is
    /// back. Also of those without slots, which may be getting some.
    pub(crate) fn replicas(&self) -> HashMap<&Address, usize> {
        let counts = self.shards.others(&self.known);
        let count = |id: &Arc<str>| counts.get(id).copied().unwrap_or(0);
        let mut replicas: HashMap<&Address, usize> = HashMap::new();
        for peer in self.known.iter().filter(|peer| peer.primary.is_none()) {
            replicas.extend(peer.address.as_ref().map(|address| (address, count(&peer.id))));
        }
        // Of one that no view has told of yet, as many as any has.
        let most = counts.values().copied().max().unwrap_or(0);
        for Owner { id, address, .. } in &self.owners {
            let count = id.as_ref().map_or(most, count);
            let known = replicas.entry(address).or_default();
            *known = count.max(*known);
        }
        replicas
    }

    /// An address as views have it, where it is another one of a node that they know.
    pub(crate) fn as_known(&self, address: &Address) -> Address {
        let peer = self.known.iter().find(|peer| peer.is_at(address));
        peer.and_then(|peer| peer.address.as_ref()).unwrap_or(address).clone()
    }

    /// Takes over what a view knows better. Nothing where it is of another cluster, of which a node may have got the address of
    /// one of ours: none of its nodes is known here, and its epochs mean nothing. When all of ours are gone for good, and such a
    /// cluster stands in their place, it takes a new map.
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
        // Only a new owner changes the map.
        let changes = if self.owners.len() > known_owners { self.changes(slots, &before) } else { Changes::default() };
        if view.epoch() >= self.known.iter().map(|peer| peer.epoch).max().unwrap_or(0) {
            // Those who have lost all slots are none of these any more.
            let owners = self.owner_ids();
            self.shards.hear(&owners, &self.known, view);
            self.known = view.peers().to_vec();
        }
        Some(changes)
    }

    /// Believes a `MOVED` that answered a command which was sent when the slot was at that generation. Nothing changes where it
    /// has moved since: the first of many commands that are redirected together has changed the map for all of them, and of a
    /// redirect that is older than the map nobody knows whether it is still right.
    pub(crate) fn patch(&mut self, slot: u16, seen: u32, to: &Address) -> Changes {
        let epoch = self.epoch(slot).unwrap_or(0);
        // By the address under which views know it, so that it is the same member.
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
        // As in `enlist`.
        let index = index.and_then(|index| u16::try_from(index).ok()).unwrap_or_else(|| self.enlist(owner));
        self.put(slot, index, &mut slots);
        self.changes(slots, &before)
    }

    /// The ids of those that are gone by a view: who have slots, and are not listed; and who count as replicas because they went away,
    /// and are not listed as away.
    pub(crate) fn gone_in(&self, view: &SlotView) -> HashSet<Arc<str>> {
        let listed: HashSet<_> = view.peers().iter().map(|peer| &peer.id).collect();
        let owners = self.owner_ids();
        let mut gone = self.shards.left_over(&owners, view);
        gone.extend(owners.into_iter().filter(|id| !listed.contains(id)));
        gone
    }

    /// Takes a node for one that has left the cluster: whoever claims its slots has them, whatever its epoch is, and it is nobody's
    /// replica.
    pub(crate) fn orphan(&mut self, id: &str) {
        self.shards.forget(id);
        for owner in self.owners.iter_mut().filter(|owner| owner.id.as_deref() == Some(id)) {
            (owner.epoch, owner.is_hearsay) = (0, true);
        }
    }

    /// True when a view is of this cluster: a node of it is known, or nothing is known yet.
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

    /// Cuts a range of slots into runs that have one owner each. A range has few runs, so that comparing them is cheap.
    fn runs(&self, (first, last): (u16, u16)) -> Vec<RangeInclusive<u16>> {
        let owner_of = self.owner_of.get(usize::from(first)..=usize::from(last)).unwrap_or_default();
        let mut start = first;
        let run = |run: &[u16]| {
            // A run is no longer than the range that it is part of.
            let end = u16::try_from(run.len()).map_or(last, |length| start + (length - 1));
            let slots = start..=end;
            start = end.saturating_add(1);
            slots
        };
        owner_of.chunk_by(PartialEq::eq).map(run).collect()
    }

    fn enlist(&mut self, owner: Owner) -> u16 {
        self.owners.push(owner);
        // Those before have a slot each, and those of one view as well: twice as many as slots at the most.
        u16::try_from(self.owners.len() - 1).unwrap_or(NOBODY)
    }

    /// Gives a slot to an owner, and notes it where its address is another.
    fn put(&mut self, slot: u16, index: u16, changed: &mut Vec<u16>) {
        let before = self.primary(slot).cloned();
        let at = usize::from(slot);
        self.owner_of[at] = index;
        if self.primary(slot) != before.as_ref() {
            self.moves[at] = self.moves[at].wrapping_add(1);
            changed.push(slot);
        }
    }

    /// Drops the owners without slots, and tells what became of the addresses.
    fn changes(&mut self, slots: Vec<u16>, before: &[Address]) -> Changes {
        let mut renumbered = vec![NOBODY; self.owners.len()];
        let mut owners = Vec::new();
        for index in self.owner_of.iter_mut().filter(|index| **index != NOBODY) {
            let old = usize::from(*index);
            if renumbered[old] == NOBODY {
                // No more than there are slots.
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
    /// True when this owner's slot is the other's by what a view says.
    fn yields_to(&self, other: &Self, is_linked: bool, holds_hearsay: bool) -> bool {
        if self.is_hearsay && holds_hearsay {
            return other.epoch > self.epoch;
        }
        if self.is_hearsay || other.epoch != self.epoch {
            return other.epoch >= self.epoch;
        }
        // The same node at another address has the same epoch as before. Whoever is connected with it knows where it is.
        self.id == other.id && self.address != other.address && is_linked
    }
}

impl Changes {
    /// True when nothing is other than before.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

#[cfg(test)]
mod tests;
