//! The commands of one connection: what is still to be written, whose reply comes next, and what became of each. No I/O, no clock.
//!
//! Commands are counted in bytes of one endless stream: a command of which the first byte has not been written has never left, and
//! stays for the next connection; one that has been written, be it in part, is lost with its own.

use std::collections::VecDeque;
use std::task::Waker;

use tokio::time::Instant;

use super::wire::Answer;
use crate::transport::{Fault, FaultKind};

/// What became of a command: the server's answer, or why there is none.
pub(super) type Outcome = Result<Answer, Fault>;

/// After a crowd the tables are made anew, smaller.
const KEPT: usize = 1024;
const BYTES_KEPT: usize = 64 << 10;

/// A command whose outcome somebody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket(usize);

#[derive(Debug)]
enum Entry {
    Free,
    Waiting(Waker),
    Done(Outcome),
}

/// How a command stands.
#[derive(Debug)]
pub(super) enum Look {
    Done(Outcome),
    Waits,
    /// It waits, but would wake somebody else.
    WakesAnother,
}

/// A command that the server has not answered.
#[derive(Debug)]
struct Sent {
    /// Who waits for it; None when nobody does any more.
    ticket: Option<Ticket>,
    /// Where in the stream it begins.
    start: u64,
    deadline: Instant,
    /// False once it is known to have had no answer in time.
    is_due: bool,
}

#[derive(Debug, Default)]
pub(super) struct Pipeline {
    entries: Vec<Entry>,
    free: Vec<usize>,
    /// In the order in which they are answered.
    order: VecDeque<Sent>,
    out: Vec<u8>,
    /// How much of `out` has been written.
    written: usize,
    /// Where in the stream `out` begins.
    base: u64,
    due: Option<Instant>,
}

/// How many commands ran out of time, after they were sent and before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Expired {
    pub(super) sent: usize,
    pub(super) unsent: usize,
}

impl Pipeline {
    /// Takes a command in. `write` appends its bytes. True when its deadline is the next one.
    pub(super) fn push(&mut self, deadline: Instant, waker: Waker, write: impl FnOnce(&mut Vec<u8>)) -> (Ticket, bool) {
        let start = self.base + self.out.len() as u64;
        write(&mut self.out);
        self.enter(start, deadline, waker)
    }

    /// As `push`, for commands that go by one connection together or not at all: they count as one that begins where the first of them
    /// does. `wakers`: one for each.
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

    /// How many commands have no answer yet.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// The bytes that are to be written.
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
            // A socket that is always behind: what has been written must not pile up.
            self.out.drain(..self.written);
            self.base += self.written as u64;
            self.written = 0;
        }
    }

    /// When the next command runs out of time.
    pub(super) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// How a command stands, as whoever has this waker asks. Once its outcome is told, its ticket is void.
    pub(super) fn look(&mut self, ticket: Ticket, waker: &Waker) -> Look {
        match &mut self.entries[ticket.0] {
            Entry::Waiting(known) if known.will_wake(waker) => Look::Waits,
            Entry::Waiting(_) => Look::WakesAnother,
            entry => match std::mem::replace(entry, Entry::Free) {
                Entry::Done(outcome) => {
                    self.free_entry(ticket);
                    Look::Done(outcome)
                }
                // A ticket is used by one who throws it away then.
                _ => Look::Done(Err(Fault::new(FaultKind::Lost, "asked for twice"))),
            },
        }
    }

    /// Somebody else waits for it now. Returns the waker that is not needed, to be dropped outside of any lock.
    pub(super) fn wake_instead(&mut self, ticket: Ticket, waker: Waker) -> Waker {
        match &mut self.entries[ticket.0] {
            Entry::Waiting(known) => std::mem::replace(known, waker),
            _ => waker,
        }
    }

    /// Nobody waits for this command any more. It is answered all the same. Returns a waker that is to be dropped outside of any
    /// lock.
    pub(super) fn abandon(&mut self, ticket: Ticket) -> Option<Waker> {
        let entry = std::mem::replace(&mut self.entries[ticket.0], Entry::Free);
        let mut waker = None;
        if let Entry::Waiting(waiting) = entry {
            waker = Some(waiting);
            // From the end: what is given up came last more often than first.
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

    /// The server's answer to the next command: whether it came in time. None when nothing was asked.
    pub(super) fn answer(&mut self, answer: Answer, wakers: &mut Vec<Waker>) -> Option<bool> {
        // A reply to a command that has not been written answers nothing.
        let written = self.base + self.written as u64;
        let sent = self.order.pop_front_if(|sent| sent.start < written)?;
        if let Some(ticket) = sent.ticket {
            self.done(ticket, Ok(answer), wakers);
        }
        if self.order.is_empty() && self.order.capacity() > KEPT {
            self.order = VecDeque::new();
        }
        Some(sent.is_due)
    }

    fn done(&mut self, ticket: Ticket, outcome: Outcome, wakers: &mut Vec<Waker>) {
        if let Entry::Waiting(waker) = std::mem::replace(&mut self.entries[ticket.0], Entry::Done(outcome)) {
            wakers.push(waker);
        }
    }

    /// The connection is gone: commands of which anything was written get this fault; others are kept, for the next one.
    pub(super) fn broken(&mut self, fault: &Fault, wakers: &mut Vec<Waker>) {
        let written = self.base + self.written as u64;
        while let Some(sent) = self.order.pop_front_if(|sent| sent.start < written) {
            if let Some(ticket) = sent.ticket {
                self.done(ticket, Err(fault.clone()), wakers);
            }
        }
        // What is left of a command that was cut off goes with it.
        let end = self.base + self.out.len() as u64;
        let kept = self.order.front().map_or(end, |first| first.start);
        self.out.drain(..usize::try_from(kept - self.base).unwrap_or(self.out.len()));
        (self.base, self.written) = (kept, 0);
    }

    /// Nothing will be written or answered any more.
    pub(super) fn ended(&mut self, fault: &Fault, wakers: &mut Vec<Waker>) {
        while let Some(sent) = self.order.pop_front() {
            if let Some(ticket) = sent.ticket {
                self.done(ticket, Err(fault.clone()), wakers);
            }
        }
        (self.out, self.written, self.due) = (Vec::new(), 0, None);
    }

    /// Commands whose time is up. Those that have never left never will; the answer to another is awaited for its place in the
    /// order only.
    pub(super) fn expire(&mut self, now: Instant, unsent: &Fault, wakers: &mut Vec<Waker>) -> Expired {
        if self.due.is_none_or(|due| due > now) {
            return Expired::default();
        }
        let written = self.base + self.written as u64;
        let (mut expired, mut due) = (Expired::default(), None);
        let (mut cut, mut at) = (0, 0);
        let order = std::mem::take(&mut self.order);
        let ends: Vec<u64> =
            order.iter().skip(1).map(|next| next.start).chain([self.base + self.out.len() as u64]).collect();
        let mut kept = VecDeque::with_capacity(order.len());
        let mut out = Vec::new();
        for (mut sent, end) in order.into_iter().zip(ends) {
            if sent.is_due && sent.deadline <= now {
                let is_sent = sent.start < written;
                let fault = if is_sent { &Fault::new(FaultKind::TimedOut, "no answer in time") } else { unsent };
                if let Some(ticket) = sent.ticket.take() {
                    self.done(ticket, Err(fault.clone()), wakers);
                }
                if is_sent {
                    expired.sent += 1;
                    sent.is_due = false;
                } else {
                    expired.unsent += 1;
                    // Its bytes go.
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
