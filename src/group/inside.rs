//! Access to the single locks inside group locks. A member of a group lock is a single lock or another group lock.

use std::sync::Arc;

use crate::lock::{DistLock, Inside, Part};
use crate::runtime::home::Home;

/// Returns the part of a single lock; None for a group.
pub(crate) fn part(lock: &Arc<dyn DistLock>) -> Option<Part<'_>> {
    match lock.inside() {
        Inside::One(part) => Some(part),
        Inside::Many(_) => None,
    }
}

/// Returns the single locks inside these locks.
pub(crate) fn parts(locks: &[Arc<dyn DistLock>]) -> Vec<Part<'_>> {
    let mut all = Vec::with_capacity(locks.len());
    for lock in locks {
        match lock.inside() {
            Inside::One(part) => all.push(part),
            Inside::Many(locks) => all.extend(parts(locks)),
        }
    }
    all
}

/// Returns the first single lock inside these locks; None if all of these locks are empty groups.
pub(crate) fn first_part(locks: &[Arc<dyn DistLock>]) -> Option<Part<'_>> {
    locks.iter().find_map(|lock| match lock.inside() {
        Inside::One(part) => Some(part),
        Inside::Many(locks) => first_part(locks),
    })
}

/// Returns the runtime for work on these locks: that of the first part.
pub(crate) fn home(locks: &[Arc<dyn DistLock>]) -> Option<&Home> {
    first_part(locks).map(|part| part.client.engine().home())
}
