//! What this client knows of the locks it holds: who relies on each, until when, and which must be renewed.
//!
//! Pure bookkeeping without I/O or tasks, built a second time over loom in `models/`. Times are nanoseconds of the
//! clock of `World`.

// Named because the models include this file by its path.
#[path = "ledger/notes.rs"]
mod notes;
#[path = "ledger/table.rs"]
mod table;

use notes::Notes;
pub(crate) use table::{Entry, Table};

/// Why a hold ended other than by its release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The local clock reached the end of the lease.
    Expired,
    /// The server said that the owner does not hold it.
    Gone,
    /// The client was shut down and released it.
    Closed,
}

/// One guard's line in the book: the hold that it relies on, and until when.
#[derive(Clone, Copy, Debug)]
struct Level {
    id: u32,
    /// The number of its hold in the server; 0 where that is not listed there.
    hold: u64,
    /// None: kept by the watchdog.
    lease: Option<u64>,
    /// Until when it counts as held; for watchdog levels the book's `watched` says so.
    until: u64,
    /// The guard counts on no more than this: a command that may have shortened the lease is under way, or went without a reply;
    /// or the guard was over when the watchdog's lease began anew for another one.
    cap: Cap,
}

/// What a guard may count on at the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cap {
    pub(crate) until: u64,
    /// The lease that ends then.
    pub(crate) lease: u64,
}

impl Cap {
    pub(crate) const NONE: Self = Self { until: u64::MAX, lease: u64::MAX };
}

/// The holds that one owner has of one lock: which guard relies on which, until when, and how they ended.
#[derive(Debug, Default)]
pub(crate) struct Book {
    levels: Vec<Level>,
    next: u32,
    count: u32,
    watched: u64,
    renewed: u64,
    confirmed: u64,
    end: Option<End>,
    /// The guards that relied on it when it ended, or their part of it did.
    lost: Vec<(u32, End)>,
    /// How many times the owner was granted the lock anew.
    tenure: u32,
    notes: Notes,
    /// The tenure in which the server said that the owner holds nothing, while no guard relied on it.
    refuted: Option<u32>,
    reserved: u32,
    closed: bool,
}

impl Book {
    /// Adds a guard at `now` for the hold of this number, by a command sent at `sent`. `lease` is None for the watchdog.
    pub(crate) fn open(&mut self, now: u64, hold: u64, lease: Option<u64>, sent: u64, until: u64) -> u32 {
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        if self.count == 0 {
            self.tenure = self.tenure.wrapping_add(1);
        }
        self.count += 1;
        self.confirmed = sent.max(self.confirmed);
        if lease.is_none() {
            // An end is final: the watchdog keeps the lock for this one, not for those that were over.
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

    /// Adds a guard in the place of one that was closed: the hold in the server stays.
    pub(crate) fn reopen(&mut self, hold: u64) -> u32 {
        let count = self.count;
        let id = self.open(0, hold, None, 0, 0);
        self.count = count;
        id
    }

    /// Takes a guard away: from here on it causes no renewal. The number of its hold; None when it was gone already.
    pub(crate) fn close(&mut self, id: u32) -> Option<u64> {
        let at = self.levels.iter().position(|level| level.id == id)?;
        Some(self.levels.swap_remove(at).hold)
    }

    /// The numbers of the holds that guards rely on.
    pub(crate) fn holds(&self) -> impl Iterator<Item = u64> {
        self.levels.iter().map(|level| level.hold)
    }

    /// True when no guard relies on it.
    pub(crate) fn is_idle(&self) -> bool {
        self.levels.is_empty()
    }

    /// True when the watchdog must renew it.
    pub(crate) fn is_watched(&self) -> bool {
        self.end.is_none() && self.levels.iter().any(|level| level.lease.is_none())
    }

    /// True when a guard relies on the hold until after `then`.
    pub(crate) fn lasts(&self, then: u64) -> bool {
        self.end.is_none() && self.until_all() > then
    }

    /// True when the watchdog must renew it for another guard than this.
    pub(crate) fn is_watched_without(&self, id: u32) -> bool {
        self.end.is_none() && self.levels.iter().any(|level| level.id != id && level.lease.is_none())
    }

    /// Until when the guard holds, if it does. An end is final: no later renewal revives it.
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

    /// Until when the guard holds, and how long the lease is that ends then.
    pub(crate) fn until_and_lease(&self, id: u32) -> Option<(u64, u64)> {
        let until = self.until(id)?;
        let level = self.levels.iter().find(|level| level.id == id)?;
        let lease =
            if until == level.cap.until { level.cap.lease } else { level.lease.unwrap_or_else(|| self.watched_for()) };
        Some((until, lease))
    }

    /// The number of a guard's hold.
    pub(crate) fn number(&self, id: u32) -> Option<u64> {
        self.levels.iter().find(|level| level.id == id).map(|level| level.hold)
    }

    /// The lease of a guard: None for the watchdog's.
    pub(crate) fn lease(&self, id: u32) -> Option<u64> {
        self.levels.iter().find(|level| level.id == id)?.lease
    }

    /// Until when any guard was promised the hold. Caps are not heeded: the server may keep the lock for as long as that.
    pub(crate) fn until_all(&self) -> u64 {
        self.latest(|_| true)
    }

    /// As [`Book::until_all`], anybody but this guard.
    pub(crate) fn until_others(&self, id: u32) -> u64 {
        self.latest(|level| level.id != id)
    }

    fn latest(&self, counts: impl Fn(&Level) -> bool) -> u64 {
        let until = |level: &Level| if level.lease.is_none() { self.watched } else { level.until };
        self.levels.iter().filter(|level| counts(level)).map(until).max().unwrap_or(0)
    }

    /// How long the watchdog's last confirmed lease is: shorter than the watchdog for a lock that was passed on.
    pub(crate) fn watched_for(&self) -> u64 {
        self.watched.saturating_sub(self.renewed)
    }

    /// Until when the watchdog's last confirmed renewal lasts.
    pub(crate) fn watched(&self) -> u64 {
        self.watched
    }

    /// The lease that the key must have for the guards that stay, in full: the longest of the explicit ones,
    /// and of the watchdog's if any is watched.
    pub(crate) fn lease_left(&self, watchdog: u64) -> u64 {
        self.levels.iter().map(|level| level.lease.unwrap_or(watchdog)).max().unwrap_or(watchdog)
    }

    /// The key's lease was armed again by a command sent at `sent`, as was heard at `now`; explicit leases start anew with
    /// it, but for those that are over: an end is final.
    pub(crate) fn rearmed(&mut self, now: u64, sent: u64, until: impl Fn(u64) -> u64, watchdog: u64) {
        if self.is_watched() && self.watched > now {
            self.watched = self.watched.max(until(watchdog));
            self.renewed = self.renewed.max(sent);
        }
        for level in &mut self.levels {
            if let Some(lease) = level.lease.filter(|_| level.until > now) {
                level.until = level.until.max(until(lease));
            }
        }
    }

    /// Has a guard count on `cap` at the most, for a command is under way that may shorten its lease to that. Returns what
    /// to put back by [`Book::uncapped`] if it is not carried out.
    pub(crate) fn capped(&mut self, id: u32, cap: Cap) -> Cap {
        let Some(level) = self.levels.iter_mut().find(|level| level.id == id) else { return Cap::NONE };
        let before = level.cap;
        if cap.until < before.until {
            level.cap = cap;
        }
        before
    }

    /// The command was not carried out, as was heard at `now`. A guard that was over by then stays over: its end was reported.
    pub(crate) fn uncapped(&mut self, now: u64, id: u32, before: Cap) {
        if let Some(level) = self.levels.iter_mut().find(|level| level.id == id && level.cap.until > now) {
            level.cap = before;
        }
    }

    /// A guard's lease was set to an explicit one, as was heard at `now`. False when that was too late: the guard was over
    /// by then, which is final.
    pub(crate) fn extended(&mut self, now: u64, id: u32, lease: u64, until: u64) -> bool {
        if self.until(id).is_none_or(|until| until <= now) {
            return false;
        }
        if let Some(level) = self.levels.iter_mut().find(|level| level.id == id) {
            *level = Level { lease: Some(lease), until, cap: Cap::NONE, ..*level };
        }
        true
    }

    /// The watchdog's renewal sent at `sent` was confirmed at `now`. False when it came too late: what the watchdog kept
    /// had ended by the local clock, which is final.
    pub(crate) fn renewed(&mut self, now: u64, sent: u64, until: u64) -> bool {
        if !self.is_watched() {
            return true;
        }
        if now >= self.watched {
            return false;
        }
        self.watched = self.watched.max(until);
        self.renewed = self.renewed.max(sent);
        true
    }

    /// Notes that the server of the name confirmed the hold, in reply to a command sent at `sent`.
    pub(crate) fn confirm(&mut self, sent: u64) {
        self.confirmed = sent.max(self.confirmed);
    }

    /// When the last acquire or confirmation was sent. For holds that nobody renews.
    pub(crate) fn confirmed_at(&self) -> u64 {
        self.confirmed
    }

    /// When the watchdog's last confirmed renewal, or the acquire, was sent.
    pub(crate) fn renewed_at(&self) -> u64 {
        self.renewed
    }

    /// Ends the hold, for good. True when a guard loses it by that: a hold that no guard relies on is being released, and what
    /// is released is not lost.
    pub(crate) fn finish(&mut self, end: End) -> bool {
        if self.end.is_some() {
            return false;
        }
        self.end = Some(end);
        self.lost.extend(self.levels.iter().map(|level| (level.id, end)));
        !self.levels.is_empty()
    }

    /// Ends those holds of this list that guards rely on; other guards may rely on other holds. Returns the holds it has ended.
    pub(crate) fn lose(&mut self, end: End, holds: &[u64]) -> Vec<u64> {
        self.lose_levels(end, |_, level| holds.contains(&level.hold))
    }

    /// Ends what the watchdog kept for guards that are over by the clock. Guards with longer leases of their own go on.
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

    /// The server said that the owner does not hold the lock, in an answer to a question of `tenure`. As [`Book::finish`], but an
    /// answer that comes in after a release says nothing of what was acquired since. Between two guards, when one has given the
    /// hold back and it is not yet handed over, there is nobody to notify: [`Book::is_refuted`].
    pub(crate) fn refuted(&mut self, tenure: u32) -> bool {
        if self.tenure == tenure {
            self.refuted_idle();
        }
        self.tenure == tenure && !self.is_idle() && self.finish(End::Gone)
    }

    /// As [`Book::refuted`], where no guard relies on it.
    pub(crate) fn refuted_idle(&mut self) {
        if self.is_idle() {
            self.refuted = Some(self.tenure);
        }
    }

    /// True when the server said so while no guard relied on the hold: there is nothing to hand over.
    pub(crate) fn is_refuted(&self) -> bool {
        self.refuted == Some(self.tenure)
    }

    /// How many times the server gave it to the owner anew.
    pub(crate) fn tenure(&self) -> u32 {
        self.tenure
    }

    /// How it ended, if it did.
    pub(crate) fn end(&self) -> Option<End> {
        self.end
    }

    /// How it ended for a guard: one that was released before has lost nothing.
    pub(crate) fn end_of(&self, id: u32) -> Option<End> {
        self.lost.iter().find(|(lost, _)| *lost == id).map(|(_, end)| *end)
    }

    /// How many holds this client has in the server.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Number of holds being released: no guard relies on them, but the server still has them.
    pub(crate) fn ending(&self) -> usize {
        let relied_on = if self.end.is_none() { self.levels.len() } else { 0 };
        (self.count as usize).saturating_sub(relied_on)
    }

    /// One of the holds of `tenure` is this client's no more, whatever others may have added to the owner's count in the
    /// server. True when none is left. What was acquired since is not touched.
    pub(crate) fn counted_down(&mut self, tenure: u32) -> bool {
        if self.tenure == tenure {
            self.count = self.count.saturating_sub(1);
        }
        self.count == 0
    }

    /// True once the hold has left the table: nobody may open it again.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }
}
