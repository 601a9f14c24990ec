//! Which server a name lives on, and whether it answers. One node a primary, so that a dead one stalls only its own slots; so
//! far there is one.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::names::LockName;
use super::transport::{Call, Fault, FaultKind, Moment, Reply, Transport, nanos};

/// A server that has not answered for so long, or for [`SLOWER`] times its usual answer if that is longer, is silent.
const SILENT: Duration = Duration::from_millis(100);
const SLOWER: u64 = 4;

/// The servers of a client.
#[derive(Clone, Debug)]
pub(crate) struct Topology {
    node: Arc<dyn Transport>,
    signs: Arc<Signs>,
}

impl Topology {
    /// One server for every name.
    pub(crate) fn single(node: Arc<dyn Transport>) -> Self {
        Self { node, signs: Arc::default() }
    }

    /// The server of a name.
    pub(crate) fn node(&self, _name: &LockName) -> &Arc<dyn Transport> {
        &self.node
    }

    /// Runs a script at the server of a name, as [`Transport::run`] does.
    pub(crate) fn run(
        &self,
        name: &LockName,
        call: Call,
    ) -> impl Future<Output = Result<Reply, Fault>> + Send + 'static {
        let (node, signs) = (Arc::clone(self.node(name)), Arc::clone(&self.signs));
        async move {
            let sent = node.now();
            let asked = signs.ask(sent);
            let outcome = node.run(call).await;
            if outcome.as_ref().err().is_none_or(|fault| fault.kind == FaultKind::Refused) {
                asked.answered(node.now());
            }
            outcome
        }
    }

    /// True when commands are under way at the server of a name, or went without an answer, and nothing has come from it for
    /// longer than its answers take.
    pub(crate) fn is_silent(&self, _name: &LockName) -> bool {
        self.signs.are_missing(self.now())
    }

    /// Every server.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Arc<dyn Transport>> {
        std::iter::once(&self.node)
    }

    /// Now, on the clock of deadlines. All nodes of a client share it.
    pub(crate) fn now(&self) -> Moment {
        self.node.now()
    }

    /// A random number, for jitter.
    pub(crate) fn random(&self) -> u64 {
        self.node.random()
    }
}

/// A server's signs of life: its answers.
#[derive(Debug, Default)]
struct Signs {
    /// Commands under way.
    under_way: AtomicUsize,
    /// Since when an answer is due, in ns of the local clock; 0 = none is.
    due: AtomicU64,
    /// How long an answer usually takes, in ns: a mean in which each counts for an eighth.
    usual: AtomicU64,
}

impl Signs {
    fn ask(&self, now: Moment) -> Asked<'_> {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        // Ignored: it was due before.
        let _ = self.due.compare_exchange(0, now.as_nanos().max(1), Ordering::Relaxed, Ordering::Relaxed);
        Asked { signs: self, sent: now }
    }

    fn are_missing(&self, now: Moment) -> bool {
        let due = self.due.load(Ordering::Relaxed);
        let usual = Duration::from_nanos(self.usual.load(Ordering::Relaxed).saturating_mul(SLOWER));
        due > 0 && now.since(Moment::from_nanos(due)) > SILENT.max(usual)
    }
}

/// One command under way.
struct Asked<'a> {
    signs: &'a Signs,
    sent: Moment,
}

impl Asked<'_> {
    fn answered(&self, now: Moment) {
        let Signs { under_way, due, usual } = self.signs;
        let others = under_way.load(Ordering::Relaxed) > 1;
        due.store(if others { now.as_nanos() } else { 0 }, Ordering::Relaxed);
        let (took, before) = (nanos(now.since(self.sent)), usual.load(Ordering::Relaxed));
        usual.store(before - before / 8 + took / 8, Ordering::Relaxed);
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.signs.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}
