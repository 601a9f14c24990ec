//! The part of a release that reads and changes the owner's book.

use std::sync::Arc;
use std::time::Duration;

use super::aftermath::{lock_is_free, owner_has_nothing, warn_unannounced};
use super::send::lease_left;
use super::{Answered, GuardRelease, Plan};
use crate::engine::hold::valid_until;
use crate::engine::ledger::{End, Entry as _};
use crate::engine::metrics;
use crate::engine::protocol::{MUST_CONFIRM, Release};
use crate::error::{Error, NotHeld, Result};
use crate::state::Released;
use crate::world::{Moment, nanos};

impl GuardRelease {
    /// For a guard whose lease has ended: if the name must stay closed (`Acquire::lock_delay`), leaves the hold to its
    /// lease at the server, and returns true. False if another guard of the owner is still held, because then the lock
    /// is not lost.
    pub(super) async fn leaves_closed(&self) -> bool {
        let Self { engine, hold, number, tenure, .. } = self;
        if hold.book().delay().is_zero() {
            return false;
        }
        let _order = hold.in_order().await;
        let is_last = {
            let mut book = hold.book();
            if book.tenure() != *tenure || !book.stays_closed(engine.now().as_nanos()) {
                return false;
            }
            // A late copy of the acquire may only keep the name closed for longer.
            book.undoubt(*number);
            book.counted_down(*tenure)
        };
        if is_last {
            owner_has_nothing(engine, hold);
        }
        true
    }

    /// Builds the command from the book. Returns an error if the hold has ended.
    pub(super) fn plan(&self) -> Result<Plan> {
        let Self { engine, hold, number, .. } = self;
        let mut book = hold.book();
        if let (0, end) = (book.count(), book.end()) {
            return Err(hold.lost(end.unwrap_or(End::Gone)));
        }
        let (lease_left, cut_until, owed) = (lease_left(engine, hold, &book), book.cut_until(), book.owed());
        // An `extend` that was in flight when the guard left the book may have changed `unseen` since
        // (`Book::note_unseen`).
        let unseen = Moment::from_nanos(book.unseen());
        drop(book);
        let (id, over) = (engine.hold_id_with(&hold.owner, &owed, Some(*number)), self.over.max(unseen));
        Ok(Plan { id, lease_left, cut_until, owed, over })
    }

    /// Records a failed release. If the release is not retried, the owner's next release includes this hold.
    pub(super) fn book_failure(&self, mut owed: Vec<(u64, u64)>, over: Moment, error: &Error, goes_on: bool) {
        let Self { engine, hold, number, .. } = self;
        self.note_failed();
        if !goes_on {
            owed.push((*number, over.as_nanos()));
        }
        hold.book().owe(owed);
        let what = if goes_on { "release, retried" } else { "release, given up" };
        if let Some(left_out) = engine.warnings.due(what, &error.brief()) {
            tracing::warn!(lock.name = %hold.name().as_written, %error, goes_on, left_out, "release failed");
        }
        if !goes_on && hold.book().counted_down(self.tenure) {
            // No later release can include this hold. The hold is no longer renewed, so it ends with its lease.
            lock_is_free(engine, hold, 0);
        }
    }

    /// Counts a release that failed or found no hold. A guard that was lost before its release is counted only as lost.
    pub(super) fn note_failed(&self) {
        if self.was_held {
            metrics::release_failed(self.hold.protocol.flavour());
        }
    }

    /// Records the server's answer in book and table, and notifies waiters.
    pub(super) fn book_answer(&self, answer: Answered) -> Result<Released> {
        let Self { engine, hold, tenure, .. } = self;
        let name = Arc::clone(&hold.name().as_written);
        match answer.release {
            Release::Left(left) => {
                self.count_down(answer.sent, answer.rearms);
                Ok(Released::StillHeld(left))
            }
            Release::Others => {
                owner_has_nothing(engine, hold);
                Ok(Released::Free)
            }
            Release::Free(receivers) => {
                lock_is_free(engine, hold, receivers);
                if receivers > 0 {
                    engine.queues.check_passed(&hold.protocol, receivers.into(), engine.now());
                }
                if let Some(inbox) = hold.inbox.get().filter(|_| answer.clean && !hold.owner.is_known()) {
                    engine.registry.keep_spare(&hold.owner, inbox);
                }
                Ok(Released::Free)
            }
            Release::Unannounced(reason) => {
                warn_unannounced(engine, hold.name(), &reason);
                lock_is_free(engine, hold, 0);
                // The queue's head was not notified, but may have the lock for the grace time.
                engine.queues.check_passed(&hold.protocol, MUST_CONFIRM, engine.now());
                Ok(Released::Free)
            }
            Release::NotHeld(holder) => {
                lock_is_free(engine, hold, 0);
                if holder.is_none() {
                    // The script has passed the lock on if others wait.
                    engine.queues.check_passed(&hold.protocol, MUST_CONFIRM, engine.now());
                }
                let why = holder.map_or(NotHeld::LeaseOver, |owner| NotHeld::HeldBy { owner });
                self.note_failed();
                Err(Error::NotHeld { name, why })
            }
            Release::NotThere(_) => {
                // Since the acquire, the lock was released by force and acquired again, or another client released this
                // hold.
                if hold.book().counted_down(*tenure) {
                    owner_has_nothing(engine, hold);
                }
                self.note_failed();
                Err(Error::NotHeld { name, why: NotHeld::LeaseOver })
            }
            odd @ (Release::Which(_) | Release::TooLate(_)) => {
                // Our scripts never give this reply here, so no guard may rely on this server's state.
                if hold.book().counted_down(*tenure) {
                    lock_is_free(engine, hold, 0);
                }
                Err(Error::odd_reply("release", &odd).about(&name))
            }
        }
    }

    /// Records that the owner still has other holds. `rearms`: true if the release has restarted their lease.
    fn count_down(&self, sent: Moment, rearms: bool) {
        let Self { engine, hold, tenure, .. } = self;
        let mut book = hold.book();
        let none_left = book.counted_down(*tenure);
        let counted = engine.counted(sent);
        let until = |lease| valid_until(counted, Duration::from_nanos(lease)).as_nanos();
        if rearms {
            book.rearmed(engine.now().as_nanos(), sent.as_nanos(), until, nanos(engine.options.watchdog));
        }
        drop(book);
        hold.changed.notify_waiters();
        if none_left {
            // The remaining holds belong to other clients under the same owner.
            owner_has_nothing(engine, hold);
        }
    }
}
