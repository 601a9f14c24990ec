//! Collects the outcomes of segments that were not acquired, and decides what the acquire returns: busy, or an error.

use crate::error::{Deadlock, Error, Result};

/// Returns true for an error that every other segment would return too. `NotReentrant` is such an error only if the
/// acquire refuses re-entry. A plain lock returns this error for each segment that the owner holds, while another
/// segment may be free.
pub(super) const fn applies_to_all_segments(error: &Error, not_reentrant: bool) -> bool {
    match error {
        Error::Config { .. } | Error::Closed => true,
        Error::WouldDeadlock { why: Deadlock::NotReentrant, .. } => not_reentrant,
        _ => false,
    }
}

#[derive(Default)]
pub(super) struct Tally {
    /// True if another owner holds a segment.
    busy: bool,
    /// A temporary error of a segment.
    pub(super) passing: Option<Error>,
    /// A lasting error: the segment's key must be repaired, or the requesting owner must release the segment.
    bad: Option<Error>,
    /// True if re-entry is refused.
    not_reentrant: bool,
}

impl Tally {
    pub(super) fn new(not_reentrant: bool) -> Self {
        Self { not_reentrant, ..Self::default() }
    }

    /// Adds the outcome of one segment. Returns an error that every other segment would return too.
    pub(super) fn note(&mut self, outcome: Result<()>) -> Result<()> {
        match outcome {
            Ok(()) => self.busy = true,
            Err(error) if applies_to_all_segments(&error, self.not_reentrant) => return Err(error),
            Err(error) if error.is_retryable() => self.passing = Some(error),
            Err(error @ Error::WouldDeadlock { .. }) => self.bad = Some(error),
            Err(error) => {
                tracing::warn!(%error, "a segment cannot be acquired, and is skipped");
                self.bad = Some(error);
            }
        }
        Ok(())
    }

    /// Returns true if no segment is worth waiting for.
    pub(super) const fn is_hopeless(&self) -> bool {
        !self.busy && self.passing.is_none() && self.bad.is_some()
    }

    /// Returns None, which means busy, only if every usable segment is known to be held.
    pub(super) fn verdict<T>(self) -> Result<Option<T>> {
        match self {
            Self { passing: Some(error), .. } | Self { busy: false, bad: Some(error), .. } => Err(error),
            _ => Ok(None),
        }
    }
}
