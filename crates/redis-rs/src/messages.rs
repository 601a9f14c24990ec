//! The connection for messages. It reconnects, and then subscribes again.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use distlock::Options;
use distlock::transport::{Fault, FaultKind, Listener};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use redis::Value;
use redis::aio::{PubSub, PubSubSink, PubSubStream};
use tokio::time::{sleep, timeout};

use crate::fault;

/// Pause before each reconnect.
const PAUSE: Duration = Duration::from_millis(200);

/// Largest number of channels in one `SUBSCRIBE`.
const MOST: usize = 128;

pub(crate) struct Messages {
    client: redis::Client,
    options: Options,
    /// The channels that should be subscribed.
    pub(crate) wanted: Mutex<HashSet<Bytes>>,
    /// The connection's half for commands; `None` while there is no connection. Locked while a subscription changes, so
    /// that changes do not overtake each other.
    sink: tokio::sync::Mutex<Option<PubSubSink>>,
    pub(crate) listener: OnceLock<Weak<dyn Listener>>,
}

impl Messages {
    pub(crate) fn new(client: redis::Client, options: Options) -> Arc<Self> {
        let (wanted, sink, listener) = (Mutex::default(), tokio::sync::Mutex::default(), OnceLock::new());
        Arc::new(Self { client, options, wanted, sink, listener })
    }

    pub(crate) async fn connect(&self) -> Result<PubSub, Fault> {
        match timeout(self.options.connect_timeout, self.client.get_async_pubsub()).await {
            Ok(outcome) => outcome.map_err(|error| fault(&error)),
            Err(_) => Err(Fault::no_answer()),
        }
    }

    fn tell(&self, what: impl FnOnce(&dyn Listener)) {
        if let Some(listener) = self.listener.get().and_then(Weak::upgrade) {
            what(&*listener);
        }
    }

    /// Subscribes to the channel, or unsubscribes from it.
    pub(crate) fn change(self: &Arc<Self>, channel: Bytes, is_wanted: bool) -> BoxFuture<'static, Result<(), Fault>> {
        if is_wanted {
            self.wanted.lock().insert(channel.clone());
        } else {
            self.wanted.lock().remove(&channel);
        }
        let this = Arc::clone(self);
        Box::pin(async move {
            let settled = timeout(this.options.subscribe_timeout, this.settle(&channel)).await;
            settled.unwrap_or_else(|_| Err(Fault::no_answer()))
        })
    }

    /// Sends the command that brings the channel's subscription in line with `wanted`.
    async fn settle(&self, channel: &Bytes) -> Result<(), Fault> {
        let mut sink = self.sink.lock().await;
        let Some(sink) = sink.as_mut() else {
            return Err(Fault::new(FaultKind::NotSent, "there is no connection for messages"));
        };
        let is_wanted = self.wanted.lock().contains(channel);
        let changed = if is_wanted { sink.subscribe(&channel[..]).await } else { sink.unsubscribe(&channel[..]).await };
        changed.map_err(|error| fault(&error))
    }

    /// Keeps the connection until the task is aborted.
    pub(crate) async fn keep(self: Arc<Self>, mut connection: PubSub) {
        loop {
            let (mut sink, stream) = connection.split();
            if self.resubscribe(&mut sink).await {
                self.tell(|listener| listener.missed());
                self.tell(|listener| listener.reconnected());
                self.receive(sink, stream).await;
            }
            *self.sink.lock().await = None;
            tracing::warn!("the connection for messages is lost: waiters poll until it is back");
            self.tell(|listener| listener.deaf());
            connection = loop {
                sleep(PAUSE).await;
                match self.connect().await {
                    Ok(connection) => break connection,
                    Err(fault) => tracing::debug!(?fault, "no connection for messages"),
                }
            };
        }
    }

    /// Subscribes to all wanted channels. Returns false if the connection does not answer.
    async fn resubscribe(&self, sink: &mut PubSubSink) -> bool {
        // A change during this function waits for the lock, and then sends its own command.
        let mut current = self.sink.lock().await;
        let wanted: Vec<Bytes> = self.wanted.lock().iter().cloned().collect();
        for some in wanted.chunks(MOST) {
            let channels: Vec<&[u8]> = some.iter().map(|channel| &channel[..]).collect();
            if !matches!(timeout(self.options.subscribe_timeout, sink.subscribe(channels)).await, Ok(Ok(()))) {
                return false;
            }
        }
        *current = Some(sink.clone());
        true
    }

    /// Passes messages on until the connection breaks.
    async fn receive(&self, mut sink: PubSubSink, mut stream: PubSubStream) {
        loop {
            tokio::select! {
                message = stream.next() => {
                    let Some(message) = message else { return };
                    let (channel, payload) = (message.get_channel_name(), message.get_payload_bytes());
                    self.tell(|listener| listener.message(channel.as_bytes(), payload));
                }
                () = sleep(self.options.ping_interval) => {
                    if !matches!(timeout(self.options.subscribe_timeout, sink.ping::<Value>()).await, Ok(Ok(_))) {
                        return;
                    }
                }
            }
        }
    }
}
