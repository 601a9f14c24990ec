//! What is said of a lock: who holds it, and what a release left.

use std::time::Duration;

use crate::owner::Owner;

/// Who holds a lock, read from the primary in one step.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct State {
    /// The holders and their hold counts, as they stand in Redis. Empty when the lock is free.
    pub holders: Vec<(String, u64)>,
    /// How long the lock lives without renewal; `None` when it is free or, which no client of ours leaves behind, when
    /// it has no end.
    pub remaining: Option<Duration>,
}

impl State {
    /// True when somebody holds the lock.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        !self.holders.is_empty()
    }

    /// How often `owner` holds it.
    #[must_use]
    pub fn hold_count(&self, owner: &Owner) -> u64 {
        self.holders.iter().find(|(holder, _)| holder == owner.text()).map_or(0, |(_, count)| *count)
    }
}

/// What a release left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Released {
    /// This owner holds the lock no more: it is free, or others have it: the next waiter of this process, to whom it was
    /// passed; other readers; the same owner in the other half of a read-write lock.
    Free,
    /// The owner came in several times; so many holds are left.
    StillHeld(u32),
}
