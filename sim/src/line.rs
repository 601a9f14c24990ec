//! One client's connections, as the simulated network knows them.

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

/// One client's connections.
pub(super) struct Line {
    pub(super) options: LinkOptions,
    pub(super) chaos: Chaos,
    pub(super) plan: BTreeMap<u64, Vec<Mishap>>,
    /// For latencies and faults.
    pub(super) random: Random,
    /// For the client's own use: asking for it does not change what goes wrong.
    pub(super) jitter: Random,
    pub(super) listener: Option<Weak<dyn Listener>>,
    /// What the server has for this client.
    pub(super) subscriptions: BTreeSet<Bytes>,
    /// What the client wants, and asks for again when it has connected anew.
    pub(super) wanted: BTreeSet<Bytes>,
    pub(super) sent: u64,
    pub(super) partitioned: bool,
    pub(super) deaf: bool,
    pub(super) closed: bool,
    /// The client has been told that it is broken.
    pub(super) told_broken: bool,
    /// The next command came behind an `ASKING`.
    pub(super) asking: bool,
    pub(super) stalled: Option<Vec<What>>,
    pub(super) connected: bool,
    /// Counts connections: what belongs to an earlier one is void.
    pub(super) life: u64,
    pub(super) pending: BTreeMap<u64, oneshot::Sender<Outcome>>,
    pub(super) last_in: Option<Instant>,
    pub(super) last_out: Option<Instant>,
    pub(super) last_message: Option<Instant>,
    /// Subscriptions have a connection of their own, and keep their order on it.
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

    /// One way, this time.
    pub(super) fn latency(&mut self) -> Duration {
        self.random.between(self.options.latency_min, self.options.latency_max)
    }

    /// Hands an outcome to whoever still waits for it.
    pub(super) fn answer(&mut self, ticket: u64, outcome: Outcome) {
        if let Some(waiting) = self.pending.remove(&ticket) {
            // The caller may be gone.
            let _ = waiting.send(outcome);
        }
    }

    pub(super) fn fail_pending(&mut self, kind: FaultKind, why: &str) {
        for (_, waiting) in std::mem::take(&mut self.pending) {
            let _ = waiting.send(Err(Fault::new(kind, why)));
        }
    }
}
