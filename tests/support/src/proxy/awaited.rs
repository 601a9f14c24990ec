//! Which request a frame of the server answers.

use std::collections::VecDeque;
use std::time::Duration;

use super::conn::End;
use super::resp::{self, Reply};
use super::rules::Flag;

/// What becomes of a reply.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    Forward,
    Swallow,
    SwallowThen(End),
    Hang,
    Delay(Duration),
}

/// A request whose answer is to come.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) command: String,
    /// For a (un)subscription: how many confirmations are to come.
    pub(super) confirms: Option<usize>,
    pub(super) fate: Fate,
    pub(super) flag: Option<Flag>,
}

/// The forwarded requests of a connection that are not answered yet, in order.
#[derive(Debug, Default)]
pub(super) struct Awaited(VecDeque<Request>);

impl Awaited {
    pub(super) fn push(&mut self, request: Request) {
        self.0.push_back(request);
    }

    /// The request that a frame answers; `None` when it answers none.
    pub(super) fn answered(&mut self, reply: Reply, frame: &[u8]) -> Option<Request> {
        match reply {
            Reply::Push => None,
            Reply::Confirm => {
                let first = self.0.front_mut()?;
                if first.command != resp::first_word(frame) {
                    return None;
                }
                let left = first.confirms.as_mut()?;
                *left -= 1;
                match *left {
                    0 => self.0.pop_front(),
                    _ => self.0.front().cloned(),
                }
            }
            Reply::Plain | Reply::Error => loop {
                let first = self.0.pop_front()?;
                // A refused subscription is answered by an error; one that is over (its number
                // of confirmations is not always known) by nothing more.
                if first.confirms.is_none() || reply == Reply::Error {
                    return Some(first);
                }
            },
        }
    }
}
