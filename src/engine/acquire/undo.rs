//! The undo of attempts whose result nobody takes.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::hold::Target;
use crate::engine::release;

/// When dropped, undoes an acquire that may have run, a queue entry, or a mark (which shows in Redis that an owner
/// waits). [`Self::disarm`] cancels the undo once the outcome is known or used.
pub(super) struct Undo {
    target: Arc<Target>,
    armed: bool,
    /// True if a copy of the command may arrive later. False for an entry or a mark that the server has confirmed.
    doubted: bool,
    marks: bool,
    /// Lease that the acquire has set. The undo is retried for at least that long.
    lease: Option<Duration>,
}

impl Undo {
    pub(super) fn new(target: &Arc<Target>, doubted: bool) -> Self {
        Self { target: Arc::clone(target), armed: true, doubted, marks: false, lease: None }
    }

    pub(super) fn leased(mut self, lease: Option<Duration>) -> Self {
        self.lease = lease;
        self
    }

    /// For a mark in Redis. Registers the mark, so that a shutdown removes it too.
    pub(super) fn mark(target: &Arc<Target>) -> Self {
        target.engine.queues.mark(target);
        Self { target: Arc::clone(target), armed: true, doubted: false, marks: true, lease: None }
    }

    pub(super) fn disarm(mut self) {
        self.armed = false;
    }

    /// Replaces the undo after a later attempt has set the same mark again.
    pub(super) fn replace_mark(mark: &mut Option<Self>, again: Self) {
        // The drop of the old undo unregisters the mark, so the mark is registered again afterwards.
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
