//! What locks that are made of others know of their members beyond [`DistLock`].

use std::sync::Arc;

use crate::client::Client;
use crate::engine::protocol::Protocol;
use crate::flavour::inside;
use crate::lock::DistLock;
use crate::runtime::home::Home;

/// What a lock of this crate's is made of.
pub(crate) enum Inside<'a> {
    /// It is a lock by itself.
    One(Part<'a>),
    /// It is made of these.
    Many(&'a [Arc<dyn DistLock>]),
}

/// A lock by itself: what it says, and through whom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    pub(crate) client: &'a Client,
    pub(crate) protocol: &'a Arc<dyn Protocol>,
}

/// The part that this lock is. None where it is made of others, or of somebody else's making.
pub(crate) fn part(lock: &Arc<dyn DistLock>) -> Option<Part<'_>> {
    match inside(&**lock) {
        Some(Inside::One(part)) => Some(part),
        Some(Inside::Many(_)) | None => None,
    }
}

/// The parts that these locks come down to: locks of somebody else's making have none.
pub(crate) fn parts(locks: &[Arc<dyn DistLock>]) -> Vec<Part<'_>> {
    let mut all = Vec::with_capacity(locks.len());
    for lock in locks {
        match inside(&**lock) {
            Some(Inside::One(part)) => all.push(part),
            Some(Inside::Many(locks)) => all.extend(parts(locks)),
            None => {}
        }
    }
    all
}

/// The first of the parts that these locks come down to.
pub(crate) fn first_part(locks: &[Arc<dyn DistLock>]) -> Option<Part<'_>> {
    locks.iter().find_map(|lock| match inside(&**lock)? {
        Inside::One(part) => Some(part),
        Inside::Many(locks) => first_part(locks),
    })
}

/// The runtime on which work on behalf of all these locks is done: that of the first that has one.
pub(crate) fn home(locks: &[Arc<dyn DistLock>]) -> Option<&Home> {
    first_part(locks).map(|part| part.client.engine().home())
}
