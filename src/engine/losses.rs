//! Holds that end other than by a release of their guards: the book, the guards and the server are brought to one mind.

use std::sync::Arc;

use super::hold::Hold;
use super::ledger::{Book, End, Entry as _};
use super::protocol::Protocol;
use super::{Engine, metrics, release};
use crate::owner::Owner;

impl Engine {
    /// Ends a hold that was not released, notifies its guards, and has what is left in Redis given back.
    pub(crate) fn lose(self: &Arc<Self>, hold: &Arc<Hold>, end: End) {
        if hold.finish(end) {
            self.announce_end(hold, end);
        }
    }

    /// Ends what the watchdog kept for guards that are over by the clock. How many guards that concerns.
    pub(crate) fn expire(self: &Arc<Self>, hold: &Arc<Hold>) -> usize {
        self.lose_some(hold, End::Expired, |book| book.lose_over(self.now().as_nanos()))
    }

    /// Ends these holds of an owner, which the server does not have any more. How many guards that concerns.
    pub(crate) fn lose_holds(self: &Arc<Self>, hold: &Arc<Hold>, numbers: &[u64]) -> usize {
        self.lose_some(hold, End::Gone, |book| book.lose(End::Gone, numbers))
    }

    fn lose_some(self: &Arc<Self>, hold: &Arc<Hold>, end: End, lose: impl FnOnce(&mut Book) -> Vec<u64>) -> usize {
        let (lost, tenure) = {
            let mut book = hold.book();
            if book.end().is_some() {
                return 0;
            }
            let lost = lose(&mut book);
            if end == End::Gone && lost.is_empty() {
                book.refuted_idle();
            }
            if !lost.is_empty() && book.is_idle() && book.count() as usize == lost.len() {
                // Nothing else is left of it.
                let _ = book.finish(end);
            }
            (lost, book.tenure())
        };
        let count = lost.len();
        if count > 0 {
            self.announce_loss(hold, end, lost, tenure);
        }
        count
    }

    /// The server said, asked during `tenure`, that the owner holds nothing. How many guards have lost it by that.
    pub(crate) fn refuted(self: &Arc<Self>, hold: &Arc<Hold>, tenure: u32) -> usize {
        if hold.refuted(tenure) { self.announce_end(hold, End::Gone) } else { 0 }
    }

    /// As [`Engine::lose`], for a hold whose book says already that it ended. How many guards that concerns.
    fn announce_end(self: &Arc<Self>, hold: &Arc<Hold>, end: End) -> usize {
        let (lost, tenure): (Vec<u64>, _) = {
            let book = hold.book();
            (book.holds().collect(), book.tenure())
        };
        let count = lost.len();
        self.announce_loss(hold, end, lost, tenure);
        count
    }

    /// Somebody gave back a hold, by its owner, that a guard of this client may rely on.
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

    /// Announces that the holds of these numbers are over to the guards that relied on them, and has them given back.
    fn announce_loss(self: &Arc<Self>, hold: &Arc<Hold>, end: End, lost: Vec<u64>, tenure: u32) {
        hold.changed.notify_waiters();
        self.guard_left();
        self.report_loss(hold, end, lost.len());
        self.registry.forget(hold);
        release::give_back_ended(self, hold, end, lost, tenure);
    }

    /// Logs and counts that so many guards of a hold are lost.
    pub(super) fn report_loss(&self, hold: &Hold, end: End, guards: usize) {
        if end != End::Closed {
            metrics::lost(hold.protocol.flavour(), guards);
            tracing::warn!(lock.name = %hold.name().as_written, owner = hold.owner.text(), ?end, "lock lost");
        }
    }
}
