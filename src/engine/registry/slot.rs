//! What is known of one name: whose turn it is, who queues, how far the subscription is; and the seats of those who wait.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::turns::Turns;
use crate::engine::hold::{Grant, Hold};
use crate::engine::sync::{Mutex, Notify};
use crate::world::Moment;

/// One name.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) turn: bool,
    pub(super) contender: Option<Arc<Seat>>,
    pub(super) queue: VecDeque<Arc<Seat>>,
    /// How many seats in the queue have no waiter any more.
    pub(super) departed: usize,
    /// Those who wait as an owner that others may wait as, the contender and those who ask without a turn included: by
    /// owner, in the order in which they came. They are woken when their owner comes in.
    pub(super) by_owner: BTreeMap<Ticket, Arc<Seat>>,
    pub(super) tickets: u64,
    pub(super) listening: Listening,
    /// True when the subscription was lost after the last request for it, so that it must be requested again.
    pub(super) is_lost: bool,
    /// True while a job waits to end the subscription.
    pub(super) retiring: bool,
    pub(super) idle_since: Option<Moment>,
    pub(super) local: Option<Local>,
    /// True when the last answer to the contender was that others come first.
    pub(super) held_back: bool,
    /// When somebody was last seen to have the lock.
    pub(super) seen_busy: Option<Moment>,
    /// Whether other processes are let go first.
    pub(super) turns: Turns,
    /// True while a job waits to forget whom to let go first.
    pub(super) forgetting: bool,
}

/// The key of a waiter among those who wait as an owner that was given: the text of the owner, and a number.
pub(super) type Ticket = (Bytes, u64);

/// How far the subscription of a name is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Listening {
    #[default]
    Off,
    /// Being asked for, or being ended; the contender is notified when that is done.
    Changing,
    /// Confirmed.
    Live,
}

/// A hold of this process that may be handed over.
#[derive(Debug)]
pub(super) struct Local {
    pub(super) hold: Arc<Hold>,
    /// How often it was handed over since.
    pub(super) handoffs: u32,
    pub(super) since: Moment,
}

/// One waiter's seat.
#[derive(Debug)]
pub(super) struct Seat {
    /// The flavour of locks that may be handed over to it, which another owner of this client took.
    pub(super) takes: Option<&'static str>,
    pub(super) state: Mutex<SeatState>,
    pub(super) notify: Notify,
}

/// What has come to the one who waits.
#[derive(Debug, Default)]
pub(super) struct SeatState {
    pub(super) turn: bool,
    /// Another task of this process has just got a share, and this waiter may get one beside it: it asks without a turn.
    pub(super) joins: bool,
    pub(super) woken: bool,
    /// True when wake-ups are left for the next one.
    pub(super) leaves_wakeups: bool,
    /// A change of the subscription is done.
    pub(super) changed: bool,
    /// True once its waiter has left.
    pub(super) departed: bool,
    pub(super) handed: Option<Grant>,
    /// The server passed the lock on to the one who waits here.
    pub(super) passed: Option<Passed>,
    /// True once a message has said so.
    pub(super) heard: bool,
    /// What such a message has to carry.
    pub(super) nonce: Bytes,
}

/// A lock that the server passed on to a waiter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passed {
    pub(crate) lease: Duration,
    /// The lease began after this. None: after the last word of the server that the waiter stands in the queue.
    pub(crate) since: Option<Moment>,
}

impl Slot {
    pub(super) fn is_vacant(&self) -> bool {
        let waited_for = self.turn || !self.queue.is_empty() || !self.by_owner.is_empty();
        !waited_for && self.local.is_none() && self.listening == Listening::Off && !self.turns.is_giving_way()
    }

    /// True when the subscription is in force and no loss of it is known.
    pub(super) fn is_live(&self) -> bool {
        self.listening == Listening::Live && !self.is_lost
    }

    pub(super) fn is_idle(&self) -> bool {
        !self.turn && self.queue.is_empty()
    }

    /// Notes one who waits as an owner that was given.
    pub(super) fn sit_as(&mut self, owner: Bytes, seat: &Arc<Seat>) -> Ticket {
        self.tickets += 1;
        let ticket = (owner, self.tickets);
        self.by_owner.insert(ticket.clone(), Arc::clone(seat));
        ticket
    }

    /// An owner has come in, or one who was woken leaves: wakes the first of those who wait as this owner. That one wakes
    /// the next when it leaves, so that all of them are woken however many they are, and each once.
    pub(super) fn wake_same_owner(&self, owner: &Bytes, wakes: &mut Wakes) {
        if self.by_owner.is_empty() {
            return;
        }
        let first = self.by_owner.range((owner.clone(), 0)..).next();
        if let Some((_, seat)) = first.filter(|((whose, _), _)| whose == owner) {
            seat.wake(wakes);
        }
    }

    /// Notifies the contender of a change that is no message.
    pub(super) fn change(&self, wakes: &mut Wakes) {
        if let Some(seat) = &self.contender {
            seat.state.lock().changed = true;
            wakes.notify(seat);
        }
    }

    /// Somebody came in where others may come in beside: all of the queue may ask, together.
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

    /// Gives the turn to the first in the queue who is still there.
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

/// Seats where something has come, notified when this is dropped. Made before a shard is locked, so dropped after that: a waker
/// is somebody else's code, and may come back to the registry.
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
