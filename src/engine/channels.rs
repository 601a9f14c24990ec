//! Which names a channel's messages are for. Several may share one: as Redisson names channels, `a` and `{a}` do.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use super::sync::{Mutex, Notify};
use crate::names::LockName;
use crate::slim::slim;

/// The names that listen on a channel. Never changed in place: whoever passes a message on to them must miss none.
type Listeners = Arc<[Arc<LockName>]>;

/// The names that listen, by channel. Locked only for a look or a change, never together with anything else.
#[derive(Debug, Default)]
pub(crate) struct Channels(Mutex<HashMap<Bytes, Channel>>);

#[derive(Debug, Default)]
struct Channel {
    names: Listeners,
    /// True while somebody subscribes to it, or ends its subscription.
    changing: bool,
    /// Notified when that is done.
    done: Arc<Notify>,
}

/// The right to change a channel's subscription, given back when dropped. Names that share a channel share its subscription:
/// were one of them to subscribe while another one ends it, the end would take from the first what it had been promised.
#[derive(Debug)]
pub(crate) struct Change<'a> {
    channels: &'a Channels,
    channel: Bytes,
}

impl Channels {
    /// Waits until nobody else changes this channel's subscription.
    pub(crate) async fn change(&self, channel: &Bytes) -> Change<'_> {
        loop {
            let done = {
                let mut channels = self.0.lock();
                let known = channels.entry(channel.clone()).or_default();
                if !std::mem::replace(&mut known.changing, true) {
                    return Change { channels: self, channel: channel.clone() };
                }
                Arc::clone(&known.done)
            };
            done.notified().await;
        }
    }

    /// A name begins to listen.
    pub(crate) fn add(&self, name: &Arc<LockName>) {
        let mut channels = self.0.lock();
        let Channel { names, .. } = channels.entry(name.channel.clone()).or_default();
        if !names.contains(name) {
            *names = names.iter().chain([name]).cloned().collect();
        }
    }

    /// A name listens no more. True when nobody does on its channel now.
    pub(crate) fn remove(&self, name: &LockName) -> bool {
        let mut channels = self.0.lock();
        let Some(known) = channels.get_mut(&name.channel) else { return true };
        known.names = known.names.iter().filter(|other| &***other != name).cloned().collect();
        let is_last = known.names.is_empty();
        forget_unused(&mut channels, &name.channel);
        is_last
    }

    /// The names that listen on a channel.
    pub(crate) fn names(&self, channel: &[u8]) -> Option<Listeners> {
        self.0.lock().get(channel).map(|known| Arc::clone(&known.names))
    }
}

/// Removes a channel on which nobody listens, and which nobody changes or waits to change.
fn forget_unused(channels: &mut HashMap<Bytes, Channel>, channel: &Bytes) {
    let is_unused = |known: &Channel| known.names.is_empty() && !known.changing && Arc::strong_count(&known.done) == 1;
    if channels.get(channel).is_some_and(is_unused) {
        channels.remove(channel);
        slim(channels);
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        let done = {
            let mut channels = self.channels.0.lock();
            let Some(known) = channels.get_mut(&self.channel) else { return };
            known.changing = false;
            Arc::clone(&known.done)
        };
        // A waker is called outside of the lock.
        done.notify_one();
        drop(done);
        forget_unused(&mut self.channels.0.lock(), &self.channel);
    }
}
