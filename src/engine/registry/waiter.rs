//! A waiter in the local queue of a name.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;

use super::slot::{Local, Passed, Seat, SeatState, Slot, Ticket, Turn, Wakes, share};
use super::{Registry, Takes};
use crate::engine::hold::{Grant, Hold};
use crate::engine::metrics;
use crate::engine::sync::{Mutex, Notify};
use crate::names::LockName;
use crate::owner::Owner;
use crate::world::Moment;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeldAs {
    /// Exclusively; the lock is not handed over.
    Alone,
    /// Exclusively; its release may hand the lock over to the next waiter.
    MayHandOver,
    /// As a share, so that the queued waiters may acquire shares too.
    Shared,
    /// As permits. Their release may hand them over to the next waiter, if it wants as many.
    Counted,
}

/// Dropping the waiter removes it from the queue and passes on its turn.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(super) registry: Arc<Registry>,
    pub(super) name: Arc<LockName>,
    /// None for a name's first waiter until [`Waiter::sit`] creates its seat. A waiter without a seat has the turn.
    pub(super) seat: Option<Arc<Seat>>,
    /// The holds that it may be handed: [`Seat::takes`].
    pub(super) takes: Option<Takes>,
    /// Key in `Slot::by_owner`, if the owner may have several waiters.
    pub(super) ticket: Option<Ticket>,
    /// True once this waiter is included in [`Registry::waiting`].
    pub(super) counted: bool,
    /// True once this waiter has stopped waiting ([`Waiter::leave`]).
    pub(super) left: bool,
    pub(super) nonce: Bytes,
}

impl Waiter {
    pub(super) fn count(&mut self) {
        if !std::mem::replace(&mut self.counted, true) {
            self.registry.waiting.fetch_add(1, Ordering::Relaxed);
            metrics::waiters(1.0);
        }
    }

    pub(crate) const fn lock_name(&self) -> &Arc<LockName> {
        &self.name
    }

    /// True if this waiter is the contender.
    pub(crate) fn has_turn(&self) -> bool {
        self.seat.as_ref().is_none_or(|seat| seat.state.lock().turn)
    }

    /// True if this waiter may attempt without the turn, because another task of this process just acquired a share.
    pub(crate) fn joins(&self) -> bool {
        self.seat.as_ref().is_some_and(|seat| seat.state.lock().joins)
    }

    /// Records whether the last attempt was refused because waiters of the other half (of a read-write lock) come
    /// first. When the flag becomes true, all queued waiters are woken, so that a waiter that has already yielded to
    /// the other half for long enough makes its own attempt.
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

    pub(crate) fn is_held_back(&self) -> bool {
        self.registry.shard(&self.name).lock().get(&self.name).is_some_and(|slot| slot.held_back)
    }

    /// Puts this waiter back into the queue after it could not acquire a share. If no waiter has the turn, this waiter
    /// becomes the contender instead.
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

    /// Sets the nonce that a message must carry to pass the lock on to this waiter.
    pub(crate) fn expects(&mut self, nonce: &Bytes) {
        self.nonce = nonce.clone();
        if let Some(seat) = &self.seat {
            seat.state.lock().nonce = nonce.clone();
        }
    }

    /// Creates the contender's seat, so that messages and hand-offs can reach it.
    pub(crate) fn sit(&mut self) {
        if self.seat.is_some() {
            return;
        }
        let state = Mutex::new(SeatState { turn: true, nonce: self.nonce.clone(), ..SeatState::default() });
        let seat = Arc::new(Seat { takes: self.takes, state, notify: Notify::new() });
        self.seat = Some(Arc::clone(&seat));
        self.count();
        // The slot exists while this waiter has the turn.
        if let Some(slot) = self.registry.shard(&self.name).lock().get_mut(&self.name) {
            slot.contender = Some(seat);
        }
    }

    /// Registers this waiter's seat under its owner, and creates the seat if there is none. Then the waiter is woken
    /// when another acquire of this owner gets the lock. Without that wake-up, this waiter could stay in the queue
    /// behind waiters that wait for its owner's release. An acquire that got the lock before this call sends no
    /// wake-up, so after this call the caller checks whether the owner already holds the lock.
    pub(crate) fn sit_as(&mut self, owner: &Owner) {
        self.sit();
        let Some(seat) = self.seat.as_ref().filter(|_| self.ticket.is_none()) else { return };
        let mut shard = self.registry.shard(&self.name).lock();
        // A waiter that may attempt without the turn does not keep the slot in the table, so the slot may be missing
        // here.
        self.ticket = Some(shard.entry(Arc::clone(&self.name)).or_default().sit_as(owner.bytes(), seat));
    }

    /// Takes the lock that was handed over, if any. Clears the wake-up flag, because the caller makes an attempt next.
    /// After [`Self::stops_looking`] the flag stays set.
    pub(crate) fn handed(&self) -> Option<Grant> {
        let mut state = self.seat.as_ref()?.state.lock();
        state.woken &= state.leaves_wakeups;
        state.handed.take()
    }

    /// Takes the lock that the server passed on to this waiter, if any. Clears wake-ups as [`Self::handed`] does.
    pub(crate) fn passed(&self) -> Option<Passed> {
        let mut state = self.seat.as_ref()?.state.lock();
        state.woken &= state.leaves_wakeups;
        state.passed.take()
    }

    /// Called once this wait has ended: the wake-up flag stays set, so that [`Self::leave`] wakes the next waiter.
    pub(crate) fn stops_looking(&self) {
        if let Some(seat) = &self.seat {
            seat.state.lock().leaves_wakeups = true;
        }
    }

    /// True if a wake-up has arrived since the last attempt.
    pub(crate) fn is_woken(&self) -> bool {
        self.seat.as_ref().is_some_and(|seat| seat.state.lock().woken)
    }

    /// True if a message passed the lock on to this waiter, even if [`Self::passed`] has already taken the lock.
    pub(crate) fn has_heard(&self) -> bool {
        self.seat.as_ref().is_some_and(|seat| seat.state.lock().heard)
    }

    /// True if messages about this lock reach this process: the subscription is confirmed, and the server's connection
    /// for messages is up, or has only just broken.
    pub(crate) fn is_listening(&self) -> bool {
        let shard = self.registry.shard(&self.name).lock();
        shard.get(&self.name).is_some_and(Slot::is_live) && self.registry.topology.hears(&self.name)
    }

    /// Records that the contender's last attempt found another holder.
    pub(crate) fn note_busy(&self) {
        let now = self.registry.topology.now();
        if let Some(slot) = self.registry.shard(&self.name).lock().get_mut(&self.name) {
            slot.seen_busy = Some(now);
        }
    }

    /// Records that the contender's request for permits was refused, and until when that answer is valid. The next
    /// contender then need not ask the same. A message since the request makes the answer stale.
    pub(crate) fn note_busy_until(&self, until: Moment) {
        let Some((takes, seat)) = self.takes.zip(self.seat.as_ref()) else { return };
        let mut shard = self.registry.shard(&self.name).lock();
        if let Some(slot) = shard.get_mut(&self.name).filter(|_| !seat.state.lock().woken) {
            slot.busy_until = Some((takes, until));
        }
    }

    /// For how long the answer to an earlier contender's request for as many permits is still valid.
    pub(crate) fn busy_for(&self, now: Moment) -> Option<Duration> {
        if !self.is_listening() {
            return None;
        }
        let shard = self.registry.shard(&self.name).lock();
        let (_, until) = shard.get(&self.name)?.busy_until.filter(|(takes, _)| self.takes == Some(*takes))?;
        Some(until.since(now)).filter(|left| !left.is_zero())
    }

    /// Lets each message wake this waiter, even while it does not have the turn.
    pub(crate) fn hears_for_itself(&self) {
        if let Some(slot) = self.registry.shard(&self.name).lock().get_mut(&self.name) {
            slot.wakes_all = true;
        }
    }

    /// True if this process saw the lock held at or after `since`, or has a hold that it may hand over. False for a
    /// waiter without a seat.
    pub(crate) fn knows_busy(&self, since: Moment) -> bool {
        let knows = |slot: &Slot| slot.local.is_some() || slot.seen_busy.is_some_and(|seen| seen >= since);
        self.seat.is_some() && self.registry.shard(&self.name).lock().get(&self.name).is_some_and(knows)
    }

    /// Wakes the contender for an attempt, unless [`Self::knows_busy`] is true.
    pub(crate) fn request_look(&self, since: Moment) {
        if !self.knows_busy(since) {
            self.registry.wake(&self.name);
        }
    }

    /// Records that another process holds the lock. Used for locks whose waiters poll.
    pub(crate) fn note_other_holder(&self) {
        let now = self.registry.topology.now();
        if let Some(slot) = self.registry.shard(&self.name).lock().get_mut(&self.name) {
            slot.turns.note_other_holder(now);
        }
    }

    /// Records that a Java client (Redisson) holds the lock.
    pub(crate) fn note_java(&self) {
        let now = self.registry.topology.now();
        if let Some(slot) = self.registry.shard(&self.name).lock().get_mut(&self.name) {
            slot.turns.note_java(now);
        }
    }

    /// If this process has a hold that may be handed over to this waiter, returns the hold's remaining lease. Until the
    /// lease ends, the waiter needs no attempt of its own.
    pub(crate) fn held_here(&self, now: Moment) -> Option<Duration> {
        self.seat.as_ref().and(self.takes)?;
        let shard = self.registry.shard(&self.name).lock();
        let hold = &shard.get(&self.name)?.local.as_ref()?.hold;
        hold.left(now).filter(|_| self.takes == Some(hold.protocol.takes()))
    }

    /// This waiter acquired the lock. Passes the turn on, and records the hold if it may be handed over later.
    pub(crate) fn acquired(mut self, hold: &Arc<Hold>, now: Moment, held_as: HeldAs) {
        let registry = Arc::clone(&self.registry);
        let stray = self.leave(held_as == HeldAs::Shared, |slot| {
            slot.seen_busy = Some(now);
            if let Some(taken) = slot.turns.acquired(now) {
                registry.note_way(taken);
            }
            if held_as == HeldAs::MayHandOver && slot.local.as_ref().is_none_or(|local| !Arc::ptr_eq(&local.hold, hold))
            {
                slot.local = Some(Local { hold: Arc::clone(hold), turn: Turn::new(now) });
            }
            if held_as == HeldAs::Counted {
                slot.shares.entry(share(hold)).or_insert(Turn::new(now));
            }
        });
        drop(stray);
    }

    /// Ends the wait of all queued waiters that began before `asked`, when this waiter sent the query that succeeded.
    pub(crate) fn opened(mut self, asked: Moment) {
        let stray = self.leave(true, |slot| slot.opened = Some(asked));
        drop(stray);
    }

    /// True if another task of this process ended all waits by a query that it sent at or after `since`.
    pub(crate) fn is_open(&self, since: Moment) -> bool {
        let opened = self.seat.as_ref().and_then(|seat| seat.state.lock().opened);
        opened.is_some_and(|asked| asked >= since)
    }

    /// Removes this waiter from the queue. If the lock was handed to this waiter and not taken yet, returns its grant.
    /// The caller drops the grant after the shard's mutex is unlocked.
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
            // The owner's next waiter may re-enter if the owner holds the lock. It must make the attempt if this waiter
            // was woken and made none.
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
            // This waiter was woken and made no attempt since, so the next waiter must make one.
            if let Some(seat) = slot.contender.as_ref().filter(|_| woken) {
                seat.wake(&mut wakes);
            }
        } else if !joins {
            slot.departed += 1;
            // Abandoned seats are skipped when their turn comes. If too many accumulate, they are removed earlier.
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
