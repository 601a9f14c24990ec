//! Subscriptions in a cluster. Each subscription is at the primary of its channel's slot, and moves with the slot.
//!
//! 1. `subscribe` notes the channel and subscribes at the slot's member.
//! 2. When a slot moves, or a server ends a subscription, the slot becomes a *stray*.
//! 3. `follow` subscribes the channels of strays at the slots' present members. The waiters of these channels then
//!    check their locks once, because messages may have been missed.
//! 4. A failed attempt is retried after a pause.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use futures::stream::{FuturesUnordered, StreamExt as _};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Cluster;
use super::router::MOST_REDIRECTS;
use super::watch::SUSPICIOUS;
use crate::names::LockName;
use crate::topology::address::Address;
use crate::topology::member::{Member, MemberId, Subscriber};
use crate::topology::redirect::Redirect;
use crate::topology::slots::slot_of;
use crate::transport::Fault;

/// The channels that should be subscribed, by slot.
#[derive(Default)]
pub(super) struct Subscribed(BTreeMap<(u16, Bytes), Place>);

/// Slots that have moved, or in which a subscription has ended. `follow` checks their subscriptions.
#[derive(Debug, Default)]
pub(super) struct Strays {
    slots: Mutex<BTreeSet<u16>>,
    notify: Notify,
}

impl Strays {
    /// Makes `follow` subscribe the channels of these slots at the slots' present members.
    pub(super) fn resubscribe(&self, slots: impl IntoIterator<Item = u16>) {
        self.slots.lock().extend(slots);
        self.notify.notify_one();
    }

    /// Waits for strays and returns all slots added since the last call. Also returns, with an empty set, when the
    /// cluster is closed.
    async fn next(&self) -> BTreeSet<u16> {
        self.notify.notified().await;
        std::mem::take(&mut *self.slots.lock())
    }
}

/// Where a channel is subscribed.
struct Place {
    /// The member that `subscribe` tried last, or to which the last move has succeeded.
    at: Arc<Member>,
    /// True if that member does not deliver messages any more, or never did.
    is_ended: bool,
    /// The member to which the subscription is being moved.
    to: Option<MemberId>,
}

/// A subscription that is being moved to the member that has its slot.
struct Move {
    slot: u16,
    channel: Bytes,
    from: Arc<Member>,
    to: Arc<Member>,
    /// The slot's generation, which is needed to apply a redirect.
    generation: u32,
}

impl Subscribed {
    /// True if this member should deliver the channel, now or after the move in progress.
    fn is_wanted_at(&self, slot: u16, channel: &Bytes, member: MemberId) -> bool {
        let place = self.0.get(&(slot, channel.clone()));
        place.is_some_and(|place| place.at.id() == member || place.to == Some(member))
    }

    /// Returns the subscriptions of a slot that have ended, or are not at the slot's primary. Leaves out subscriptions
    /// that are already being moved to the primary.
    fn astray<'a>(&'a mut self, slot: u16, primary: &'a Member) -> impl Iterator<Item = (&'a Bytes, &'a mut Place)> {
        let of_slot = self.0.range_mut((slot, Bytes::new())..(slot + 1, Bytes::new()));
        let all = of_slot.map(|((_, channel), place)| (channel, place));
        all.filter(|(_, place)| place.to != Some(primary.id()))
            .filter(|(_, place)| place.is_ended || place.at.id() != primary.id())
    }
}

impl Cluster {
    fn slot_now(&self, slot: u16) -> Option<(Arc<Member>, u32)> {
        let state = self.state.read();
        let (member, _) = state.at(slot).ok()?;
        Some((Arc::clone(member), state.slots.generation(slot)))
    }

    /// Subscribes to a name's channel. The caller makes sure that `subscribe` and `unsubscribe` of one channel never
    /// overlap.
    pub(in crate::topology) async fn subscribe(&self, name: &LockName) -> Result<(), Fault> {
        let (slot, mut redirects) = (name.slot(), 0);
        // Another name may share the channel, and the channel's subscription may be moving right now.
        let before = self.subscribed.lock().0.get(&(slot, name.channel.clone())).map(|place| place.to.is_some());
        let (is_shared, is_taken_along) = (before.is_some(), before == Some(true));
        loop {
            let nobody = || (Arc::clone(&self.nobody), 0);
            let (member, generation) = self.slot_now(slot).unwrap_or_else(nobody);
            // Noted before the command is sent, so that the subscription follows a slot that moves meanwhile.
            let place = Place { at: Arc::clone(&member), is_ended: false, to: None };
            self.subscribed.lock().0.insert((slot, name.channel.clone()), place);
            let fault = match member.transport().subscribe(name.channel.clone()).await {
                Ok(()) => {
                    if is_taken_along {
                        // This subscription has replaced the subscription that was moving. The waiters of the other
                        // name may have missed messages.
                        self.notify(|listener| listener.resubscribed(&name.channel));
                    }
                    // The slot may have moved before the subscription was noted.
                    if self.slot_now(slot).is_none_or(|(now, ..)| now.id() != member.id()) {
                        self.strays.resubscribe([slot]);
                    }
                    return Ok(());
                }
                Err(fault) => fault,
            };
            self.suspicion.raise();
            redirects += 1;
            match redirected_to(&fault, &member, slot) {
                Some(to) if redirects <= MOST_REDIRECTS => {
                    member.transport().forget(&name.channel);
                    self.apply_redirect(slot, generation, &to).await;
                }
                _ => {
                    if is_shared {
                        // The state of the other name's subscription is unknown, so the channel is subscribed again.
                        self.ended(member.id(), &name.channel, slot);
                    } else {
                        member.transport().forget(&name.channel);
                    }
                    return Err(fault);
                }
            }
        }
    }

    pub(in crate::topology) async fn unsubscribe(&self, name: &LockName) {
        let place = self.subscribed.lock().0.remove(&(name.slot(), name.channel.clone()));
        if let Some(place) = place {
            place.at.transport().unsubscribe(name.channel.clone()).await;
        }
    }

    /// For each channel of these slots: if the slot has moved or the server has ended the subscription, subscribes at
    /// the slot's present member.
    async fn follow(self: Arc<Self>, slots: BTreeSet<u16>) {
        let moves: Vec<Move> = {
            let mut subscribed = self.subscribed.lock();
            let mut moves = Vec::new();
            for slot in slots {
                let Some((to, generation)) = self.slot_now(slot) else { continue };
                for (channel, place) in subscribed.astray(slot, &to) {
                    place.to = Some(to.id());
                    // If the member stays the same, the flag is cleared, so that a later end is noticed. If the slot
                    // has moved, the subscription at the old member counts as ended.
                    place.is_ended = place.at.id() != to.id();
                    let (channel, from, to) = (channel.clone(), Arc::clone(&place.at), Arc::clone(&to));
                    moves.push(Move { slot, channel, from, to, generation });
                }
            }
            moves
        };
        let mut under_way: FuturesUnordered<_> = moves.into_iter().map(|moving| self.carry_out(moving)).collect();
        let mut failed = BTreeSet::new();
        while let Some(again) = under_way.next().await {
            failed.extend(again);
        }
        if !failed.is_empty() {
            tokio::time::sleep(SUSPICIOUS).await;
            self.strays.resubscribe(failed);
        }
    }

    /// Carries out one move. Returns the slot if the move has to be retried.
    async fn carry_out(self: &Arc<Self>, moving: Move) -> Option<u16> {
        let Move { slot, channel, from, to, generation } = moving;
        let outcome = to.transport().subscribe(channel.clone()).await;
        // `None` if the subscription was ended, made again or moved elsewhere meanwhile.
        let is_ours = {
            let mut subscribed = self.subscribed.lock();
            let place = subscribed.0.get_mut(&(slot, channel.clone())).filter(|place| place.to == Some(to.id()));
            place.map(|place| {
                place.to = None;
                match &outcome {
                    Ok(()) if place.at.id() == to.id() => {}
                    Ok(()) => (place.at, place.is_ended) = (Arc::clone(&to), false),
                    Err(_) => place.is_ended = true,
                }
            })
        };
        if from.id() != to.id() && !self.subscribed.lock().is_wanted_at(slot, &channel, from.id()) {
            if self.is_sharded {
                // The server has ended the subscription when the slot left, and would refuse an unsubscribe.
                from.transport().forget(&channel);
            } else {
                // Not awaited, because that server may be unreachable.
                tokio::spawn(Arc::clone(self).leave(slot, channel.clone(), from));
            }
        }
        if is_ours.is_none() {
            if !self.subscribed.lock().is_wanted_at(slot, &channel, to.id()) {
                Arc::clone(self).leave(slot, channel, to).await;
            }
            return None;
        }
        let again = outcome.err().map(|fault| {
            if !self.subscribed.lock().is_wanted_at(slot, &channel, to.id()) {
                if fault.in_doubt() {
                    // The subscription may still take effect.
                    tokio::spawn(Arc::clone(self).leave(slot, channel.clone(), Arc::clone(&to)));
                } else {
                    to.transport().forget(&channel);
                }
            }
            tracing::debug!(?fault, "cannot subscribe where a slot is now: tried again");
            fault
        });
        let Some(fault) = again else {
            // While no server had the subscription, a release may have been announced.
            self.notify(|listener| listener.resubscribed(&channel));
            return None;
        };
        // This makes the waiters poll more often, and subscribe themselves.
        self.notify(|listener| listener.unsubscribed(&channel));
        self.suspicion.raise();
        if let Some(address) = redirected_to(&fault, &to, slot) {
            // This also makes the slot a stray, so `follow` subscribes at the new address at once.
            self.apply_redirect(slot, generation, &address).await;
        }
        Some(slot)
    }

    /// Ends a subscription at a member that does not have the channel's slot. If the channel was subscribed at that
    /// member again meanwhile, this call may have ended the new subscription, so the channel is subscribed once more.
    async fn leave(self: Arc<Self>, slot: u16, channel: Bytes, member: Arc<Member>) {
        member.transport().unsubscribe(channel.clone()).await;
        self.ended(member.id(), &channel, slot);
    }

    /// True while the subscription of a name is being moved or made again.
    #[cfg(test)]
    pub(super) fn is_under_way(&self, name: &LockName) -> bool {
        let subscribed = self.subscribed.lock();
        subscribed.0.get(&(name.slot(), name.channel.clone())).is_some_and(|place| place.to.is_some())
    }

    fn ended(&self, member: MemberId, channel: &Bytes, slot: u16) {
        {
            let mut subscribed = self.subscribed.lock();
            let place = subscribed.0.get_mut(&(slot, channel.clone()));
            let Some(place) = place.filter(|place| place.at.id() == member || place.to == Some(member)) else { return };
            place.is_ended = true;
            // A move to this member was requested before the subscription ended, so the move does not count.
            place.to = place.to.filter(|to| *to != member);
        }
        self.strays.resubscribe([slot]);
    }
}

/// Returns the new address of a slot if the member refused with a redirect.
fn redirected_to(fault: &Fault, member: &Member, slot: u16) -> Option<Address> {
    match Redirect::of(&fault.message, member.host()) {
        Redirect::Moved { slot: told, to } if told == slot => to,
        _ => None,
    }
}

impl Subscriber for Cluster {
    fn ended(&self, member: MemberId, channel: &[u8]) {
        self.ended(member, &Bytes::copy_from_slice(channel), slot_of(channel));
        self.suspicion.raise();
    }

    fn server_is_away(&self, member: MemberId) {
        self.state.write().away.insert(member);
        self.suspicion.raise();
    }

    fn server_is_back(&self, member: MemberId) {
        self.state.write().away.remove(&member);
    }
}

/// Moves subscriptions along with their slots until the cluster is closed or dropped.
pub(super) async fn run(cluster: Weak<Cluster>) {
    loop {
        // The cluster is not kept alive during the wait.
        let Some(strays) = cluster.upgrade().map(|this| Arc::clone(&this.strays)) else { return };
        let slots = strays.next().await;
        let Some(this) = cluster.upgrade() else { return };
        if this.closed.load(Ordering::Relaxed) {
            return;
        }
        // Each round runs in its own task, because an unreachable server may delay a round for long.
        tokio::spawn(this.follow(slots));
    }
}
