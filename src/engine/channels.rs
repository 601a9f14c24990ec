//! Which names a channel's messages are for. Several may share one: as Redisson names channels, `a` and `{a}` do.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::names::LockName;

/// The names that listen, by channel. Locked only for a look or a change, never together with anything else.
#[derive(Debug, Default)]
pub(crate) struct Channels(Mutex<HashMap<Bytes, Vec<Arc<LockName>>>>);

impl Channels {
    /// A name begins to listen.
    pub(crate) fn add(&self, name: &Arc<LockName>) {
        let mut channels = self.0.lock();
        let names = channels.entry(name.channel.clone()).or_default();
        if !names.contains(name) {
            names.push(Arc::clone(name));
        }
    }

    /// A name listens no more. True when nobody does on its channel now.
    pub(crate) fn remove(&self, name: &LockName) -> bool {
        let mut channels = self.0.lock();
        let Some(names) = channels.get_mut(&name.channel) else { return true };
        names.retain(|other| &**other != name);
        let last = names.is_empty();
        if last {
            channels.remove(&name.channel);
        }
        last
    }

    /// Name `n` of those that listen on a channel.
    pub(crate) fn nth(&self, channel: &[u8], n: usize) -> Option<Arc<LockName>> {
        self.0.lock().get(channel)?.get(n).cloned()
    }
}
