//! Decides which requests and replies are written and when, and how the connection ends.

use bytes::Bytes;
use std::sync::atomic::Ordering;
use tokio::time::Instant;

use super::{Conn, End, Next, Steps, Work, send};
use crate::proxy::awaited::{Fate, Request};
use crate::proxy::resp::{self, Reply};
use crate::proxy::rules::{Action, Flag};
use crate::proxy::{Direction, Mode};

impl Conn {
    /// Handles a request. Returns false if no request may follow.
    pub(super) fn request(&self, frame: Bytes, steps: &Steps) -> bool {
        let words = resp::words(&frame);
        let Some(name) = words.first() else {
            // The server does not reply to an empty line or array.
            send(steps, None, Work::Write(frame));
            return true;
        };
        let command = String::from_utf8_lossy(name).to_ascii_uppercase();
        let mode = self.shared.control.borrow().mode(Direction::Up);
        let number = self.shared.count(&command);
        if mode == Mode::Drop {
            self.log(format!("{command} #{number}: dropped"));
            return true;
        }
        let (action, flag) = self.shared.rules.lock().hit(&command, &frame).unzip();
        match action {
            Some(action) => self.log(format!("{command} #{number}: {action:?}")),
            None => self.log(format!("{command} #{number}")),
        }
        let confirms = self.note(&command, &words);
        let at = self.shared.due(mode);
        let expect = |fate, flag| {
            self.awaited.lock().push(Request { command: command.clone(), confirms, fate, flag });
        };
        act((action, flag), frame, at, expect, steps)
    }

    /// Notes the protocol version and subscriptions, on which the form of later replies depends. Returns the number of
    /// confirmations of a subscription command.
    fn note(&self, command: &str, words: &[&[u8]]) -> Option<usize> {
        if command == "HELLO" {
            let resp3 = words.get(1).is_some_and(|version| *version == b"3");
            self.resp3.store(resp3, Ordering::Relaxed);
        }
        let confirms = resp::is_subscription(command).then(|| words.len().max(2) - 1);
        if confirms.is_some() {
            self.subscriber.store(true, Ordering::Relaxed);
        }
        confirms
    }

    pub(super) fn reply(&self, frame: Bytes, steps: &Steps) -> Next {
        let resp2_subscriber = self.subscriber.load(Ordering::Relaxed) && !self.resp3.load(Ordering::Relaxed);
        let kind = resp::reply(&frame, resp2_subscriber);
        let mode = self.shared.control.borrow().mode(Direction::Down);
        let mut at = self.shared.due(mode);
        let (fate, flag) = match self.awaited.lock().answered(kind, &frame) {
            Some(a) => {
                if !matches!(a.fate, Fate::Forward) {
                    self.log(format!("reply to {}: {:?}", a.command, a.fate));
                }
                (a.fate, a.flag)
            }
            None => (Fate::Forward, None),
        };
        match fate {
            Fate::SwallowThen(end) => {
                send(steps, at, Work::End(end, flag));
                return Next::Finish;
            }
            Fate::Hang => {
                flag.iter().for_each(Flag::raise);
                return Next::Hang;
            }
            Fate::Swallow => {
                flag.iter().for_each(Flag::raise);
                return Next::GoOn;
            }
            Fate::Delay(d) => at = Some(at.unwrap_or_else(Instant::now) + d),
            Fate::Forward => {}
        }
        flag.iter().for_each(Flag::raise);
        if mode == Mode::Drop || mode == Mode::DropMessages && kind == Reply::Push {
            self.log(format!("{kind:?}: dropped"));
        } else {
            send(steps, at, Work::Write(frame));
        }
        Next::GoOn
    }
}

/// Applies an action to a request. Returns false if no request may follow.
fn act(
    (action, flag): (Option<Action>, Option<Flag>),
    frame: Bytes,
    mut at: Option<Instant>,
    expect: impl Fn(Fate, Option<Flag>),
    steps: &Steps,
) -> bool {
    let raise = |flag: Option<Flag>| flag.iter().for_each(Flag::raise);
    let closing = |how, flag| send(steps, at, Work::End(how, flag));
    match action {
        None => expect(Fate::Forward, None),
        Some(Action::SwallowReply) => expect(Fate::Swallow, flag),
        Some(Action::SwallowReplyClose) => expect(Fate::SwallowThen(End::Close), flag),
        Some(Action::SwallowReplyRst) => expect(Fate::SwallowThen(End::Rst), flag),
        Some(Action::HangReply) => expect(Fate::Hang, flag),
        Some(Action::DelayReply(d)) => expect(Fate::Delay(d), flag),
        Some(Action::DropRequest) => {
            raise(flag);
            return true;
        }
        Some(Action::CloseBefore) => {
            closing(End::Close, flag);
            return false;
        }
        Some(Action::Rst) => {
            closing(End::Rst, flag);
            return false;
        }
        Some(Action::CloseAfter) => {
            expect(Fate::Swallow, None);
            send(steps, at, Work::Write(frame));
            closing(End::Close, flag);
            return false;
        }
        Some(Action::Duplicate) => {
            expect(Fate::Forward, None);
            expect(Fate::Swallow, flag);
            send(steps, at, Work::Write(frame.clone()));
        }
        Some(Action::Delay(d)) => {
            at = Some(at.unwrap_or_else(Instant::now) + d);
            expect(Fate::Forward, None);
            raise(flag);
        }
    }
    send(steps, at, Work::Write(frame));
    true
}
