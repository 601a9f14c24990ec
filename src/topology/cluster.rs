//! A cluster. A name lives on the primary of its slot.
//!
//! - This file holds the members, one for each primary.
//! - `start` finds the first servers.
//! - `router` sends each command to the member that has its slot.
//! - `gate` holds back commands while the cluster is down.
//! - `watch` keeps the slot map up to date.
//! - `channels` moves subscriptions along with their slots.
//!
//! Lock order: `subscribed` before `state`; the lock `broken` of a member before `state`.

mod channels;
mod gate;
mod router;
mod start;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};

use super::address::Address;
use super::info::{ServerInfo, ServerRole, TopologyInfo, TopologyKind};
use super::member::{Member, MemberId, MemberListener, Subscriber, tells_of_keys_elsewhere};
use super::slots::map::{Changes, SlotMap};
use super::slots::view::SlotView;
use super::suspicion::Suspicion;
use super::{Placement, Settings};
use crate::names::LockName;
use crate::transport::coalesce::Coalesced;
use crate::transport::connector::{Connector, Purpose};
use crate::transport::undeclared::Undeclared;
use crate::world::Moment;
use channels::Subscribed;
pub(super) use gate::Gate;

/// For this long after a redirect, a view (`slots/view.rs`) of the same epoch does not overrule the redirect, because
/// other servers learn of the change later.
const NEWS_TAKES: Duration = Duration::from_secs(1);

/// A node is treated as gone once all views have reported it as gone for this long (see `State::prepare`).
const GONE_AFTER: Duration = Duration::from_secs(10);

/// A member without slots is kept for this long after the last `ASK` redirect to it.
const GUEST_STAYS: Duration = Duration::from_secs(10);

/// A server that has lost all its slots has this long to answer commands in flight, unless the server is silent.
const FAREWELL: Duration = Duration::from_secs(1);

pub(crate) struct Cluster {
    this: Weak<Self>,
    settings: Settings,
    connector: Arc<dyn Connector>,
    state: RwLock<State>,
    /// Placeholder member for slots without a known primary.
    nobody: Arc<Member>,
    next: AtomicUsize,
    listener: OnceLock<Weak<dyn MemberListener>>,
    suspicion: Arc<Suspicion>,
    strays: Arc<channels::Strays>,
    subscribed: Mutex<Subscribed>,
    identity: String,
    is_sharded: bool,
    /// True if the client connects by the host names that servers announce, because the servers prefer that.
    by_name: bool,
    closed: AtomicBool,
}

#[derive(Default)]
struct State {
    slots: SlotMap,
    /// A member for each address that has a slot, and guests: members without a slot, to which an `ASK` has led.
    /// Ordered, so that simulated runs repeat exactly.
    members: BTreeMap<Address, Arc<Member>>,
    /// When a redirect last changed the map.
    redirected: Option<Moment>,
    /// Members with a broken connection, until all connections of the member are back. Another server may take over
    /// their slots, so the map is queried more often.
    away: BTreeSet<MemberId>,
    /// Ids of nodes that all views report as gone ([`SlotMap::gone_in`]), and since when.
    gone: BTreeMap<Arc<str>, Moment>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let members: Vec<Address> = self.state.read().slots.addresses();
        f.debug_struct("Cluster").field("primaries", &members).finish_non_exhaustive()
    }
}

impl Cluster {
    pub(super) fn placement(&self, name: &LockName) -> Placement {
        self.state.read().at(name.slot()).map_or_else(|slot| slot, |(_, placement)| placement)
    }

    /// Returns the member that has a name's slot. If no primary is known, returns the placeholder, which fails every
    /// command.
    pub(super) fn member(&self, name: &LockName) -> Arc<Member> {
        self.state.read().at(name.slot()).map_or_else(|_| Arc::clone(&self.nobody), |(member, _)| Arc::clone(member))
    }

    pub(super) fn at(&self, member: MemberId) -> Option<Arc<Member>> {
        self.state.read().members.values().find(|known| known.id() == member).cloned()
    }

    /// Returns every member, including guests.
    pub(super) fn all(&self) -> Vec<Arc<Member>> {
        self.state.read().members.values().cloned().collect()
    }

    /// Returns the members that have slots. No name lives on a guest. A guest may run a command of a hold or waiter,
    /// but the hold or waiter belongs to the member that has the slot.
    pub(super) fn members(&self) -> Vec<MemberId> {
        let state = self.state.read();
        let addresses = state.slots.addresses();
        let with_slots = addresses.iter().filter_map(|address| state.members.get(address));
        let mut members: Vec<MemberId> = with_slots.map(|member| member.id()).collect();
        members.sort_unstable();
        members
    }

    pub(super) fn info(&self) -> TopologyInfo {
        let state = self.state.read();
        let primaries = state.slots.epochs().into_iter().filter_map(|(address, epoch)| {
            let info = state.members.get(address)?.info(Some(epoch));
            Some(ServerInfo { address: address.to_string(), ..info })
        });
        let replicas = state.slots.known().iter().filter(|peer| peer.primary.is_some());
        let replicas = replicas.filter_map(|peer| peer.address.as_ref());
        let others = replicas.map(|address| ServerInfo::beside(address, ServerRole::Replica));
        TopologyInfo::new(TopologyKind::Cluster, primaries.chain(others).collect())
    }

    pub(super) fn identity(&self) -> &str {
        &self.identity
    }

    pub(super) const fn is_sharded(&self) -> bool {
        self.is_sharded
    }

    pub(super) fn listen(&self, listener: &Weak<dyn MemberListener>) {
        // Set once, by the engine that owns this topology.
        let _ = self.listener.set(Weak::clone(listener));
        for member in self.state.read().members.values() {
            member.listen(Weak::clone(listener));
        }
    }

    fn notify(&self, what: impl FnOnce(&dyn MemberListener)) {
        if let Some(listener) = self.listener.get().and_then(Weak::upgrade) {
            what(&*listener);
        }
    }

    /// Applies a `MOVED`. `seen` is the slot's generation when the redirected command was sent.
    async fn apply_redirect(&self, slot: u16, seen: u32, to: &Address) {
        let to = &self.state.read().slots.as_known(to);
        let Some(member) = self.member_at(to).await else { return };
        let changes = {
            let mut state = self.state.write();
            let changes = state.slots.patch(slot, seen, to);
            if !changes.is_empty() {
                state.redirected = Some(self.nobody.transport().world().now());
            }
            // The condition is false if the redirect was older than the map.
            if state.slots.primary(slot) == Some(to) {
                self.enter(&mut state, to.clone(), member);
            }
            if !changes.is_empty() {
                // A promoted replica's member must know the number of its own replicas before its first command.
                state.update_replica_counts();
            }
            state.forget(&changes)
        };
        self.changed(changes);
    }

    /// Returns the member at an address. If there is none, creates a member, which is not part of the map yet.
    async fn member_at(&self, address: &Address) -> Option<Arc<Member>> {
        if let Some(member) = self.state.read().members.get(address) {
            return Some(Arc::clone(member));
        }
        let purpose = Purpose::Names { sharded: self.is_sharded };
        match self.connector.connect(&address.to_string(), purpose).await {
            Ok(transport) => {
                let id = MemberId::new(self.next.fetch_add(1, Ordering::Relaxed));
                let undeclared = Arc::new(Undeclared::new(tells_of_keys_elsewhere));
                let transport = match &self.settings.coalesce {
                    Some((options, reaper)) => {
                        Coalesced::over_member(transport, Arc::clone(&undeclared), options, reaper.clone())
                    }
                    None => transport,
                };
                let member = Member::of_cluster(id, address.host(), transport, undeclared, self.settings.acks);
                let this: Weak<dyn Subscriber> = Weak::<Self>::clone(&self.this);
                member.report_ends(this);
                if let Some(listener) = self.listener.get() {
                    member.listen(Weak::clone(listener));
                }
                Some(member)
            }
            Err(error) => {
                tracing::warn!(%address, %error, "a server of the cluster cannot be connected to");
                None
            }
        }
    }

    /// Drops guests and `ASKING` connections that no `ASK` has used for [`GUEST_STAYS`].
    fn drop_unused_members(&self, now: Moment) {
        let unused: Vec<_> = {
            let state = self.state.read();
            let take = |member: &Arc<Member>| member.take_unused_asking_connection(now - GUEST_STAYS);
            state.members.values().filter_map(take).collect()
        };
        for connection in unused {
            tokio::spawn(async move { connection.close(FAREWELL).await });
        }
        let guests: Vec<_> = {
            let mut state = self.state.write();
            let addresses = state.slots.addresses();
            let is_guest = |address: &Address, member: &Member| {
                addresses.binary_search(address).is_err() && !member.is_asked_since(now - GUEST_STAYS)
            };
            state
                .members
                .extract_if(.., |address, member| is_guest(address, member))
                .map(|(_, member)| member)
                .collect()
        };
        self.changed((Changes::default(), guests));
    }

    /// Adds a member at an address, unless there is one already. Closes the new member instead if the cluster is
    /// closed.
    fn enter(&self, state: &mut State, address: Address, member: Arc<Member>) -> Arc<Member> {
        if self.closed.load(Ordering::Relaxed) {
            let late = Arc::clone(&member);
            tokio::spawn(async move { late.close(FAREWELL).await });
            return member;
        }
        match state.members.entry(address) {
            Entry::Occupied(known) => Arc::clone(known.get()),
            Entry::Vacant(place) => Arc::clone(place.insert(member)),
        }
    }

    /// Removes a closed member from `members`. The next query of the servers creates a new member.
    fn forget_closed(&self, member: MemberId) {
        self.state.write().members.retain(|_, known| known.id() != member);
        self.suspicion.raise();
    }

    /// Tells subscriptions, waiting commands and the listener that slots have moved. Closes the members in `left`.
    fn changed(&self, (changes, left): (Changes, Vec<Arc<Member>>)) {
        let world = self.nobody.transport().world();
        for member in left {
            let world = Arc::clone(&world);
            // Not awaited. The task ends with the runtime.
            tokio::spawn(async move {
                member.answers(&*world, FAREWELL).await;
                member.close(FAREWELL).await;
            });
        }
        if changes.is_empty() {
            return;
        }
        tracing::debug!(slots = changes.slots.len(), joined = ?changes.joined, left = ?changes.left, "slots have moved");
        self.strays.resubscribe(changes.slots.iter().copied());
        self.suspicion.changed();
        // The listener renews the holds in these slots, because only the new primary knows which of them still exist.
        self.notify(|listener| listener.slots_moved(&changes.slots));
    }

    pub(super) async fn close(&self, within: Duration) {
        self.closed.store(true, Ordering::Relaxed);
        self.suspicion.raise();
        // Wakes the tasks that wait for work, so that they see that the cluster is closed.
        self.strays.resubscribe([]);
        self.suspicion.changed();
        let members: Vec<_> = std::mem::take(&mut self.state.write().members).into_values().collect();
        futures::future::join_all(members.iter().map(|member| member.close(within))).await;
    }
}

impl State {
    /// Returns the member of a slot, and the placement of the slot's names. If no member is known, returns `Err` with a
    /// placement without a member.
    fn at(&self, slot: u16) -> std::result::Result<(&Arc<Member>, Placement), Placement> {
        let generation = usize::try_from(self.slots.generation(slot)).unwrap_or(usize::MAX);
        let member = self.slots.primary(slot).and_then(|address| self.members.get(address));
        match member {
            Some(member) => Ok((member, Placement { member: member.id(), slot, generation })),
            None => Err(Placement { slot, generation, ..Placement::NOWHERE }),
        }
    }

    /// Prepares the map for a view that arrives at `now`: sets whether hearsay (see `slots/map.rs`) resists the view,
    /// and forgets nodes that have left.
    ///
    /// A node with slots that no view has listed for [`GONE_AFTER`] was removed from the cluster: other nodes may claim
    /// its slots. An unreachable node leaves its shard if for that long no view has listed it as unreachable, as a
    /// replica or with slots. A stale view lacks only the newest nodes.
    fn prepare(&mut self, view: &SlotView, now: Moment) {
        self.slots.hold_hearsay(self.redirected.is_some_and(|at| now < at + NEWS_TAKES));
        if !self.slots.is_kin(view) {
            return;
        }
        let gone = self.slots.gone_in(view);
        self.gone.retain(|id, _| gone.contains(id));
        for id in gone {
            let since = *self.gone.entry(Arc::clone(&id)).or_insert(now);
            if since + GONE_AFTER <= now {
                tracing::debug!(%id, "a node has left the cluster");
                self.slots.orphan(&id);
            }
        }
    }

    fn update_replica_counts(&self) {
        let replicas = self.slots.replicas();
        for (address, member) in &self.members {
            member.acknowledgement().knows_of(replicas.get(address).copied().unwrap_or(0));
        }
    }

    /// Drops the members of addresses that have lost their last slot.
    fn forget(&mut self, changes: &Changes) -> (Changes, Vec<Arc<Member>>) {
        let left = changes.left.iter().filter_map(|address| self.members.remove(address)).collect();
        (changes.clone(), left)
    }
}
