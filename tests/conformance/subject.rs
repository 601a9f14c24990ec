//! What a body of the suite is run over: a bed, and what differs between flavours.

use std::ops::Deref;
use std::sync::Arc;

use distlock::{Client, DistLock};

use crate::bed::{Bed, Make};

/// A flavour, as far as the suite has to know.
#[derive(Clone, Copy)]
pub struct Kind {
    /// The lock whose holder is looked at.
    pub lock: Make,
    /// The lock that waits for that one, or is refused beside it.
    pub rival: Make,
    /// What stands in the hash when this one holds the lock.
    pub held_by: fn(&str) -> Vec<(String, String)>,
}

impl Kind {
    /// A lock that keeps out its own kind, with its holders as the fields of its hash.
    pub const fn mutex(lock: Make) -> Self {
        Self { lock, rival: lock, held_by: |holder| vec![(holder.to_owned(), "no number".to_owned())] }
    }

    /// As the hash of a read-write lock is in the hands of a writer.
    pub const fn held_by_a_writer(mut self) -> Self {
        self.held_by = |holder| {
            let mode = ("mode".to_owned(), "write".to_owned());
            vec![mode, (format!("{holder}:write"), "no number".to_owned())]
        };
        self
    }

    /// With others waiting for it than its own kind.
    pub const fn against(mut self, rival: Make) -> Self {
        self.rival = rival;
        self
    }
}

/// A bed with a flavour on it.
pub struct Subject<'a> {
    bed: &'a Bed,
    kind: Kind,
}

impl<'a> Subject<'a> {
    pub fn new(bed: &'a Bed, kind: Kind) -> Self {
        Self { bed, kind }
    }

    /// A lock that is kept out while [`Bed::lock`] of this name is held by another owner, and keeps that out: the same, but
    /// for the halves of a read-write lock.
    pub fn rival(&self, client: &Client, name: &str) -> Arc<dyn DistLock> {
        (self.kind.rival)(client, name)
    }

    /// Has a stranger hold a lock, without end.
    pub async fn give_to(&self, holder: &str, name: &str) {
        for (field, value) in (self.kind.held_by)(holder) {
            let _: u64 = self.bed.admin.cmd(&["HSET", name, &field, &value]).await;
        }
    }
}

impl Deref for Subject<'_> {
    type Target = Bed;

    fn deref(&self) -> &Bed {
        self.bed
    }
}
