//! The per-lock-name pub/sub semaphore registry: one local FIFO and one shared subscription a name, wake-ups, and the
//! hand-off of a held lock to the next local waiter.
//!
//! Of all tasks of this process that want a name, one has its *turn*: it alone speaks to Redis (the contender). The
//! others queue here. A message wakes the contender. A lock that this process holds may be handed over to the
//! contender without a word to Redis, a bounded number of times (cohort locking: Dice, Marathe and Shavit, PPoPP 2012).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};

use super::channels::Channels;
use super::hold::{Grant, Hold};
use super::renewal::Kick;
use crate::config::Options;
use crate::hash::ReadyHash;
use crate::names::{LockName, shard};
use crate::owner::Owner;
use crate::runtime::reaper::{Finished, Reaper};
use crate::topology::{MemberId, MemberListener, Topology};
use crate::world::Moment;

mod slot;
mod spare;
mod waiter;

pub(crate) use slot::Passed;
use slot::{Listening, Seat, Slot};
pub(crate) use waiter::{HeldAs, Parked, Until, Waiter};

const SHARDS: usize = 16;

/// What came of asking for a subscription.
enum Subscribing {
    /// It stands; or nobody has a use for it.
    Done,
    /// Somebody else is changing it. Whoever asked is told of every change from here on.
    Elsewhere,
    /// It is asked for by this, which is carried through in any case.
    Begun(Finished<()>),
}

type Names = HashMap<Arc<LockName>, Slot, ReadyHash>;
type Shard<'a> = MutexGuard<'a, Names>;

/// Every name that somebody in this process waits for, holds, or listens to.
#[derive(Debug)]
pub(crate) struct Registry {
    shards: Box<[Mutex<Names>]>,
    channels: Channels,
    spares: spare::Spares,
    topology: Topology,
    reaper: Reaper,
    limit: u32,
    time: Duration,
    linger: Duration,
    waiting: AtomicUsize,
    kick: Arc<Kick>,
    closing: watch::Receiver<bool>,
}

impl Registry {
    pub(crate) fn new(
        options: &Options,
        topology: Topology,
        reaper: Reaper,
        kick: Arc<Kick>,
        closing: watch::Receiver<bool>,
    ) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            channels: Channels::default(),
            spares: spare::Spares::default(),
            topology,
            reaper,
            limit: options.handoff_limit,
            time: options.handoff_time,
            linger: options.subscription_linger,
            waiting: AtomicUsize::new(0),
            kick,
            closing,
        }
    }

    fn shard(&self, name: &LockName) -> &Mutex<Names> {
        &self.shards[shard(name, SHARDS)]
    }

    /// Enters the local queue of a name; at once with the turn when nobody is before it. `takes`: it may be
    /// handed a lock that another owner of this client took as this flavour.
    pub(crate) fn enter(self: &Arc<Self>, name: &Arc<LockName>, takes: Option<&'static str>) -> Waiter {
        let mut shard = self.shard(name).lock();
        let mut waiter = Waiter {
            registry: Arc::clone(self),
            name: Arc::clone(name),
            seat: None,
            takes,
            ticket: None,
            counted: false,
            left: false,
            nonce: Bytes::new(),
        };
        let Some(slot) = shard.get_mut(name) else {
            shard.insert(Arc::clone(name), Slot { turn: true, ..Slot::default() });
            return waiter;
        };
        slot.idle_since = None;
        let seat = Arc::new(Seat { takes, state: Mutex::default(), notify: Notify::new() });
        waiter.seat = Some(Arc::clone(&seat));
        waiter.count();
        if slot.turn {
            slot.queue.push_back(seat);
        } else {
            seat.state.lock().turn = true;
            slot.turn = true;
            slot.contender = Some(seat);
        }
        waiter
    }

    /// Hands a hold that nobody relies on any more over to the contender, if there is one that takes it and it is not yet
    /// other processes' turn. `open` makes the grant, under the registry's lock. Otherwise forgets the hold: from here
    /// on it is being released.
    pub(crate) fn hand_over(&self, hold: &Arc<Hold>, now: Moment, open: impl FnOnce() -> Option<Grant>) -> bool {
        let name = hold.name();
        let mut shard = self.shard(name).lock();
        let Some(slot) = shard.get_mut(name) else { return false };
        let Some(local) = slot.local.as_mut().filter(|local| Arc::ptr_eq(&local.hold, hold)) else { return false };
        if local.handoffs < self.limit
            && now.since(local.since) < self.time
            && let Some(seat) = slot.contender.as_ref().filter(|seat| seat.takes == Some(hold.protocol.flavour()))
        {
            let mut state = seat.state.lock();
            if !state.gone
                && state.handed.is_none()
                && let Some(grant) = open()
            {
                local.handoffs += 1;
                state.handed = Some(grant);
                drop(state);
                seat.notify.notify_one();
                return true;
            }
        }
        // After a series of hand-offs, others come first.
        slot.yielding = local.handoffs > 0 && slot.turn;
        slot.local = None;
        if slot.is_vacant() {
            shard.remove(name);
        }
        false
    }

    /// Forgets a hold that has ended.
    pub(crate) fn forget(&self, hold: &Arc<Hold>) {
        let name = hold.name();
        let mut shard = self.shard(name).lock();
        let Some(slot) = shard.get_mut(name) else { return };
        if slot.local.as_ref().is_some_and(|local| Arc::ptr_eq(&local.hold, hold)) {
            slot.local = None;
        }
        if let Some(seat) = &slot.contender {
            seat.wake();
        }
        if slot.is_vacant() {
            shard.remove(name);
        }
    }

    /// The lock of a name was released here, and the server told so many clients, or nobody knows how many: 0. Wakes the
    /// contender, unless a message will, and has it give way no longer if it was the only one who was told.
    pub(crate) fn released(&self, name: &LockName, told: u32) {
        let mut shard = self.shard(name).lock();
        let Some(slot) = shard.get_mut(name) else { return };
        if told <= u32::from(slot.listening == Listening::Live) && std::mem::take(&mut slot.yielding) {
            slot.change();
        }
        if (slot.listening != Listening::Live || told == 0)
            && let Some(seat) = &slot.contender
        {
            seat.wake();
        }
    }

    /// The server has passed the lock on to whoever waits at an inbox.
    pub(crate) fn passed_on(&self, inbox: &LockName, passed: Passed) {
        self.seat(inbox, |seat| {
            seat.state.lock().passed = Some(passed);
            seat.wake();
        });
    }

    /// An owner has come in: others who wait as the same owner may come in beside it, whoever is before them.
    pub(crate) fn wake_same_owner(&self, name: &LockName, owner: &Owner) {
        if let Some(slot) = self.shard(name).lock().get(name) {
            slot.wake_same_owner(&owner.bytes());
        }
    }

    /// Has the contender of a name look for itself.
    pub(crate) fn wake(&self, name: &LockName) {
        self.seat(name, Seat::wake);
    }

    fn seat(&self, name: &LockName, work: impl FnOnce(&Seat)) {
        if let Some(seat) = self.shard(name).lock().get(name).and_then(|slot| slot.contender.as_ref()) {
            work(seat);
        }
    }

    /// True when messages for a name come in, and nobody waits for them.
    fn is_spare(&self, name: &LockName) -> bool {
        let shard = self.shard(name).lock();
        shard.get(name).is_some_and(|slot| slot.listening == Listening::Live && slot.is_idle())
    }

    /// Wakes everybody who waits.
    pub(crate) fn wake_all(&self) {
        self.wake_where(|_| true);
    }

    fn wake_where(&self, is_meant: impl Fn(&LockName) -> bool) {
        for shard in &self.shards {
            for (_, slot) in shard.lock().iter().filter(|(name, _)| is_meant(name)) {
                if let Some(seat) = &slot.contender {
                    seat.wake();
                }
                for seat in &slot.queue {
                    seat.wake();
                }
            }
        }
    }

    /// Subscribes to a name's channel if nobody has yet; the contender is told when that is done or has failed.
    fn subscribe(self: &Arc<Self>, name: &Arc<LockName>, seat: &Seat) -> Subscribing {
        {
            let mut shard = self.shard(name).lock();
            let Some(slot) = shard.get_mut(name) else { return Subscribing::Done };
            match slot.listening {
                Listening::Live => return Subscribing::Done,
                Listening::Changing => {
                    // Under the lock that every change is made under: one that came before was seen here.
                    seat.state.lock().changed = false;
                    return Subscribing::Elsewhere;
                }
                Listening::Off => slot.listening = Listening::Changing,
            }
        }
        self.channels.add(name);
        let (registry, name) = (Arc::clone(self), Arc::clone(name));
        Subscribing::Begun(Finished::begun(&self.reaper, async move {
            match registry.topology.subscribe(&name).await {
                Ok(()) => registry.listens(&name, Listening::Live),
                Err(fault) => {
                    tracing::debug!(lock.name = %name.plain, ?fault, "cannot subscribe: waiters poll");
                    // It may be in force all the same.
                    registry.unsubscribe(&name).await;
                    registry.listens(&name, Listening::Off);
                }
            }
        }))
    }

    /// Ends a subscription, unless another name of the same channel needs it.
    async fn unsubscribe(&self, name: &LockName) {
        if !self.channels.remove(name) {
            return;
        }
        self.topology.unsubscribe(name).await;
        if self.channels.nth(&name.channel, 0).is_some() {
            // Another one came meanwhile, and may have been cut off.
            if let Err(fault) = self.topology.subscribe(name).await {
                tracing::debug!(lock.name = %name.plain, ?fault, "cannot subscribe: waiters poll");
            }
            self.message(&name.channel, &[]);
        }
    }

    /// A change of a subscription is done.
    fn listens(self: &Arc<Self>, name: &Arc<LockName>, listening: Listening) {
        let mut shard = self.shard(name).lock();
        let Some(slot) = shard.get_mut(name) else { return };
        slot.listening = listening;
        slot.change();
        self.settle(shard, name);
    }

    /// Removes a name that nobody has a use for, or has its idle subscription ended after a while.
    fn settle(self: &Arc<Self>, mut shard: Shard<'_>, name: &Arc<LockName>) {
        let Some(slot) = shard.get_mut(name) else { return };
        if slot.is_vacant() {
            shard.remove(name);
            return;
        }
        if slot.listening != Listening::Live || !slot.is_idle() {
            return;
        }
        slot.idle_since.get_or_insert(self.topology.now());
        if !std::mem::replace(&mut slot.retiring, true) {
            drop(shard);
            self.reaper.finish_whenever(Box::pin(Arc::clone(self).retire(Arc::clone(name))));
        }
    }

    /// Ends the subscription of a name once it has lain idle for the linger time.
    async fn retire(self: Arc<Self>, name: Arc<LockName>) {
        let mut closing = self.closing.clone();
        let mut rest = self.linger;
        loop {
            tokio::select! {
                biased;
                _ = closing.wait_for(|closing| *closing) => {
                    self.channels.remove(&name);
                    return self.listens(&name, Listening::Off);
                }
                () = tokio::time::sleep(rest) => {}
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
        self.unsubscribe(&name).await;
        self.listens(&name, Listening::Off);
    }

    /// How many acquires wait: the contenders and those queued behind them.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// How many places there are in the queue of a name, those that were left included.
    #[cfg(test)]
    pub(crate) fn queued(&self, name: &LockName) -> usize {
        self.shard(name).lock().get(name).map_or(0, |slot| slot.queue.len())
    }

    /// How many names leave a trace here.
    pub(crate) fn names(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}

impl MemberListener for Registry {
    fn message(&self, channel: &[u8], payload: &[u8]) {
        for n in 0.. {
            let Some(name) = self.channels.nth(channel, n) else { return };
            self.seat(&name, |seat| {
                // Anything else is a hint, Redisson's 0 and 1 among them: whoever may publish may say that.
                let mut state = seat.state.lock();
                if let Some(lease) = passed(payload, &state.nonce) {
                    state.passed = Some(Passed { lease, since: None });
                    state.heard = true;
                }
                drop(state);
                seat.wake();
            });
        }
    }

    fn missed(&self, member: MemberId) {
        self.wake_where(|name| self.topology.place(name) == member);
    }

    fn reconnected(&self, member: MemberId) {
        self.kick.renew_at(member);
        self.missed(member);
    }
}

/// The lease of a lock that was passed on, if a message says so to whoever is registered by this nonce.
fn passed(payload: &[u8], nonce: &[u8]) -> Option<Duration> {
    let (lease, proof) = std::str::from_utf8(payload).ok()?.split_once(' ')?;
    let lease = lease.parse().ok().map(Duration::from_millis)?;
    (!nonce.is_empty() && proof.as_bytes() == nonce).then_some(lease)
}
