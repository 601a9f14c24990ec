//! The state of one client's connections in the simulated network.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Weak;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::core::Outcome;
use super::events::What;
use super::faults::{Chaos, LinkOptions, Mishap};
use super::random::Random;
use distlock::transport::{Fault, FaultKind, Listener};

pub(super) struct Line {
    pub(super) options: LinkOptions,
    pub(super) chaos: Chaos,
    pub(super) plan: BTreeMap<u64, Vec<Mishap>>,
    /// Decides latencies and faults.
    pub(super) random: Random,
    /// The random numbers that the client draws. They have their own stream, so that they do not change the faults.
    pub(super) jitter: Random,
    pub(super) listener: Option<Weak<dyn Listener>>,
    /// The client's subscriptions at the server.
    pub(super) subscriptions: BTreeSet<Bytes>,
    /// The channels that the client wants. It subscribes to them again after a reconnect.
    pub(super) wanted: BTreeSet<Bytes>,
    pub(super) sent: u64,
    pub(super) partitioned: bool,
    pub(super) deaf: bool,
    pub(super) closed: bool,
    /// The client was notified that its connection is broken.
    pub(super) told_broken: bool,
    /// The last command was `ASKING`.
    pub(super) asking: bool,
    pub(super) stalled: Option<Vec<What>>,
    pub(super) connected: bool,
    /// The generation of the connection. Each break begins a new generation, and events of earlier generations are
    /// dropped.
    pub(super) life: u64,
    pub(super) pending: BTreeMap<u64, oneshot::Sender<Outcome>>,
    pub(super) last_in: Option<Instant>,
    pub(super) last_out: Option<Instant>,
    pub(super) last_message: Option<Instant>,
    /// When the last subscription change arrives. Subscription changes have their own connection, and keep their order.
    pub(super) last_change: Option<Instant>,
}

impl Line {
    pub(super) fn new(options: LinkOptions, seed: u64, number: u64) -> Self {
        Self {
            options,
            chaos: Chaos::default(),
            plan: BTreeMap::new(),
            random: Random::new(seed, 2 * number + 1),
            jitter: Random::new(seed, 2 * number + 2),
            listener: None,
            subscriptions: BTreeSet::new(),
            wanted: BTreeSet::new(),
            sent: 0,
            partitioned: false,
            deaf: false,
            closed: false,
            told_broken: false,
            asking: false,
            stalled: None,
            connected: true,
            life: 0,
            pending: BTreeMap::new(),
            last_in: None,
            last_out: None,
            last_message: None,
            last_change: None,
        }
    }

    /// Draws a latency in one direction.
    pub(super) fn latency(&mut self) -> Duration {
        self.random.between(self.options.latency_min, self.options.latency_max)
    }

    /// Delivers an outcome to the caller, if the caller still waits.
    pub(super) fn answer(&mut self, ticket: u64, outcome: Outcome) {
        if let Some(waiting) = self.pending.remove(&ticket) {
            // The caller may have dropped its future.
            let _ = waiting.send(outcome);
        }
    }

    pub(super) fn fail_pending(&mut self, kind: FaultKind, why: &str) {
        for (_, waiting) in std::mem::take(&mut self.pending) {
            let _ = waiting.send(Err(Fault::new(kind, why)));
        }
    }
}
