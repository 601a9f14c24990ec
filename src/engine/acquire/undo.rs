//! The undoing of attempts that nobody came to use.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::hold::Target;
use crate::engine::release;

/// An acquire that may have happened unseen, or a queue entry, or a mark. Undone when this is dropped, unless it was disarmed
/// because the outcome became known, or was used.
pub(super) struct Undo {
    target: Arc<Target>,
    armed: bool,
    /// False for an entry or a mark that is known to be there: it is given up, and no copy of its command can come later.
    doubted: bool,
    /// True for a mark.
    marks: bool,
    /// The explicit lease that the acquire asked for. The undo is retried for at least that long.
    lease: Option<Duration>,
}

impl Undo {
    /// `doubted`: the attempt was sent, and not answered.
    pub(super) fn new(target: &Arc<Target>, doubted: bool) -> Self {
        Self { target: Arc::clone(target), armed: true, doubted, marks: false, lease: None }
    }

    /// Sets the explicit lease of the acquire. None: the watchdog's lease.
    pub(super) fn leased(mut self, lease: Option<Duration>) -> Self {
        self.lease = lease;
        self
    }

    /// For a mark in Redis, which closing takes back too.
    pub(super) fn mark(target: &Arc<Target>) -> Self {
        target.engine.queues.mark(target);
        Self { target: Arc::clone(target), armed: true, doubted: false, marks: true, lease: None }
    }

    /// Nothing is to be undone any more.
    pub(super) fn disarm(mut self) {
        self.armed = false;
    }

    /// A later attempt has left the same mark again: it is taken back once.
    pub(super) fn replace_mark(mark: &mut Option<Self>, again: Self) {
        // First the old undo takes its mark off the list, then the new one puts it back.
        if let Some(old) = mark.take() {
            old.disarm();
        }
        again.target.engine.queues.mark(&again.target);
        *mark = Some(again);
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        if self.marks {
            self.target.engine.queues.unmark(&self.target);
        }
        if self.armed {
            release::undo(Arc::clone(&self.target), self.doubted, self.lease);
        }
    }
}
