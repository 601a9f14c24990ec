//! The wanted channels, and the changes that callers request.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::Fault;
use crate::slim::{slim, slim_set};

/// Notified when the server has confirmed or refused a request.
pub(in crate::messages) type Done = oneshot::Sender<Result<(), Fault>>;

/// A requested change of the subscriptions.
pub(crate) enum Change {
    Subscribe(Bytes, Done),
    Unsubscribe(Bytes, Done),
    /// The server has ended the subscription, so nothing is sent.
    Forget(Bytes),
}

/// A command to the server. The command has exactly one reply, which may be an error.
pub(super) enum Request {
    Subscribe(Bytes),
    Unsubscribe(Bytes, Done),
    Ping,
}

#[derive(Default)]
pub(super) struct Channels {
    pub(super) wanted: HashSet<Bytes>,
    /// Callers that wait for the confirmation of a channel's subscription.
    waiting: HashMap<Bytes, Vec<Done>>,
    /// Number of answers on all connections so far.
    pub(super) answered: u64,
}

impl Channels {
    /// Notes a change. Returns the request that carries it out at the server.
    pub(super) fn change(&mut self, change: Change) -> Option<Request> {
        match change {
            Change::Subscribe(channel, done) => {
                self.wanted.insert(channel.clone());
                self.waiting.entry(channel.clone()).or_default().push(done);
                Some(Request::Subscribe(channel))
            }
            Change::Unsubscribe(channel, done) => {
                self.wanted.remove(&channel);
                self.waiting.remove(&channel);
                Some(Request::Unsubscribe(channel, done))
            }
            Change::Forget(channel) => {
                self.wanted.remove(&channel);
                None
            }
        }
    }

    /// Passes the answer to a subscription on to the callers that wait for it. Returns false if the subscription is
    /// refused and no caller waits. The channel then stays wanted for the callers that subscribed before, and the next
    /// connection tries again.
    pub(super) fn subscribed(&mut self, channel: &Bytes, outcome: &Result<(), Fault>) -> bool {
        if let Err(Fault { message: error, .. }) = outcome {
            if !self.waiting.contains_key(channel) {
                tracing::warn!(error, "a subscription could not be restored: waiters poll");
                return false;
            }
            self.wanted.remove(channel);
        }
        for done in self.waiting.remove(channel).into_iter().flatten() {
            let _ = done.send(outcome.clone());
        }
        true
    }

    pub(super) fn slim(&mut self) {
        slim_set(&mut self.wanted);
        slim(&mut self.waiting);
    }
}
