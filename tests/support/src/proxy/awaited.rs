//! Matches frames of the server to requests.

use std::collections::VecDeque;
use std::time::Duration;

use super::conn::End;
use super::resp::{self, Reply};
use super::rules::Flag;

#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    Forward,
    Swallow,
    SwallowThen(End),
    Hang,
    Delay(Duration),
}

/// A request that awaits its reply.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) command: String,
    /// For a subscribe or unsubscribe command: the number of outstanding confirmations.
    pub(super) confirms: Option<usize>,
    pub(super) fate: Fate,
    pub(super) flag: Option<Flag>,
}

/// The forwarded requests of a connection that await a reply, in order.
#[derive(Debug, Default)]
pub(super) struct Awaited(VecDeque<Request>);

impl Awaited {
    pub(super) fn push(&mut self, request: Request) {
        self.0.push_back(request);
    }

    /// The request that a frame answers, if any.
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
                // A refused subscription gets an error. A completed subscription gets no further frame, but may still
                // be in this list, because the number of confirmations is not always known.
                if first.confirms.is_none() || reply == Reply::Error {
                    return Some(first);
                }
            },
        }
    }
}
