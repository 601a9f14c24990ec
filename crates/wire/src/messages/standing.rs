//! A connection for messages that is up, and its requests in flight.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;

use super::Opened;
use super::channels::{Change, Channels, Request};
use super::words::{Kind, message, named};
use crate::resp::{Answer, Incoming, write_words};
use crate::slim::slim;
use crate::standstill::limit_over;
use crate::{Fault, FaultKind, ListenerSlot};

/// Capacity that is kept when no request is in flight: in requests, and in bytes to write.
const FEW: usize = 64;
const BYTES_KEPT: usize = 16 << 10;

pub(super) struct Standing {
    pub(super) opened: Opened,
    kind: &'static Kind,
    out: Vec<u8>,
    /// Requests without an answer, in the order of their answers.
    requests: VecDeque<Request>,
    /// Number of unanswered subscribe requests, per channel.
    subscribing: HashMap<Bytes, usize>,
    /// Timer of an unanswered `PING`. Each answer to another request restarts the timer.
    pub(super) overdue: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// Time limit of `overdue`.
    timeout: Duration,
    /// True while subscriptions are being renewed. Afterwards every waiter has to query the server once.
    pub(super) is_renewing: bool,
}

impl Standing {
    pub(super) fn new(opened: Opened, kind: &'static Kind, timeout: Duration) -> Self {
        let (out, requests, subscribing) = (Vec::new(), VecDeque::new(), HashMap::new());
        Self { opened, kind, out, requests, subscribing, overdue: None, timeout, is_renewing: false }
    }

    /// Subscribes to all wanted channels again, after a reconnect.
    pub(super) fn renew(&mut self, channels: &Channels) {
        self.is_renewing = true;
        for channel in &channels.wanted {
            self.request(Request::Subscribe(channel.clone()));
        }
        self.ping();
    }

    pub(super) fn change(&mut self, channels: &mut Channels, change: Change) {
        if let Some(request) = channels.change(change) {
            self.request(request);
        }
    }

    pub(super) fn ping(&mut self) {
        if self.overdue.is_none() {
            self.request(Request::Ping);
            self.overdue = Some(Box::pin(limit_over(self.timeout)));
        }
    }

    fn request(&mut self, request: Request) {
        let (out, kind) = (&mut self.out, self.kind);
        match &request {
            Request::Subscribe(channel) => {
                write_words(out, &[kind.subscribe, channel]);
                *self.subscribing.entry(channel.clone()).or_default() += 1;
            }
            Request::Unsubscribe(channel, _) => write_words(out, &[kind.unsubscribe, channel]),
            Request::Ping => write_words(out, &[b"PING"]),
        }
        self.requests.push_back(request);
    }

    /// Writes until the socket has no room. Returns true if bytes are left.
    pub(super) fn write(&mut self) -> io::Result<bool> {
        while !self.out.is_empty() {
            match self.opened.writer.try_write(&self.out)? {
                Some(bytes) => drop(self.out.drain(..bytes)),
                None => return Ok(true),
            }
        }
        Ok(self.opened.writer.is_behind())
    }

    /// Handles everything that was received. Returns `None` if the server has sent something unexpected.
    pub(super) fn read_all(&mut self, channels: &mut Channels, listener: &ListenerSlot) -> Option<()> {
        let answered = channels.answered;
        while let Some(Incoming::Reply(answer) | Incoming::Push(answer)) = self.opened.input.next().ok()? {
            if let Some((channel, payload)) = message(&answer, self.kind) {
                listener.tell(|listener| listener.message(channel, payload));
                continue;
            }
            let ended = match self.ended(&answer, channels) {
                Some(channel) => Some(channel),
                None => self.answered(answer, channels)?,
            };
            if let Some(channel) = ended {
                listener.tell(|listener| listener.ended(&channel));
            }
            if self.is_renewing && self.overdue.is_none() {
                self.is_renewing = false;
                listener.tell(|listener| listener.missed());
            }
        }
        if self.overdue.is_some() && channels.answered > answered {
            // The server still answers, but many subscriptions take time.
            self.overdue = Some(Box::pin(limit_over(self.timeout)));
        }
        Some(())
    }

    /// Returns the channel of a subscription that the server has ended by itself, for example because its slot was
    /// moved. If the oldest request is an unsubscribe from that channel, the push is the answer to that request.
    fn ended(&self, answer: &Answer, channels: &mut Channels) -> Option<Bytes> {
        let (kind, channel, _) = named(answer)?;
        let is_asked = matches!(self.requests.front(), Some(Request::Unsubscribe(asked, _)) if asked == channel);
        if !self.kind.is_sharded || kind != self.kind.unsubscribed || is_asked {
            return None;
        }
        if !self.subscribing.contains_key(channel) {
            channels.wanted.remove(channel);
        }
        Some(channel.clone())
    }

    /// Handles the answer to the oldest request. Returns `None` if the answer does not fit the request, and
    /// `Some(Some(channel))` if the subscription to that channel could not be renewed.
    fn answered(&mut self, answer: Answer, channels: &mut Channels) -> Option<Option<Bytes>> {
        let request = self.requests.pop_front()?;
        if answer.is_ok() && !request.is_confirmed_by(&answer, self.kind) {
            return None;
        }
        let outcome = answer.map(drop).map_err(|error| Fault::new(FaultKind::Refused, error));
        channels.answered += 1;
        match request {
            // An error is an answer too: the user may lack the permission for `PING`.
            Request::Ping => self.overdue = None,
            Request::Subscribe(channel) => {
                let pending = self.subscribing.remove(&channel).unwrap_or(1) - 1;
                if pending > 0 {
                    // Callers are notified only after the last of several requests for the channel.
                    self.subscribing.insert(channel, pending);
                } else if !channels.subscribed(&channel, &outcome) {
                    return Some(Some(channel));
                }
            }
            Request::Unsubscribe(_, done) => {
                let _ = done.send(outcome);
                channels.slim();
                slim(&mut self.subscribing);
                if self.requests.is_empty() {
                    self.requests.shrink_to(FEW);
                    self.out.shrink_to(BYTES_KEPT);
                }
            }
        }
        Some(None)
    }
}

/// Waits for the end of a timer, or forever if there is none.
pub(super) async fn over(timer: &mut Option<impl Future<Output = ()> + Unpin>) {
    match timer {
        Some(timer) => timer.await,
        None => std::future::pending().await,
    }
}
