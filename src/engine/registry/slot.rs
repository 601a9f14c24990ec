//! The state of one name (turn, queue, subscription), and the seats of its waiters. Terms: `registry/mod.rs`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::Takes;
use super::turns::Turns;
use crate::engine::hold::{Grant, Hold};
use crate::engine::sync::{Mutex, Notify};
use crate::world::Moment;

#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) turn: bool,
    pub(super) contender: Option<Arc<Seat>>,
    pub(super) queue: VecDeque<Arc<Seat>>,
    /// Number of seats in the queue whose task no longer waits.
    pub(super) departed: usize,
    /// Waiters whose owner may have several waiters, by owner and arrival. The contender and waiters that attempt
    /// without the turn are included. All are woken when their owner acquires the lock.
    pub(super) by_owner: BTreeMap<Ticket, Arc<Seat>>,
    pub(super) tickets: u64,
    pub(super) listening: Listening,
    /// True if the subscription was lost since the last subscribe. The contender then subscribes again.
    pub(super) is_lost: bool,
    /// True while `Registry::retire` waits to end the subscription.
    pub(super) retiring: bool,
    pub(super) idle_since: Option<Moment>,
    pub(super) local: Option<Local>,
    /// The holds of permits that may be handed over, by [`share`].
    pub(super) shares: BTreeMap<usize, Turn>,
    /// True if the contender's last attempt was refused because waiters of the other half (of a read-write lock) come
    /// first.
    pub(super) held_back: bool,
    /// When the query that ends the wait of all waiters was sent ([`Waiter::opened`](super::Waiter::opened)).
    pub(super) opened: Option<Moment>,
    /// True if each message wakes the whole queue, not only the contender.
    pub(super) wakes_all: bool,
    /// When this process last saw the lock held.
    pub(super) seen_busy: Option<Moment>,
    /// Until when the last answer about permits is valid for requests of this kind. Cleared by each wake-up, and when
    /// there is no contender.
    pub(super) busy_until: Option<(Takes, Moment)>,
    pub(super) turns: Turns,
    /// True while `Registry::forget_turns` waits to end the way (a pause, see `turns.rs`).
    pub(super) forgetting: bool,
}

/// Key in `by_owner`: the owner's text and a number.
pub(super) type Ticket = (Bytes, u64);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Listening {
    #[default]
    Off,
    /// A subscribe or unsubscribe is in flight. The contender is notified when it ends.
    Changing,
    Live,
}

/// An exclusive hold of this process that may be handed over.
#[derive(Debug)]
pub(super) struct Local {
    pub(super) hold: Arc<Hold>,
    pub(super) turn: Turn,
}

/// Number of hand-overs of a hold inside this process, and the time since which this process has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) handoffs: u32,
    pub(super) since: Moment,
}

impl Turn {
    pub(super) const fn new(since: Moment) -> Self {
        Self { handoffs: 0, since }
    }
}

/// Key in [`Slot::shares`]. A hold leaves the map before its memory is freed.
pub(super) fn share(hold: &Arc<Hold>) -> usize {
    Arc::as_ptr(hold) as usize
}

#[derive(Debug)]
pub(super) struct Seat {
    /// The holds that may be handed over to this waiter, although another owner acquired them. None: no hand-over.
    pub(super) takes: Option<Takes>,
    pub(super) state: Mutex<SeatState>,
    pub(super) notify: Notify,
}

#[derive(Debug, Default)]
pub(super) struct SeatState {
    pub(super) turn: bool,
    /// True if another task of this process just acquired a share (a hold that other owners may have too). This waiter
    /// may attempt without the turn until it rejoins the queue.
    pub(super) joins: bool,
    /// Set with `joins`: when the query that ended the wait was sent.
    pub(super) opened: Option<Moment>,
    /// Set by a message, a release in this process, the end of a hold, a reconnect, or an acquire by the same owner.
    /// The waiter clears the flag before its attempt, so that a wake-up during the attempt is kept.
    pub(super) woken: bool,
    /// True once the wait has ended. Later wake-ups are for the next waiter, so this waiter does not clear `woken`.
    pub(super) leaves_wakeups: bool,
    /// True after a change of the subscription, or the end of a way. Set and cleared under the shard's lock.
    pub(super) changed: bool,
    /// True once the task no longer waits. The queue skips its seat.
    pub(super) departed: bool,
    /// Set by a task that hands the lock over. Taken by the waiter or by its `Drop`.
    pub(super) handed: Option<Grant>,
    /// Set when a message or a refresh reports that the server passed the lock on to this waiter. If the waiter does
    /// not take the lock, the undo of its queue entry releases the lock.
    pub(super) passed: Option<Passed>,
    /// True if a message set `passed`.
    pub(super) heard: bool,
    /// The nonce that a message must carry to set `passed`.
    pub(super) nonce: Bytes,
}

/// A lock that the server passed on to a waiter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passed {
    pub(crate) lease: Duration,
    /// The lease began after this moment. None: the lease began after the queue entry was last confirmed.
    pub(crate) since: Option<Moment>,
}

impl Slot {
    pub(super) fn is_vacant(&self) -> bool {
        let waited_for = self.turn || !self.queue.is_empty() || !self.by_owner.is_empty();
        let holds = self.local.is_some() || !self.shares.is_empty();
        !waited_for && !holds && self.listening == Listening::Off && !self.turns.is_giving_way()
    }

    /// Forgets a hold that may not be handed over any more.
    pub(super) fn no_longer_holds(&mut self, hold: &Arc<Hold>) {
        if self.local.as_ref().is_some_and(|local| Arc::ptr_eq(&local.hold, hold)) {
            self.local = None;
        }
        self.shares.remove(&share(hold));
    }

    /// True if the subscription is confirmed, and no loss of it is known.
    pub(super) fn is_live(&self) -> bool {
        self.listening == Listening::Live && !self.is_lost
    }

    pub(super) fn is_idle(&self) -> bool {
        !self.turn && self.queue.is_empty()
    }

    pub(super) fn sit_as(&mut self, owner: Bytes, seat: &Arc<Seat>) -> Ticket {
        self.tickets += 1;
        let ticket = (owner, self.tickets);
        self.by_owner.insert(ticket.clone(), Arc::clone(seat));
        ticket
    }

    /// Wakes the first waiter of this owner, after the owner acquired the lock. Each waiter of the owner that stops
    /// waiting wakes the owner's next waiter, so all are woken one by one.
    pub(super) fn wake_same_owner(&self, owner: &Bytes, wakes: &mut Wakes) {
        if self.by_owner.is_empty() {
            return;
        }
        let first = self.by_owner.range((owner.clone(), 0)..).next();
        if let Some((_, seat)) = first.filter(|((whose, _), _)| whose == owner) {
            seat.wake(wakes);
        }
    }

    /// Wakes the contender for an attempt.
    pub(super) fn wake(&mut self, wakes: &mut Wakes) {
        self.busy_until = None;
        if let Some(seat) = &self.contender {
            seat.wake(wakes);
        }
    }

    /// Notifies the contender that the subscription has changed or a way has ended.
    pub(super) fn change(&self, wakes: &mut Wakes) {
        if let Some(seat) = &self.contender {
            seat.state.lock().changed = true;
            wakes.notify(seat);
        }
    }

    /// Lets all waiters in the queue attempt at once, because a task of this process acquired a share.
    pub(super) fn let_in(&mut self, wakes: &mut Wakes) {
        self.contender = None;
        self.turn = false;
        self.busy_until = None;
        self.departed = 0;
        self.held_back = false;
        let opened = self.opened.take();
        for seat in self.queue.drain(..) {
            let mut state = seat.state.lock();
            (state.joins, state.opened) = (true, opened);
            drop(state);
            wakes.notify(&seat);
        }
    }

    /// Gives the turn to the first task in the queue that still waits.
    pub(super) fn pass_turn(&mut self, wakes: &mut Wakes) {
        self.contender = None;
        self.turn = false;
        while let Some(seat) = self.queue.pop_front() {
            let mut state = seat.state.lock();
            if state.departed {
                self.departed = self.departed.saturating_sub(1);
                continue;
            }
            state.turn = true;
            drop(state);
            wakes.notify(&seat);
            self.turn = true;
            self.contender = Some(seat);
            return;
        }
        self.busy_until = None;
    }
}

impl Seat {
    pub(super) fn wake(self: &Arc<Self>, wakes: &mut Wakes) {
        self.state.lock().woken = true;
        wakes.notify(self);
    }
}

/// Seats that are notified when this value is dropped. Callers create the value before they lock a shard, so it is
/// dropped after the unlock: a waker is the executor's code, and may call the registry.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct Wakes {
    first: Option<Arc<Seat>>,
    more: Vec<Arc<Seat>>,
}

impl Wakes {
    pub(super) fn notify(&mut self, seat: &Arc<Seat>) {
        let seat = Arc::clone(seat);
        match &self.first {
            None => self.first = Some(seat),
            Some(_) => self.more.push(seat),
        }
    }
}

impl Drop for Wakes {
    fn drop(&mut self) {
        for seat in self.first.iter().chain(&self.more) {
            seat.notify.notify_one();
        }
    }
}
