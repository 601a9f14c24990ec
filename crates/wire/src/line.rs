//! The connection for messages, as its subscribers see it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::dial::{Dialer, Opened, Target};
use super::messages::{Change, Messages};
use crate::standstill::within;
use crate::{Demotions, Fault, FaultKind, Listener, ListenerSlot, Settings};

/// The connection for messages to one server. It is opened as soon as the server can be reached, and again whenever it
/// breaks.
pub struct MessageLine {
    changes: mpsc::UnboundedSender<Change>,
    listener: ListenerSlot,
    task: Mutex<Option<JoinHandle<()>>>,
    subscribe_timeout: Duration,
}

impl MessageLine {
    /// Starts the connection to this server. Must be called within a tokio runtime. `sharded`: subscribes by
    /// `SSUBSCRIBE`, where each channel belongs to one slot. `demotions` is shared with the connections for commands to
    /// the same server.
    pub fn to(target: Target, settings: &Settings, sharded: bool, demotions: Demotions) -> Self {
        Self::over(Arc::new(Dialer::new(target, settings)), sharded, ListenerSlot::default(), None, demotions)
    }

    /// `first`: a connection that is already up.
    pub(super) fn over(
        dialer: Arc<Dialer>,
        sharded: bool,
        listener: ListenerSlot,
        first: Option<Opened>,
        demotions: Demotions,
    ) -> Self {
        let (changes, changed) = mpsc::unbounded_channel();
        let subscribe_timeout = dialer.settings.subscribe_timeout;
        let messages = Messages::new(dialer, sharded, listener.clone(), changed, demotions);
        let task = Mutex::new(Some(tokio::spawn(messages.run(first))));
        Self { changes, listener, task, subscribe_timeout }
    }

    /// Subscribes to `channel`. Returns once the server has confirmed the subscription.
    ///
    /// # Cancel safety
    ///
    /// The call itself queues the request, so the subscription may come into force even if the future is dropped.
    ///
    /// # Errors
    ///
    /// Fails if the server refuses, or does not confirm in time. An unconfirmed subscription may still come into force,
    /// so a caller that no longer needs the channel must unsubscribe. An earlier subscription to the channel stays.
    pub fn subscribe(&self, channel: Bytes) -> BoxFuture<'static, Result<(), Fault>> {
        let (done, confirmed) = oneshot::channel();
        if self.changes.send(Change::Subscribe(channel, done)).is_err() {
            return std::future::ready(Err(self.gone())).boxed();
        }
        let limit = self.subscribe_timeout;
        Box::pin(async move {
            match within(limit, confirmed).await {
                Some(Ok(outcome)) => outcome,
                Some(Err(_)) => Err(Fault::new(FaultKind::Lost, "the connection for messages is gone")),
                // The channel is not unsubscribed here, because another caller may need it.
                None => Err(Fault::new(FaultKind::TimedOut, "the subscription was not confirmed in time")),
            }
        })
    }

    /// Ends a subscription. Returns once the server has confirmed it, or after the time limit for subscribing.
    ///
    /// # Cancel safety
    ///
    /// The call itself queues the request, so the subscription ends even if the future is dropped.
    pub fn unsubscribe(&self, channel: Bytes) -> BoxFuture<'static, ()> {
        let (done, confirmed) = oneshot::channel();
        // Fails if the connection has ended for good, and the subscription with it.
        let _ = self.changes.send(Change::Unsubscribe(channel, done));
        let limit = self.subscribe_timeout;
        Box::pin(async move {
            let _ = within(limit, confirmed).await;
        })
    }

    /// Notes that the server has ended a subscription, so that a new connection does not renew it.
    pub fn forget(&self, channel: &Bytes) {
        // Fails if the connection has ended for good.
        let _ = self.changes.send(Change::Forget(channel.clone()));
    }

    /// Sets the receiver of messages. Called once, before the first subscription.
    pub fn listen(&self, listener: Weak<dyn Listener>) {
        self.listener.set(listener);
    }

    /// Ends the connection, and returns its task. The socket is closed when the task has ended.
    pub fn end(&self) -> Option<JoinHandle<()>> {
        let task = self.task.lock().take();
        if let Some(task) = &task {
            task.abort();
        }
        task
    }

    fn gone(&self) -> Fault {
        if self.task.lock().is_none() { Fault::closed() } else { Fault::runtime_gone() }
    }
}

impl Drop for MessageLine {
    fn drop(&mut self) {
        self.end();
    }
}
