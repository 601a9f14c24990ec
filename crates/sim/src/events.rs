//! Carries out the events of the queue, and the faults that tests cause.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Weak;

use bytes::Bytes;
use tokio::time::Instant;

use super::core::{Core, Fate, Outcome, Parcel, Request};
use super::place::Gossip;
use distlock::transport::{Fault, FaultKind, Listener};

#[derive(Debug)]
pub(super) enum What {
    /// A request reaches the server.
    Arrive(Parcel),
    /// A reply reaches the client. `local`: the outcome, such as a broken connection, did not come over the network.
    Answer { line: usize, life: u64, ticket: u64, outcome: Outcome, local: bool },
    /// A message reaches the client.
    Message { line: usize, life: u64, channel: Bytes, payload: Bytes },
    /// A client is connected again.
    Back { line: usize, life: u64 },
    /// A client notices that its connection is broken.
    Broken { line: usize, life: u64 },
    /// A client learns that the server has ended a subscription.
    Ended { line: usize, life: u64, channel: Bytes },
    /// The server learns of a change in its cluster.
    Heard(Gossip),
}

impl What {
    /// Returns the connection that the event concerns, and the generation of that connection (`Line::life`).
    const fn line(&self) -> Option<(usize, u64)> {
        match self {
            Self::Arrive(parcel) => Some((parcel.line, parcel.life)),
            Self::Answer { line, life, .. }
            | Self::Message { line, life, .. }
            | Self::Ended { line, life, .. }
            | Self::Broken { line, life }
            | Self::Back { line, life } => Some((*line, *life)),
            Self::Heard(_) => None,
        }
    }
}

pub(super) struct Event {
    pub(super) at: Instant,
    pub(super) order: u64,
    pub(super) what: What,
}

impl Ord for Event {
    /// The earliest event is the greatest, so that the heap yields it first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for Event {}

/// News for a client's listener, delivered after the core's mutex is released.
pub(super) enum News {
    Message(Weak<dyn Listener>, Bytes, Bytes),
    /// The client is connected again. True if the listener was notified of the break.
    Back(Weak<dyn Listener>, bool),
    Broken(Weak<dyn Listener>),
    Ended(Weak<dyn Listener>, Bytes),
}

/// The driver's next step.
pub(super) enum Step {
    Idle,
    Wait(Instant),
    Tell(News),
    Again,
}

impl Core {
    /// Carries out the first event if its time has come.
    pub(super) fn step(&mut self, now: Instant) -> Step {
        let Some(first) = self.queue.peek() else { return Step::Idle };
        if first.at > now {
            return Step::Wait(first.at);
        }
        match self.queue.pop().and_then(|event| self.happen(event.what, now)) {
            Some(news) => Step::Tell(news),
            None => Step::Again,
        }
    }

    fn happen(&mut self, what: What, now: Instant) -> Option<News> {
        let Some((index, life)) = what.line() else {
            if let What::Heard(gossip) = what {
                self.hear(gossip, now);
            }
            return None;
        };
        if let What::Arrive(Parcel { stray: true, .. }) = what {
            if let (What::Arrive(parcel), false) = (what, self.down) {
                self.arrive(parcel, now);
            }
            return None;
        }
        let line = &mut self.lines[index];
        if life != line.life {
            return None;
        }
        let local = match &what {
            What::Answer { local, .. } => *local,
            What::Arrive(parcel) => parcel.arrived,
            What::Broken { .. } => true,
            What::Message { .. } | What::Ended { .. } | What::Back { .. } | What::Heard(_) => false,
        };
        if line.partitioned && !local {
            return None;
        }
        if let Some(held) = line.stalled.as_mut().filter(|_| !local) {
            held.push(what);
            return None;
        }
        match what {
            What::Arrive(parcel) => {
                self.arrive(parcel, now);
                None
            }
            What::Answer { ticket, outcome, .. } => {
                line.answer(ticket, outcome);
                None
            }
            What::Message { channel, payload, .. } => {
                // The client may have lost or closed its connection while the message was in flight.
                let heard = !line.deaf && !line.closed && line.connected;
                line.listener.clone().filter(|_| heard).map(|listener| News::Message(listener, channel, payload))
            }
            What::Broken { .. } => {
                let listener = line.listener.clone().filter(|_| !line.closed && !line.told_broken)?;
                line.told_broken = true;
                Some(News::Broken(listener))
            }
            What::Ended { channel, .. } => {
                line.wanted.remove(&channel);
                let heard = !line.closed && line.connected;
                line.listener.clone().filter(|_| heard).map(|listener| News::Ended(listener, channel))
            }
            What::Heard(_) => None,
            What::Back { .. } => self.line_is_back(index, now),
        }
    }

    fn line_is_back(&mut self, index: usize, now: Instant) -> Option<News> {
        if self.down {
            return None;
        }
        // Subscription changes of the broken connection are void, even if they wait at a frozen server.
        if let Some(waiting) = &mut self.frozen {
            waiting.retain(|parcel| parcel.line != index || matches!(parcel.request, Request::Run(_)));
        }
        self.join(index, now);
        let line = &mut self.lines[index];
        let told = std::mem::take(&mut line.told_broken);
        line.listener.clone().map(|listener| News::Back(listener, told))
    }

    fn arrive(&mut self, mut parcel: Parcel, now: Instant) {
        if let Some(waiting) = &mut self.frozen {
            parcel.arrived = true;
            waiting.push_back(parcel);
            return;
        }
        let outcome: Outcome = match parcel.refusal.take() {
            Some(text) => Err(Fault::new(FaultKind::Refused, text)),
            None => self.execute(parcel.line, &parcel.request, now),
        };
        let Parcel { line: index, life, ticket, fate, .. } = parcel;
        let line = &mut self.lines[index];
        let mut at = now + line.latency();
        if line.options.ordered {
            at = at.max(line.last_out.unwrap_or(at));
            line.last_out = Some(at);
        }
        match fate {
            Fate::Delivered => self.schedule(at, What::Answer { line: index, life, ticket, outcome, local: false }),
            Fate::Lost => {
                let outcome = Err(Fault::new(FaultKind::Lost, "the connection broke"));
                self.schedule(at, What::Answer { line: index, life, ticket, outcome, local: true });
            }
            Fate::Swallowed => {}
        }
    }

    /// Connects the line again and restores its subscriptions at the server.
    fn join(&mut self, index: usize, now: Instant) {
        let all = self.lines[index].wanted.clone();
        let (refused, wanted): (BTreeSet<Bytes>, BTreeSet<Bytes>) =
            all.into_iter().partition(|channel| self.refuses(channel).is_some());
        let line = &mut self.lines[index];
        tracing::trace!(link = index, ?wanted, "connected again");
        let before = std::mem::replace(&mut line.subscriptions, wanted.clone());
        if std::mem::replace(&mut line.connected, true) {
            for channel in before {
                self.leave(&channel);
            }
        }
        for channel in wanted {
            *self.store.audience.entry(channel).or_default() += 1;
        }
        for channel in refused {
            self.tell_of_end(index, channel, now);
        }
    }

    /// Breaks the line's connections. Everything in flight is lost.
    fn cut(&mut self, index: usize) {
        let line = &mut self.lines[index];
        line.life += 1;
        line.asking = false;
        line.stalled = line.stalled.take().map(|_| Vec::new());
        (line.last_in, line.last_out, line.last_message, line.last_change) = (None, None, None, None);
        line.fail_pending(FaultKind::Lost, "the connection broke");
        if line.connected {
            line.connected = false;
            let life = line.life;
            for channel in line.subscriptions.clone() {
                self.leave(&channel);
            }
            if self.store.place.is_some() {
                self.schedule_first(What::Broken { line: index, life });
            }
        }
    }

    /// Stops the server. Queued requests are lost.
    pub(super) fn stop(&mut self) {
        self.down = true;
        self.frozen = self.frozen.take().map(|_| Default::default());
        for index in 0..self.lines.len() {
            self.cut(index);
        }
    }

    pub(super) fn start(&mut self, keep_data: bool, now: Instant) {
        self.down = false;
        if !keep_data {
            self.store.clear();
        }
        for index in 0..self.lines.len() {
            self.reconnect(index, now);
        }
    }

    pub(super) fn hang_up(&mut self, index: usize, now: Instant) {
        self.cut(index);
        self.reconnect(index, now);
    }

    pub(super) fn reconnect(&mut self, index: usize, now: Instant) {
        let line = &self.lines[index];
        if !line.closed {
            let (at, life) = (now + line.options.reconnect, line.life);
            self.schedule(at, What::Back { line: index, life });
        }
    }

    pub(super) fn freeze(&mut self, frozen: bool, now: Instant) {
        if frozen {
            self.frozen.get_or_insert_default();
            return;
        }
        for parcel in self.frozen.take().unwrap_or_default() {
            self.schedule(now, What::Arrive(parcel));
        }
        // Waiting requests of clients are handled before waiting gossip.
        for gossip in std::mem::take(&mut self.unheard) {
            self.schedule(now, What::Heard(gossip));
        }
    }

    pub(super) fn partition(&mut self, index: usize, cut: bool, now: Instant) {
        let healed = self.lines[index].partitioned && !cut;
        self.lines[index].partitioned = cut;
        if healed && !self.down {
            self.reconnect(index, now);
        }
    }

    pub(super) fn stall(&mut self, index: usize, held: bool) {
        let line = &mut self.lines[index];
        if held {
            line.stalled.get_or_insert_default();
            return;
        }
        for what in line.stalled.take().unwrap_or_default() {
            self.schedule_first(what);
        }
    }

    pub(super) fn close(&mut self, index: usize) {
        self.lines[index].closed = true;
        self.lines[index].fail_pending(FaultKind::Closed, "the link is closed");
        let connected = self.lines[index].connected;
        for channel in std::mem::take(&mut self.lines[index].subscriptions) {
            if connected {
                self.leave(&channel);
            }
        }
    }
}
