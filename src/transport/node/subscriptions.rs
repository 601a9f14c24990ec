//! Subscriptions over a connection of fred. Used over native-tls, and by [`over`](super::over).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fred::clients::Client;
use fred::interfaces::ClientLike as _;
use fred::types::Value;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use super::fault::fault;
use super::messages::{subscribe_to, text, unsubscribe_from};
use super::together::Together;
use crate::slim::slim_set;
use crate::transport::{Fault, FaultKind};

pub(super) struct Subscriptions {
    pub(super) subscriber: Client,
    pub(super) channels: Arc<Mutex<HashSet<Bytes>>>,
    /// True if each channel belongs to one slot.
    sharded: bool,
    subscribe_timeout: Duration,
    subscribing: Arc<Together>,
    unsubscribing: Arc<Together>,
}

impl Subscriptions {
    pub(super) fn over(subscriber: Client, sharded: bool, subscribe_timeout: Duration) -> Self {
        let [subscribing, unsubscribing] = [(); 2].map(|()| Arc::new(Together::new()));
        Self { subscriber, channels: Arc::default(), sharded, subscribe_timeout, subscribing, unsubscribing }
    }

    pub(super) fn subscribe(&self, channel: Bytes) -> BoxFuture<'static, Result<(), Fault>> {
        self.channels.lock().insert(channel.clone());
        let (subscriber, limit, sharded) = (self.subscriber.clone(), self.subscribe_timeout, self.sharded);
        let subscribe = move |channels: Vec<Bytes>| {
            let subscriber = subscriber.clone();
            async move {
                let confirmed = async {
                    subscribe_to(&subscriber, sharded, channels.iter().map(text).collect()).await?;
                    // fred returns when the command is queued. The reply to a PING behind the command confirms that the
                    // command took effect.
                    subscriber.ping::<Value>(None).await
                };
                match tokio::time::timeout(limit, confirmed).await {
                    Ok(Ok(_)) => Ok(()),
                    Ok(Err(error)) => Err(fault(error)),
                    Err(_) => Err(Fault::new(FaultKind::TimedOut, "the subscription was not confirmed in time")),
                }
            }
        };
        let subscribing = Arc::clone(&self.subscribing);
        Box::pin(async move {
            // The limit includes the wait for earlier batches.
            let joined = tokio::time::timeout(limit, subscribing.join(channel, subscribe)).await;
            joined
                .unwrap_or_else(|_| Err(Fault::new(FaultKind::TimedOut, "the subscription was not confirmed in time")))
        })
    }

    pub(super) fn unsubscribe(&self, channel: Bytes) -> BoxFuture<'static, ()> {
        {
            let mut channels = self.channels.lock();
            channels.remove(&channel);
            slim_set(&mut channels);
        }
        let (subscriber, limit, sharded) = (self.subscriber.clone(), self.subscribe_timeout, self.sharded);
        let unsubscribe = move |channels: Vec<Bytes>| {
            let subscriber = subscriber.clone();
            async move {
                let done = async {
                    unsubscribe_from(&subscriber, sharded, channels.iter().map(text).collect()).await?;
                    subscriber.ping::<Value>(None).await
                };
                // A failure means that the connection is broken, and with it all subscriptions are gone.
                let _ = tokio::time::timeout(limit, done).await;
                Ok(())
            }
        };
        let unsubscribing = Arc::clone(&self.unsubscribing);
        Box::pin(async move {
            let joined = tokio::time::timeout(limit, unsubscribing.join(channel, unsubscribe)).await;
            joined.unwrap_or(Ok(())).unwrap_or(());
        })
    }

    pub(super) fn forget(&self, channel: &Bytes) {
        self.channels.lock().remove(channel);
    }
}
