//! The book of one owner's holds of one lock: which guards rely on the holds, and until when. A guard without an
//! explicit lease is *watched*: the watchdog renews its lease.
//!
//! Pure bookkeeping without I/O or tasks; `models/` runs it under loom. Times are nanoseconds of the local clock
//! (`World`).
//!
//! ```text
//! reserved ─► open ─► (re-entered, extended, renewed)* ─► idle ─► closed
//!              ├─ Expired: its deadline has passed
//!              ├─ Gone: the server lacks the hold
//!              ╰─ Closed: the client was shut down
//! ```
//!
//! `src/engine/tests/book.rs` compares random sequences with a model.

// The paths are explicit because `models/` includes this file by its path.
#[path = "ledger/leases.rs"]
mod leases;
#[path = "ledger/notes.rs"]
mod notes;
#[path = "ledger/table.rs"]
mod table;

use notes::Notes;
pub(crate) use table::{Entry, Table};

/// Why a hold ended without a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The lease ended by the local clock.
    Expired,
    /// The server reported that the owner does not hold the lock.
    Gone,
    /// The client was shut down and released the hold.
    Closed,
}

/// One guard's line in the book: its hold, and until when the guard counts as holding the lock.
#[derive(Clone, Copy, Debug)]
struct Level {
    id: u32,
    /// Number of the hold (see `ids.rs`); 0 if Redis does not list the hold.
    hold: u64,
    /// Length of an explicit lease; `None` for a watched guard.
    lease: Option<u64>,
    /// End of an explicit lease. For watched guards, the book's `watched` counts instead.
    until: u64,
    /// Set while a command that may shorten the lease is in flight or unanswered. Also set for a guard that had expired
    /// when another guard restarted the watchdog's lease.
    cap: Cap,
}

/// Upper bound on a guard's deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cap {
    pub(crate) until: u64,
    /// Length of the lease that ends at `until`.
    pub(crate) lease: u64,
}

impl Cap {
    pub(crate) const NONE: Self = Self { until: u64::MAX, lease: u64::MAX };
}

#[derive(Debug, Default)]
pub(crate) struct Book {
    levels: Vec<Level>,
    next: u32,
    count: u32,
    watched: u64,
    renewed: u64,
    confirmed: u64,
    end: Option<End>,
    /// The guards that lost their hold, and why.
    lost: Vec<(u32, End)>,
    /// Number of tenures so far. A tenure lasts from an owner's first hold to its last release.
    tenure: u32,
    notes: Notes,
    /// The tenure in which the server reported that the owner holds nothing. Set only while no guard relies on the
    /// hold.
    refuted: Option<u32>,
    reserved: u32,
    closed: bool,
    /// The longest lock delay of this tenure's acquires, in ms.
    delay: u32,
    /// True if a client has asked the holder of this tenure to finish.
    revoked: bool,
}

impl Book {
    /// Adds a guard at `now` for hold number `hold`, granted by a command sent at `sent`. `until`: the guard's
    /// deadline.
    pub(crate) fn open(&mut self, now: u64, hold: u64, lease: Option<u64>, sent: u64, until: u64) -> u32 {
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        if self.count == 0 {
            self.tenure = self.tenure.wrapping_add(1);
            (self.delay, self.revoked) = (0, false);
        }
        self.count += 1;
        self.confirmed = sent.max(self.confirmed);
        if lease.is_none() {
            // An end is final: the watchdog's new lease does not revive expired guards.
            let over = Cap { until: self.watched, lease: self.watched_for() };
            for level in self.levels.iter_mut().filter(|level| level.lease.is_none() && over.until <= now) {
                level.cap = if level.cap.until < over.until { level.cap } else { over };
            }
            self.watched = until.max(self.watched);
            self.renewed = sent.max(self.renewed);
        }
        if self.levels.is_empty() {
            self.levels.reserve_exact(1);
        }
        self.levels.push(Level { id, hold, lease, until, cap: Cap::NONE });
        id
    }

    /// Adds a guard in place of a closed guard. The hold on the server stays.
    pub(crate) fn reopen(&mut self, hold: u64) -> u32 {
        let count = self.count;
        let id = self.open(0, hold, None, 0, 0);
        self.count = count;
        id
    }

    /// Removes a guard, so that it causes no more renewals. Returns the number of its hold; None if the guard was not
    /// in the book.
    pub(crate) fn close(&mut self, id: u32) -> Option<u64> {
        let at = self.levels.iter().position(|level| level.id == id)?;
        Some(self.levels.swap_remove(at).hold)
    }

    pub(crate) fn holds(&self) -> impl Iterator<Item = u64> {
        self.levels.iter().map(|level| level.hold)
    }

    /// True if no guard relies on the hold.
    pub(crate) fn is_idle(&self) -> bool {
        self.levels.is_empty()
    }

    /// True if the watchdog must renew the hold.
    pub(crate) fn is_watched(&self) -> bool {
        self.end.is_none() && self.levels.iter().any(|level| level.lease.is_none())
    }

    /// True if a guard relies on the hold until after `then`.
    pub(crate) fn lasts(&self, then: u64) -> bool {
        self.end.is_none() && self.until_all() > then
    }

    /// True if the watchdog must renew the hold for a guard other than this one.
    pub(crate) fn is_watched_without(&self, id: u32) -> bool {
        self.end.is_none() && self.levels.iter().any(|level| level.id != id && level.lease.is_none())
    }

    /// The guard's deadline; None if its hold has ended. An end is final: no later renewal revives the guard.
    pub(crate) fn until(&self, id: u32) -> Option<u64> {
        if self.end.is_some() {
            return None;
        }
        let level = self.levels.iter().find(|level| level.id == id)?;
        Some(self.until_of(level))
    }

    fn until_of(&self, level: &Level) -> u64 {
        if level.lease.is_none() { self.watched } else { level.until }.min(level.cap.until)
    }

    /// The guard's deadline, and the length of the lease that ends at the deadline.
    pub(crate) fn until_and_lease(&self, id: u32) -> Option<(u64, u64)> {
        let until = self.until(id)?;
        let level = self.levels.iter().find(|level| level.id == id)?;
        let lease =
            if until == level.cap.until { level.cap.lease } else { level.lease.unwrap_or_else(|| self.watched_for()) };
        Some((until, lease))
    }

    pub(crate) fn number(&self, id: u32) -> Option<u64> {
        self.levels.iter().find(|level| level.id == id).map(|level| level.hold)
    }

    pub(crate) fn lease(&self, id: u32) -> Option<u64> {
        self.levels.iter().find(|level| level.id == id)?.lease
    }

    /// The latest deadline promised to any guard. Caps are ignored, because the server may keep the lock for longer.
    pub(crate) fn until_all(&self) -> u64 {
        self.latest(|_| true)
    }

    /// [`Book::until_all`] for the other guards.
    pub(crate) fn until_others(&self, id: u32) -> u64 {
        self.latest(|level| level.id != id)
    }

    fn latest(&self, counts: impl Fn(&Level) -> bool) -> u64 {
        let until = |level: &Level| if level.lease.is_none() { self.watched } else { level.until };
        self.levels.iter().filter(|level| counts(level)).map(until).max().unwrap_or(0)
    }

    /// Length of the watchdog's last confirmed lease. Shorter than the option `watchdog` if the server passed the lock
    /// on with a short first lease (`queue.rs`).
    pub(crate) fn watched_for(&self) -> u64 {
        self.watched.saturating_sub(self.renewed)
    }

    /// End of the watchdog's last confirmed lease.
    pub(crate) fn watched(&self) -> u64 {
        self.watched
    }

    /// Ends the hold for good. True if a guard loses it. A hold without a guard is being released, so its end is no
    /// loss.
    pub(crate) fn finish(&mut self, end: End) -> bool {
        if self.end.is_some() {
            return false;
        }
        self.end = Some(end);
        self.lost.extend(self.levels.iter().map(|level| (level.id, end)));
        !self.levels.is_empty()
    }

    /// Ends the holds in this list that guards rely on, and returns their numbers.
    pub(crate) fn lose(&mut self, end: End, holds: &[u64]) -> Vec<u64> {
        self.lose_levels(end, |_, level| holds.contains(&level.hold))
    }

    /// Ends watched holds whose guards have expired by the clock, and returns their numbers.
    pub(crate) fn lose_over(&mut self, now: u64) -> Vec<u64> {
        self.lose_levels(End::Expired, |watched, level| level.lease.is_none() && watched.min(level.cap.until) <= now)
    }

    fn lose_levels(&mut self, end: End, which: impl Fn(u64, &Level) -> bool) -> Vec<u64> {
        let (mut holds, watched) = (Vec::new(), self.watched);
        let lost = &mut self.lost;
        self.levels.retain(|level| {
            let ends = which(watched, level);
            if ends {
                lost.push((level.id, end));
                holds.push(level.hold);
            }
            !ends
        });
        holds
    }

    /// The server reported, in reply to a command of `tenure`, that the owner does not hold the lock. Ends the hold
    /// like [`Book::finish`], unless the tenure has changed since. Without a guard, as during a hand-off, the report is
    /// only kept for [`Book::is_refuted`].
    pub(crate) fn refuted(&mut self, tenure: u32) -> bool {
        if self.tenure == tenure {
            self.refuted_idle();
        }
        self.tenure == tenure && !self.is_idle() && self.finish(End::Gone)
    }

    /// Keeps the report that the owner does not hold the lock, if no guard relies on the hold.
    pub(crate) fn refuted_idle(&mut self) {
        if self.is_idle() {
            self.refuted = Some(self.tenure);
        }
    }

    /// True if the server refuted the hold while no guard relied on it. The hold must not be handed over then.
    pub(crate) fn is_refuted(&self) -> bool {
        self.refuted == Some(self.tenure)
    }

    pub(crate) fn tenure(&self) -> u32 {
        self.tenure
    }

    pub(crate) fn end(&self) -> Option<End> {
        self.end
    }

    /// The reason why a guard's hold ended. None if the guard was released before the end.
    pub(crate) fn end_of(&self, id: u32) -> Option<End> {
        self.lost.iter().find(|(lost, _)| *lost == id).map(|(_, end)| *end)
    }

    /// Number of holds that this client has on the server.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Number of holds that are being released: the server still has them, but no guard relies on them.
    pub(crate) fn ending(&self) -> usize {
        let relied_on = if self.end.is_none() { self.levels.len() } else { 0 };
        (self.count as usize).saturating_sub(relied_on)
    }

    /// Counts one released hold of `tenure`. Holds of a later tenure are not affected. True if this client has no holds
    /// left; other clients' holds of the same owner do not count.
    pub(crate) fn counted_down(&mut self, tenure: u32) -> bool {
        if self.tenure == tenure {
            self.count = self.count.saturating_sub(1);
        }
        self.count == 0
    }

    /// True once the hold is no longer in the table. It must not be opened again.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }
}
