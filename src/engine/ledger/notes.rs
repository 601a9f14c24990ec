//! What a book notes beside its levels: commands that went without a reply, and holds that have no guard any more.

use super::Book;

/// The notes of one book.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Holds whose acquires went without a reply once, so that a late copy may still reach the server.
    doubts: Vec<u64>,
    /// Holds whose releases failed and go with the owner's next release, each with the latest end of its lease in the server.
    owed: Vec<(u64, u64)>,
    /// Holds whose guards were given up, and that are listed in the server still.
    given_up: Vec<u64>,
    /// Until then a command that shortens the lease may still reach the server: an `extend` or a release without a reply.
    cut_until: u64,
    /// Until then the server may keep it, by an `extend` without a reply, although nobody counts on that.
    unseen: u64,
    /// The number of the last `extend` that was to make the lease shorter.
    cuts: u64,
}

impl Book {
    /// True when an acquire of a hold here went without a reply, so that a late copy of it may still reach the server.
    pub(crate) fn doubted(&self) -> bool {
        !self.notes.doubts.is_empty()
    }

    /// Notes an acquire that went without a reply.
    pub(crate) fn doubt(&mut self, hold: u64) {
        if !self.notes.doubts.contains(&hold) {
            self.notes.doubts.push(hold);
        }
    }

    /// Takes the note of such an acquire. True when there was one.
    pub(crate) fn undoubt(&mut self, hold: u64) -> bool {
        let before = self.notes.doubts.len();
        self.notes.doubts.retain(|doubt| *doubt != hold);
        self.notes.doubts.len() != before
    }

    /// Takes the notes of all such acquires.
    pub(crate) fn doubts(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.notes.doubts)
    }

    /// Notes holds whose releases failed, each with the latest end of its lease in the server.
    pub(crate) fn owe(&mut self, holds: impl IntoIterator<Item = (u64, u64)>) {
        self.notes.owed.extend(holds);
    }

    /// Takes the holds whose releases failed.
    pub(crate) fn owed(&mut self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.notes.owed)
    }

    /// The guard of this hold was given up: whoever gives back any hold of the owner is to take this one.
    pub(crate) fn give_up(&mut self, hold: u64) {
        self.notes.given_up.push(hold);
    }

    /// Takes one of the holds that were given up.
    pub(crate) fn given_up(&mut self) -> Option<u64> {
        self.notes.given_up.pop()
    }

    /// Takes this hold of those that were given up. False when it was taken already.
    pub(crate) fn take_given_up(&mut self, hold: u64) -> bool {
        let before = self.notes.given_up.len();
        self.notes.given_up.retain(|other| *other != hold);
        self.notes.given_up.len() != before
    }

    /// A command that shortens the lease went without a reply: it may reach the server until then.
    pub(crate) fn may_be_cut(&mut self, until: u64) {
        self.notes.cut_until = self.notes.cut_until.max(until);
    }

    /// An `extend` to `until` went without a reply, or its guard was gone when the reply came.
    pub(crate) fn note_unseen(&mut self, until: u64) {
        self.notes.unseen = self.notes.unseen.max(until);
    }

    /// Latest end of a lease by an `extend` that no guard counts on.
    pub(crate) fn unseen(&self) -> u64 {
        self.notes.unseen
    }

    /// Until when the server may keep the lock, whoever counts on that.
    pub(crate) fn until_in_server(&self) -> u64 {
        self.until_all().max(self.notes.unseen)
    }

    /// Until when a command that shortens the lease may reach the server.
    pub(crate) fn cut_until(&self) -> u64 {
        self.notes.cut_until
    }

    /// The number of the next `extend` that is to make the lease shorter.
    pub(crate) fn next_cut(&mut self) -> u64 {
        self.notes.cuts += 1;
        self.notes.cuts
    }
}
