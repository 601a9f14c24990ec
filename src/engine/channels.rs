//! Maps channels to names. Several names may share a channel: with Redisson's channel names, `a` and `{a}` share one.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use super::sync::{Mutex, Notify};
use crate::names::LockName;
use crate::slim::slim;

/// The names that listen on a channel. Never changed in place, so that a message in delivery reaches all these names.
type Listeners = Arc<[Arc<LockName>]>;

/// The names that listen, by channel. The mutex is held for a single read or change only, and never together with
/// another mutex.
#[derive(Debug, Default)]
pub(crate) struct Channels(Mutex<HashMap<Bytes, Channel>>);

#[derive(Debug, Default)]
struct Channel {
    names: Listeners,
    /// True while a task subscribes to the channel, or ends its subscription.
    changing: bool,
    done: Arc<Notify>,
}

/// The exclusive right to change a channel's subscription, until dropped. Names that share a channel share its
/// subscription. Without this right, one name could end the subscription that another name has just requested.
#[derive(Debug)]
pub(crate) struct Change<'a> {
    channels: &'a Channels,
    channel: Bytes,
}

impl Channels {
    /// Waits until no other task changes this channel's subscription.
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

    pub(crate) fn add(&self, name: &Arc<LockName>) {
        let mut channels = self.0.lock();
        let Channel { names, .. } = channels.entry(name.channel.clone()).or_default();
        if !names.contains(name) {
            *names = names.iter().chain([name]).cloned().collect();
        }
    }

    /// Removes a name. True if no other name listens on its channel.
    pub(crate) fn remove(&self, name: &LockName) -> bool {
        let mut channels = self.0.lock();
        let Some(known) = channels.get_mut(&name.channel) else { return true };
        known.names = known.names.iter().filter(|other| &***other != name).cloned().collect();
        let is_last = known.names.is_empty();
        forget_unused(&mut channels, &name.channel);
        is_last
    }

    pub(crate) fn names(&self, channel: &[u8]) -> Option<Listeners> {
        self.0.lock().get(channel).map(|known| Arc::clone(&known.names))
    }
}

/// Removes a channel without listeners that no task changes or waits to change.
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
        // The mutex must not be held while a waker is called.
        done.notify_one();
        drop(done);
        forget_unused(&mut self.channels.0.lock(), &self.channel);
    }
}
