//! Which names a channel's messages are for. Several may share one: as Redisson names channels, `a` and `{a}` do.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use super::sync::Mutex;
use crate::names::LockName;

/// The names that listen on a channel. Never changed in place: whoever passes a message on to them must miss none.
type Listeners = Arc<[Arc<LockName>]>;

/// The names that listen, by channel. Locked only for a look or a change, never together with anything else.
#[derive(Debug, Default)]
pub(crate) struct Channels(Mutex<HashMap<Bytes, Listeners>>);

impl Channels {
    /// A name begins to listen.
    pub(crate) fn add(&self, name: &Arc<LockName>) {
        let mut channels = self.0.lock();
        let names = channels.entry(name.channel.clone()).or_default();
        if !names.contains(name) {
            *names = names.iter().chain([name]).cloned().collect();
        }
    }

    /// A name listens no more. True when nobody does on its channel now.
    pub(crate) fn remove(&self, name: &LockName) -> bool {
        let mut channels = self.0.lock();
        let Some(names) = channels.get_mut(&name.channel) else { return true };
        if names.iter().all(|other| &**other == name) {
            channels.remove(&name.channel);
            return true;
        }
        *names = names.iter().filter(|other| &***other != name).cloned().collect();
        false
    }

    /// The names that listen on a channel.
    pub(crate) fn names(&self, channel: &[u8]) -> Option<Listeners> {
        self.0.lock().get(channel).cloned()
    }
}
