//! The per-lock-name pub/sub semaphore registry: one local FIFO and one shared subscription a name, wake-ups, and the
//! hand-off of a held lock to the next local waiter.
//!
//! Of all tasks of this process that want a name, one has its *turn*: it alone speaks to Redis (the contender). The
//! others queue here. A message wakes the contender. A lock that this process holds may be passed to the contender
//! without a word to Redis, a bounded number of times (cohort locking: Dice, Marathe and Shavit, PPoPP 2012).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, watch};

use super::hold::{Grant, Hold};
use super::names::{LockName, ReadyHash, shard};
use super::reaper::{Finished, Reaper};
use super::sync::{Mutex, MutexGuard};
use super::topology::Topology;
use super::transport::{Ear, Moment};
use crate::config::Options;

const SHARDS: usize = 16;

/// How long others have a lock for themselves that this process had many times in a row: a message and an attempt take
/// some 0.3 ms on a quiet machine, and several times that on a busy one.
const WAY: Duration = Duration::from_millis(3);

type Names = HashMap<Arc<LockName>, Slot, ReadyHash>;
type Shard<'a> = MutexGuard<'a, Names>;

/// Every name that somebody in this process waits for, holds, or listens to.
#[derive(Debug)]
pub(crate) struct Registry {
    shards: Box<[Mutex<Names>]>,
    /// Which name a channel's messages are for. Held only for a look or a change, never together with a shard.
    channels: Mutex<HashMap<Bytes, Arc<LockName>>>,
    topology: Topology,
    reaper: Reaper,
    limit: u32,
    time: Duration,
    linger: Duration,
    waiting: AtomicUsize,
    reconnected: Arc<Notify>,
    closing: watch::Receiver<bool>,
}

#[derive(Debug, Default)]
struct Slot {
    turn: bool,
    contender: Option<Arc<Seat>>,
    queue: VecDeque<Arc<Seat>>,
    gone: usize,
    listening: Listening,
    /// True while a job waits to end the subscription.
    retiring: bool,
    idle_since: Option<Moment>,
    local: Option<Local>,
    /// True after this process has passed the lock on as often as it may: the next turn is other processes'.
    yielding: bool,
}

/// How far the subscription of a name is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Listening {
    #[default]
    Off,
    /// Asked for or being ended; the contender is told when that is done.
    Changing,
    /// Confirmed.
    Live,
}

/// A hold of this process that may be passed on.
#[derive(Debug)]
struct Local {
    hold: Arc<Hold>,
    passed: u32,
    since: Moment,
}

/// One waiter's chair.
#[derive(Debug)]
struct Seat {
    /// True when it may be handed a lock that another owner of this client took.
    takes: bool,
    state: Mutex<SeatState>,
    notify: Notify,
}

#[derive(Debug, Default)]
struct SeatState {
    turn: bool,
    woken: bool,
    /// A change of the subscription is done.
    changed: bool,
    gone: bool,
    handed: Option<Grant>,
}

impl Slot {
    fn is_vacant(&self) -> bool {
        !self.turn && self.queue.is_empty() && self.local.is_none() && self.listening == Listening::Off
    }

    fn is_idle(&self) -> bool {
        !self.turn && self.queue.is_empty()
    }

    /// Tells the contender that something changed that is no message.
    fn change(&self) {
        if let Some(seat) = &self.contender {
            seat.state.lock().changed = true;
            seat.notify.notify_one();
        }
    }

    /// Gives the turn to the first in the queue who is still there.
    fn pass(&mut self) {
        self.contender = None;
        self.turn = false;
        while let Some(seat) = self.queue.pop_front() {
            let mut state = seat.state.lock();
            if state.gone {
                self.gone = self.gone.saturating_sub(1);
                continue;
            }
            state.turn = true;
            drop(state);
            seat.notify.notify_one();
            self.turn = true;
            self.contender = Some(seat);
            return;
        }
    }
}

impl Registry {
    pub(crate) fn new(
        options: &Options,
        topology: Topology,
        reaper: Reaper,
        reconnected: Arc<Notify>,
        closing: watch::Receiver<bool>,
    ) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            channels: Mutex::default(),
            topology,
            reaper,
            limit: options.handoff_limit,
            time: options.handoff_time,
            linger: options.subscription_linger,
            waiting: AtomicUsize::new(0),
            reconnected,
            closing,
        }
    }

    fn shard(&self, name: &LockName) -> &Mutex<Names> {
        &self.shards[shard(name, SHARDS)]
    }

    /// Takes a place in the local queue of a name; at once with the turn when nobody is before it. `takes`: it may be
    /// handed a lock that another owner of this client took.
    pub(crate) fn enter(self: &Arc<Self>, name: &Arc<LockName>, takes: bool) -> Place {
        let mut shard = self.shard(name).lock();
        let mut place = Place { registry: Arc::clone(self), name: Arc::clone(name), seat: None, takes, counted: false, left: false };
        let Some(slot) = shard.get_mut(name) else {
            shard.insert(Arc::clone(name), Slot { turn: true, ..Slot::default() });
            return place;
        };
        slot.idle_since = None;
        let seat = Arc::new(Seat { takes, state: Mutex::default(), notify: Notify::new() });
        place.seat = Some(Arc::clone(&seat));
        place.count();
        if slot.turn {
            slot.queue.push_back(seat);
        } else {
            seat.state.lock().turn = true;
            slot.turn = true;
            slot.contender = Some(seat);
        }
        place
    }

    /// Passes a hold that nobody relies on any more to the contender, if there is one that takes it and it is not yet
    /// other processes' turn. `open` makes the grant, under the registry's lock. Otherwise forgets the hold: from here
    /// on it is being released.
    pub(crate) fn pass_on(&self, hold: &Arc<Hold>, now: Moment, open: impl FnOnce() -> Option<Grant>) -> bool {
        let name = hold.name();
        let mut shard = self.shard(name).lock();
        let Some(slot) = shard.get_mut(name) else { return false };
        let Some(local) = slot.local.as_mut().filter(|local| Arc::ptr_eq(&local.hold, hold)) else { return false };
        if local.passed < self.limit
            && now.since(local.since) < self.time
            && let Some(seat) = slot.contender.as_ref().filter(|seat| seat.takes)
        {
            let mut state = seat.state.lock();
            if !state.gone
                && state.handed.is_none()
                && let Some(grant) = open()
            {
                local.passed += 1;
                state.handed = Some(grant);
                drop(state);
                seat.notify.notify_one();
                return true;
            }
        }
        // After a series of passes, others come first.
        slot.yielding = local.passed > 0 && slot.turn;
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

    /// The lock of a name was released here, and the server told so many clients. Wakes the contender, unless a message
    /// will, and has it give way no longer if it was the only one who was told.
    pub(crate) fn released(&self, name: &LockName, told: u32) {
        let mut shard = self.shard(name).lock();
        let Some(slot) = shard.get_mut(name) else { return };
        if told <= u32::from(slot.listening == Listening::Live) && std::mem::take(&mut slot.yielding) {
            slot.change();
        }
        if slot.listening != Listening::Live
            && let Some(seat) = &slot.contender
        {
            seat.wake();
        }
    }

    /// Wakes every contender.
    pub(crate) fn wake_all(&self) {
        for shard in &self.shards {
            for slot in shard.lock().values() {
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
    fn subscribe(self: &Arc<Self>, name: &Arc<LockName>) -> Option<Finished<()>> {
        {
            let mut shard = self.shard(name).lock();
            let slot = shard.get_mut(name).filter(|slot| slot.listening == Listening::Off)?;
            slot.listening = Listening::Changing;
        }
        self.channels.lock().insert(name.channel.clone(), Arc::clone(name));
        let (registry, name) = (Arc::clone(self), Arc::clone(name));
        Some(Finished::begun(&self.reaper, async move {
            let node = registry.topology.node(&name);
            match node.subscribe(name.channel.clone()).await {
                Ok(()) => registry.listens(&name, Listening::Live),
                Err(fault) => {
                    tracing::debug!(lock.name = %name.plain, ?fault, "cannot subscribe: waiters poll");
                    // It may be in force all the same.
                    node.unsubscribe(name.channel.clone()).await;
                    registry.listens(&name, Listening::Off);
                }
            }
        }))
    }

    /// A change of a subscription is done.
    fn listens(self: &Arc<Self>, name: &Arc<LockName>, listening: Listening) {
        if listening == Listening::Off {
            self.channels.lock().remove(&name.channel);
        }
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
                () = tokio::time::sleep(rest) => {}
                _ = closing.wait_for(|closing| *closing) => return self.listens(&name, Listening::Off),
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
                    break;
                }
                _ => {
                    slot.retiring = false;
                    return;
                }
            }
        }
        self.topology.node(&name).unsubscribe(name.channel.clone()).await;
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

impl Ear for Registry {
    fn message(&self, channel: &[u8], _payload: &[u8]) {
        let name = self.channels.lock().get(channel).cloned();
        let Some(name) = name else { return };
        if let Some(seat) = self.shard(&name).lock().get(&name).and_then(|slot| slot.contender.as_ref()) {
            seat.wake();
        }
    }

    fn missed(&self) {
        self.wake_all();
    }

    fn reconnected(&self) {
        self.reconnected.notify_one();
        self.wake_all();
    }
}

impl Seat {
    fn wake(&self) {
        self.state.lock().woken = true;
        self.notify.notify_one();
    }
}

/// Why a place's nap ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nap {
    /// Something came: the turn, a lock that was handed over, a message.
    Woken,
    /// The time was up.
    Over,
}

/// What ends a nap before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// The turn, or the end of the client.
    Turn,
    /// A change of the subscription, a message, or a lock handed over.
    Change,
    /// The end of giving way, or a lock handed over.
    Way,
    /// A message, or a lock handed over.
    Message,
    /// A lock handed over; messages are let pass.
    Handed,
}

/// A place in the local queue of a name. Dropped, it leaves the queue, and passes the turn on if it had it.
#[derive(Debug)]
pub(crate) struct Place {
    registry: Arc<Registry>,
    name: Arc<LockName>,
    /// None while it was alone from the start: then it has the turn.
    seat: Option<Arc<Seat>>,
    takes: bool,
    counted: bool,
    left: bool,
}

impl Place {
    fn count(&mut self) {
        if !std::mem::replace(&mut self.counted, true) {
            self.registry.waiting.fetch_add(1, Ordering::Relaxed);
            super::metrics::waiters(1.0);
        }
    }

    /// True when it is this place's turn to speak to Redis.
    pub(crate) fn has_turn(&self) -> bool {
        self.seat.as_ref().is_none_or(|seat| seat.state.lock().turn)
    }

    /// Sits down to wait as the contender, where messages and holds can reach it.
    pub(crate) fn sit(&mut self) {
        if self.seat.is_some() {
            return;
        }
        let state = Mutex::new(SeatState { turn: true, ..SeatState::default() });
        let seat = Arc::new(Seat { takes: self.takes, state, notify: Notify::new() });
        self.seat = Some(Arc::clone(&seat));
        self.count();
        // The slot stands while this place has the turn.
        if let Some(slot) = self.registry.shard(&self.name).lock().get_mut(&self.name) {
            slot.contender = Some(seat);
        }
    }

    /// The lock that was handed over, if one was. Forgets earlier wake-ups: what comes next answers them.
    pub(crate) fn handed(&self) -> Option<Grant> {
        let mut state = self.seat.as_ref()?.state.lock();
        state.woken = false;
        state.handed.take()
    }

    /// True when messages reach this place.
    pub(crate) fn is_listening(&self) -> bool {
        let shard = self.registry.shard(&self.name).lock();
        shard.get(&self.name).is_some_and(|slot| slot.listening == Listening::Live)
    }

    /// Has messages reach this place. Done when they do, when a lock was handed over meanwhile, when it cannot be had,
    /// or when `limit` is over.
    pub(crate) async fn listen(&self, limit: Duration) {
        let settled = async {
            // Where somebody else is just changing the subscription, ending it perhaps, once more after that.
            for _ in 0..2 {
                if let Some(seat) = &self.seat {
                    seat.state.lock().changed = false;
                }
                let Some(job) = self.registry.subscribe(&self.name) else {
                    self.nap(limit, Until::Change).await;
                    if self.is_listening() {
                        return;
                    }
                    continue;
                };
                tokio::select! {
                    biased;
                    () = job => {}
                    _ = self.nap(limit, Until::Handed) => {}
                }
                return;
            }
        };
        // Over is as good as failed: the caller polls.
        let _ = tokio::time::timeout(limit, settled).await;
    }

    /// Lets other processes have the lock first, if this one had it many times in a row and others were told that it is
    /// free.
    pub(crate) async fn give_way(&self) {
        {
            let shard = self.registry.shard(&self.name).lock();
            let Some(seat) = &self.seat else { return };
            if !shard.get(&self.name).is_some_and(|slot| slot.yielding) {
                return;
            }
            seat.state.lock().changed = false;
        }
        self.nap(WAY, Until::Way).await;
        if let Some(slot) = self.registry.shard(&self.name).lock().get_mut(&self.name) {
            slot.yielding = false;
        }
    }

    /// For how long another task of this process holds the lock still, and may hand it over: until then Redis need not
    /// be asked.
    pub(crate) fn held_here(&self, now: Moment) -> Option<Duration> {
        if !self.takes || self.seat.is_none() {
            return None;
        }
        let shard = self.registry.shard(&self.name).lock();
        shard.get(&self.name)?.local.as_ref()?.hold.left(now)
    }

    /// Waits for `until`, for `limit` at the most.
    pub(crate) async fn nap(&self, limit: Duration, until: Until) -> Nap {
        let Some(seat) = &self.seat else { return Nap::Woken };
        let woken = async {
            loop {
                {
                    let mut state = seat.state.lock();
                    let come = match until {
                        // One wake-up, one look: a flag that stays would keep this loop's caller spinning.
                        Until::Turn => state.turn || std::mem::take(&mut state.woken),
                        Until::Change => state.changed || state.woken,
                        Until::Message => state.woken,
                        Until::Way => state.changed,
                        Until::Handed => false,
                    };
                    if come || state.handed.is_some() {
                        return;
                    }
                }
                seat.notify.notified().await;
            }
        };
        if limit == Duration::MAX {
            woken.await;
            return Nap::Woken;
        }
        match tokio::time::timeout(limit, woken).await {
            Ok(()) => Nap::Woken,
            Err(_) => Nap::Over,
        }
    }

    /// This place won the lock: passes the turn on, and notes the hold if it may be handed over later.
    pub(crate) fn won(mut self, hold: &Arc<Hold>, now: Moment, may_hand: bool) {
        let stray = self.leave(|slot| {
            if may_hand && slot.local.as_ref().is_none_or(|local| !Arc::ptr_eq(&local.hold, hold)) {
                slot.local = Some(Local { hold: Arc::clone(hold), passed: 0, since: now });
            }
        });
        drop(stray);
    }

    /// Leaves the queue. Whatever was handed over meanwhile is returned, to be dropped outside the lock.
    fn leave(&mut self, before: impl FnOnce(&mut Slot)) -> Option<Grant> {
        if std::mem::replace(&mut self.left, true) {
            return None;
        }
        if self.counted {
            self.registry.waiting.fetch_sub(1, Ordering::Relaxed);
            super::metrics::waiters(-1.0);
        }
        let mut shard = self.registry.shard(&self.name).lock();
        let slot = shard.get_mut(&self.name)?;
        before(slot);
        let (turn, handed) = match &self.seat {
            None => (true, None),
            Some(seat) => {
                let mut state = seat.state.lock();
                state.gone = true;
                (state.turn, state.handed.take())
            }
        };
        if turn {
            slot.pass();
        } else {
            slot.gone += 1;
            // Those who left are skipped when their turn comes; too many of them are swept out before.
            if slot.gone > 32 && slot.gone * 2 > slot.queue.len() {
                slot.queue.retain(|seat| !seat.state.lock().gone);
                slot.gone = 0;
            }
        }
        self.registry.settle(shard, &self.name);
        handed
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let stray = self.leave(|_| {});
        drop(stray);
    }
}
