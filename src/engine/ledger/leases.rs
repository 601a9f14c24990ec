//! The deadlines of a book, as acquires, renewals and extensions change them.

use std::time::Duration;

use super::{Book, Cap, Level};

impl Book {
    /// The lease that the lock's key needs for the remaining guards: the longest of their leases, which is `watchdog`
    /// for a watched guard. `watchdog` if no guard is left.
    pub(crate) fn lease_left(&self, watchdog: u64) -> u64 {
        self.levels.iter().map(|level| level.lease.unwrap_or(watchdog)).max().unwrap_or(watchdog)
    }

    /// Records that a command sent at `sent`, answered at `now`, restarted the key's lease: the watchdog's lease and
    /// explicit leases begin again. Expired leases stay expired, because an end is final.
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

    /// Caps a guard's deadline while a command that may shorten its lease is in flight. Returns the previous cap,
    /// which [`Book::uncapped`] restores if the command is not executed.
    pub(crate) fn capped(&mut self, id: u32, cap: Cap) -> Cap {
        let Some(level) = self.levels.iter_mut().find(|level| level.id == id) else { return Cap::NONE };
        let before = level.cap;
        if cap.until < before.until {
            level.cap = cap;
        }
        before
    }

    /// Restores a cap, because at `now` it is known that the command was not executed. A guard that had expired before
    /// `now` stays expired, because its end was reported.
    pub(crate) fn uncapped(&mut self, now: u64, id: u32, before: Cap) {
        if let Some(level) = self.levels.iter_mut().find(|level| level.id == id && level.cap.until > now) {
            level.cap = before;
        }
    }

    /// Records a guard's new explicit lease, confirmed at `now`. False if the guard had expired before, which is final.
    pub(crate) fn extended(&mut self, now: u64, id: u32, lease: u64, until: u64) -> bool {
        if self.until(id).is_none_or(|until| until <= now) {
            return false;
        }
        if let Some(level) = self.levels.iter_mut().find(|level| level.id == id) {
            *level = Level { lease: Some(lease), until, cap: Cap::NONE, ..*level };
        }
        true
    }

    /// Records the watchdog's renewal, sent at `sent` and confirmed at `now`. False if the reply came too late: the
    /// watched lease had ended by the local clock, which is final.
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

    /// Raises the lock delay of this tenure to `delay`: the server keeps the lock for this much longer than the guards'
    /// leases.
    pub(crate) fn delay_by(&mut self, delay: Duration) {
        let ms = delay.as_nanos().div_ceil(1_000_000);
        self.delay = self.delay.max(u32::try_from(ms).unwrap_or(u32::MAX));
    }

    /// The lock delay of this tenure. Zero if the owner holds nothing.
    pub(crate) fn delay(&self) -> Duration {
        if self.count == 0 { Duration::ZERO } else { Duration::from_millis(self.delay.into()) }
    }

    /// True if this tenure has a lock delay, and the leases of all its guards have ended at `now`. The name must then
    /// stay closed.
    pub(crate) fn stays_closed(&self, now: u64) -> bool {
        !self.delay().is_zero() && self.levels.iter().all(|level| self.until_of(level) <= now)
    }

    pub(crate) fn confirm(&mut self, sent: u64) {
        self.confirmed = sent.max(self.confirmed);
    }

    /// When the last successful acquire, renewal or confirmation was sent. Used for holds that are not renewed.
    pub(crate) fn confirmed_at(&self) -> u64 {
        self.confirmed
    }

    /// When the watchdog's last confirmed renewal, or the acquire, was sent.
    pub(crate) fn renewed_at(&self) -> u64 {
        self.renewed
    }
}
