//! Owners that may be reused, because their inbox (a waiter's own channel) is still subscribed.

use std::collections::HashMap;
use std::sync::Arc;

use super::Registry;
use crate::engine::sync::Mutex;
use crate::hash::ReadyHash;
use crate::names::LockName;
use crate::owner::Owner;
use crate::slim::slim;

pub(crate) type Spare = (Owner, Arc<LockName>);

/// Reusable owners, by lock. Each owner's last use ended cleanly, so no message for the owner is in flight.
#[derive(Debug, Default)]
pub(super) struct Spares(Mutex<HashMap<Arc<LockName>, Vec<Spare>, ReadyHash>>);

impl Spares {
    /// Removes the owner of an inbox whose subscription has ended.
    pub(super) fn forget(&self, inbox: &LockName) {
        let Some(name) = &inbox.lock else { return };
        let mut spares = self.0.lock();
        if let Some(owners) = spares.get_mut(name) {
            owners.retain(|(_, other)| **other != *inbox);
            if owners.is_empty() {
                spares.remove(name);
                slim(&mut spares);
            }
        }
    }
}

impl Registry {
    /// Takes a reusable owner of a lock, if there is one whose inbox is still subscribed.
    pub(crate) fn spare(&self, name: &Arc<LockName>) -> Option<Spare> {
        loop {
            let found = {
                let mut spares = self.spares.0.lock();
                let owners = spares.get_mut(name)?;
                let found = owners.pop();
                if owners.is_empty() {
                    spares.remove(name);
                    slim(&mut spares);
                }
                found?
            };
            if self.is_spare(&found.1) {
                return Some(found);
            }
        }
    }

    /// Keeps the owner of an acquire that ended cleanly, for the next acquire.
    pub(crate) fn keep_spare(&self, owner: &Owner, inbox: &Arc<LockName>) {
        if let Some(name) = &inbox.lock
            && self.is_spare(inbox)
        {
            self.spares.0.lock().entry(Arc::clone(name)).or_default().push((owner.clone(), Arc::clone(inbox)));
            if !self.is_spare(inbox) {
                // The subscription ended before the push, so its end did not remove this owner.
                self.spares.forget(inbox);
            }
        }
    }
}
