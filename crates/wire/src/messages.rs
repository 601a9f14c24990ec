//! The task of the connection for messages.
//!
//! 1. It connects, with a back-off. Changes that are requested meanwhile are noted.
//! 2. It subscribes to all wanted channels, each by a command of its own, and sends a `PING`.
//! 3. After the reply to the `PING`, all subscriptions have been answered. The listener is told that messages may have
//!    been missed.
//! 4. It passes messages on, and carries out changes. It sends a `PING` from time to time to detect a silent
//!    connection.
//! 5. When the connection breaks, is silent, or has to follow a demotion, it starts again. If step 3 is not reached
//!    within `deaf_after`, the listener is told, once per outage.

use std::collections::{HashMap, HashSet, VecDeque};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncReadExt as _;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Sleep;

use super::dial::{Dialer, Opened, Pauses, Trouble};
use super::resp::{Answer, Incoming, write_words};
use crate::demotions::Demotions;
use crate::outage::Outage;
use crate::slim::{slim, slim_set};
use crate::standstill::limit_over;
use crate::{Fault, FaultKind, Listener, Reply};

/// Maximum number of changes between two reads.
const CHANGES_AT_ONCE: usize = 64;

/// Capacity that is kept when there is nothing to do: expected answers, and bytes to write.
const FEW: usize = 64;
const BYTES_KEPT: usize = 16 << 10;

/// A requested change of the subscriptions. The sender is notified when the server has confirmed it.
pub(super) enum Change {
    Subscribe(Bytes, oneshot::Sender<Result<(), Fault>>),
    Unsubscribe(Bytes, oneshot::Sender<Result<(), Fault>>),
    /// The subscription has ended, so nothing is sent.
    Forget(Bytes),
}

/// The next answer that the server owes.
enum Expected {
    Subscribed(Bytes),
    Unsubscribed(Bytes, oneshot::Sender<Result<(), Fault>>),
    Pong,
}

/// The task of the connection for messages.
pub(super) struct Messages {
    pub(super) dialer: Arc<Dialer>,
    pub(super) listener: Arc<OnceLock<Weak<dyn Listener>>>,
    pub(super) ping_interval: Duration,
    /// Time limit for the reply to a `PING`.
    pub(super) ping_timeout: Duration,
    /// True if each channel belongs to one slot.
    pub(super) sharded: bool,
    pub(super) changes: mpsc::UnboundedReceiver<Change>,
    /// Reports of demotions by the connections for commands.
    pub(super) demotions: Demotions,
    /// Time without a connection after which the listener is told.
    pub(super) deaf_after: Duration,
    /// Timer for `deaf_after`.
    pub(super) away: Option<Pin<Box<Sleep>>>,
    /// True from when the listener was told until all subscriptions are confirmed again: it is told once per outage.
    pub(super) was_deaf: bool,
}

/// A connection that is up, and its commands in flight.
struct Standing {
    opened: Opened,
    out: Vec<u8>,
    expected: VecDeque<Expected>,
    /// Number of expected answers to subscribing, per channel.
    subscribing: HashMap<Bytes, usize>,
    /// Ends when the `PING`, or the next subscription before it, is overdue.
    overdue: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// Time limit of each of these.
    timeout: Duration,
    /// True while subscriptions are being renewed. When that is done, every waiter has to ask the server once.
    is_anew: bool,
    kind: &'static Kind,
}

/// The server's words for one kind of channel.
#[derive(Debug)]
struct Kind {
    subscribe: &'static [u8],
    unsubscribe: &'static [u8],
    subscribed: &'static str,
    unsubscribed: &'static str,
    message: &'static str,
}

static PLAIN: Kind = Kind {
    subscribe: b"SUBSCRIBE",
    unsubscribe: b"UNSUBSCRIBE",
    subscribed: "subscribe",
    unsubscribed: "unsubscribe",
    message: "message",
};
static SHARDED: Kind = Kind {
    subscribe: b"SSUBSCRIBE",
    unsubscribe: b"SUNSUBSCRIBE",
    subscribed: "ssubscribe",
    unsubscribed: "sunsubscribe",
    message: "smessage",
};

#[derive(Default)]
struct Channels {
    wanted: HashSet<Bytes>,
    /// Callers that wait for the confirmation of a channel's subscription.
    waiting: HashMap<Bytes, Vec<oneshot::Sender<Result<(), Fault>>>>,
    /// Number of answers on all connections so far.
    answered: u64,
}

impl Messages {
    /// Keeps the connection up while changes can be requested. `first`: a connection that is already up.
    pub(super) async fn run(mut self, first: Option<Opened>) {
        let (mut channels, mut pauses, mut outage) = (Channels::default(), Pauses::default(), Outage::default());
        let mut next = first;
        let mut is_new = next.is_none();
        loop {
            let opened = match next.take() {
                Some(opened) => opened,
                None => match self.connect(&mut channels, &mut pauses).await {
                    Some(opened) => opened,
                    None => return,
                },
            };
            let (since, answered) = (tokio::time::Instant::now(), channels.answered);
            if self.serve(opened, &mut channels, &mut outage, is_new).await.is_none() {
                return;
            }
            outage.begins(&self.listener);
            if !self.was_deaf {
                self.away.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.deaf_after)));
            }
            pauses.stood(since.elapsed(), channels.answered > answered);
            is_new = true;
        }
    }

    /// Connects. Changes that are requested meanwhile are noted. Returns `None` if none can be requested any more.
    async fn connect(&mut self, channels: &mut Channels, pauses: &mut Pauses) -> Option<Opened> {
        let (dialer, mut demotions) = (Arc::clone(&self.dialer), self.demotions.clone());
        let mut connecting = Box::pin(async move {
            let mut is_told = false;
            loop {
                pauses.pause().await;
                demotions.dials();
                match dialer.open().await {
                    Some(Ok(opened)) => return (opened, demotions),
                    Some(Err(Trouble { message: error, .. })) if !is_told => {
                        tracing::warn!(error, "no connection for messages: waiters poll until it is restored");
                        is_told = true;
                    }
                    Some(Err(_)) | None => {}
                }
            }
        });
        loop {
            tokio::select! {
                (opened, demotions) = &mut connecting => {
                    self.demotions = demotions;
                    return Some(opened);
                }
                change = self.changes.recv() => channels.note(change?),
                () = is_over(&mut self.away) => self.is_deaf(),
            }
        }
    }

    /// Serves a connection until it is gone, and returns the reason. Returns `None` if no changes can be requested any
    /// more.
    async fn serve(
        &mut self,
        opened: Opened,
        channels: &mut Channels,
        outage: &mut Outage,
        is_new: bool,
    ) -> Option<Trouble> {
        let kind = if self.sharded { &SHARDED } else { &PLAIN };
        let mut standing = Standing {
            opened,
            out: Vec::new(),
            expected: VecDeque::new(),
            subscribing: HashMap::new(),
            overdue: None,
            timeout: self.ping_timeout,
            is_anew: is_new,
            kind,
        };
        if is_new {
            for channel in &channels.wanted {
                standing.subscribe(channel.clone());
            }
            standing.ping();
        }
        let mut due = Box::pin(tokio::time::sleep(self.ping_interval));
        loop {
            let read = standing.read_all(channels, &self.listener);
            if !standing.is_anew {
                // All subscriptions have been answered, so the outage is over.
                outage.ends(&self.listener);
                (self.away, self.was_deaf) = (None, false);
            }
            if let Err(why) = read {
                return Some(why);
            }
            // During a flood of messages, the `select!` below always reads and never takes a change.
            for change in std::iter::from_fn(|| self.changes.try_recv().ok()).take(CHANGES_AT_ONCE) {
                standing.take(channels, change);
            }
            let Standing { opened: Opened { reader, writer, input }, out, overdue, .. } = &mut standing;
            let is_full = match write(writer, out) {
                Ok(is_full) => is_full,
                Err(error) => return Some(error.into()),
            };
            tokio::select! {
                biased;
                read = reader.read_buf(input.room()) => match read {
                    Ok(0) => return Some(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                    Ok(_) => {}
                    Err(error) => return Some(error.into()),
                },
                change = self.changes.recv() => standing.take(channels, change?),
                room = poll_fn(|context| writer.poll_room(context)), if is_full => {
                    if let Err(error) = room {
                        return Some(error.into());
                    }
                }
                () = async { if let Some(overdue) = overdue { overdue.await } }, if overdue.is_some() => {
                    let error = "no answer in time";
                    tracing::warn!(%error, "the connection for messages is silent: reconnecting");
                    return Some(Trouble::new(error));
                }
                () = is_over(&mut self.away) => self.is_deaf(),
                () = self.demotions.reported() => {
                    let error = "the server was demoted";
                    tracing::warn!(%error, "the connection for messages follows that for commands: reconnecting");
                    return Some(Trouble::new(error));
                }
                () = &mut due => {
                    due.as_mut().reset(tokio::time::Instant::now() + self.ping_interval);
                    standing.ping();
                }
            }
        }
    }
}

impl Messages {
    /// Tells the listener that there has been no connection for a while.
    fn is_deaf(&mut self) {
        (self.away, self.was_deaf) = (None, true);
        if let Some(listener) = self.listener.get().and_then(Weak::upgrade) {
            listener.deaf();
        }
    }
}

/// Waits for the end of the sleep, or for ever if there is none.
async fn is_over(sleep: &mut Option<Pin<Box<Sleep>>>) {
    match sleep {
        Some(sleep) => sleep.await,
        None => std::future::pending().await,
    }
}

impl Channels {
    /// Releases memory that a crowd of subscriptions has used.
    fn slim(&mut self) {
        slim_set(&mut self.wanted);
        slim(&mut self.waiting);
    }

    /// Notes a change while there is no connection.
    fn note(&mut self, change: Change) {
        match change {
            Change::Subscribe(channel, done) => {
                self.wanted.insert(channel.clone());
                self.waiting.entry(channel).or_default().push(done);
            }
            Change::Forget(channel) => {
                self.wanted.remove(&channel);
            }
            Change::Unsubscribe(channel, done) => {
                self.wanted.remove(&channel);
                self.waiting.remove(&channel);
                // The subscription is gone with the connection.
                let _ = done.send(Ok(()));
            }
        }
    }

    fn confirmed(&mut self, channel: &Bytes, outcome: &Result<(), Fault>) {
        for done in self.waiting.remove(channel).into_iter().flatten() {
            let _ = done.send(outcome.clone());
        }
    }
}

impl Standing {
    /// Sends one command per channel, so each command has exactly one reply, even if it is an error.
    fn subscribe(&mut self, channel: Bytes) {
        write_words(&mut self.out, &[self.kind.subscribe, &channel]);
        *self.subscribing.entry(channel.clone()).or_default() += 1;
        self.expected.push_back(Expected::Subscribed(channel));
    }

    fn ping(&mut self) {
        if self.overdue.is_none() {
            write_words(&mut self.out, &[b"PING"]);
            self.expected.push_back(Expected::Pong);
            self.overdue = Some(Box::pin(limit_over(self.timeout)));
        }
    }

    fn take(&mut self, channels: &mut Channels, change: Change) {
        match change {
            Change::Subscribe(channel, done) => {
                channels.wanted.insert(channel.clone());
                channels.waiting.entry(channel.clone()).or_default().push(done);
                self.subscribe(channel);
            }
            Change::Forget(channel) => {
                channels.wanted.remove(&channel);
            }
            Change::Unsubscribe(channel, done) => {
                channels.wanted.remove(&channel);
                channels.waiting.remove(&channel);
                write_words(&mut self.out, &[self.kind.unsubscribe, &channel]);
                self.expected.push_back(Expected::Unsubscribed(channel, done));
            }
        }
    }

    /// Handles everything that was received.
    fn read_all(&mut self, channels: &mut Channels, listener: &OnceLock<Weak<dyn Listener>>) -> Result<(), Trouble> {
        let answered = channels.answered;
        loop {
            let incoming = self.opened.input.next().map_err(|garbage| Trouble::new(garbage.to_string()))?;
            let Some(Incoming::Reply(answer) | Incoming::Push(answer)) = incoming else {
                if self.overdue.is_some() && channels.answered > answered {
                    // The server is at work: a crowd of subscriptions takes time.
                    self.overdue = Some(Box::pin(limit_over(self.timeout)));
                }
                return Ok(());
            };
            if let Some((channel, payload)) = message(&answer, self.kind) {
                if let Some(listener) = listener.get().and_then(Weak::upgrade) {
                    listener.message(channel, payload);
                }
                continue;
            }
            if let Some(channel) = self.ended(&answer, channels) {
                // The channel's slot has left this server.
                if let Some(listener) = listener.get().and_then(Weak::upgrade) {
                    listener.ended(&channel);
                }
                continue;
            }
            if let Some(channel) = self.expected(&answer, channels)?
                && let Some(listener) = listener.get().and_then(Weak::upgrade)
            {
                listener.ended(&channel);
            }
            if self.is_anew && self.overdue.is_none() {
                self.is_anew = false;
                if let Some(listener) = listener.get().and_then(Weak::upgrade) {
                    listener.missed();
                }
            }
        }
    }

    /// Returns the channel of a subscription that the server has ended by itself, as it does when it loses the slot. If
    /// the next expected answer is to an unsubscribe from that channel, this push counts as that answer.
    fn ended(&self, answer: &Answer, channels: &mut Channels) -> Option<Bytes> {
        let Ok(Reply::List(parts)) = answer else { return None };
        let [Reply::Text(kind), Reply::Text(channel), _] = parts.as_slice() else { return None };
        let is_asked = matches!(self.expected.front(), Some(Expected::Unsubscribed(asked, _)) if asked == channel);
        if self.kind.subscribed != SHARDED.subscribed || kind != self.kind.unsubscribed || is_asked {
            return None;
        }
        if !self.subscribing.contains_key(channel) {
            channels.wanted.remove(channel);
        }
        Some(channel.clone())
    }

    /// Takes an answer that is no message as the answer to the oldest request. Returns the channel if its subscription
    /// could not be renewed.
    fn expected(&mut self, answer: &Answer, channels: &mut Channels) -> Result<Option<Bytes>, Trouble> {
        let expected = self.expected.pop_front().ok_or_else(odd)?;
        let outcome = match answer {
            Ok(reply) => expected.is_by(reply, self.kind).then_some(()).ok_or_else(odd).map(Ok)?,
            Err(error) => Err(Fault::new(FaultKind::Refused, error.clone())),
        };
        channels.answered += 1;
        match expected {
            // An error is an answer too: the login may not use `PING`.
            Expected::Pong => self.overdue = None,
            Expected::Subscribed(channel) => {
                let pending = self.subscribing.remove(&channel).unwrap_or(1) - 1;
                if pending > 0 {
                    // Callers are told only after the last of several requests for the channel.
                    self.subscribing.insert(channel, pending);
                    return Ok(None);
                }
                match &outcome {
                    Err(_) if channels.waiting.contains_key(&channel) => drop(channels.wanted.remove(&channel)),
                    // Earlier callers still want the channel. They, or the next connection, try again.
                    Err(Fault { message: error, .. }) => {
                        tracing::warn!(error, "a subscription could not be restored: waiters poll");
                        return Ok(Some(channel));
                    }
                    Ok(()) => {}
                }
                channels.confirmed(&channel, &outcome);
            }
            Expected::Unsubscribed(_, done) => {
                let _ = done.send(outcome);
                channels.slim();
                slim(&mut self.subscribing);
                if self.expected.is_empty() {
                    self.expected.shrink_to(FEW);
                    self.out.shrink_to(BYTES_KEPT);
                }
            }
        }
        Ok(None)
    }
}

impl Expected {
    /// True if this reply confirms the request.
    fn is_by(&self, reply: &Reply, of: &Kind) -> bool {
        let parts = if let Reply::List(parts) = reply { parts.as_slice() } else { &[] };
        match (self, parts) {
            (Self::Subscribed(channel), [Reply::Text(kind), Reply::Text(which), _]) => {
                kind == of.subscribed && which == channel
            }
            (Self::Unsubscribed(channel, _), [Reply::Text(kind), Reply::Text(which), _]) => {
                kind == of.unsubscribed && which == channel
            }
            // With RESP2, the reply is a list while there are subscriptions.
            (Self::Pong, [Reply::Text(kind), _]) => kind == "pong",
            (Self::Pong, []) => matches!(reply, Reply::Text(text) if text == "PONG"),
            _ => false,
        }
    }
}

fn odd() -> Trouble {
    Trouble::new("the server sent a reply that nobody asked for")
}

/// Returns the channel and the payload of a message.
fn message<'a>(answer: &'a Answer, of: &Kind) -> Option<(&'a [u8], &'a [u8])> {
    match answer.as_ref().ok()? {
        Reply::List(parts) => match parts.as_slice() {
            [Reply::Text(kind), Reply::Text(channel), Reply::Text(payload)] if kind == of.message => {
                Some((channel, payload))
            }
            _ => None,
        },
        _ => None,
    }
}

/// Writes until the socket has no room. Returns true if bytes are left.
fn write(writer: &super::link::Writer, out: &mut Vec<u8>) -> io::Result<bool> {
    while !out.is_empty() {
        match writer.try_write(out) {
            Ok(bytes) => drop(out.drain(..bytes)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(writer.is_behind())
}
