//! The connection for messages: one task subscribes, hands every message on, and notices a connection that has fallen silent.

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
use super::wire::{Answer, Incoming, write_words};
use crate::runtime::standstill::limit_over;
use crate::slim::{slim, slim_set};
use crate::transport::demotions::Demotions;
use crate::transport::outage::Outage;
use crate::transport::{Fault, FaultKind, Listener, Reply};

/// So many changes are seen to between two reads.
const CHANGES_AT_ONCE: usize = 64;

/// What is kept of the room for answers that are awaited, and for bytes to be written, when there are none.
const FEW: usize = 64;
const BYTES_KEPT: usize = 16 << 10;

/// A change of what is subscribed to. Whoever asks for it is told when the server has confirmed it.
pub(super) enum Change {
    Subscribe(Bytes, oneshot::Sender<Result<(), Fault>>),
    Unsubscribe(Bytes, oneshot::Sender<Result<(), Fault>>),
    /// It has ended: nothing is sent for it.
    Forget(Bytes),
}

/// What the server is to answer next.
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
    /// How long the answer to a ping may take.
    pub(super) ping_timeout: Duration,
    /// Channels are a slot's own.
    pub(super) sharded: bool,
    pub(super) changes: mpsc::UnboundedReceiver<Change>,
    /// Demotions that connections for commands have met.
    pub(super) demotions: Demotions,
    /// Time without a connection after which waiters are told.
    pub(super) deaf_after: Duration,
    /// Timer that runs out when waiters must be told.
    pub(super) away: Option<Pin<Box<Sleep>>>,
    /// True once waiters were told, until all subscriptions are confirmed again: they are told once per outage.
    pub(super) was_deaf: bool,
}

/// A connection that stands, and what is under way on it.
struct Standing {
    opened: Opened,
    out: Vec<u8>,
    expected: VecDeque<Expected>,
    /// How many of them are answers to subscribing to a channel.
    subscribing: HashMap<Bytes, usize>,
    /// When a ping, or the next of the subscriptions before it, is overdue.
    overdue: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// How long each of them may take.
    timeout: Duration,
    /// Subscriptions are being made anew: once they stand, every waiter has to look for itself.
    is_anew: bool,
    kind: &'static Kind,
}

/// Which channels they are: the words by which a server speaks of them.
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
    /// Who waits until a channel's subscription is confirmed.
    waiting: HashMap<Bytes, Vec<oneshot::Sender<Result<(), Fault>>>>,
    /// How much of what was asked of all connections so far has been answered.
    answered: u64,
}

impl Messages {
    /// Keeps the connection for as long as anybody may ask something of it. `first`: a connection that stands already.
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

    /// Connects. What is asked meanwhile is done when the connection stands. None: nobody can ask any more.
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
                        tracing::warn!(
                            error,
                            "no connection for messages: waiters look for themselves until there is one"
                        );
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

    /// Serves a connection until it is gone: why it is. None: nobody can ask any more.
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
                // All subscriptions stand: from here on it is as before the break.
                outage.ends(&self.listener);
                (self.away, self.was_deaf) = (None, false);
            }
            if let Err(why) = read {
                return Some(why);
            }
            // While messages flood in, there is always something to read below.
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

/// Waits until the sleep ends; forever if there is none.
async fn is_over(sleep: &mut Option<Pin<Box<Sleep>>>) {
    match sleep {
        Some(sleep) => sleep.await,
        None => std::future::pending().await,
    }
}

impl Channels {
    /// Gives back what a crowd has filled.
    fn slim(&mut self) {
        slim_set(&mut self.wanted);
        slim(&mut self.waiting);
    }

    /// What is wanted of a connection that does not stand yet.
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
                // With the connection the subscription is gone.
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
    /// One channel a command: each has one reply, be it an error.
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

    /// Takes in all that is here.
    fn read_all(&mut self, channels: &mut Channels, listener: &OnceLock<Weak<dyn Listener>>) -> Result<(), Trouble> {
        let answered = channels.answered;
        loop {
            let incoming = self.opened.input.next().map_err(|garbage| Trouble::new(garbage.to_string()))?;
            let Some(Incoming::Reply(answer) | Incoming::Push(answer)) = incoming else {
                if self.overdue.is_some() && channels.answered > answered {
                    // It is at work: a crowd of subscriptions takes its time.
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
                // The slot of the channel has left this server.
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

    /// The channel whose subscription the server has ended although nobody asked it to: it does when it loses the slot. Where
    /// somebody has asked meanwhile, the answer to that is taken for this one.
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

    /// Takes what is no message for the answer to what was asked first. The channel whose subscription could not be made anew by that.
    fn expected(&mut self, answer: &Answer, channels: &mut Channels) -> Result<Option<Bytes>, Trouble> {
        let expected = self.expected.pop_front().ok_or_else(odd)?;
        let outcome = match answer {
            Ok(reply) => expected.is_by(reply, self.kind).then_some(()).ok_or_else(odd).map(Ok)?,
            Err(error) => Err(Fault::new(FaultKind::Refused, error.clone())),
        };
        channels.answered += 1;
        match expected {
            // Who may not ping has had an answer all the same.
            Expected::Pong => self.overdue = None,
            Expected::Subscribed(channel) => {
                let pending = self.subscribing.remove(&channel).unwrap_or(1) - 1;
                if pending > 0 {
                    // Nobody is told before the last of several that were asked for.
                    self.subscribing.insert(channel, pending);
                    return Ok(None);
                }
                match &outcome {
                    Err(_) if channels.waiting.contains_key(&channel) => drop(channels.wanted.remove(&channel)),
                    // Still wanted by those who had it before: the next connection tries again, if not they.
                    Err(Fault { message: error, .. }) => {
                        tracing::warn!(error, "a subscription could not be made anew: waiters look for themselves");
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
    /// True where this reply confirms it.
    fn is_by(&self, reply: &Reply, of: &Kind) -> bool {
        let parts = if let Reply::List(parts) = reply { parts.as_slice() } else { &[] };
        match (self, parts) {
            (Self::Subscribed(channel), [Reply::Text(kind), Reply::Text(which), _]) => {
                kind == of.subscribed && which == channel
            }
            (Self::Unsubscribed(channel, _), [Reply::Text(kind), Reply::Text(which), _]) => {
                kind == of.unsubscribed && which == channel
            }
            // In the second version of the protocol, with subscriptions, it is a list.
            (Self::Pong, [Reply::Text(kind), _]) => kind == "pong",
            (Self::Pong, []) => matches!(reply, Reply::Text(text) if text == "PONG"),
            _ => false,
        }
    }
}

fn odd() -> Trouble {
    Trouble::new("the server has answered what nobody asked")
}

/// The channel and the payload of a message.
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

/// Writes what the socket takes; true where it takes no more.
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
