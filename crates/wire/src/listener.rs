//! The receiver of a server's messages, and the place that holds it.

use std::sync::{Arc, OnceLock, Weak};

/// Receives a server's messages, and the events of its connections.
pub trait Listener: Send + Sync {
    /// A message arrived on `channel`.
    fn message(&self, channel: &[u8], payload: &[u8]);

    /// The server has ended the subscription to `channel` by itself, or refuses to renew it on a new connection.
    fn ended(&self, _channel: &[u8]) {
        self.missed();
    }

    /// There has been no connection for messages for a while. No subscription is in force until
    /// [`missed`](Self::missed) is called.
    fn deaf(&self) {}

    /// A connection broke, so the server may be unreachable. Not called for the same connection again before it is
    /// [`restored`](Self::restored).
    fn broken(&self) {}

    /// A connection that was reported as [`broken`](Self::broken) is up again.
    fn restored(&self) {}

    /// Messages may have been missed: every waiter has to query the server once.
    fn missed(&self);

    /// A connection for commands is back after a break. Locks that are held should be confirmed now.
    fn reconnected(&self);
}

/// A place for one listener, which is set once and held weakly. Clones share the place.
#[derive(Clone, Default)]
pub struct ListenerSlot(Arc<OnceLock<Weak<dyn Listener>>>);

impl ListenerSlot {
    /// Sets the listener. Only the first call has an effect.
    pub fn set(&self, listener: Weak<dyn Listener>) {
        let _ = self.0.set(listener);
    }

    /// Calls `tell` with the listener. Returns false if none was set, or if it is gone.
    pub fn tell(&self, tell: impl FnOnce(&dyn Listener)) -> bool {
        let listener = self.0.get().and_then(Weak::upgrade);
        listener.is_some_and(|listener| {
            tell(&*listener);
            true
        })
    }
}
