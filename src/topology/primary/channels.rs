//! Subscriptions at the primary: they are made anew at the one that takes its place.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;

use super::Primary;
use crate::names::LockName;
use crate::topology::member::Member;
use crate::transport::{Fault, FaultKind};

/// How many are on their way to a new primary at a time.
const AT_ONCE: usize = 1_024;

/// After a failure it is tried again so much later.
const AGAIN: Duration = Duration::from_millis(100);

impl Primary {
    /// Subscribes to a name's channel. One at a time of `subscribe` and `unsubscribe` for each channel.
    pub(in crate::topology) async fn subscribe(&self, name: &LockName) -> Result<(), Fault> {
        let channel = &name.channel;
        // Wanted from here on: whoever becomes the primary meanwhile is asked for it.
        let is_new = self.channels.lock().insert(channel.clone());
        loop {
            let (member, placement) = self.now();
            let outcome = member.transport().subscribe(channel.clone()).await;
            if self.placement() != placement && !self.is_closed() {
                // It was asked of one that is the primary no more.
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

    /// Subscribes at a new primary to all that is wanted; whoever waits there looks once that is confirmed.
    pub(super) fn follow(&self, to: &Arc<Member>) {
        let wanted: Vec<Bytes> = self.channels.lock().iter().cloned().collect();
        let (Some(this), to) = (self.this.upgrade(), Arc::clone(to)) else { return };
        tokio::spawn(async move {
            let bring = |channel| this.bring(&to, channel);
            futures::stream::iter(wanted).for_each_concurrent(AT_ONCE, bring).await;
        });
    }

    /// As `follow`, of one that has ended.
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
                // Waiters then poll more often, and subscribe themselves.
                self.notify(|listener| listener.unsubscribed(&channel));
                tokio::time::sleep(AGAIN).await;
                continue;
            }
            if is_wanted() {
                self.notify(|listener| listener.resubscribed(&channel));
                return;
            }
            // Ended meanwhile, by a command that may have gone out before this one.
            to.transport().unsubscribe(channel.clone()).await;
        }
    }
}
