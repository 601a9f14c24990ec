//! Subscriptions at the primary. The subscriptions are restored when another server becomes the primary.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;

use super::Primary;
use crate::names::LockName;
use crate::topology::member::{Member, MemberId, Subscriber};
use crate::transport::{Fault, FaultKind};

/// Number of subscriptions that are requested from a new primary in parallel.
const AT_ONCE: usize = 1_024;

/// Pause before a failed subscription is retried.
const AGAIN: Duration = Duration::from_millis(100);

impl Primary {
    /// Subscribes to a name's channel. The caller makes sure that `subscribe` and `unsubscribe` of one channel never
    /// overlap.
    pub(in crate::topology) async fn subscribe(&self, name: &LockName) -> Result<(), Fault> {
        let channel = &name.channel;
        // Noted before the command is sent, so that a new primary gets the subscription too.
        let is_new = self.channels.lock().insert(channel.clone());
        loop {
            let (member, placement) = self.now();
            let outcome = member.transport().subscribe(channel.clone()).await;
            if self.placement() != placement && !self.is_closed() {
                // The command went to a server that is no longer the primary.
                continue;
            }
            let Err(fault) = outcome else { return Ok(()) };
            self.suspicion.raise();
            if fault.kind == FaultKind::Refused && is_new {
                self.channels.lock().remove(channel);
            }
            return Err(fault);
        }
    }

    pub(in crate::topology) async fn unsubscribe(&self, name: &LockName) {
        self.channels.lock().remove(&name.channel);
        self.member().transport().unsubscribe(name.channel.clone()).await;
    }

    /// Subscribes to all noted channels at a new primary. Once the subscription to a channel is confirmed, the waiters
    /// of the channel check their locks.
    pub(super) fn follow(&self, to: &Arc<Member>) {
        let wanted: Vec<Bytes> = self.channels.lock().iter().cloned().collect();
        let (Some(this), to) = (self.this.upgrade(), Arc::clone(to)) else { return };
        tokio::spawn(async move {
            let bring = |channel| this.bring(&to, channel);
            futures::stream::iter(wanted).for_each_concurrent(AT_ONCE, bring).await;
        });
    }

    /// Like [`follow`](Self::follow), for one subscription that the server has ended.
    pub(super) fn bring_soon(&self, to: &Arc<Member>, channel: Bytes) {
        let (Some(this), to) = (self.this.upgrade(), Arc::clone(to)) else { return };
        tokio::spawn(async move { this.bring(&to, channel).await });
    }

    async fn bring(&self, to: &Arc<Member>, channel: Bytes) {
        let is_wanted = || self.channels.lock().contains(&channel);
        let is_current = || self.member().id() == to.id() && !self.is_closed();
        while is_wanted() && is_current() {
            if let Err(fault) = to.transport().subscribe(channel.clone()).await {
                tracing::debug!(error = fault.message, "could not subscribe at the new primary");
                // This makes the waiters poll more often, and subscribe themselves.
                self.notify(|listener| listener.unsubscribed(&channel));
                tokio::time::sleep(AGAIN).await;
                continue;
            }
            if is_wanted() {
                self.notify(|listener| listener.resubscribed(&channel));
                return;
            }
            // The channel was unsubscribed meanwhile, but that command may have been sent before the subscribe here.
            to.transport().unsubscribe(channel.clone()).await;
        }
    }
}

impl Subscriber for Primary {
    fn ended(&self, member: MemberId, channel: &[u8]) {
        let current = self.member();
        if current.id() == member {
            self.bring_soon(&current, Bytes::copy_from_slice(channel));
        }
    }

    fn server_is_away(&self, member: MemberId) {
        let mut current = self.current.write();
        if current.member.id() == member {
            current.is_away = true;
            self.suspicion.raise();
        }
    }

    fn server_is_back(&self, member: MemberId) {
        let mut current = self.current.write();
        if current.member.id() == member {
            current.is_away = false;
        }
    }
}
