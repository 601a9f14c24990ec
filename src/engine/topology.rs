//! Which server a name lives on, and whether it answers. One node a primary, so that a dead one stalls only its own slots; so
//! far there is one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;

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

    /// The server of a name, as of now. Nobody outside keeps it over a retry: by then the name may live elsewhere.
    fn node(&self, _name: &LockName) -> &Arc<dyn Transport> {
        &self.node
    }

    /// Runs a script at the server of a name, as [`Transport::run`] does.
    pub(crate) async fn run(&self, name: &LockName, call: Call) -> Result<Reply, Fault> {
        let node = self.node(name);
        let asked = self.signs.ask(node.now());
        let outcome = node.run(call).await;
        if outcome.as_ref().err().is_none_or(|fault| matches!(fault.kind, FaultKind::Refused | FaultKind::Elsewhere)) {
            asked.answered(node.now());
        }
        outcome
    }

    /// Subscribes to the channel of a name, as [`Transport::subscribe`] does.
    pub(crate) async fn subscribe(&self, name: &LockName) -> Result<(), Fault> {
        self.node(name).subscribe(name.channel.clone()).await
    }

    /// Ends the subscription to the channel of a name.
    pub(crate) async fn unsubscribe(&self, name: &LockName) {
        self.node(name).unsubscribe(name.channel.clone()).await;
    }

    /// The command by which scripts publish on the channel of a name.
    pub(crate) fn publish(&self, _name: &LockName) -> Bytes {
        Bytes::from_static(b"PUBLISH")
    }

    /// True when commands were under way at the server of a name at that moment, and nothing had come from it for longer than
    /// its answers take.
    pub(crate) fn is_silent(&self, _name: &LockName, at: Moment) -> bool {
        self.signs.are_missing(at)
    }

    /// Which servers these are, together: the same text wherever a name of theirs lives.
    pub(crate) fn identity(&self) -> &str {
        self.node.address()
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

/// A server's signs of life: its answers. Moments are nanoseconds of the local clock.
#[derive(Debug, Default)]
struct Signs {
    /// Commands under way.
    under_way: AtomicUsize,
    /// Since when there have been some without a break.
    asked: AtomicU64,
    /// When the last answer came.
    heard: AtomicU64,
    /// How long an answer usually takes, in ns: a mean in which each counts for an eighth. 0 before the first.
    usual: AtomicU64,
}

impl Signs {
    fn ask(&self, now: Moment) -> Asked<'_> {
        if self.under_way.load(Ordering::Relaxed) == 0 {
            self.asked.store(now.as_nanos(), Ordering::Relaxed);
        }
        self.under_way.fetch_add(1, Ordering::Relaxed);
        Asked { signs: self, sent: now }
    }

    fn are_missing(&self, now: Moment) -> bool {
        let since = self.asked.load(Ordering::Relaxed).max(self.heard.load(Ordering::Relaxed));
        let usual = Duration::from_nanos(self.usual.load(Ordering::Relaxed).saturating_mul(SLOWER));
        self.under_way.load(Ordering::Relaxed) > 0 && now.since(Moment::from_nanos(since)) > SILENT.max(usual)
    }
}

/// One command under way.
struct Asked<'a> {
    signs: &'a Signs,
    sent: Moment,
}

impl Asked<'_> {
    fn answered(&self, now: Moment) {
        let Signs { heard, usual, .. } = self.signs;
        heard.fetch_max(now.as_nanos(), Ordering::Relaxed);
        let (took, before) = (nanos(now.since(self.sent)), usual.load(Ordering::Relaxed));
        let mean = if before == 0 { took } else { before - before / 8 + took / 8 };
        usual.store(mean, Ordering::Relaxed);
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.signs.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn a_server_is_silent_when_an_answer_is_due_for_longer_than_usual() {
        let signs = Signs::default();
        assert!(!signs.are_missing(at(10_000)), "nothing was asked");
        let first = signs.ask(at(10_000));
        assert!(!signs.are_missing(at(10_100)) && signs.are_missing(at(10_101)));
        let second = signs.ask(at(10_140));
        second.answered(at(10_150));
        drop(second);
        assert!(!signs.are_missing(at(10_250)) && signs.are_missing(at(10_251)), "the first is under way");
        drop(first);
        assert!(!signs.are_missing(at(20_000)), "nothing is due");
        // Given up, or lost: what is asked next has its own time.
        drop(signs.ask(at(20_000)));
        let next = signs.ask(at(30_000));
        assert!(!signs.are_missing(at(30_100)) && signs.are_missing(at(30_101)));
        drop(next);
        // A slow one is given the time that it takes.
        for n in 0..50 {
            signs.ask(at(40_000 + n * 400)).answered(at(40_400 + n * 400));
        }
        let _asked = signs.ask(at(60_000));
        assert!(!signs.are_missing(at(61_500)) && signs.are_missing(at(61_650)));
        // From its first answer on.
        let signs = Signs::default();
        signs.ask(at(10_000)).answered(at(10_400));
        let _asked = signs.ask(at(20_000));
        assert!(!signs.are_missing(at(21_600)) && signs.are_missing(at(21_601)));
    }
}
