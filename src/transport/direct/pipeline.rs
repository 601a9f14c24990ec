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
enum Slot {
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
    slots: Vec<Slot>,
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
        let slot = Slot::Waiting(waker);
        let ticket = match self.free.pop() {
            Some(free) => {
                self.slots[free] = slot;
                Ticket(free)
            }
            None => {
                self.slots.push(slot);
                Ticket(self.slots.len() - 1)
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
        match &mut self.slots[ticket.0] {
            Slot::Waiting(known) if known.will_wake(waker) => Look::Waits,
            Slot::Waiting(_) => Look::WakesAnother,
            slot => match std::mem::replace(slot, Slot::Free) {
                Slot::Done(outcome) => {
                    self.free_slot(ticket);
                    Look::Done(outcome)
                }
                // A ticket is used by one who throws it away then.
                _ => Look::Done(Err(Fault::new(FaultKind::Lost, "asked for twice"))),
            },
        }
    }

    /// Somebody else waits for it now. Returns the waker that is not needed, to be dropped outside of any lock.
    pub(super) fn wake_instead(&mut self, ticket: Ticket, waker: Waker) -> Waker {
        match &mut self.slots[ticket.0] {
            Slot::Waiting(known) => std::mem::replace(known, waker),
            _ => waker,
        }
    }

    /// Nobody waits for this command any more. It is answered all the same. Returns a waker that is to be dropped outside of any
    /// lock.
    pub(super) fn abandon(&mut self, ticket: Ticket) -> Option<Waker> {
        let slot = std::mem::replace(&mut self.slots[ticket.0], Slot::Free);
        let mut waker = None;
        if let Slot::Waiting(waiting) = slot {
            waker = Some(waiting);
            // From the end: what is given up came last more often than first.
            if let Some(sent) = self.order.iter_mut().rev().find(|sent| sent.ticket == Some(ticket)) {
                sent.ticket = None;
            }
        }
        self.free_slot(ticket);
        waker
    }

    fn free_slot(&mut self, ticket: Ticket) {
        self.free.push(ticket.0);
        if self.free.len() == self.slots.len() && self.slots.len() > KEPT {
            (self.slots, self.free) = (Vec::new(), Vec::new());
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
        if let Slot::Waiting(waker) = std::mem::replace(&mut self.slots[ticket.0], Slot::Done(outcome)) {
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
mod tests {
    use std::time::Duration;

    use futures::task::noop_waker;

    use super::*;
    use crate::transport::Reply;

    /// A pipeline with commands of four bytes each.
    struct Rig {
        pipeline: Pipeline,
        now: Instant,
    }

    impl Rig {
        fn new() -> Self {
            Self { pipeline: Pipeline::default(), now: Instant::now() }
        }

        fn at(&self, ms: u64) -> Instant {
            self.now + Duration::from_millis(ms)
        }

        fn push(&mut self, name: u8, deadline: u64) -> Ticket {
            let deadline = self.at(deadline);
            self.pipeline.push(deadline, noop_waker(), |out| out.extend([name; 4])).0
        }

        fn answer(&mut self, int: i64) -> Option<bool> {
            self.pipeline.answer(Ok(Reply::Int(int)), &mut Vec::new())
        }

        fn broken(&mut self) {
            self.pipeline.broken(&Fault::new(FaultKind::Lost, "gone"), &mut Vec::new());
        }

        fn expire(&mut self, ms: u64) -> Expired {
            let (now, unsent) = (self.at(ms), Fault::new(FaultKind::NotSent, "away"));
            self.pipeline.expire(now, &unsent, &mut Vec::new())
        }

        /// None while it waits.
        fn outcome(&mut self, ticket: Ticket) -> Option<Result<Reply, FaultKind>> {
            match self.pipeline.look(ticket, &noop_waker()) {
                Look::Done(outcome) => Some(outcome.map(|answer| answer.unwrap()).map_err(|fault| fault.kind)),
                Look::Waits | Look::WakesAnother => None,
            }
        }
    }

    #[test]
    fn what_has_never_left_stays_and_what_was_written_in_part_is_lost() {
        // Cut off after every byte.
        for written in 0..=12 {
            let mut rig = Rig::new();
            let tickets: Vec<_> = (b'a'..=b'c').map(|name| rig.push(name, 100)).collect();
            rig.pipeline.wrote(written);
            rig.broken();
            let left = written.div_ceil(4);
            for (n, ticket) in tickets.iter().enumerate() {
                let expected = (n < left).then_some(Err(FaultKind::Lost));
                assert_eq!(rig.outcome(*ticket), expected, "{written} bytes, command {n}");
            }
            // Whole, and once.
            let expected: Vec<u8> = (b'a'..=b'c').skip(left).flat_map(|name| [name; 4]).collect();
            assert_eq!(rig.pipeline.unwritten(), expected, "{written} bytes");
            rig.pipeline.wrote(expected.len());
            for (n, ticket) in tickets.iter().enumerate().skip(left) {
                assert_eq!(rig.answer(7), Some(true));
                assert_eq!(rig.outcome(*ticket), Some(Ok(Reply::Int(7))), "{written} bytes, command {n}");
            }
            assert_eq!(rig.answer(8), None, "nothing was asked");
        }
    }

    #[test]
    fn what_ran_out_of_time_before_it_left_never_leaves() {
        for written in 0..=16 {
            let mut rig = Rig::new();
            let tickets = [rig.push(b'a', 10), rig.push(b'b', 30), rig.push(b'c', 10), rig.push(b'd', 30)];
            rig.pipeline.wrote(written);
            assert_eq!(rig.expire(9), Expired::default());
            let expired = rig.expire(10);
            assert_eq!(expired.sent + expired.unsent, 2);
            let unsent = |n: usize| 4 * n >= written;
            for n in [0, 2] {
                let kind = if unsent(n) { FaultKind::NotSent } else { FaultKind::TimedOut };
                assert_eq!(rig.outcome(tickets[n]), Some(Err(kind)), "{written} bytes, command {n}");
            }
            let all: Vec<u8> = (b'a'..=b'd').flat_map(|name| [name; 4]).collect();
            let expected: Vec<u8> = (0..16)
                .filter(|at| *at >= written && !(unsent(at / 4) && matches!(at / 4, 0 | 2)))
                .map(|at| all[at])
                .collect();
            assert_eq!(rig.pipeline.unwritten(), expected, "{written} bytes");
            assert_eq!(rig.pipeline.due(), Some(rig.at(30)));
            rig.pipeline.wrote(expected.len());
            // Late answers are not taken for those of others.
            for n in 0..4 {
                if matches!(n, 0 | 2) && unsent(n) {
                    continue;
                }
                assert_eq!(rig.answer(i64::try_from(n).unwrap()), Some(matches!(n, 1 | 3)));
            }
            for n in [1, 3] {
                let expected = Reply::Int(i64::try_from(n).unwrap());
                assert_eq!(rig.outcome(tickets[n]), Some(Ok(expected)), "{written} bytes");
            }
            assert_eq!(rig.expire(1000), Expired::default());
            assert_eq!(rig.pipeline.due(), None);
        }
    }

    #[test]
    fn whoever_goes_away_shifts_no_reply() {
        for gone in 0..3 {
            let mut rig = Rig::new();
            let tickets: Vec<_> = (b'a'..=b'c').map(|name| rig.push(name, 100)).collect();
            rig.pipeline.wrote(6);
            assert!(rig.pipeline.abandon(tickets[gone]).is_some());
            // Its place is another's by now.
            let next = rig.push(b'd', 100);
            assert_eq!(rig.pipeline.unwritten(), b"bbccccdddd", "a command is not recalled");
            rig.pipeline.wrote(10);
            for n in 0..4 {
                assert_eq!(rig.answer(n), Some(true));
            }
            for (n, ticket) in tickets.iter().enumerate().filter(|(n, _)| *n != gone) {
                assert_eq!(rig.outcome(*ticket), Some(Ok(Reply::Int(i64::try_from(n).unwrap()))), "{gone} gone");
            }
            assert_eq!(rig.outcome(next), Some(Ok(Reply::Int(3))));
        }
    }

    #[test]
    fn the_end_is_told_to_all_and_memory_goes_with_a_crowd() {
        let mut rig = Rig::new();
        let tickets: Vec<_> = (0..5_000).map(|_| rig.push(b'x', 100)).collect();
        rig.pipeline.wrote(10_000);
        for n in 0..2_500 {
            assert_eq!(rig.answer(n), Some(true));
        }
        rig.pipeline.ended(&Fault::new(FaultKind::Closed, "closed"), &mut Vec::new());
        for (n, ticket) in tickets.into_iter().enumerate() {
            let expected = if n < 2_500 { Ok(Reply::Int(i64::try_from(n).unwrap())) } else { Err(FaultKind::Closed) };
            assert_eq!(rig.outcome(ticket), Some(expected));
        }
        assert_eq!((rig.pipeline.slots.capacity(), rig.pipeline.len()), (0, 0));
    }
}
