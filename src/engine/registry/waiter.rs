//! A waiter in the local queue of a name.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;

use super::Registry;
use super::slot::{Local, Passed, Seat, SeatState, Slot, Ticket, Wakes};
use crate::engine::hold::{Grant, Hold};
use crate::engine::metrics;
use crate::engine::sync::{Mutex, Notify};
use crate::names::LockName;
use crate::owner::Owner;
use crate::world::Moment;

/// How the lock is held that a waiter got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeldAs {
    /// The lock, for itself.
    Alone,
    /// The lock, which may be handed over to the next when it is given back.
    MayHandOver,
    /// A share: those behind it may come in beside it.
    Shared,
}

/// A waiter in the local queue of a name. Dropped, it leaves the queue, and passes the turn on if it had it.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(super) registry: Arc<Registry>,
    pub(super) name: Arc<LockName>,
    /// None while it was alone from the start: then it has the turn.
    pub(super) seat: Option<Arc<Seat>>,
    pub(super) takes: Option<&'static str>,
    /// Its number among those who wait as the same owner, where others may do so.
    pub(super) ticket: Option<Ticket>,
    pub(super) counted: bool,
    pub(super) left: bool,
    /// What a message has to carry that says that the lock was passed on to this waiter.
    pub(super) nonce: Bytes,
}

impl Waiter {
    pub(super) fn count(&mut self) {
        if !std::mem::replace(&mut self.counted, true) {
            self.registry.waiting.fetch_add(1, Ordering::Relaxed);
            metrics::waiters(1.0);
        }
    }

    /// The name that is waited for.
    pub(crate) const fn lock_name(&self) -> &Arc<LockName> {
        &self.name
    }

    /// True when it is this waiter's turn to speak to Redis.
    pub(crate) fn has_turn(&self) -> bool {
        self.seat.as_ref().is_none_or(|seat| seat.state.lock().turn)
    }

    /// True when this waiter may ask without a turn: the lock is shared, and another task of this process has just got a share.
    pub(crate) fn joins(&self) -> bool {
        self.seat.as_ref().is_some_and(|seat| seat.state.lock().joins)
    }

    /// Notes whether the last answer was that others come first. Those behind the contender may have waited longer than it
    /// has: they look for themselves then.
    pub(crate) fn note_held_back(&self, held_back: bool) {
        let mut wakes = Wakes::default();
        let mut shard = self.registry.shard(&self.name).lock();
        let Some(slot) = shard.get_mut(&self.name) else { return };
        if std::mem::replace(&mut slot.held_back, held_back) != held_back && held_back {
            for seat in &slot.queue {
                seat.wake(&mut wakes);
            }
        }
    }

    /// True when the last answer to the contender was that others come first.
    pub(crate) fn is_held_back(&self) -> bool {
        self.registry.shard(&self.name).lock().get(&self.name).is_some_and(|slot| slot.held_back)
    }

    /// Goes back to the queue after it could not come in beside another; with the turn if nobody has it.
    pub(crate) fn rejoin(&self) {
        let Some(seat) = &self.seat else { return };
        let mut shard = self.registry.shard(&self.name).lock();
        let slot = shard.entry(Arc::clone(&self.name)).or_default();
        slot.idle_since = None;
        let mut state = seat.state.lock();
        state.joins = false;
        if slot.turn {
            drop(state);
            slot.queue.push_back(Arc::clone(seat));
        } else {
            state.turn = true;
            drop(state);
            slot.turn = true;
            slot.contender = Some(Arc::clone(seat));
        }
    }

    pub(crate) fn name(&self) -> &Arc<LockName> {
        &self.name
    }

    /// Only a message that carries this nonce passes the lock on to this waiter.
    pub(crate) fn expects(&mut self, nonce: &Bytes) {
        self.nonce = nonce.clone();
        if let Some(seat) = &self.seat {
            seat.state.lock().nonce = nonce.clone();
        }
    }

    /// Sits down to wait as the contender, where messages and holds can reach it.
    pub(crate) fn sit(&mut self) {
        if self.seat.is_some() {
            return;
        }
        let state = Mutex::new(SeatState { turn: true, nonce: self.nonce.clone(), ..SeatState::default() });
        let seat = Arc::new(Seat { takes: self.takes, state, notify: Notify::new() });
        self.seat = Some(Arc::clone(&seat));
        self.count();
        // The slot stands while this waiter has the turn.
        if let Some(slot) = self.registry.shard(&self.name).lock().get_mut(&self.name) {
            slot.contender = Some(seat);
        }
    }

    /// Sits down as one who is woken when this owner comes in by another acquire: who holds the lock must not queue behind
    /// those who wait for it. What came before this is for the caller to find out.
    pub(crate) fn sit_as(&mut self, owner: &Owner) {
        self.sit();
        let Some(seat) = self.seat.as_ref().filter(|_| self.ticket.is_none()) else { return };
        let mut shard = self.registry.shard(&self.name).lock();
        // The slot may have become empty meanwhile: this waiter may have been allowed to ask without a turn.
        self.ticket = Some(shard.entry(Arc::clone(&self.name)).or_default().sit_as(owner.bytes(), seat));
    }

    /// The lock that was handed over, if one was. Forgets earlier wake-ups, for what comes next answers them; unless it
    /// has stopped looking: then they are for the next one.
    pub(crate) fn handed(&self) -> Option<Grant> {
        let mut state = self.seat.as_ref()?.state.lock();
        state.woken &= state.leaves_wakeups;
        state.handed.take()
    }

    /// The lock that the server passed on to this waiter, if it did. Forgets earlier wake-ups, as `handed` does.
    pub(crate) fn passed(&self) -> Option<Passed> {
        let mut state = self.seat.as_ref()?.state.lock();
        state.woken &= state.leaves_wakeups;
        state.passed.take()
    }

    /// Its wait is over: from here on it leaves wake-ups to the next waiter.
    pub(crate) fn stops_looking(&self) {
        if let Some(seat) = &self.seat {
            seat.state.lock().leaves_wakeups = true;
        }
    }

    /// True when something has come since the last look.
    pub(crate) fn is_woken(&self) -> bool {
        self.seat.as_ref().is_some_and(|seat| seat.state.lock().woken)
    }

    /// True when a message said that the lock was passed on to this waiter.
    pub(crate) fn has_heard(&self) -> bool {
        self.seat.as_ref().is_some_and(|seat| seat.state.lock().heard)
    }

    /// True when messages reach this waiter.
    pub(crate) fn is_listening(&self) -> bool {
        let shard = self.registry.shard(&self.name).lock();
        shard.get(&self.name).is_some_and(Slot::is_live) && self.registry.topology.hears(&self.name)
    }

    /// Notes that the contender's last attempt found another holder.
    pub(crate) fn note_busy(&self) {
        let now = self.registry.topology.now();
        if let Some(slot) = self.registry.shard(&self.name).lock().get_mut(&self.name) {
            slot.seen_busy = Some(now);
        }
    }

    /// True when this process holds the lock so that it may be handed over, or has seen a holder since `since`. False for a waiter
    /// without a seat: nobody was before it.
    pub(crate) fn knows_busy(&self, since: Moment) -> bool {
        let knows = |slot: &Slot| slot.local.is_some() || slot.seen_busy.is_some_and(|seen| seen >= since);
        self.seat.is_some() && self.registry.shard(&self.name).lock().get(&self.name).is_some_and(knows)
    }

    /// Makes the contender ask, unless this process has seen a holder since `since`.
    pub(crate) fn request_look(&self, since: Moment) {
        if !self.knows_busy(since) {
            self.registry.wake(&self.name);
        }
    }

    /// Notes that somebody else holds the lock.
    pub(crate) fn note_other_holder(&self) {
        let now = self.registry.topology.now();
        if let Some(slot) = self.registry.shard(&self.name).lock().get_mut(&self.name) {
            slot.turns.note_other_holder(now);
        }
    }

    /// For how long another task of this process holds the lock still, and may hand it over: until then Redis need not
    /// be asked.
    pub(crate) fn held_here(&self, now: Moment) -> Option<Duration> {
        self.seat.as_ref().and(self.takes)?;
        let shard = self.registry.shard(&self.name).lock();
        let hold = &shard.get(&self.name)?.local.as_ref()?.hold;
        hold.left(now).filter(|_| self.takes == Some(hold.protocol.flavour()))
    }

    /// This waiter got the lock: passes the turn on, and notes the hold if it may be handed over later.
    pub(crate) fn acquired(mut self, hold: &Arc<Hold>, now: Moment, held_as: HeldAs) {
        let registry = Arc::clone(&self.registry);
        let stray = self.leave(held_as == HeldAs::Shared, |slot| {
            slot.seen_busy = Some(now);
            if let Some(taken) = slot.turns.acquired(now) {
                registry.note_way(taken);
            }
            if held_as == HeldAs::MayHandOver && slot.local.as_ref().is_none_or(|local| !Arc::ptr_eq(&local.hold, hold))
            {
                slot.local = Some(Local { hold: Arc::clone(hold), handoffs: 0, since: now });
            }
        });
        drop(stray);
    }

    /// Leaves the queue. Whatever was handed over meanwhile is returned, to be dropped outside the lock.
    fn leave(&mut self, shared: bool, before: impl FnOnce(&mut Slot)) -> Option<Grant> {
        if std::mem::replace(&mut self.left, true) {
            return None;
        }
        if self.counted {
            self.registry.waiting.fetch_sub(1, Ordering::Relaxed);
            metrics::waiters(-1.0);
        }
        let mut wakes = Wakes::default();
        let mut shard = self.registry.shard(&self.name).lock();
        let slot = shard.get_mut(&self.name)?;
        before(slot);
        if let Some(ticket) = self.ticket.take() {
            slot.by_owner.remove(&ticket);
            // Its owner holds the lock, and so the next of this owner may come in; or it was woken, and leaves without asking.
            slot.wake_same_owner(&ticket.0, &mut wakes);
        }
        let (turn, joins, woken, handed) = match &self.seat {
            None => (true, false, false, None),
            Some(seat) => {
                let mut state = seat.state.lock();
                state.departed = true;
                (state.turn, state.joins, state.woken, state.handed.take())
            }
        };
        if turn && shared {
            slot.let_in(&mut wakes);
        } else if turn {
            slot.pass_turn(&mut wakes);
            // It was woken and has not asked since: the next one has to.
            if let Some(seat) = slot.contender.as_ref().filter(|_| woken) {
                seat.wake(&mut wakes);
            }
        } else if !joins {
            slot.departed += 1;
            // Waiters that have left are skipped when their turn comes; too many of them are swept out before.
            if slot.departed > 32 && slot.departed * 2 > slot.queue.len() {
                slot.queue.retain(|seat| !seat.state.lock().departed);
                slot.departed = 0;
            }
        }
        self.registry.settle(shard, &self.name);
        handed
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let stray = self.leave(false, |_| {});
        drop(stray);
    }
}
