//! One Redis server over fred: a pool of connections for commands, one for messages. The only room that imports fred.
//!
//! fred 10.1 is used around its traps (`tests/client/traps.rs` has a test for each): scripts go out by
//! `custom`, at most once; a subscription is confirmed by a `PING` behind it; silent connections are noticed by counting
//! timeouts; connections are closed by hand.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use fred::clients::Client;
use fred::interfaces::ClientLike as _;
use fred::types::{ConnectHandle, Value};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::slim::slim_set;
use crate::transport::{Call, Fault, FaultKind, Listener, Reply, Transport};
use crate::world::{Machine, World};
use connection::Connection;
use fault::fault;
use messages::{subscribe_to, text, unsubscribe_from};
use together::Together;

pub(crate) mod connect;
mod connection;
mod fault;
mod messages;
#[cfg(all(any(feature = "rustls", feature = "rustls-ring"), not(feature = "native-tls")))]
mod tls;
mod together;

/// One server.
pub(crate) struct Node {
    connections: Box<[Arc<Connection>]>,
    next: AtomicUsize,
    subscriber: Client,
    channels: Arc<Mutex<HashSet<Bytes>>>,
    listener: Arc<OnceLock<Weak<dyn Listener>>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    connect_tasks: Mutex<Vec<ConnectHandle>>,
    closed: Arc<AtomicBool>,
    script_cache: bool,
    /// True where channels are a slot's own.
    sharded: bool,
    subscribe_timeout: Duration,
    subscribing: Arc<Together>,
    unsubscribing: Arc<Together>,
    address: String,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Nothing of fred's own: its configuration prints the password.
        f.debug_struct("Node").field("connections", &self.connections.len()).finish_non_exhaustive()
    }
}

impl Transport for Node {
    fn run(&self, call: Call) -> BoxFuture<'static, Result<Reply, Fault>> {
        if self.closed.load(Ordering::Relaxed) {
            return std::future::ready(Err(Fault::new(FaultKind::Closed, "the client is shut down"))).boxed();
        }
        let next = if self.connections.len() == 1 {
            0
        } else {
            self.next.fetch_add(1, Ordering::Relaxed) % self.connections.len()
        };
        let (connection, script_cache) = (Arc::clone(&self.connections[next]), self.script_cache);
        let closed = Arc::clone(&self.closed);
        Box::pin(async move {
            let outcome = connection.run(call, script_cache).await;
            match outcome {
                Err(_) if closed.load(Ordering::Relaxed) => {
                    Err(Fault::new(FaultKind::Closed, "the client is shut down"))
                }
                outcome => outcome,
            }
        })
    }

    fn subscribe(&self, channel: Bytes) -> BoxFuture<'static, Result<(), Fault>> {
        self.channels.lock().insert(channel.clone());
        let (subscriber, limit, sharded) = (self.subscriber.clone(), self.subscribe_timeout, self.sharded);
        let subscribe = move |channels: Vec<Bytes>| {
            let subscriber = subscriber.clone();
            async move {
                let confirmed = async {
                    subscribe_to(&subscriber, sharded, channels.iter().map(text).collect()).await?;
                    // fred is done when the command is queued; the reply to a PING behind it says that it took effect.
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
            // The wait for those who come before it included.
            let joined = tokio::time::timeout(limit, subscribing.join(channel, subscribe)).await;
            joined
                .unwrap_or_else(|_| Err(Fault::new(FaultKind::TimedOut, "the subscription was not confirmed in time")))
        })
    }

    fn unsubscribe(&self, channel: Bytes) -> BoxFuture<'static, ()> {
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
                // A failure means a broken connection, and with it the subscription is gone.
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

    fn forget(&self, channel: &Bytes) {
        self.channels.lock().remove(channel);
    }

    fn listen(&self, listener: Weak<dyn Listener>) {
        // Set once, by the engine that owns this node.
        let _ = self.listener.set(listener);
    }

    fn address(&self) -> &str {
        &self.address
    }

    fn world(&self) -> Arc<dyn World> {
        Arc::new(Machine)
    }

    fn close(&self, within: Duration) -> BoxFuture<'static, ()> {
        self.closed.store(true, Ordering::Relaxed);
        for task in self.tasks.lock().drain(..) {
            task.abort();
        }
        let clients: Vec<_> = self
            .connections
            .iter()
            .map(|connection| connection.client.clone())
            .chain([self.subscriber.clone()])
            .collect();
        let connect_tasks = std::mem::take(&mut *self.connect_tasks.lock());
        Box::pin(async move {
            let until = tokio::time::Instant::now() + within.min(Duration::from_secs(1));
            let quits = futures::future::join_all(clients.iter().map(|client| client.quit()));
            // It can hang when the server is away.
            let _ = tokio::time::timeout_at(until, quits).await;
            let ended = connect_tasks.into_iter().map(|task| async move {
                let abort = task.abort_handle();
                if tokio::time::timeout_at(until, task).await.is_err() {
                    abort.abort();
                }
            });
            futures::future::join_all(ended).await;
        })
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Closed by the engine in every case but one: the runtime was gone before. Then these are gone as well.
        for task in self.tasks.get_mut().drain(..) {
            task.abort();
        }
        for task in self.connect_tasks.get_mut().drain(..) {
            task.abort();
        }
    }
}
