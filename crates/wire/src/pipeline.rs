//! The commands of one connection, across its sockets: bytes to write, expected replies, and outcomes. This file does
//! no I/O and reads no clock.
//!
//! The bytes of all commands form one endless stream, in which each command has a position. When a socket breaks:
//! - A command stays for the next socket if none of its bytes was written.
//! - A command that was written, even in part, fails. It may have run.

use std::collections::VecDeque;
use std::task::Waker;

use tokio::time::Instant;

use super::resp::Answer;
use crate::{Fault, FaultKind};

/// Outcome of a command: the server's answer, or the reason why there is none.
pub(super) type Outcome = Result<Answer, Fault>;

/// Maximum capacity that an empty list keeps, in entries. `BYTES_KEPT`: the same for `out`, in bytes.
const KEPT: usize = 1024;
const BYTES_KEPT: usize = 64 << 10;

/// A caller's handle of its command: the index of an entry. Valid until the outcome is returned or the command is
/// abandoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket(usize);

#[derive(Debug)]
enum Entry {
    Free,
    Waiting(Waker),
    Done(Outcome),
}

#[derive(Debug)]
pub(super) enum Look {
    Done(Outcome),
    Waits,
    /// The command waits, but its answer would wake another task.
    WakesAnother,
}

/// A command that the server has not answered.
#[derive(Debug)]
struct Sent {
    /// The caller that waits; `None` once no caller waits.
    ticket: Option<Ticket>,
    /// Position of the first byte in the stream.
    start: u64,
    deadline: Instant,
    /// False once [`Pipeline::expire`] has failed the command.
    is_due: bool,
}

#[derive(Debug, Default)]
pub(super) struct Pipeline {
    entries: Vec<Entry>,
    free: Vec<usize>,
    /// Commands in the order of their answers.
    order: VecDeque<Sent>,
    out: Vec<u8>,
    /// Number of written bytes of `out`.
    written: usize,
    /// Position of `out` in the stream.
    base: u64,
    due: Option<Instant>,
}

impl Pipeline {
    /// Adds a command, whose bytes `write` appends. Returns true if the command has the earliest deadline.
    pub(super) fn push(&mut self, deadline: Instant, waker: Waker, write: impl FnOnce(&mut Vec<u8>)) -> (Ticket, bool) {
        let start = self.base + self.out.len() as u64;
        write(&mut self.out);
        self.enter(start, deadline, waker)
    }

    /// Adds commands that are sent on one connection, all or none. All of them get the position of the first command,
    /// so all count as written once a byte of that command is written. `wakers` has one waker per command.
    pub(super) fn push_together(
        &mut self,
        deadline: Instant,
        wakers: Vec<Waker>,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Vec<Ticket> {
        let start = self.base + self.out.len() as u64;
        write(&mut self.out);
        wakers.into_iter().map(|waker| self.enter(start, deadline, waker).0).collect()
    }

    fn enter(&mut self, start: u64, deadline: Instant, waker: Waker) -> (Ticket, bool) {
        let entry = Entry::Waiting(waker);
        let ticket = match self.free.pop() {
            Some(free) => {
                self.entries[free] = entry;
                Ticket(free)
            }
            None => {
                self.entries.push(entry);
                Ticket(self.entries.len() - 1)
            }
        };
        self.order.push_back(Sent { ticket: Some(ticket), start, deadline, is_due: true });
        let is_next = self.due.is_none_or(|due| deadline < due);
        if is_next {
            self.due = Some(deadline);
        }
        (ticket, is_next)
    }

    /// Number of commands without an answer.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    pub(super) fn unwritten(&self) -> &[u8] {
        &self.out[self.written..]
    }

    pub(super) fn wrote(&mut self, bytes: usize) {
        self.written += bytes;
        if self.written == self.out.len() {
            self.base += self.written as u64;
            self.written = 0;
            self.out.clear();
            self.out.shrink_to(BYTES_KEPT);
        } else if self.written > BYTES_KEPT && self.written > self.out.len() / 2 {
            // Written bytes must not pile up if some bytes always wait to be written.
            self.out.drain(..self.written);
            self.base += self.written as u64;
            self.written = 0;
        }
    }

    pub(super) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Returns the state of a command for the task with this waker. The ticket is void once the outcome is returned.
    pub(super) fn look(&mut self, ticket: Ticket, waker: &Waker) -> Look {
        match &mut self.entries[ticket.0] {
            Entry::Waiting(known) if known.will_wake(waker) => Look::Waits,
            Entry::Waiting(_) => Look::WakesAnother,
            entry => match std::mem::replace(entry, Entry::Free) {
                Entry::Done(outcome) => {
                    self.free_entry(ticket);
                    Look::Done(outcome)
                }
                // Not reached: a caller that got the outcome does not use its ticket again.
                _ => Look::Done(Err(Fault::new(FaultKind::Lost, "asked for twice"))),
            },
        }
    }

    /// Replaces the waker of a waiting command. Returns the old waker, to be dropped outside of the mutex.
    pub(super) fn wake_instead(&mut self, ticket: Ticket, waker: Waker) -> Waker {
        match &mut self.entries[ticket.0] {
            Entry::Waiting(known) => std::mem::replace(known, waker),
            _ => waker,
        }
    }

    /// Notes that no caller waits for this command any more. The answer is still expected. Returns the caller's waker,
    /// to be dropped outside of the mutex.
    pub(super) fn abandon(&mut self, ticket: Ticket) -> Option<Waker> {
        let entry = std::mem::replace(&mut self.entries[ticket.0], Entry::Free);
        let mut waker = None;
        if let Entry::Waiting(waiting) = entry {
            waker = Some(waiting);
            // Searched from the end, because most abandoned commands are recent.
            if let Some(sent) = self.order.iter_mut().rev().find(|sent| sent.ticket == Some(ticket)) {
                sent.ticket = None;
            }
        }
        self.free_entry(ticket);
        waker
    }

    fn free_entry(&mut self, ticket: Ticket) {
        self.free.push(ticket.0);
        if self.free.len() == self.entries.len() && self.entries.len() > KEPT {
            (self.entries, self.free) = (Vec::new(), Vec::new());
        }
    }

    /// Assigns an answer to the oldest written command. Returns whether the answer is in time, or `None` if no written
    /// command waits for an answer.
    pub(super) fn answer(&mut self, answer: Answer, wakers: &mut Vec<Waker>) -> Option<bool> {
        // A reply cannot answer a command that was not written.
        let written = self.base + self.written as u64;
        let sent = self.order.pop_front_if(|sent| sent.start < written)?;
        self.done(sent.ticket, Ok(answer), wakers);
        if self.order.is_empty() && self.order.capacity() > KEPT {
            self.order = VecDeque::new();
        }
        Some(sent.is_due)
    }

    fn done(&mut self, ticket: Option<Ticket>, outcome: Outcome, wakers: &mut Vec<Waker>) {
        let Some(Ticket(entry)) = ticket else { return };
        if let Entry::Waiting(waker) = std::mem::replace(&mut self.entries[entry], Entry::Done(outcome)) {
            wakers.push(waker);
        }
    }

    /// Handles a broken connection. Commands that were written, even in part, fail with this fault. Unwritten commands
    /// stay for the next socket.
    pub(super) fn broken(&mut self, fault: &Fault, wakers: &mut Vec<Waker>) {
        let written = self.base + self.written as u64;
        while let Some(sent) = self.order.pop_front_if(|sent| sent.start < written) {
            self.done(sent.ticket, Err(fault.clone()), wakers);
        }
        // The unwritten rest of a command that was written in part is removed too.
        let end = self.base + self.out.len() as u64;
        let kept = self.order.front().map_or(end, |first| first.start);
        self.out.drain(..usize::try_from(kept - self.base).unwrap_or(self.out.len()));
        (self.base, self.written) = (kept, 0);
    }

    /// Fails all commands: nothing will be written or answered any more.
    pub(super) fn ended(&mut self, fault: &Fault, wakers: &mut Vec<Waker>) {
        while let Some(sent) = self.order.pop_front() {
            self.done(sent.ticket, Err(fault.clone()), wakers);
        }
        (self.out, self.written, self.due) = (Vec::new(), 0, None);
    }

    /// Fails commands whose time is up, and returns their number. An unsent command is removed and never sent. A sent
    /// command keeps its place in the order, so that its late answer is discarded.
    pub(super) fn expire(&mut self, now: Instant, unsent: &Fault, wakers: &mut Vec<Waker>) -> usize {
        if self.due.is_none_or(|due| due > now) {
            return 0;
        }
        let written = self.base + self.written as u64;
        let (mut expired, mut due) = (0, None);
        let (mut cut, mut at) = (0, 0);
        let order = std::mem::take(&mut self.order);
        let ends: Vec<u64> =
            order.iter().skip(1).map(|next| next.start).chain([self.base + self.out.len() as u64]).collect();
        let mut kept = VecDeque::with_capacity(order.len());
        let mut out = Vec::new();
        for (mut sent, end) in order.into_iter().zip(ends) {
            if sent.is_due && sent.deadline <= now {
                let is_sent = sent.start < written;
                let fault = if is_sent { &Fault::no_answer() } else { unsent };
                self.done(sent.ticket.take(), Err(fault.clone()), wakers);
                expired += 1;
                if is_sent {
                    sent.is_due = false;
                } else {
                    let (from, to) = (self.place(sent.start), self.place(end));
                    out.extend_from_slice(&self.out[at..from]);
                    (at, cut) = (to, cut + (end - sent.start));
                    continue;
                }
            }
            sent.start -= cut;
            if sent.is_due {
                due = Some(due.map_or(sent.deadline, |due: Instant| due.min(sent.deadline)));
            }
            kept.push_back(sent);
        }
        if cut > 0 {
            out.extend_from_slice(&self.out[at..]);
            self.out = out;
        }
        (self.order, self.due) = (kept, due);
        expired
    }

    fn place(&self, at: u64) -> usize {
        usize::try_from(at - self.base).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests;
