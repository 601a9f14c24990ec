//! The state of one name: its turn, its queue, its subscription. And the seats of its waiters.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::turns::Turns;
use crate::engine::hold::{Grant, Hold};
use crate::engine::sync::{Mutex, Notify};
use crate::world::Moment;

#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) turn: bool,
    pub(super) contender: Option<Arc<Seat>>,
    pub(super) queue: VecDeque<Arc<Seat>>,
    /// Number of seats in the queue whose waiter has left.
    pub(super) departed: usize,
    /// The waiters of shared owners, sorted by owner and arrival. Includes the contender and waiters that ask without
    /// a turn. They are woken when their owner acquires the lock.
    pub(super) by_owner: BTreeMap<Ticket, Arc<Seat>>,
    pub(super) tickets: u64,
    pub(super) listening: Listening,
    /// True if the subscription was lost after the last subscribe, so that it must be repeated.
    pub(super) is_lost: bool,
    /// True while a job waits to end the subscription.
    pub(super) retiring: bool,
    pub(super) idle_since: Option<Moment>,
    pub(super) local: Option<Local>,
    /// True if the last answer to the contender was that other waiters come first.
    pub(super) held_back: bool,
    /// When this process last knew of a holder.
    pub(super) seen_busy: Option<Moment>,
    pub(super) turns: Turns,
    /// True while a job waits to forget `turns`.
    pub(super) forgetting: bool,
}

/// Key of a waiter of a shared owner: the owner's text and a number.
pub(super) type Ticket = (Bytes, u64);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Listening {
    #[default]
    Off,
    /// A subscribe or unsubscribe is in flight. The contender is notified when it is done.
    Changing,
    Live,
}

/// A hold of this process that may be handed over.
#[derive(Debug)]
pub(super) struct Local {
    pub(super) hold: Arc<Hold>,
    pub(super) handoffs: u32,
    pub(super) since: Moment,
}

#[derive(Debug)]
pub(super) struct Seat {
    /// The flavour of a lock that may be handed over to this waiter, although another owner acquired it.
    pub(super) takes: Option<&'static str>,
    pub(super) state: Mutex<SeatState>,
    pub(super) notify: Notify,
}

#[derive(Debug, Default)]
pub(super) struct SeatState {
    pub(super) turn: bool,
    /// True if another task of this process just acquired a share. This waiter may ask without a turn until it rejoins
    /// the queue.
    pub(super) joins: bool,
    /// Set by a message, a release here, the end of a hold, a reconnect, or an acquire of the same owner. Cleared by the
    /// waiter before it asks, so that news that arrives meanwhile is kept.
    pub(super) woken: bool,
    /// True once the wait is over. Later wake-ups are for the next waiter, so this one does not clear `woken`.
    pub(super) leaves_wakeups: bool,
    /// True after a change of the subscription, or the end of yielding. Set and cleared under the shard's lock.
    pub(super) changed: bool,
    /// True once the waiter has left. Its seat is then skipped.
    pub(super) departed: bool,
    /// Set by a task that hands the lock over. Taken by the waiter or by its `Drop`.
    pub(super) handed: Option<Grant>,
    /// Set when the server passed the lock on, by a message or an answer. If the waiter does not take it, the undo of
    /// its queue entry releases it.
    pub(super) passed: Option<Passed>,
    /// True if a message said so.
    pub(super) heard: bool,
    /// The nonce that such a message must carry.
    pub(super) nonce: Bytes,
}

/// A lock that the server passed on to a waiter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passed {
    pub(crate) lease: Duration,
    /// The lease began after this moment. None: after the last confirmation of the queue entry.
    pub(crate) since: Option<Moment>,
}

impl Slot {
    pub(super) fn is_vacant(&self) -> bool {
        let waited_for = self.turn || !self.queue.is_empty() || !self.by_owner.is_empty();
        !waited_for && self.local.is_none() && self.listening == Listening::Off && !self.turns.is_giving_way()
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

    /// Wakes the first waiter of this owner, because the owner acquired the lock or a woken waiter left. Each waiter
    /// wakes the next one when it leaves, so all are woken, once each.
    pub(super) fn wake_same_owner(&self, owner: &Bytes, wakes: &mut Wakes) {
        if self.by_owner.is_empty() {
            return;
        }
        let first = self.by_owner.range((owner.clone(), 0)..).next();
        if let Some((_, seat)) = first.filter(|((whose, _), _)| whose == owner) {
            seat.wake(wakes);
        }
    }

    /// Notifies the contender of a change that is not a message.
    pub(super) fn change(&self, wakes: &mut Wakes) {
        if let Some(seat) = &self.contender {
            seat.state.lock().changed = true;
            wakes.notify(seat);
        }
    }

    /// Lets the whole queue ask at once, because a task of this process acquired a share.
    pub(super) fn let_in(&mut self, wakes: &mut Wakes) {
        self.contender = None;
        self.turn = false;
        self.departed = 0;
        self.held_back = false;
        for seat in self.queue.drain(..) {
            seat.state.lock().joins = true;
            wakes.notify(&seat);
        }
    }

    /// Gives the turn to the first waiter in the queue that has not left.
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
    }
}

impl Seat {
    pub(super) fn wake(self: &Arc<Self>, wakes: &mut Wakes) {
        self.state.lock().woken = true;
        wakes.notify(self);
    }
}

/// Seats to notify when this is dropped. Created before a shard is locked, so it is dropped after the lock. A waker is
/// the executor's code, and may call the registry.
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
