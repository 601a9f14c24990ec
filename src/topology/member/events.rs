//! Messages and connection events of a server, and who receives them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use super::{Member, MemberId};
use crate::transport::Listener;

/// Receives messages and connection events of servers. The registry is the only implementation outside tests.
pub(crate) trait MemberListener: Send + Sync {
    fn message(&self, channel: &[u8], payload: &[u8]);

    /// Messages of this server may have been missed. Every waiter for a name on this server checks its lock once.
    fn missed(&self, member: MemberId);

    /// The connection for commands to this server is back after a break. The listener renews the holds on this server
    /// now, and every waiter for a name on this server checks its lock once.
    fn reconnected(&self, member: MemberId);

    /// These slots, in ascending order, have moved to other servers. The listener renews the holds in these slots now,
    /// and every waiter for a name in these slots checks its lock once.
    fn slots_moved(&self, slots: &[u16]);

    /// The subscription to a channel was restored, perhaps at another server. Messages in between may have been missed.
    fn resubscribed(&self, channel: &[u8]);

    /// The subscription to a channel is lost, or could not be restored. No message arrives until it is restored.
    fn unsubscribed(&self, channel: &[u8]);
}

/// The part of a topology that keeps its subscriptions and finds its servers.
pub(in crate::topology) trait Subscriber: Send + Sync {
    /// A server has ended the subscription to a channel by itself.
    fn ended(&self, member: MemberId, channel: &[u8]);

    fn server_is_away(&self, member: MemberId);

    fn server_is_back(&self, member: MemberId);
}

impl Member {
    /// Sets the listener for messages and connection events. Called once, before the first subscription.
    pub(in crate::topology) fn listen(self: &Arc<Self>, listener: Weak<dyn MemberListener>) {
        let _ = self.listener.set(listener);
        let this: Arc<dyn Listener> = Arc::<Self>::clone(self);
        self.transport.listen(Arc::downgrade(&this));
    }

    /// Sets the subscriber for connection events and for subscriptions that the server ends. Called once, before the
    /// first subscription.
    pub(in crate::topology) fn report_ends(&self, subscriber: Weak<dyn Subscriber>) {
        let _ = self.subscriber.set(subscriber);
    }

    fn report(&self, what: impl FnOnce(&dyn Subscriber)) {
        if let Some(subscriber) = self.subscriber.get().and_then(Weak::upgrade) {
            what(&*subscriber);
        }
    }

    fn notify(&self, what: impl FnOnce(&dyn MemberListener)) {
        if let Some(listener) = self.listener.get().and_then(Weak::upgrade) {
            what(&*listener);
        }
    }
}

impl Listener for Member {
    fn message(&self, channel: &[u8], payload: &[u8]) {
        self.notify(|listener| listener.message(channel, payload));
    }

    fn ended(&self, channel: &[u8]) {
        match self.subscriber.get() {
            Some(_) => self.report(|subscriber| subscriber.ended(self.id, channel)),
            // A single server has no subscriber. Its waiters subscribe again themselves.
            None => self.notify(|listener| listener.unsubscribed(channel)),
        }
    }

    fn deaf(&self) {
        self.is_deaf.store(true, Ordering::Relaxed);
        // Each waiter checks its lock once now, and polls more often from now on.
        self.notify(|listener| listener.missed(self.id));
    }

    fn broken(&self) {
        let mut broken = self.broken.lock();
        *broken += 1;
        self.report(|subscriber| subscriber.server_is_away(self.id));
    }

    fn restored(&self) {
        let mut broken = self.broken.lock();
        *broken = broken.saturating_sub(1);
        if *broken == 0 {
            self.report(|subscriber| subscriber.server_is_back(self.id));
        }
    }

    fn missed(&self) {
        self.is_deaf.store(false, Ordering::Relaxed);
        self.notify(|listener| listener.missed(self.id));
    }

    fn reconnected(&self) {
        self.notify(|listener| listener.reconnected(self.id));
    }
}
