//! The state of a simulated server and its clients' connections, as one event queue in virtual time.

mod send;

use std::collections::{BinaryHeap, VecDeque};

use bytes::Bytes;
use tokio::time::Instant;

use super::commands;
use super::events::{Event, What};
use super::faults::LinkOptions;
use super::line::Line;
use super::lua::{self, Word};
use super::place::Gossip;
use super::random::Random;
use super::reply::SimReply;
use super::store::{Entry, FxMap, Store};
use distlock::transport::{Call, Fault, Reply};
pub(super) use send::Sent;

/// The wall clock of a new server, in microseconds since 1970.
const EPOCH: i64 = 1_700_000_000_000_000;

pub(super) type Outcome = Result<Reply, Fault>;

#[derive(Clone, Debug)]
pub(super) enum Request {
    Run(Call),
    Subscribe(Bytes),
    Unsubscribe(Bytes),
}

/// The fate of a reply on its way to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Delivered,
    /// The client is notified of the loss.
    Lost,
    Swallowed,
}

/// A request in flight.
#[derive(Debug)]
pub(super) struct Parcel {
    pub(super) line: usize,
    pub(super) life: u64,
    pub(super) ticket: u64,
    pub(super) request: Request,
    pub(super) refusal: Option<String>,
    pub(super) fate: Fate,
    /// The request has reached a frozen server. Nothing on the network can delay it any more.
    pub(super) arrived: bool,
    /// The request travels apart from its connection, which may break or be replaced before the request arrives.
    pub(super) stray: bool,
}

/// Returns the end of each word in the concatenation of all words.
pub(super) fn ends(words: &[&[u8]]) -> Vec<usize> {
    let mut end = 0;
    words
        .iter()
        .map(|word| {
            end += word.len();
            end
        })
        .collect()
}

pub(super) struct Core {
    pub(super) store: Store,
    seed: u64,
    start: Instant,
    pub(super) offset_ms: i64,
    pub(super) lines: Vec<Line>,
    pub(super) queue: BinaryHeap<Event>,
    order: u64,
    /// Last order number of [`Core::schedule_first`]. Counts up from 0, so it stays below `order`, and these events run
    /// before all others.
    early: u64,
    pub(super) frozen: Option<VecDeque<Parcel>>,
    pub(super) down: bool,
    pub(super) commands: u64,
    pub(super) scripts: u64,
    pub(super) driving: bool,
    /// Published messages since the last `overhear`; None until the first call of it.
    pub(super) overheard: Option<Vec<(Bytes, Bytes)>>,
    /// Gossip of other nodes that arrived while the server was frozen.
    pub(super) unheard: Vec<Gossip>,
    /// The last states of the data that a replica received, the newest last.
    pub(super) past: Option<VecDeque<FxMap<Bytes, Entry>>>,
    /// The server is cut off from its replica.
    pub(super) unreplicated: bool,
}

/// The number of a primary's last writes that a promotion can lose, at most.
pub(super) const PAST: usize = 8;

impl Core {
    pub(super) fn new(seed: u64, start: Instant) -> Self {
        Self {
            // Lines (`line.rs`) use the streams from 1 on.
            store: Store::with(Random::new(seed, 0)),
            seed,
            start,
            offset_ms: 0,
            lines: Vec::new(),
            queue: BinaryHeap::new(),
            order: 1 << 40,
            early: 0,
            frozen: None,
            down: false,
            commands: 0,
            scripts: 0,
            driving: false,
            overheard: None,
            unheard: Vec::new(),
            past: None,
            unreplicated: false,
        }
    }

    pub(super) fn add_line(&mut self, options: LinkOptions) -> usize {
        let mut line = Line::new(options, self.seed, self.lines.len() as u64);
        line.connected = !self.down;
        self.lines.push(line);
        self.lines.len() - 1
    }

    /// Sets the store's clock to `now`. The clock then stands still until the next call.
    pub(super) fn tick(&mut self, now: Instant) {
        let elapsed = i64::try_from(now.saturating_duration_since(self.start).as_micros()).unwrap_or(i64::MAX / 2);
        self.store.set_clock(EPOCH + elapsed + self.offset_ms * 1000);
    }

    pub(super) fn schedule(&mut self, at: Instant, what: What) {
        self.order += 1;
        self.queue.push(Event { at, order: self.order, what });
    }

    /// Schedules an event that runs before every other event in the queue.
    pub(super) fn schedule_first(&mut self, what: What) {
        self.early += 1;
        self.queue.push(Event { at: self.start, order: self.early, what });
    }

    pub(super) fn has_events(&self) -> bool {
        !self.queue.is_empty()
    }

    pub(super) fn execute(&mut self, index: usize, request: &Request, now: Instant) -> Outcome {
        self.commands += 1;
        match request {
            Request::Run(call) => {
                self.scripts += 1;
                self.tick(now);
                let told = self.of_cluster(index, call);
                let told = told.unwrap_or_else(|| Ok(self.run(call)));
                self.end_of_command();
                self.spread(now);
                let reply = told?;
                tracing::trace!(link = index, script = call.script.name, words = ?call.words, ?reply, "the server ran");
                reply.into_engine()
            }
            Request::Subscribe(channel) => {
                if let Some(refusal) = self.refuses(channel) {
                    tracing::trace!(link = index, ?channel, ?refusal, "the server refused to subscribe it");
                    return Err(refusal);
                }
                if self.lines[index].closed {
                    // The connection closed while the request was in flight, and its subscriptions ended with it.
                    return Ok(Reply::Nil);
                }
                tracing::trace!(link = index, ?channel, "the server subscribed it");
                if self.lines[index].subscriptions.insert(channel.clone()) {
                    *self.store.audience.entry(channel.clone()).or_default() += 1;
                }
                Ok(Reply::Nil)
            }
            Request::Unsubscribe(channel) => {
                tracing::trace!(link = index, ?channel, "the server unsubscribed it");
                if self.lines[index].subscriptions.remove(channel) {
                    self.leave(channel);
                }
                Ok(Reply::Nil)
            }
        }
    }

    fn run(&mut self, call: &Call) -> SimReply {
        let (keys, args) = call.words.split_at(call.keys.min(call.words.len()));
        match call.script.command {
            Some(command) => commands::of_client(&mut self.store, command, &call.words),
            None => {
                let (keys, args) = (keys.iter().map(Word::from), args.iter().map(Word::from));
                lua::eval(&mut self.store, &call.script.sha(), call.script.source, keys, args)
            }
        }
    }

    pub(super) fn leave(&mut self, channel: &Bytes) {
        if let Some(n) = self.store.audience.get_mut(channel) {
            *n -= 1;
            if *n == 0 {
                self.store.audience.remove(channel);
            }
        }
    }

    /// Sends every published message to its subscribers.
    pub(super) fn spread(&mut self, now: Instant) {
        if self.store.outbox.is_empty() {
            return;
        }
        for (channel, payload) in std::mem::take(&mut self.store.outbox) {
            if let Some(overheard) = &mut self.overheard {
                overheard.push((channel.clone(), payload.clone()));
            }
            for index in 0..self.lines.len() {
                let line = &mut self.lines[index];
                if !line.connected
                    || !line.subscriptions.contains(&channel)
                    || line.random.chance(line.chaos.lose_message)
                {
                    continue;
                }
                let copies = if line.random.chance(line.chaos.duplicate_message) { 2 } else { 1 };
                for _ in 0..copies {
                    let line = &mut self.lines[index];
                    let mut at = now + line.latency();
                    if line.random.chance(line.chaos.reorder_message) {
                        at += line.latency() * 4;
                    } else {
                        at = at.max(line.last_message.unwrap_or(at));
                        line.last_message = Some(at);
                    }
                    let life = line.life;
                    let (channel, payload) = (channel.clone(), payload.clone());
                    self.schedule(at, What::Message { line: index, life, channel, payload });
                }
            }
        }
    }
}
