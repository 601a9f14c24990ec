//! Detects servers that have stopped answering, from the replies to this client's commands.
//!
//! A server is *silent* if a reply is outstanding, and no reply at all has arrived for 100 ms. If four times the usual
//! reply time is longer, that limit counts instead. A failed command counts as unanswered until another reply arrives.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::world::{Moment, World, nanos};

/// The two limits for silence, as defined above. The longer limit counts.
const SILENT: Duration = Duration::from_millis(100);
const SLOWER: u64 = 4;

/// Time for which an overdue reply counts as missed after the caller gave up.
const MEMORY: Duration = Duration::from_secs(1);

/// The replies of a server. Moments are in ns of the local clock.
#[derive(Debug, Default)]
pub(super) struct Liveness {
    under_way: AtomicUsize,
    /// Start of the present period with at least one command in flight.
    asked: AtomicU64,
    /// When the last reply arrived.
    heard: AtomicU64,
    /// Start of the silence in which a command ended without a reply: when the command was sent, or when the last reply
    /// arrived, whichever is later. 0 once another reply arrives. Ignored after `known_until`.
    missed: AtomicU64,
    /// When `missed` expires: never after a failed command, and [`MEMORY`] after a caller gave up.
    known_until: AtomicU64,
    /// Usual reply time in ns: a moving average in which each reply has a weight of one eighth. 0 before the first
    /// reply.
    usual: AtomicU64,
}

impl Liveness {
    pub(super) fn ask(&self, now: Moment) -> Pending<'_> {
        if self.under_way.load(Ordering::Relaxed) == 0 {
            self.asked.store(now.as_nanos(), Ordering::Relaxed);
        }
        self.under_way.fetch_add(1, Ordering::Relaxed);
        Pending { liveness: self, sent: now }
    }

    pub(super) fn heard(&self, now: Moment) {
        // A plain store is enough: which of two simultaneous replies counts as the last does not matter.
        self.heard.store(now.as_nanos(), Ordering::Relaxed);
        if self.missed.load(Ordering::Relaxed) != 0 {
            self.missed.store(0, Ordering::Relaxed);
            self.known_until.store(0, Ordering::Relaxed);
        }
    }

    pub(super) fn is_asked(&self) -> bool {
        self.under_way.load(Ordering::Relaxed) > 0
    }

    pub(super) fn is_silent(&self, now: Moment) -> bool {
        let is_known = now.as_nanos() < self.known_until.load(Ordering::Relaxed);
        let missed = if is_known { self.missed.load(Ordering::Relaxed) } else { 0 };
        if missed == 0 && self.under_way.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let due = self.asked.load(Ordering::Relaxed).max(self.heard.load(Ordering::Relaxed));
        let since = if missed == 0 { due } else { missed };
        let usual = Duration::from_nanos(self.usual.load(Ordering::Relaxed).saturating_mul(SLOWER));
        now.since(Moment::from_nanos(since)) > SILENT.max(usual)
    }

    fn miss(&self, sent: Moment, until: u64) {
        let since = sent.as_nanos().max(self.heard.load(Ordering::Relaxed)).max(1);
        // The first of several misses counts, unless it has expired.
        if self.missed.load(Ordering::Relaxed) == 0 || since >= self.known_until.load(Ordering::Relaxed) {
            self.missed.store(since, Ordering::Relaxed);
        }
        self.known_until.fetch_max(until, Ordering::Relaxed);
    }
}

pub(super) struct Pending<'a> {
    liveness: &'a Liveness,
    sent: Moment,
}

impl Pending<'_> {
    pub(super) fn answered(self, now: Moment) {
        self.liveness.heard(now);
        let usual = &self.liveness.usual;
        let (took, before) = (nanos(now.since(self.sent)), usual.load(Ordering::Relaxed));
        let mean = if before == 0 { took } else { before - before / 8 + took / 8 };
        usual.store(mean, Ordering::Relaxed);
    }

    /// Notes that the command ended without a reply.
    pub(super) fn failed(self) {
        self.liveness.miss(self.sent, u64::MAX);
    }

    /// Notes that the caller gave up. This counts as a miss only if the server was silent. The miss expires after
    /// [`MEMORY`], because the reply may have arrived since.
    fn given_up(&self, now: Moment) {
        if self.liveness.is_silent(now) {
            self.liveness.miss(self.sent, (now + MEMORY).as_nanos());
        }
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.liveness.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A command in flight. A drop before the reply means that the caller gave up (`given_up`).
pub(super) struct UnderWay<'a> {
    pub(super) pending: Option<Pending<'a>>,
    pub(super) world: &'a dyn World,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if let Some(pending) = &self.pending {
            pending.given_up(self.world.now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn server_is_silent_while_reply_takes_longer_than_usual() {
        let liveness = Liveness::default();
        assert!(!liveness.is_silent(at(10_000)), "nothing was asked");
        let first = liveness.ask(at(10_000));
        assert!(!liveness.is_silent(at(10_100)) && liveness.is_silent(at(10_101)));
        let second = liveness.ask(at(10_140));
        second.answered(at(10_150));
        assert!(!liveness.is_silent(at(10_250)) && liveness.is_silent(at(10_251)), "the first is under way");
        first.answered(at(10_260));
        assert!(!liveness.is_silent(at(20_000)), "nothing is due");
        // The caller gave up before the reply was due: that means nothing.
        let asked = liveness.ask(at(20_000));
        asked.given_up(at(20_050));
        drop(asked);
        assert!(!liveness.is_silent(at(29_000)));
        // The caller gave up, or the command failed, after the reply was due: it stays due, whatever is sent next.
        for (from, given_up) in [(30_000, true), (36_000, false)] {
            let asked = liveness.ask(at(from));
            if given_up {
                asked.given_up(at(from + 200));
                drop(asked);
            } else {
                asked.failed();
            }
            assert!(liveness.is_silent(at(from + 1_199)), "{given_up}");
            assert_eq!(liveness.is_silent(at(from + 1_201)), !given_up, "nobody knows whether it came");
            let next = liveness.ask(at(from + 1_000));
            assert!(liveness.is_silent(at(from + 1_001)), "{given_up}");
            liveness.ask(at(from + 1_000)).answered(at(from + 1_010));
            assert!(!liveness.is_silent(at(from + 1_100)), "{given_up}");
            next.answered(at(from + 1_100));
        }
        // A command that was given up long ago does not affect a new failure.
        let asked = liveness.ask(at(38_000));
        asked.given_up(at(38_900));
        drop(asked);
        liveness.ask(at(39_950)).failed();
        assert!(!liveness.is_silent(at(39_999)) && liveness.is_silent(at(40_900)));
        // A slow server gets the time that it usually takes.
        for n in 0..50 {
            liveness.ask(at(40_000 + n * 400)).answered(at(40_400 + n * 400));
        }
        let _asked = liveness.ask(at(60_000));
        assert!(!liveness.is_silent(at(61_500)) && liveness.is_silent(at(61_650)));
        // The same from its first reply on.
        let liveness = Liveness::default();
        liveness.ask(at(10_000)).answered(at(10_400));
        let _asked = liveness.ask(at(20_000));
        assert!(!liveness.is_silent(at(21_600)) && liveness.is_silent(at(21_601)));
    }
}
