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
use super::pipeline::{Expired, Look, Outcome, Pipeline, Ticket};
use super::resp::Answer;
use super::silence::Silence;
use crate::passing::Passing;
use crate::{Call, Fault, FaultKind};

/// With more commands in flight than this, callers leave writing to the connection's task, which writes them in
/// batches.
const FEW: usize = 4;

/// One connection for commands. It outlives its sockets.
#[derive(Debug)]
pub(super) struct Connection {
    state: Mutex<State>,
    /// Waker of the connection's task, and whether there is work for that task.
    pub(super) driver: AtomicWaker,
    pub(super) attention: AtomicBool,
    timeout: Duration,
}

#[derive(Debug)]
pub(super) struct State {
    link: Link,
    pipeline: Pipeline,
    silence: Silence,
    /// Reason why there is no connection. `None` while there is one.
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
    Ended(FaultKind),
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

    /// Sends a command. `write` appends its bytes.
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
            if let Link::Ended(kind) = state.link {
                return Err(ended(kind));
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

    /// Sends `count` commands on one connection, or none of them. `write` appends all their bytes.
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
            if let Link::Ended(kind) = state.link {
                return Err(ended(kind));
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
            match self.look(ticket, context.waker()) {
                Look::Done(outcome) => return Poll::Ready(outcome),
                Look::Waits => return Poll::Pending,
                // Two wakers of one task may compare as different. Another replacement would not help.
                Look::WakesAnother if is_replaced => return Poll::Pending,
                Look::WakesAnother => {
                    self.wake_instead(ticket, context.waker().clone());
                    // The answer may have arrived before the waker was replaced.
                    is_replaced = true;
                }
            }
        }
    }

    fn look(&self, ticket: Ticket, waker: &Waker) -> Look {
        self.state.lock().pipeline.look(ticket, waker)
    }

    /// Replaces the waker of a command. The old waker is dropped outside of the lock.
    fn wake_instead(&self, ticket: Ticket, waker: Waker) {
        let other = self.state.lock().pipeline.wake_instead(ticket, waker);
        drop(other);
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
        if matches!(state.link, Link::Ended(_)) {
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
        let mut wakers = Vec::new();
        let socket = {
            let mut state = self.state.lock();
            if matches!(state.link, Link::Ended(_)) {
                return;
            }
            let fault = Fault { source: why.source.clone(), ..Fault::new(FaultKind::Lost, &*why.message) };
            state.pipeline.broken(&fault, &mut wakers);
            (state.trouble, state.is_full, state.failed) = (Some(why), false, None);
            std::mem::replace(&mut state.link, Link::Down)
        };
        drop(socket);
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(super) fn troubled(&self, why: Trouble) {
        self.state.lock().trouble = Some(why);
    }

    pub(super) fn trouble(&self) -> Option<String> {
        self.state.lock().trouble.as_ref().map(|trouble| trouble.message.clone())
    }

    /// Ends the connection for good.
    pub(super) fn end(&self, kind: FaultKind) {
        let mut wakers = Vec::new();
        let before = {
            let mut state = self.state.lock();
            if matches!(state.link, Link::Ended(_)) {
                return;
            }
            state.pipeline.ended(&ended(kind), &mut wakers);
            std::mem::replace(&mut state.link, Link::Ended(kind))
        };
        drop(before);
        wakers.into_iter().for_each(Waker::wake);
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

    /// Writes the bytes that have piled up while the socket has room. Returns true if it has no room for all. An error
    /// means that the connection is gone.
    pub(super) fn poll_write(&self, context: &mut Context<'_>) -> io::Result<bool> {
        let mut state = self.state.lock();
        loop {
            if let Some(error) = state.failed.take() {
                return Err(error);
            }
            if state.is_full {
                let Link::Up(writer) = &state.link else { return Ok(false) };
                match writer.poll_room(context) {
                    Poll::Ready(Ok(())) => state.is_full = false,
                    Poll::Ready(Err(error)) => return Err(error),
                    Poll::Pending => return Ok(true),
                }
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

    /// Fails commands whose time is up. Returns true if the connection is dead.
    pub(super) fn expire(&self, now: Instant) -> bool {
        let mut wakers = Vec::new();
        let is_dead = {
            let mut state = self.state.lock();
            let is_up = matches!(state.link, Link::Up(_));
            let message = match &state.trouble {
                // The reason says more than a timeout does, for example that the login was refused.
                Some(trouble) => trouble.message.clone(),
                None if is_up => "the server takes no more commands".to_owned(),
                None => "there is no connection to the server yet".to_owned(),
            };
            let source = state.trouble.as_ref().and_then(|trouble| trouble.source.clone());
            let unsent = Fault { source, ..Fault::new(FaultKind::NotSent, message) };
            let Expired { sent, unsent } = state.pipeline.expire(now, &unsent, &mut wakers);
            state.silence.is_dead(sent + unsent, self.timeout, now) && is_up
        };
        wakers.into_iter().for_each(Waker::wake);
        is_dead
    }
}

impl State {
    /// Writes until the socket has no room.
    fn write(&mut self) {
        let Link::Up(writer) = &self.link else { return };
        while !self.is_full && self.failed.is_none() && !self.pipeline.unwritten().is_empty() {
            match writer.try_write(self.pipeline.unwritten()) {
                Ok(0) => self.failed = Some(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => self.pipeline.wrote(bytes),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.is_full = true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => self.failed = Some(error),
            }
        }
        self.is_full |= self.failed.is_none() && writer.is_behind();
    }
}

fn ended(kind: FaultKind) -> Fault {
    let message = match kind {
        FaultKind::RuntimeGone => "the client's runtime has ended",
        _ => "the client is shut down",
    };
    Fault::new(kind, message)
}

/// True for an error of a demoted server. A new connection may lead to the promoted one.
pub(super) fn is_demoted(answer: &Answer) -> bool {
    answer.as_ref().is_err_and(|error| Passing::of(error).is_some_and(|row| row.is_replica))
}
