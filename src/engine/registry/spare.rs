//! Owners that may be used again, because messages for them still come in.

use std::collections::HashMap;
use std::sync::Arc;

use super::Registry;
use crate::engine::sync::Mutex;
use crate::hash::ReadyHash;
use crate::names::LockName;
use crate::owner::Owner;
use crate::slim::slim;

/// An owner, and the inbox where messages for it come in.
pub(crate) type Spare = (Owner, Arc<LockName>);

/// Owners whose last use ended cleanly, so that no message for them can be on its way, by lock.
#[derive(Debug, Default)]
pub(super) struct Spares(Mutex<HashMap<Arc<LockName>, Vec<Spare>, ReadyHash>>);

impl Spares {
    /// An inbox has no subscription any more.
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
    /// An owner for a lock for which messages still come in, if there is one.
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

    /// An acquire of this owner has ended cleanly: keeps the owner for the next one.
    pub(crate) fn keep_spare(&self, owner: &Owner, inbox: &Arc<LockName>) {
        if let Some(name) = &inbox.lock
            && self.is_spare(inbox)
        {
            self.spares.0.lock().entry(Arc::clone(name)).or_default().push((owner.clone(), Arc::clone(inbox)));
            if !self.is_spare(inbox) {
                // Its subscription was ended between, and whoever did that found no owner to forget.
                self.spares.forget(inbox);
            }
        }
    }
}
