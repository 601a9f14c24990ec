//! The waiters of this process, by lock name. Each name has one local FIFO queue and one subscription, which all its
//! waiters share.
//!
//! Of all tasks of this process that want a name, only the *contender* sends commands: it has the *turn*. The other
//! tasks queue behind the contender, so a thousand waiters cost Redis as much as one.
//!
//! 1. [`Registry::enter`] gives the first task of a name the turn, and queues the others. A name has a [`Slot`] until
//!    the slot is vacant ([`Slot::is_vacant`]).
//! 2. Every queued waiter has a [`Seat`]: flags under a mutex, and a `Notify`. The first task gets its seat only when
//!    it has to wait, so acquiring a free lock costs one table entry. Events set flags. A notified waiter checks the
//!    flags, so an early, late or repeated notification does no harm.
//! 3. A waiter that stops waiting gives the turn to the next waiter. If it was woken and made no attempt since, it
//!    wakes the next waiter too.
//! 4. A lock that this process holds may be *handed over* to the contender without a command, a bounded number of times
//!    (cohort locking: Dice, Marathe and Shavit, PPoPP 2012). Then this process yields to other processes (`turns`).
//!    *Passed on*, in contrast, means that the server gave the lock to a waiter of a queue in Redis (`queue.rs`).
//!
//! # Why no wake-up is lost
//!
//! - The contender attempts the acquire, subscribes, and attempts again once the subscription is confirmed. A release
//!   before the confirmation is seen by one of the two attempts. A release after it sends a message to this process.
//! - Step 3 keeps the wake-ups of a waiter that stops waiting. A lock that was handed to such a waiter is released.
//! - One task at a time changes a subscription (`Listening::Changing`). Other tasks wait for the end of the change,
//!   then check the state again. Several names may share a channel and its subscription (`a` and `{a}`), so every
//!   change also takes [`Channels::change`].
//!
//! # Locks
//!
//! The slots are divided among [`SHARDS`] tables. A table's mutex is held for a few instructions and never across an
//! await. No waker is called while it is held (see [`Wakes`]). Lock order: `src/engine/mod.rs`.
//!
//! Checked by `models/src/registry.rs`, which runs this source under loom, and by `src/engine/tests/seats.rs` and
//! `registry.rs`.

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
use slot::{Seat, Slot, share};
pub(crate) use turns::Courtesy;
use turns::{ReleaseInfo, Taken};
pub(crate) use waiter::{HeldAs, Waiter};

const SHARDS: usize = 16;

/// After this many new names in a row for which no other process took a turn, this process yields at the first release
/// of a new name only every `TRIED`th time.
const LONELY: u32 = 8;
const TRIED: u32 = 16;

/// Flavour and number of permits. A hold is handed over only to a waiter with an equal pair.
pub(crate) type Takes = (&'static str, u32);

type Names = HashMap<Arc<LockName>, Slot, ReadyHash>;
type Shard<'a> = MutexGuard<'a, Names>;

/// The names that this process waits for, holds or listens to.
#[derive(Debug)]
pub(crate) struct Registry {
    shards: Box<[Mutex<Names>]>,
    channels: Channels,
    spares: spare::Spares,
    topology: Topology,
    reaper: Reaper,
    limit: u32,
    time: Duration,
    yield_after_release: bool,
    /// Counters for `LONELY` and `TRIED`.
    untaken: AtomicU32,
    releases: AtomicU32,
    linger: Duration,
    waiting: AtomicUsize,
    kick: Arc<Kick>,
    closing: watch::Receiver<bool>,
    /// True once held locks are no longer renewed. From then on, subscriptions do not linger.
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
            limit: options.local_handoff_limit,
            time: options.local_handoff_time,
            yield_after_release: options.yield_after_release,
            untaken: AtomicU32::new(0),
            releases: AtomicU32::new(0),
            linger: options.subscription_linger,
            waiting: AtomicUsize::new(0),
            kick,
            ended: closing.clone(),
            closing,
        }
    }

    /// Sets the end signal of a client whose guards may still be released while it closes.
    pub(crate) fn ending(self, ended: watch::Receiver<bool>) -> Self {
        Self { ended, ..self }
    }

    fn shard(&self, name: &LockName) -> &Mutex<Names> {
        &self.shards[shard(name, SHARDS)]
    }

    /// Adds a waiter to the local queue of a name. The first waiter gets the turn at once. `takes`: the holds
    /// that may be handed over to this waiter.
    pub(crate) fn enter(self: &Arc<Self>, name: &Arc<LockName>, takes: Option<Takes>) -> Waiter {
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

    /// Hands a hold without guards over to the contender. Conditions: the contender takes locks of this flavour, and
    /// this process may still hand over (`limit` and `time`). `open` creates the grant while the shard is locked.
    ///
    /// Returns true if the hold was handed over. Otherwise the registry forgets the hold, because the caller releases
    /// it.
    pub(crate) fn hand_over(&self, hold: &Arc<Hold>, now: Moment, open: impl FnOnce() -> Option<Grant>) -> bool {
        let (name, mut wakes) = (hold.name(), Wakes::default());
        let mut shard = self.shard(name).lock();
        let Some(slot) = shard.get_mut(name) else { return false };
        let time = slot.turns.turn(self.time);
        let yields = self.yield_after_release && hold.protocol.courtesy() != Courtesy::None;
        let turn = match &mut slot.local {
            Some(local) if Arc::ptr_eq(&local.hold, hold) => Some(&mut local.turn),
            _ => slot.shares.get_mut(&share(hold)),
        };
        let Some(turn) = turn else {
            if yields {
                slot.turns.release_begins(false, now);
            }
            return false;
        };
        if turn.handoffs < self.limit
            && now.since(turn.since) < time
            && let Some(seat) = slot.contender.as_ref().filter(|seat| seat.takes == Some(hold.protocol.takes()))
        {
            let mut state = seat.state.lock();
            if !state.departed
                && state.handed.is_none()
                && let Some(grant) = open()
            {
                turn.handoffs += 1;
                state.handed = Some(grant);
                drop(state);
                wakes.notify(seat);
                return true;
            }
        }
        if yields {
            slot.turns.release_begins(true, now);
        }
        slot.seen_busy = Some(now);
        slot.no_longer_holds(hold);
        if slot.is_vacant() {
            shard.remove(name);
            slim(&mut shard);
        }
        false
    }

    pub(crate) fn forget(&self, hold: &Arc<Hold>) {
        let (name, mut wakes) = (hold.name(), Wakes::default());
        let mut shard = self.shard(name).lock();
        let Some(slot) = shard.get_mut(name) else { return };
        slot.no_longer_holds(hold);
        slot.wake(&mut wakes);
        if slot.is_vacant() {
            shard.remove(name);
            slim(&mut shard);
        }
    }

    /// Handles a release by this process. `receivers`: number of clients that received the release's message, 0 if
    /// unknown. Wakes the contender, unless the message of the release will wake it.
    pub(crate) fn released(self: &Arc<Self>, name: &Arc<LockName>, receivers: u32, courtesy: Courtesy) {
        let courtesy = if self.yield_after_release { courtesy } else { Courtesy::None };
        let mut wakes = Wakes::default();
        let now = self.topology.now();
        let mut shard = self.shard(name).lock();
        if matches!(courtesy, Courtesy::ByMessage | Courtesy::ByWindow) && receivers > 0 {
            shard.entry(Arc::clone(name)).or_default();
        }
        let Some(slot) = shard.get_mut(name) else { return };
        let listens = slot.is_live();
        if slot.turns.released(ReleaseInfo { receivers, listens, wanted: slot.turn, courtesy }, self.is_lonely(), now) {
            slot.change(&mut wakes);
        }
        if !listens || receivers == 0 {
            slot.wake(&mut wakes);
        }
        self.settle(shard, name);
    }

    /// Records whether other processes took the lock while this process yielded.
    fn note_way(&self, taken: Taken) {
        if taken.by_others {
            self.untaken.store(0, Ordering::Relaxed);
        } else if taken.is_first {
            self.untaken.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// True if this process need not yield at the first release of a new name (see [`LONELY`]). Every `TRIED`th such
    /// release returns false, to notice a process that wants the lock.
    fn is_lonely(&self) -> bool {
        self.untaken.load(Ordering::Relaxed) >= LONELY
            && !self.releases.fetch_add(1, Ordering::Relaxed).is_multiple_of(TRIED)
    }

    /// Records that the server has passed the lock on to the waiter of an inbox (the waiter's own channel). The waiter
    /// is notified when the returned value is dropped, so that the caller can unlock its own mutexes first.
    pub(crate) fn passed_on(&self, inbox: &LockName, passed: Passed) -> Wakes {
        let mut wakes = Wakes::default();
        if let Some(seat) = self.shard(inbox).lock().get(inbox).and_then(|slot| slot.contender.as_ref()) {
            seat.state.lock().passed = Some(passed);
            seat.wake(&mut wakes);
        }
        wakes
    }

    /// Wakes the waiters of an owner that has acquired the lock. These waiters may re-enter the lock, whatever their
    /// place in the queue.
    pub(crate) fn wake_same_owner(&self, name: &LockName, owner: &Owner) {
        let mut wakes = Wakes::default();
        if let Some(slot) = self.shard(name).lock().get(name) {
            slot.wake_same_owner(&owner.bytes(), &mut wakes);
        }
    }

    /// Wakes the contender of a name, so that it makes an attempt.
    pub(crate) fn wake(&self, name: &LockName) {
        let mut wakes = Wakes::default();
        if let Some(slot) = self.shard(name).lock().get_mut(name) {
            slot.wake(&mut wakes);
        }
    }

    /// True if a name is subscribed and no task waits for it.
    fn is_spare(&self, name: &LockName) -> bool {
        let shard = self.shard(name).lock();
        shard.get(name).is_some_and(|slot| slot.is_live() && slot.is_idle())
    }

    pub(crate) fn wake_all(&self) {
        self.wake_where(|_| true);
    }

    fn wake_where(&self, is_meant: impl Fn(&LockName) -> bool) {
        for shard in &self.shards {
            let mut wakes = Wakes::default();
            for (_, slot) in shard.lock().iter_mut().filter(|(name, _)| is_meant(name)) {
                slot.wake(&mut wakes);
                for seat in &slot.queue {
                    seat.wake(&mut wakes);
                }
            }
        }
    }

    /// Number of acquires that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Number of seats in the queue of a name, including abandoned seats.
    #[cfg(test)]
    pub(crate) fn queued(&self, name: &LockName) -> usize {
        self.shard(name).lock().get(name).map_or(0, |slot| slot.queue.len())
    }

    pub(crate) fn names(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}
