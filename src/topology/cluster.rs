//! A cluster: every slot has a primary, and a name lives on that of its slot. This file has the servers; `start` finds the first
//! ones, `router` has commands come to the right one of them, `watch` keeps the map of slots up to date, and `channels` moves
//! subscriptions with their slots.

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

/// So long views that know no better do not take back what a redirect has told: the news of a promotion goes round among the servers.
const NEWS_TAKES: Duration = Duration::from_secs(1);

/// After so long a node with slots that no other one lists has left the cluster, and so has one that went away and is not listed as away.
const GONE_AFTER: Duration = Duration::from_secs(10);

/// For so long a server without slots is kept after the last command that was led there by an `ASK`.
const GUEST_STAYS: Duration = Duration::from_secs(10);

/// Commands that are under way at a server that has lost all its slots have so long to be answered, unless it is silent.
const FAREWELL: Duration = Duration::from_secs(1);

/// The primaries of a cluster.
pub(crate) struct Cluster {
    this: Weak<Self>,
    settings: Settings,
    connector: Arc<dyn Connector>,
    state: RwLock<State>,
    /// Where names live of whose slot no primary is known.
    nobody: Arc<Member>,
    /// The number of the next member.
    next: AtomicUsize,
    listener: OnceLock<Weak<dyn MemberListener>>,
    suspicion: Arc<Suspicion>,
    strays: Arc<channels::Strays>,
    subscribed: Mutex<Subscribed>,
    identity: String,
    is_sharded: bool,
    /// True when the servers are reached by the host names that they announce, because they prefer that.
    by_name: bool,
    closed: AtomicBool,
}

#[derive(Default)]
struct State {
    slots: SlotMap,
    /// A member for each address that has a slot, and guests: those without one that an `ASK` has led to. In one order in every run,
    /// as all else here.
    members: BTreeMap<Address, Arc<Member>>,
    /// When a redirect has changed the map last.
    redirected: Option<Moment>,
    /// Those of which a connection has broken, until all are back: another one may take their place.
    away: BTreeSet<MemberId>,
    /// The ids of those that are gone by all views since that moment ([`SlotMap::gone_in`]).
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

    /// The member of a name's slot; one that answers nothing where nobody has the slot.
    pub(super) fn member(&self, name: &LockName) -> Arc<Member> {
        self.state.read().at(name.slot()).map_or_else(|_| Arc::clone(&self.nobody), |(member, _)| Arc::clone(member))
    }

    pub(super) fn at(&self, member: MemberId) -> Option<Arc<Member>> {
        self.state.read().members.values().find(|known| known.id() == member).cloned()
    }

    /// Every member, guests too.
    pub(super) fn all(&self) -> Vec<Arc<Member>> {
        self.state.read().members.values().cloned().collect()
    }

    /// Those that have slots. No name lives at a guest: it is asked for the member that has the slot, and that one's placement is
    /// what holds and waiters are known by.
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

    /// Takes over what a `MOVED` says. `seen`: the slot's generation when the command was sent that it answers.
    async fn apply_redirect(&self, slot: u16, seen: u32, to: &Address) {
        let to = &self.state.read().slots.as_known(to);
        let Some(member) = self.member_at(to).await else { return };
        let changes = {
            let mut state = self.state.write();
            let changes = state.slots.patch(slot, seen, to);
            if !changes.is_empty() {
                state.redirected = Some(self.nobody.transport().world().now());
            }
            // Not where the redirect was older than the map.
            if state.slots.primary(slot) == Some(to) {
                self.enter(&mut state, to.clone(), member);
            }
            if !changes.is_empty() {
                // Of a replica that was promoted they are to be known before the first command.
                state.tell_of_replicas();
            }
            state.forget(&changes)
        };
        self.changed(changes);
    }

    /// The member at an address; a new one where there is none, which is not a part of the map yet.
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

    /// Takes leave of members that have no slot, and that no `ASK` has led to for a while: the slot that they were to get stays
    /// where it was. Of the others, the connections for `ASK`.
    fn forget_guests(&self, now: Moment) {
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

    /// Makes a member one of the cluster's, unless there is one at its address; or closes it, where the cluster is closed.
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

    /// A member that is closed has no place in the map, whoever put it back there: a new one is made with the next look.
    fn forget_closed(&self, member: MemberId) {
        self.state.write().members.retain(|_, known| known.id() != member);
        self.suspicion.raise();
    }

    /// Sees to it that whoever is concerned learns of a change of the map. `left`: members that have lost their last slot.
    fn changed(&self, (changes, left): (Changes, Vec<Arc<Member>>)) {
        let world = self.nobody.transport().world();
        for member in left {
            let world = Arc::clone(&world);
            // Nobody waits for it; it ends with the runtime.
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
        // What is held there is confirmed: only the new primary can say that it is not.
        self.notify(|listener| listener.slots_moved(&changes.slots));
    }

    pub(super) async fn close(&self, within: Duration) {
        self.closed.store(true, Ordering::Relaxed);
        self.suspicion.raise();
        // Whoever waits for something to do finds the cluster closed.
        self.strays.resubscribe([]);
        self.suspicion.changed();
        let members: Vec<_> = std::mem::take(&mut self.state.write().members).into_values().collect();
        futures::future::join_all(members.iter().map(|member| member.close(within))).await;
    }
}

impl State {
    /// The member of a slot, and the placement of names there; that of nowhere where nobody has it.
    fn at(&self, slot: u16) -> std::result::Result<(&Arc<Member>, Placement), Placement> {
        let generation = usize::try_from(self.slots.generation(slot)).unwrap_or(usize::MAX);
        let member = self.slots.primary(slot).and_then(|address| self.members.get(address));
        match member {
            Some(member) => Ok((member, Placement { member: member.id(), slot, generation })),
            None => Err(Placement { slot, generation, ..Placement::NOWHERE }),
        }
    }

    /// Notes what of a view depends on the time: whether hearsay holds against it, and who is gone. A node with slots that no view has
    /// listed for so long has been told to leave, and its slots are whose the others say; one that went away, and that none has listed
    /// as away for so long, will not come back to its shard. A node that is but behind the times lists all but the newest.
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

    /// Tells each member how many replicas it has.
    fn tell_of_replicas(&self) {
        let replicas = self.slots.replicas();
        for (address, member) in &self.members {
            member.acknowledgement().knows_of(replicas.get(address).copied().unwrap_or(0));
        }
    }

    /// Forgets the members of addresses that have lost their last slot.
    fn forget(&mut self, changes: &Changes) -> (Changes, Vec<Arc<Member>>) {
        let left = changes.left.iter().filter_map(|address| self.members.remove(address)).collect();
        (changes.clone(), left)
    }
}
