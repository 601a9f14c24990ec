//! A book's notes about unanswered commands, and about holds without a guard.

use super::Book;

#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Holds whose acquires had no reply at first. A late copy of such an acquire may still arrive.
    doubts: Vec<u64>,
    /// Holds whose releases failed, each with the latest end of its lease on the server. The owner's next release
    /// includes these holds.
    owed: Vec<(u64, u64)>,
    /// Holds that Redis does not yet list as holds without a guard, although their guards were given up
    /// (`release/by_owner.rs`).
    given_up: Vec<u64>,
    /// Time until which an unanswered `extend` or release may still arrive and shorten the lease.
    cut_until: u64,
    /// Time until which the server may keep the hold because of an `extend` that no guard counts on.
    unseen: u64,
    /// Number of the last `extend` that could shorten the lease.
    cuts: u64,
}

impl Book {
    pub(crate) fn doubted(&self) -> bool {
        !self.notes.doubts.is_empty()
    }

    pub(crate) fn doubt(&mut self, hold: u64) {
        if !self.notes.doubts.contains(&hold) {
            self.notes.doubts.push(hold);
        }
    }

    /// Removes the note of an unanswered acquire. True if the note existed.
    pub(crate) fn undoubt(&mut self, hold: u64) -> bool {
        let before = self.notes.doubts.len();
        self.notes.doubts.retain(|doubt| *doubt != hold);
        self.notes.doubts.len() != before
    }

    pub(crate) fn doubts(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.notes.doubts)
    }

    pub(crate) fn owe(&mut self, holds: impl IntoIterator<Item = (u64, u64)>) {
        self.notes.owed.extend(holds);
    }

    pub(crate) fn owed(&mut self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.notes.owed)
    }

    /// Notes a hold whose guard was given up. The next release by owner releases this hold first.
    pub(crate) fn give_up(&mut self, hold: u64) {
        self.notes.given_up.push(hold);
    }

    pub(crate) fn given_up(&mut self) -> Option<u64> {
        self.notes.given_up.pop()
    }

    /// Removes this hold's note of a given-up guard. False if the note was taken before.
    pub(crate) fn remove_given_up(&mut self, hold: u64) -> bool {
        let before = self.notes.given_up.len();
        self.notes.given_up.retain(|other| *other != hold);
        self.notes.given_up.len() != before
    }

    pub(crate) fn may_be_cut(&mut self, until: u64) {
        self.notes.cut_until = self.notes.cut_until.max(until);
    }

    /// Notes an `extend` to `until` that had no reply, or whose guard was gone when the reply arrived.
    pub(crate) fn note_unseen(&mut self, until: u64) {
        self.notes.unseen = self.notes.unseen.max(until);
    }

    pub(crate) fn unseen(&self) -> u64 {
        self.notes.unseen
    }

    /// Time until which the server may keep the lock, even if no guard counts on that.
    pub(crate) fn until_in_server(&self) -> u64 {
        let delay = u64::try_from(self.delay().as_nanos()).unwrap_or(u64::MAX);
        let until = match self.until_all() {
            0 => 0,
            until => until.saturating_add(delay),
        };
        until.max(self.notes.unseen)
    }

    /// Notes that a client has asked the holder of this tenure to finish.
    pub(crate) fn revoke(&mut self) {
        self.revoked = true;
    }

    /// True if the holder of this tenure was asked to finish.
    pub(crate) fn is_revoked(&self) -> bool {
        self.revoked
    }

    /// True if the holder was asked to finish, and this guard has not been released.
    pub(crate) fn is_revoked_for(&self, id: u32) -> bool {
        self.revoked && self.number(id).is_some()
    }

    pub(crate) fn cut_until(&self) -> u64 {
        self.notes.cut_until
    }

    pub(crate) fn next_cut(&mut self) -> u64 {
        self.notes.cuts += 1;
        self.notes.cuts
    }
}
