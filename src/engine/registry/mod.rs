//! Who of this process waits for a name (Redisson's pub/sub semaphores): one local FIFO and one shared subscription a name, wake-ups, and the
//! hand-off of a held lock to the next local waiter.
//!
//! # How it works
//!
//! Of all tasks of this process that want a name, one has its *turn*: it alone speaks to Redis (the *contender*). The others
//! queue behind it, so that a process with a thousand waiters costs Redis what one costs.
//!
//! A name has a [`Slot`] for as long as somebody has its turn, waits, holds it so that it may be handed over, or is subscribed.
//! Slots lie in [`SHARDS`] tables with a lock each, taken for a few instructions and never across an await. A waiter that comes
//! first and finds nobody has no seat: a lock that is free costs one entry in a table. Everybody else has a [`Seat`], where
//! what comes for it is put: flags under a lock, and a `Notify` that says that there is something. Only flags count, a
//! notification is no more than a reason to look at them; so one that comes early, late or twice does no harm.
//!
//! | flag of a seat | set by | read by |
//! |---|---|---|
//! | `turn`, `joins` | whoever leaves before it | its waiter, until it leaves or rejoins the queue |
//! | `woken` | a message, a release here, a hold that ended, a reconnect, an owner that came in | forgotten when the waiter looks, before it asks: news that comes while it asks is not lost |
//! | `leaves_wakeups` | a waiter whose wait is over: what wakes it from now on is for the next | `handed`, `passed` |
//! | `changed` | a subscription that was confirmed or ended; the end of giving way | `Waiter::listen` and `give_way`, which forget it under the slot's lock, where it is set |
//! | `handed` | a task that hands the lock over | taken by the waiter, or by its `Drop` |
//! | `passed`, `heard` | the server, which passed the lock on, by a message with the seat's `nonce` or an answer | taken by the waiter; the undo of its queue entry sees to what it left |
//! | `departed` | its waiter's `Drop` | whoever looks for the next |
//!
//! No waker is called under a shard's lock ([`Wakes`]): it is somebody else's code.
//!
//! What keeps a wake-up from being lost:
//! - The contender subscribes, and asks once more when that is confirmed: a release before the first question is seen by it, one
//!   between is seen by the second, one after it sends a message.
//! - A waiter that leaves passes on what it was woken for and has not looked at, with the turn. What it was handed is given back.
//! - A subscription changes by one task at a time (`Listening::Changing`); whoever needs it meanwhile waits for the end of the
//!   change and begins anew. Several names may share a channel (`a` and `{a}`), and with it a subscription: whoever changes that
//!   has the right to ([`Channels::change`]), so that none ends it while another begins to listen.
//!
//! A lock that this process holds may be handed to the contender without a word to Redis, a bounded number of times (cohort
//! locking: Dice, Marathe and Shavit, PPoPP 2012); then other processes come first (`turns`).
//!
//! Checked by `models/src/registry.rs`, which runs this source under loom, and by `src/engine/tests/seats.rs` and
//! `registry.rs` there. State machines and lock order: `docs/architecture.md`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

use super::channels::Channels;
use super::hold::{Grant, Hold};
use super::renewal::Kick;
use super::sync::{Mutex, MutexGuard, Notify};
use crate::config::Options;
use crate::hash::ReadyHash;
use crate::names::{LockName, shard};
use crate::owner::Owner;
use crate::runtime::reaper::Reaper;
use crate::slim::slim;
use crate::topology::Topology;
use crate::world::Moment;

mod park;
mod slot;
mod spare;
mod subscription;
mod turns;
mod waiter;

pub(crate) use park::{Parked, Until};
pub(crate) use slot::{Passed, Wakes};
use slot::{Seat, Slot};
pub(crate) use turns::Courtesy;
use turns::{ReleaseInfo, Taken};
pub(crate) use waiter::{HeldAs, Waiter};

const SHARDS: usize = 16;

/// After the first ways of so many names in a row were given for nobody, only one in so many is given at once.
const LONELY: u32 = 8;
const TRIED: u32 = 16;

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
    take_turns: bool,
    /// How many first ways in a row nobody took, and how many releases were asked about since.
    untaken: AtomicU32,
    releases: AtomicU32,
    linger: Duration,
    waiting: AtomicUsize,
    kick: Arc<Kick>,
    closing: watch::Receiver<bool>,
    /// True once held locks are no longer kept: subscriptions do not linger after that.
    ended: watch::Receiver<bool>,
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
            take_turns: options.take_turns,
            untaken: AtomicU32::new(0),
            releases: AtomicU32::new(0),
            linger: options.subscription_linger,
            waiting: AtomicUsize::new(0),
            kick,
            ended: closing.clone(),
            closing,
        }
    }

    /// Sets the end signal of a client that gives its guards time to be released while it closes.
    pub(crate) fn ending(self, ended: watch::Receiver<bool>) -> Self {
        Self { ended, ..self }
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
        let (name, mut wakes) = (hold.name(), Wakes::default());
        let mut shard = self.shard(name).lock();
        let Some(slot) = shard.get_mut(name) else { return false };
        let time = slot.turns.turn(self.time);
        let Some(local) = slot.local.as_mut().filter(|local| Arc::ptr_eq(&local.hold, hold)) else {
            slot.turns.release_begins(false, now);
            return false;
        };
        if local.handoffs < self.limit
            && now.since(local.since) < time
            && let Some(seat) = slot.contender.as_ref().filter(|seat| seat.takes == Some(hold.protocol.flavour()))
        {
            let mut state = seat.state.lock();
            if !state.departed
                && state.handed.is_none()
                && let Some(grant) = open()
            {
                local.handoffs += 1;
                state.handed = Some(grant);
                drop(state);
                wakes.notify(seat);
                return true;
            }
        }
        slot.turns.release_begins(true, now);
        // Held up to now.
        slot.seen_busy = Some(now);
        slot.local = None;
        if slot.is_vacant() {
            shard.remove(name);
            slim(&mut shard);
        }
        false
    }

    /// Forgets a hold that has ended.
    pub(crate) fn forget(&self, hold: &Arc<Hold>) {
        let (name, mut wakes) = (hold.name(), Wakes::default());
        let mut shard = self.shard(name).lock();
        let Some(slot) = shard.get_mut(name) else { return };
        if slot.local.as_ref().is_some_and(|local| Arc::ptr_eq(&local.hold, hold)) {
            slot.local = None;
        }
        if let Some(seat) = &slot.contender {
            seat.wake(&mut wakes);
        }
        if slot.is_vacant() {
            shard.remove(name);
            slim(&mut shard);
        }
    }

    /// The lock of a name was released here, and so many clients received the message; 0: nobody knows how many. Wakes the
    /// contender, unless a message will; those of other processes are let go first, if that is how those who wait learn of it.
    pub(crate) fn released(self: &Arc<Self>, name: &Arc<LockName>, receivers: u32, courtesy: Courtesy) {
        let courtesy = if self.take_turns { courtesy } else { Courtesy::None };
        let mut wakes = Wakes::default();
        let now = self.topology.now();
        let mut shard = self.shard(name).lock();
        if courtesy == Courtesy::ByMessage && receivers > 0 {
            shard.entry(Arc::clone(name)).or_default();
        }
        let Some(slot) = shard.get_mut(name) else { return };
        let listens = slot.is_live();
        if slot.turns.released(ReleaseInfo { receivers, listens, wanted: slot.turn, courtesy }, self.is_lonely(), now) {
            slot.change(&mut wakes);
        }
        if (!listens || receivers == 0)
            && let Some(seat) = &slot.contender
        {
            seat.wake(&mut wakes);
        }
        self.settle(shard, name);
    }

    /// Notes whether receivers of a message took the way that they were given.
    fn note_way(&self, taken: Taken) {
        if taken.by_others {
            self.untaken.store(0, Ordering::Relaxed);
        } else if taken.is_first {
            self.untaken.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// True when the first ways of so many names were given for nobody: somebody listens to all of them and wants none. Not every
    /// time, so that the next one who does is noticed.
    fn is_lonely(&self) -> bool {
        self.untaken.load(Ordering::Relaxed) >= LONELY
            && !self.releases.fetch_add(1, Ordering::Relaxed).is_multiple_of(TRIED)
    }

    /// The server has passed the lock on to whoever waits at an inbox. The waiter is notified when what this returns is dropped,
    /// which is for whoever has a lock to do after it is given back.
    pub(crate) fn passed_on(&self, inbox: &LockName, passed: Passed) -> Wakes {
        let mut wakes = Wakes::default();
        if let Some(seat) = self.shard(inbox).lock().get(inbox).and_then(|slot| slot.contender.as_ref()) {
            seat.state.lock().passed = Some(passed);
            seat.wake(&mut wakes);
        }
        wakes
    }

    /// An owner has come in: others who wait as the same owner may come in beside it, whoever is before them.
    pub(crate) fn wake_same_owner(&self, name: &LockName, owner: &Owner) {
        let mut wakes = Wakes::default();
        if let Some(slot) = self.shard(name).lock().get(name) {
            slot.wake_same_owner(&owner.bytes(), &mut wakes);
        }
    }

    /// Has the contender of a name look for itself.
    pub(crate) fn wake(&self, name: &LockName) {
        self.seat(name, Seat::wake);
    }

    fn seat(&self, name: &LockName, work: impl FnOnce(&Arc<Seat>, &mut Wakes)) {
        let mut wakes = Wakes::default();
        if let Some(seat) = self.shard(name).lock().get(name).and_then(|slot| slot.contender.as_ref()) {
            work(seat, &mut wakes);
        }
    }

    /// True when messages for a name come in, and nobody waits for them.
    fn is_spare(&self, name: &LockName) -> bool {
        let shard = self.shard(name).lock();
        shard.get(name).is_some_and(|slot| slot.is_live() && slot.is_idle())
    }

    /// Wakes everybody who waits.
    pub(crate) fn wake_all(&self) {
        self.wake_where(|_| true);
    }

    fn wake_where(&self, is_meant: impl Fn(&LockName) -> bool) {
        for shard in &self.shards {
            let mut wakes = Wakes::default();
            for (_, slot) in shard.lock().iter().filter(|(name, _)| is_meant(name)) {
                if let Some(seat) = &slot.contender {
                    seat.wake(&mut wakes);
                }
                for seat in &slot.queue {
                    seat.wake(&mut wakes);
                }
            }
        }
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
