//! The subscription of a name, and its messages. A contender begins the subscription, and all waiters of the name share
//! it. It ends when no task has waited for the name for the linger time (option `subscription_linger`).
//!
//! ```text
//! Off ─ subscribe ─► Changing ─ confirmed ─► Live ─ idle for the linger time ─► Changing ─► Off
//!                       ╰─ failed ─► Off: the contender polls, and subscribes again
//! ```

use std::sync::Arc;
use std::time::Duration;

use super::slot::{Listening, Passed, Seat, Wakes};
use super::turns::WAY;
use super::{Registry, Shard};
use crate::engine::sync::sleep;
use crate::names::LockName;
use crate::runtime::reaper::Finished;
use crate::slim::slim;
use crate::topology::{MemberId, MemberListener};

pub(super) enum Subscribing {
    /// The name is subscribed already, or has no slot any more.
    Done,
    /// Another task is changing the subscription. The contender is notified when that change ends.
    Elsewhere,
    /// This job subscribes. It is completed even if the waiter stops waiting.
    Begun(Finished<()>),
}

impl Registry {
    /// Subscribes to a name's channel, unless it is subscribed already. The contender is notified when the subscribe
    /// succeeds or fails.
    pub(super) fn subscribe(self: &Arc<Self>, name: &Arc<LockName>, seat: &Seat) -> Subscribing {
        {
            let mut shard = self.shard(name).lock();
            let Some(slot) = shard.get_mut(name) else { return Subscribing::Done };
            match slot.listening {
                Listening::Live if !slot.is_lost => return Subscribing::Done,
                Listening::Changing => {
                    // `changed` is set under the shard's lock too, so no later change is lost.
                    seat.state.lock().changed = false;
                    return Subscribing::Elsewhere;
                }
                Listening::Live | Listening::Off => (slot.listening, slot.is_lost) = (Listening::Changing, false),
            }
        }
        let (registry, name) = (Arc::clone(self), Arc::clone(name));
        Subscribing::Begun(Finished::begun(&self.reaper, async move {
            let listening = {
                let _change = registry.channels.change(&name.channel).await;
                registry.channels.add(&name);
                match registry.topology.subscribe(&name).await {
                    Ok(()) => Listening::Live,
                    Err(fault) => {
                        tracing::debug!(lock.name = %name.as_written, ?fault, "cannot subscribe: waiters poll");
                        // The server may have subscribed in spite of the failure.
                        registry.unsubscribe(&name).await;
                        // Other names of the channel may have lost their subscription too.
                        registry.lose_subscription(&name.channel);
                        Listening::Off
                    }
                }
            };
            registry.listens(&name, listening);
        }))
    }

    /// Ends a subscription, unless another name of the channel needs it. The caller holds the channel's
    /// [`Change`](crate::engine::channels::Change).
    async fn unsubscribe(&self, name: &LockName) {
        if self.channels.remove(name) {
            self.topology.unsubscribe(name).await;
        }
    }

    /// Marks the subscription to a channel as lost. The contenders of its names poll and subscribe again.
    fn lose_subscription(&self, channel: &[u8]) {
        for name in self.channels.names(channel).iter().flat_map(|names| names.iter()) {
            let mut wakes = Wakes::default();
            let mut shard = self.shard(name).lock();
            let Some(slot) = shard.get_mut(name) else { continue };
            let was_live = slot.is_live();
            // Set even while a subscribe is in flight, because the loss may be newer than the reply to the subscribe.
            slot.is_lost = true;
            if was_live {
                // Without messages, turns cannot be counted.
                slot.turns.forget();
                slot.change(&mut wakes);
                slot.wake(&mut wakes);
            }
        }
    }

    /// Records the end of a change of the subscription.
    fn listens(self: &Arc<Self>, name: &Arc<LockName>, listening: Listening) {
        let mut wakes = Wakes::default();
        let mut shard = self.shard(name).lock();
        let Some(slot) = shard.get_mut(name) else { return };
        slot.listening = listening;
        if listening == Listening::Off {
            slot.turns.forget();
        }
        slot.change(&mut wakes);
        self.settle(shard, name);
    }

    /// Removes a name that is no longer needed. For an idle name, starts the job that later ends its subscription
    /// (`retire`) or its way (`forget_turns`).
    pub(super) fn settle(self: &Arc<Self>, mut shard: Shard<'_>, name: &Arc<LockName>) {
        let Some(slot) = shard.get_mut(name) else { return };
        if slot.is_vacant() {
            shard.remove(name);
            slim(&mut shard);
            return;
        }
        if !slot.is_idle() {
            return;
        }
        if *self.ended.borrow() {
            // The connections are closing, so no task needs to end the subscription.
            shard.remove(name);
            drop(shard);
            self.channels.remove(name);
            return self.spares.forget(name);
        }
        if slot.listening == Listening::Off
            && slot.turns.is_giving_way()
            && !std::mem::replace(&mut slot.forgetting, true)
        {
            drop(shard);
            return self.reaper.finish_uncounted(Box::pin(Arc::clone(self).forget_turns(Arc::clone(name))));
        }
        if slot.listening != Listening::Live {
            return;
        }
        slot.idle_since.get_or_insert(self.topology.now());
        if !std::mem::replace(&mut slot.retiring, true) {
            drop(shard);
            self.reaper.finish_uncounted(Box::pin(Arc::clone(self).retire(Arc::clone(name))));
        }
    }

    /// Ends the way of an idle, unsubscribed name, once no message has arrived for the way's length.
    async fn forget_turns(self: Arc<Self>, name: Arc<LockName>) {
        let mut ended = self.ended.clone();
        let (mut rest, mut before) = (WAY, None);
        loop {
            let closed = tokio::select! {
                biased;
                _ = ended.wait_for(|ended| *ended) => true,
                () = sleep(rest) => false,
            };
            let now = self.topology.now();
            let mut shard = self.shard(&name).lock();
            let Some(slot) = shard.get_mut(&name) else { return };
            match slot.turns.way(now) {
                // The way continues while messages arrive.
                Some((left, heard)) if !closed && slot.is_idle() && before != Some(heard) => {
                    (rest, before) = (left, Some(heard));
                }
                _ => {
                    slot.forgetting = false;
                    if slot.is_idle() && slot.listening == Listening::Off {
                        slot.turns.forget();
                    }
                    return self.settle(shard, &name);
                }
            }
        }
    }

    /// Ends the subscription of a name after it was idle for the linger time.
    async fn retire(self: Arc<Self>, name: Arc<LockName>) {
        let mut ended = self.ended.clone();
        let mut rest = self.linger;
        loop {
            tokio::select! {
                biased;
                _ = ended.wait_for(|ended| *ended) => {
                    self.channels.remove(&name);
                    self.spares.forget(&name);
                    return self.listens(&name, Listening::Off);
                }
                () = sleep(rest) => {}
            }
            let now = self.topology.now();
            let mut shard = self.shard(&name).lock();
            let Some(slot) = shard.get_mut(&name) else { return };
            let due = slot.idle_since.map(|since| since + self.linger).filter(|_| slot.is_idle());
            match due {
                Some(due) if due > now => rest = due.since(now),
                Some(_) if slot.listening == Listening::Live => {
                    slot.retiring = false;
                    slot.listening = Listening::Changing;
                    drop(shard);
                    self.spares.forget(&name);
                    break;
                }
                _ => {
                    slot.retiring = false;
                    return;
                }
            }
        }
        {
            let _change = self.channels.change(&name.channel).await;
            self.unsubscribe(&name).await;
        }
        self.listens(&name, Listening::Off);
    }
}

impl MemberListener for Registry {
    fn message(&self, channel: &[u8], payload: &[u8]) {
        let Some(names) = self.channels.names(channel) else { return };
        let now = self.topology.now();
        for name in names.iter() {
            let mut wakes = Wakes::default();
            let mut shard = self.shard(name).lock();
            let Some(slot) = shard.get_mut(name) else { continue };
            let at = slot.turns.needs_time().then(|| self.topology.time(name, now)).flatten();
            if slot.turns.heard(at, now) {
                slot.change(&mut wakes);
            }
            slot.busy_until = None;
            if slot.wakes_all {
                slot.queue.iter().for_each(|seat| seat.wake(&mut wakes));
            }
            let Some(seat) = &slot.contender else { continue };
            // A payload without the nonce, such as Redisson's 0 or 1, only wakes the waiter: any client with the
            // publish permission can send it.
            let mut state = seat.state.lock();
            if let Some(lease) = passed(payload, &state.nonce) {
                state.passed = Some(Passed { lease, since: None });
                state.heard = true;
            }
            drop(state);
            seat.wake(&mut wakes);
        }
    }

    fn missed(&self, member: MemberId) {
        self.wake_where(|name| self.topology.placement(name).member == member);
    }

    fn reconnected(&self, member: MemberId) {
        self.kick.renew_at(member);
        self.missed(member);
    }

    fn slots_moved(&self, slots: &[u16]) {
        self.kick.renew_slots(slots);
        self.wake_where(|name| slots.binary_search(&name.slot()).is_ok());
    }

    fn resubscribed(&self, channel: &[u8]) {
        for name in self.channels.names(channel).iter().flat_map(|names| names.iter()) {
            if let Some(slot) = self.shard(name).lock().get_mut(name) {
                slot.is_lost = false;
            }
            self.wake(name);
        }
    }

    fn unsubscribed(&self, channel: &[u8]) {
        self.lose_subscription(channel);
    }
}

/// Parses a message that passes the lock on: the lease in ms and the nonce. Returns the lease if the message carries
/// `nonce`.
fn passed(payload: &[u8], nonce: &[u8]) -> Option<Duration> {
    let (lease, proof) = std::str::from_utf8(payload).ok()?.split_once(' ')?;
    let lease = lease.parse().ok().map(Duration::from_millis)?;
    (!nonce.is_empty() && proof.as_bytes() == nonce).then_some(lease)
}
