use std::time::Duration;

use futures::task::noop_waker;

use super::*;
use crate::Reply;

const GROUP: &[u8] = b"aaaabbbbwait";

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

    /// Pushes three commands that belong together.
    fn push_group(&mut self, deadline: u64) -> Vec<Ticket> {
        let (deadline, wakers) = (self.at(deadline), vec![noop_waker(); 3]);
        self.pipeline.push_together(deadline, wakers, |out| out.extend_from_slice(GROUP))
    }

    fn answer(&mut self, int: i64) -> Option<bool> {
        self.pipeline.answer(Ok(Reply::Int(int)), &mut Vec::new())
    }

    fn broken(&mut self) {
        self.pipeline.broken(&Fault::new(FaultKind::Lost, "gone"), &mut Vec::new());
    }

    fn expire(&mut self, ms: u64) -> usize {
        let (now, unsent) = (self.at(ms), Fault::new(FaultKind::NotSent, "away"));
        self.pipeline.expire(now, &unsent, &mut Vec::new())
    }

    /// Returns `None` while the command waits.
    fn outcome(&mut self, ticket: Ticket) -> Option<Result<Reply, FaultKind>> {
        match self.pipeline.look(ticket, &noop_waker()) {
            Look::Done(outcome) => Some(outcome.map(|answer| answer.unwrap()).map_err(|fault| fault.kind)),
            Look::Waits | Look::WakesAnother => None,
        }
    }
}

#[test]
fn unsent_commands_stay_and_partly_written_commands_are_lost() {
    // The connection breaks after every possible byte.
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
        // Each unsent command is left whole, and once.
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
fn command_that_times_out_unsent_is_never_sent() {
    for written in 0..=16 {
        let mut rig = Rig::new();
        let tickets = [rig.push(b'a', 10), rig.push(b'b', 30), rig.push(b'c', 10), rig.push(b'd', 30)];
        rig.pipeline.wrote(written);
        assert_eq!(rig.expire(9), 0);
        assert_eq!(rig.expire(10), 2);
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
        // A late answer is not taken for the answer to another command.
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
        assert_eq!(rig.expire(1000), 0);
        assert_eq!(rig.pipeline.due(), None);
    }
}

#[test]
fn abandoned_command_does_not_shift_replies() {
    for gone in 0..3 {
        let mut rig = Rig::new();
        let tickets: Vec<_> = (b'a'..=b'c').map(|name| rig.push(name, 100)).collect();
        rig.pipeline.wrote(6);
        assert!(rig.pipeline.abandon(tickets[gone]).is_some());
        // The next command reuses the entry.
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
fn end_fails_all_commands_and_memory_is_released() {
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
    assert_eq!((rig.pipeline.entries.capacity(), rig.pipeline.len()), (0, 0));
}

/// A `WAIT` on another connection than its commands covers none of them.
#[test]
fn group_goes_over_one_connection_or_not_at_all() {
    // The connection breaks after every byte of a command, and of the group behind it.
    for written in 0..=4 + GROUP.len() {
        let mut rig = Rig::new();
        let before = rig.push(b'x', 100);
        let group = rig.push_group(100);
        rig.pipeline.wrote(written);
        rig.broken();
        assert_eq!(rig.outcome(before), (written > 0).then_some(Err(FaultKind::Lost)));
        let is_lost = written > 4;
        for ticket in &group {
            assert_eq!(rig.outcome(*ticket), is_lost.then_some(Err(FaultKind::Lost)), "{written} bytes");
        }
        let left: &[u8] = if is_lost { b"" } else { GROUP };
        let first: &[u8] = if written == 0 { b"xxxx" } else { b"" };
        assert_eq!(rig.pipeline.unwritten(), [first, left].concat(), "{written} bytes");
    }
}

#[test]
fn unsent_group_times_out_as_a_whole() {
    let mut rig = Rig::new();
    let group = rig.push_group(50);
    let behind = rig.push(b'z', 100);
    assert_eq!(rig.expire(50), 3);
    for ticket in group {
        assert_eq!(rig.outcome(ticket), Some(Err(FaultKind::NotSent)));
    }
    assert_eq!(rig.pipeline.unwritten(), b"zzzz");
    rig.pipeline.wrote(4);
    assert_eq!(rig.answer(7), Some(true));
    assert_eq!(rig.outcome(behind), Some(Ok(Reply::Int(7))));
}
