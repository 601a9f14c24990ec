//! The state of a lock, and the result of a release.

use std::time::Duration;

use crate::owner::Owner;

/// Holders of a lock, read from the primary in one step.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct State {
    /// The holders and their hold counts, as stored in Redis. Empty if the lock is free.
    pub holders: Vec<(String, u64)>,
    /// How long the lock stays held without renewal. `None` if the lock is free, or if its key has no expiry, which no
    /// client of this crate writes.
    pub remaining: Option<Duration>,
}

impl State {
    /// True if somebody holds the lock.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        !self.holders.is_empty()
    }

    /// Returns how many times `owner` holds the lock.
    #[must_use]
    pub fn hold_count(&self, owner: &Owner) -> u64 {
        self.holders.iter().find(|(holder, _)| holder == owner.text()).map_or(0, |(_, count)| *count)
    }
}

/// Result of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Released {
    /// The owner no longer holds this lock. The lock may be free, or handed over to the next waiter of this process.
    /// Other readers may still hold it, or the same owner may hold the other half of a read-write lock.
    Free,
    /// The owner had acquired the lock several times; this many holds are left.
    StillHeld(u32),
}
