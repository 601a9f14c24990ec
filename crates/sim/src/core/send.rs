//! Sends a request on a connection, and decides which faults the request meets on its way to the server.

use std::time::Duration;

use distlock::transport::{Fault, FaultKind};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Core, Fate, Outcome, Parcel, Request};
use crate::events::What;
use crate::faults::Mishap;
use crate::random::Random;

/// The result of sending a request: done at once, or in flight.
pub(crate) enum Sent {
    Done(Outcome),
    Waiting(u64, oneshot::Receiver<Outcome>),
}

/// The faults that a request meets on its way.
#[derive(Default)]
struct Way {
    /// How the client is notified that the request did not arrive.
    lost: Option<FaultKind>,
    swallowed: bool,
    twice: bool,
    delay: Duration,
    /// Delays of copies that arrive apart from the connection.
    late: Vec<Duration>,
}

impl Way {
    /// Combines the mishaps. Mishaps of the reply are noted in the parcel.
    fn of(mishaps: Vec<Mishap>, is_connected: bool, parcel: &mut Parcel) -> Self {
        let mut way = Self { lost: (!is_connected).then_some(FaultKind::NotSent), ..Self::default() };
        let mut only = false;
        for mishap in mishaps {
            match mishap {
                Mishap::LoseRequest => way.lost = way.lost.or(Some(FaultKind::Lost)),
                Mishap::SwallowRequest => way.swallowed = true,
                Mishap::NotSent => way.lost = Some(FaultKind::NotSent),
                Mishap::LoseReply => parcel.fate = Fate::Lost,
                Mishap::SwallowReply => parcel.fate = Fate::Swallowed,
                Mishap::DuplicateRequest => way.twice = true,
                Mishap::DelayBy(span) => way.delay += span,
                Mishap::LateCopy(span) => way.late.push(span),
                Mishap::LateOnly(span) => {
                    way.late.push(span);
                    only = true;
                }
                Mishap::Refuse(text) => parcel.refusal = Some(text),
            }
        }
        if only && !way.swallowed {
            way.lost = way.lost.or(Some(FaultKind::Lost));
        }
        way
    }
}

impl Core {
    pub(crate) fn send(&mut self, index: usize, request: Request, now: Instant) -> Sent {
        let line = &mut self.lines[index];
        if !matches!(request, Request::Run(_)) {
            tracing::trace!(link = index, ?request, line.connected, line.partitioned, "sent");
        }
        if line.closed {
            return Sent::Done(Err(Fault::new(FaultKind::Closed, "the link is closed")));
        }
        match &request {
            Request::Subscribe(channel) => drop(line.wanted.insert(channel.clone())),
            Request::Unsubscribe(channel) => drop(line.wanted.remove(channel)),
            Request::Run(_) => {}
        }
        let number = line.sent;
        line.sent += 1;
        let mut mishaps = line.plan.remove(&number).unwrap_or_default();
        let chaos = line.chaos;
        let told = |random: &mut Random, yes, no| if random.chance(0.5) { yes } else { no };
        let late = |random: &mut Random| {
            random.chance(chaos.late_copy).then(|| random.between(Duration::ZERO, chaos.late_max))
        };
        if line.random.chance(chaos.lose_request) {
            mishaps.push(told(&mut line.random, Mishap::LoseRequest, Mishap::SwallowRequest));
            mishaps.extend(late(&mut line.random).map(Mishap::LateOnly));
        }
        if line.random.chance(chaos.lose_reply) {
            mishaps.push(told(&mut line.random, Mishap::LoseReply, Mishap::SwallowReply));
            mishaps.extend(late(&mut line.random).map(Mishap::LateCopy));
        }
        if line.random.chance(chaos.duplicate) {
            mishaps.push(Mishap::DuplicateRequest);
        }
        if !chaos.delay_max.is_zero() {
            let delay = line.random.between(Duration::ZERO, chaos.delay_max);
            mishaps.push(Mishap::DelayBy(delay));
        }

        // Subscription changes keep their order: this change waits while an earlier change may be in flight.
        let next = matches!(request, Request::Run(_)) || line.last_change.is_none_or(|last| last < now);
        let calm = next && mishaps.is_empty() && !line.partitioned && line.stalled.is_none() && line.connected;
        if calm && line.options.is_instant() && self.frozen.is_none() && !self.down {
            return Sent::Done(self.execute(index, &request, now));
        }
        self.launch(index, request, mishaps, now)
    }

    fn launch(&mut self, index: usize, request: Request, mishaps: Vec<Mishap>, now: Instant) -> Sent {
        let (answer, receiver) = oneshot::channel();
        self.order += 1;
        let ticket = self.order;
        let line = &mut self.lines[index];
        line.pending.insert(ticket, answer);
        let sent = Sent::Waiting(ticket, receiver);

        let (changes, ends) = match &request {
            Request::Run(_) => (false, false),
            Request::Subscribe(_) => (true, false),
            Request::Unsubscribe(_) => (true, true),
        };
        let (life, refusal, fate) = (line.life, None, Fate::Delivered);
        let mut parcel = Parcel { line: index, life, ticket, request, refusal, fate, arrived: false, stray: false };
        let at = now + line.latency();
        let is_connected = !self.down && line.connected;
        let Way { lost, swallowed, twice, delay, late } = Way::of(mishaps, is_connected, &mut parcel);
        let at = at + delay;
        // Subscription changes belong to their connection, and a request that was not sent has not left the client. So
        // neither kind has late copies.
        if !changes && lost != Some(FaultKind::NotSent) {
            for span in late {
                let (request, fate) = (parcel.request.clone(), Fate::Swallowed);
                let copy = Parcel { request, refusal: None, fate, stray: true, ..parcel };
                self.schedule(at + span, What::Arrive(copy));
            }
        }
        let line = &mut self.lines[index];
        if ends && line.connected && (lost.is_some() || swallowed || parcel.refusal.is_some()) {
            // An unsubscribe can only be lost with its connection. So the client reconnects, and does not subscribe
            // to this channel again.
            let at = now + line.options.timeout + line.options.reconnect;
            self.schedule(at, What::Back { line: index, life });
        }
        if let Some(kind) = lost {
            let outcome = Err(Fault::new(kind, "the connection broke"));
            let at = at + self.lines[index].latency();
            self.schedule(at, What::Answer { line: index, life, ticket, outcome, local: true });
        } else if !swallowed {
            self.deliver(parcel, at, changes, twice);
        }
        sent
    }

    /// Schedules the arrival of a request, and of a copy if it arrives `twice`. Subscription changes keep their order,
    /// and have no copies.
    fn deliver(&mut self, parcel: Parcel, mut at: Instant, changes: bool, twice: bool) {
        let line = &mut self.lines[parcel.line];
        if line.options.ordered {
            at = at.max(line.last_in.unwrap_or(at));
            line.last_in = Some(at);
        }
        if changes {
            at = at.max(line.last_change.unwrap_or(at));
            line.last_change = Some(at);
        }
        let copy = (twice && !changes).then(|| {
            let spread = line.options.latency_max * 4;
            let later = at + line.random.between(Duration::ZERO, spread);
            let request = parcel.request.clone();
            (later, Parcel { request, refusal: None, fate: Fate::Swallowed, ..parcel })
        });
        self.schedule(at, What::Arrive(parcel));
        if let Some((later, copy)) = copy {
            self.schedule(later, What::Arrive(copy));
        }
    }
}
