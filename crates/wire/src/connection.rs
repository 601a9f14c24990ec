//! One connection for commands, as its callers see it.
//!
//! While few commands are in flight, callers write to the socket themselves. The connection's task (`driver.rs`) reads
//! the replies, and writes the bytes that pile up.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::dial::Trouble;
use super::exchange::Exchange;
use super::link::Writer;
use super::pipeline::{Look, Outcome, Pipeline, Ticket};
use super::resp::Answer;
use super::silence::Silence;
use crate::{Call, Fault, FaultKind};

/// With more commands in flight than this, callers do not write to the socket. The connection's task then writes
/// commands in batches.
const FEW: usize = 4;

/// One connection for commands. When its socket breaks, it continues on a new socket.
#[derive(Debug)]
pub(super) struct Connection {
    state: Mutex<State>,
    /// Waker of the connection's task. `attention` is true if there is work for that task.
    pub(super) driver: AtomicWaker,
    pub(super) attention: AtomicBool,
    timeout: Duration,
}

#[derive(Debug)]
pub(super) struct State {
    link: Link,
    pipeline: Pipeline,
    silence: Silence,
    /// Reason why the connection is down, if one is known.
    trouble: Option<Trouble>,
    /// Error of a failed write, until the connection's task handles it.
    failed: Option<io::Error>,
    /// True while the socket has no room.
    is_full: bool,
}

#[derive(Debug)]
enum Link {
    Down,
    Up(Writer),
    /// Ended for good, with this fault for every command.
    Ended(Fault),
}

impl Connection {
    pub(super) fn new(timeout: Duration) -> Arc<Self> {
        let state = State {
            link: Link::Down,
            pipeline: Pipeline::default(),
            silence: Silence::heard(Instant::now()),
            trouble: None,
            failed: None,
            is_full: false,
        };
        let (driver, attention) = (AtomicWaker::new(), AtomicBool::new(false));
        Arc::new(Self { state: Mutex::new(state), driver, attention, timeout })
    }

    /// Runs a call. Nothing is sent before the first poll.
    pub(super) fn run(self: &Arc<Self>, call: Call, script_cache: bool) -> Exchange {
        Exchange::new(Arc::clone(self), call, script_cache)
    }

    pub(super) const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Sends a command. `write` appends the command's bytes.
    pub(super) fn send(
        &self,
        deadline: Instant,
        context: &Context<'_>,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Ticket, Fault> {
        // Wakers are foreign code, so they are cloned and dropped outside of the lock.
        let waker = context.waker().clone();
        let (ticket, wants_driver) = {
            let mut state = self.state.lock();
            if let Link::Ended(fault) = &state.link {
                return Err(fault.clone());
            }
            let (ticket, is_next) = state.pipeline.push(deadline, waker, write);
            let few = state.pipeline.len() <= FEW;
            if few {
                state.write();
            }
            (ticket, is_next || !few || state.is_full || state.failed.is_some())
        };
        if wants_driver {
            self.attend();
        }
        Ok(ticket)
    }

    /// Sends `count` commands on one socket, or none of them. `write` appends the bytes of all.
    pub(super) fn send_together(
        &self,
        deadline: Instant,
        context: &Context<'_>,
        count: usize,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Vec<Ticket>, Fault> {
        let wakers = vec![context.waker().clone(); count];
        let tickets = {
            let mut state = self.state.lock();
            if let Link::Ended(fault) = &state.link {
                return Err(fault.clone());
            }
            let tickets = state.pipeline.push_together(deadline, wakers, write);
            state.write();
            tickets
        };
        self.attend();
        Ok(tickets)
    }

    pub(super) fn poll_answer(&self, ticket: Ticket, context: &Context<'_>) -> Poll<Outcome> {
        let mut is_replaced = false;
        loop {
            let look = self.state.lock().pipeline.look(ticket, context.waker());
            match look {
                Look::Done(outcome) => return Poll::Ready(outcome),
                Look::Waits => return Poll::Pending,
                // Two wakers of one task may compare as different. Another replacement would not help.
                Look::WakesAnother if is_replaced => return Poll::Pending,
                Look::WakesAnother => {
                    let waker = context.waker().clone();
                    let replaced = self.state.lock().pipeline.wake_instead(ticket, waker);
                    drop(replaced);
                    // The answer may have arrived before the waker was replaced, so the loop looks again.
                    is_replaced = true;
                }
            }
        }
    }

    pub(super) fn abandon(&self, ticket: Ticket) {
        let waker = self.state.lock().pipeline.abandon(ticket);
        drop(waker);
    }

    fn attend(&self) {
        self.attention.store(true, Ordering::Release);
        self.driver.wake();
    }

    /// Notes that the connection is up, and writes the commands that wait for it.
    pub(super) fn up(&self, writer: Writer) {
        let mut state = self.state.lock();
        if state.is_ended() {
            return;
        }
        (state.link, state.trouble, state.failed, state.is_full) = (Link::Up(writer), None, None, false);
        state.silence = Silence::heard(Instant::now());
        state.write();
        drop(state);
        self.attention.store(true, Ordering::Release);
    }

    /// Notes that the connection is gone. Sent commands are lost; unsent commands wait for the next connection.
    pub(super) fn down(&self, why: Trouble) {
        self.change(|state, wakers| {
            if state.is_ended() {
                return None;
            }
            state.pipeline.broken(&why.fault(FaultKind::Lost), wakers);
            (state.trouble, state.is_full, state.failed) = (Some(why), false, None);
            Some(std::mem::replace(&mut state.link, Link::Down))
        });
    }

    /// Changes the state. Tasks whose commands have ended are woken outside of the lock. The output of `by`, such as a
    /// socket to close, must be dropped outside of the lock too.
    fn change<T>(&self, by: impl FnOnce(&mut State, &mut Vec<Waker>) -> T) -> T {
        let mut wakers = Vec::new();
        let output = by(&mut self.state.lock(), &mut wakers);
        wakers.into_iter().for_each(Waker::wake);
        output
    }

    pub(super) fn troubled(&self, why: Trouble) {
        self.state.lock().trouble = Some(why);
    }

    pub(super) fn trouble(&self) -> Option<String> {
        self.state.lock().trouble.as_ref().map(|trouble| trouble.message.clone())
    }

    /// Ends the connection for good. Every command fails with this fault.
    pub(super) fn end(&self, fault: Fault) {
        self.change(|state, wakers| {
            if state.is_ended() {
                return None;
            }
            state.pipeline.ended(&fault, wakers);
            Some(std::mem::replace(&mut state.link, Link::Ended(fault)))
        });
    }

    /// Passes answers on to their callers. Returns false if the server has sent an answer without a command.
    pub(super) fn answered(&self, answers: &mut Vec<Answer>, wakers: &mut Vec<Waker>) -> bool {
        let mut state = self.state.lock();
        let (mut is_right, mut in_time) = (true, false);
        for answer in answers.drain(..) {
            match state.pipeline.answer(answer, wakers) {
                Some(is_due) => in_time |= is_due,
                None => is_right = false,
            }
        }
        if in_time {
            state.silence = Silence::heard(Instant::now());
        }
        drop(state);
        wakers.drain(..).for_each(Waker::wake);
        is_right
    }

    /// Writes until the socket has no room. Returns true if bytes are left. An error means that the connection is gone.
    pub(super) fn poll_write(&self, context: &mut Context<'_>) -> io::Result<bool> {
        let mut state = self.state.lock();
        loop {
            if let Some(error) = state.failed.take() {
                return Err(error);
            }
            if state.is_full {
                let Link::Up(writer) = &state.link else { return Ok(false) };
                let Poll::Ready(room) = writer.poll_room(context) else { return Ok(true) };
                room?;
                state.is_full = false;
            }
            if state.pipeline.unwritten().is_empty() {
                return Ok(false);
            }
            state.write();
        }
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.state.lock().pipeline.due()
    }

    /// Fails commands whose time is up. Returns true if the connection is dead (`silence.rs`).
    pub(super) fn expire(&self, now: Instant) -> bool {
        self.change(|state, wakers| {
            let is_up = matches!(state.link, Link::Up(_));
            let unsent = match &state.trouble {
                // The reason says more than a timeout does, for example that the login was refused.
                Some(trouble) => trouble.fault(FaultKind::NotSent),
                None if is_up => Fault::new(FaultKind::NotSent, "the server takes no more commands"),
                None => Fault::new(FaultKind::NotSent, "there is no connection to the server yet"),
            };
            let expired = state.pipeline.expire(now, &unsent, wakers);
            state.silence.is_dead(expired, self.timeout, now) && is_up
        })
    }
}

impl State {
    const fn is_ended(&self) -> bool {
        matches!(self.link, Link::Ended(_))
    }

    /// Writes until the socket has no room.
    fn write(&mut self) {
        let Link::Up(writer) = &self.link else { return };
        while !self.is_full && self.failed.is_none() && !self.pipeline.unwritten().is_empty() {
            match writer.try_write(self.pipeline.unwritten()) {
                Ok(Some(bytes)) => self.pipeline.wrote(bytes),
                Ok(None) => self.is_full = true,
                Err(error) => self.failed = Some(error),
            }
        }
        self.is_full |= self.failed.is_none() && writer.is_behind();
    }
}

pub(super) fn deadline_in(limit: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(limit).unwrap_or(now)
}
