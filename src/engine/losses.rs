//! Ends holds that their guards did not release: updates the book, notifies the guards, and releases the holds in
//! Redis.

use std::sync::Arc;

use super::hold::Hold;
use super::ledger::{Book, End, Entry as _};
use super::protocol::Protocol;
use super::{Engine, metrics, release};
use crate::owner::Owner;

impl Engine {
    /// Ends a hold that was not released, notifies its guards, and releases the hold in Redis.
    pub(crate) fn lose(self: &Arc<Self>, hold: &Arc<Hold>, end: End) {
        if hold.finish(end) {
            self.announce_end(hold, end);
        }
    }

    /// Ends watched holds whose guards have expired by the clock. Returns the number of these guards.
    pub(crate) fn expire(self: &Arc<Self>, hold: &Arc<Hold>) -> usize {
        self.lose_some(hold, End::Expired, |book| book.lose_over(self.now().as_nanos()))
    }

    /// Ends these holds, which the server no longer has. Returns the number of their guards.
    pub(crate) fn lose_holds(self: &Arc<Self>, hold: &Arc<Hold>, numbers: &[u64]) -> usize {
        self.lose_some(hold, End::Gone, |book| book.lose(End::Gone, numbers))
    }

    fn lose_some(self: &Arc<Self>, hold: &Arc<Hold>, end: End, lose: impl FnOnce(&mut Book) -> Vec<u64>) -> usize {
        let (lost, tenure, stays_closed) = {
            let mut book = hold.book();
            if book.end().is_some() {
                return 0;
            }
            let stays_closed = book.stays_closed(self.now().as_nanos());
            let lost = lose(&mut book);
            if end == End::Gone && lost.is_empty() {
                book.refuted_idle();
            }
            if !lost.is_empty() && book.is_idle() && book.count() as usize == lost.len() {
                // The book has no other holds, so it ends as a whole.
                let _ = book.finish(end);
            }
            (lost, book.tenure(), stays_closed)
        };
        let count = lost.len();
        if count > 0 {
            self.announce_loss(hold, end, lost, tenure, stays_closed);
        }
        count
    }

    /// Ends the hold: the server reported, in reply to a command of `tenure`, that the owner holds nothing. Returns the
    /// number of guards that lost the hold.
    pub(crate) fn refuted(self: &Arc<Self>, hold: &Arc<Hold>, tenure: u32) -> usize {
        if hold.refuted(tenure) { self.announce_end(hold, End::Gone) } else { 0 }
    }

    /// Announces the end of a hold whose book has ended already. Returns the number of its guards.
    fn announce_end(self: &Arc<Self>, hold: &Arc<Hold>, end: End) -> usize {
        let (lost, tenure, stays_closed): (Vec<u64>, _, _) = {
            let book = hold.book();
            (book.holds().collect(), book.tenure(), book.stays_closed(self.now().as_nanos()))
        };
        let count = lost.len();
        self.announce_loss(hold, end, lost, tenure, stays_closed);
        count
    }

    /// Ends holds that a release by owner (`release/by_owner.rs`) has removed, although guards of this client may rely
    /// on them.
    pub(crate) fn released_elsewhere(
        self: &Arc<Self>,
        protocol: &Arc<dyn Protocol>,
        owner: &Owner,
        which: impl FnOnce(&Hold) -> Vec<u64>,
    ) {
        if let Some(hold) = self.holds.get(&(Arc::clone(protocol.name()), owner.clone())) {
            let numbers = which(&hold);
            self.lose_holds(&hold, &numbers);
        }
    }

    /// Notifies the guards of these holds, and releases the holds on the server, unless the name stays closed
    /// ([`Book::stays_closed`]).
    fn announce_loss(self: &Arc<Self>, hold: &Arc<Hold>, end: End, lost: Vec<u64>, tenure: u32, stays_closed: bool) {
        hold.changed.notify_waiters();
        self.guard_left();
        self.report_loss(hold, end, lost.len());
        self.registry.forget(hold);
        release::release_ended(self, hold, end, lost, tenure, stays_closed);
    }

    pub(super) fn report_loss(&self, hold: &Hold, end: End, guards: usize) {
        if end != End::Closed {
            metrics::lost(hold.protocol.flavour(), guards);
            tracing::warn!(lock.name = %hold.name().as_written, owner = hold.owner.text(), ?end, "lock lost");
        }
    }
}
