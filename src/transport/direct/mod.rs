//! One Redis server over connections of this crate's own: a pool of them for commands, one for messages. With the feature `direct`.
//!
//! A command goes from its caller's task straight into the socket, and its reply from the connection's task straight to whoever
//! waits: no queue, no channel and no timer of its own in between. What has never left is told apart from what is in doubt byte
//! by byte (`pipeline.rs`).

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::config::Options;
use crate::error::Result;
use crate::runtime::standstill::within;
use crate::transport::{Call, Fault, FaultKind, Listener, Reply, Transport};
use crate::world::{Machine, World};
use connection::Connection;
use dial::{Dialer, open_all};
use messages::{Change, Messages};

mod bounds;
mod connection;
mod dial;
mod driver;
mod exchange;
mod link;
mod messages;
mod pipeline;
mod silence;
#[cfg(test)]
mod tests;
mod wire;

pub(crate) use dial::Target;
pub(crate) use link::Place;

/// The longest that a socket may wait for the other side: the kernel counts milliseconds in 31 bits, and refuses more.
const LONGEST_SILENCE: Duration = Duration::from_secs(24 * 3600);

/// One server.
pub(crate) struct Direct {
    connections: Box<[Arc<Connection>]>,
    next: AtomicUsize,
    changes: mpsc::UnboundedSender<Change>,
    listener: Arc<OnceLock<Weak<dyn Listener>>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    closed: AtomicBool,
    script_cache: bool,
    subscribe_timeout: Duration,
    address: String,
}

impl Direct {
    /// Connects. Done when every connection stands; `lazily`: at once, and they come to stand when they can. `sharded`: its channels
    /// are a slot's own.
    pub(crate) async fn connect(target: Target, options: &Options, lazily: bool, sharded: bool) -> Result<Self> {
        let server = match &target.place {
            Place::Tcp(host, port) => format!("{host}:{port}"),
            Place::Unix(path) => format!("unix:{}", path.display()),
        };
        let address = format!("{server}/{}", target.database);
        let user_timeout = (options.command_timeout.max(Duration::from_secs(1)) * 2).min(LONGEST_SILENCE);
        let dialer = Arc::new(Dialer { target, within: options.connect_timeout, user_timeout });
        let first = if lazily { Vec::new() } else { open_all(&dialer, options.pool_size + 1).await? };
        let mut first = first.into_iter();
        let listener = Arc::new(OnceLock::new());
        let mut tasks = Vec::with_capacity(options.pool_size + 1);
        let connections: Box<[_]> = (0..options.pool_size)
            .map(|_| {
                let connection = Connection::new(options.command_timeout);
                let (dialer, listener) = (Arc::clone(&dialer), Arc::clone(&listener));
                tasks.push(tokio::spawn(driver::drive(Arc::clone(&connection), dialer, listener, first.next())));
                connection
            })
            .collect();
        let (changes, changed) = mpsc::unbounded_channel();
        let messages = Messages {
            dialer,
            listener: Arc::clone(&listener),
            ping_interval: options.ping_interval,
            ping_timeout: options.command_timeout,
            sharded,
            changes: changed,
        };
        tasks.push(tokio::spawn(messages.run(first.next())));
        Ok(Self {
            connections,
            next: AtomicUsize::new(0),
            changes,
            listener,
            tasks: Mutex::new(tasks),
            closed: AtomicBool::new(false),
            script_cache: options.script_cache,
            subscribe_timeout: options.subscribe_timeout,
            address,
        })
    }

    fn gone(&self) -> Fault {
        if self.closed.load(Ordering::Relaxed) {
            Fault::new(FaultKind::Closed, "the client is shut down")
        } else {
            Fault::new(FaultKind::RuntimeGone, "the client's runtime has ended")
        }
    }
}

impl fmt::Debug for Direct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Direct").field("connections", &self.connections.len()).finish_non_exhaustive()
    }
}

impl Transport for Direct {
    fn run(&self, call: Call) -> BoxFuture<'static, Result<Reply, Fault>> {
        let next = match self.connections.len() {
            1 => 0,
            several => self.next.fetch_add(1, Ordering::Relaxed) % several,
        };
        Box::pin(self.connections[next].run(call, self.script_cache))
    }

    fn subscribe(&self, channel: Bytes) -> BoxFuture<'static, Result<(), Fault>> {
        let (done, confirmed) = oneshot::channel();
        if self.changes.send(Change::Subscribe(channel.clone(), done)).is_err() {
            return std::future::ready(Err(self.gone())).boxed();
        }
        let (changes, limit) = (self.changes.clone(), self.subscribe_timeout);
        Box::pin(async move {
            match within(limit, confirmed).await {
                Some(Ok(outcome)) => outcome,
                Some(Err(_)) => Err(Fault::new(FaultKind::Lost, "the connection for messages is gone")),
                None => {
                    // Nobody counts on it.
                    let _ = changes.send(Change::Unsubscribe(channel, None));
                    Err(Fault::new(FaultKind::TimedOut, "the subscription was not confirmed in time"))
                }
            }
        })
    }

    fn unsubscribe(&self, channel: Bytes) -> BoxFuture<'static, ()> {
        let (done, confirmed) = oneshot::channel();
        // Refused when the connection is gone for good, and the subscription with it.
        let _ = self.changes.send(Change::Unsubscribe(channel, Some(done)));
        let limit = self.subscribe_timeout;
        Box::pin(async move {
            let _ = within(limit, confirmed).await;
        })
    }

    fn forget(&self, channel: &Bytes) {
        // Refused when the connection is gone for good.
        let _ = self.changes.send(Change::Forget(channel.clone()));
    }

    fn listen(&self, listener: Weak<dyn Listener>) {
        // Set once, by the engine that owns this transport.
        let _ = self.listener.set(listener);
    }

    fn address(&self) -> &str {
        &self.address
    }

    fn prefers_bare_commands(&self) -> bool {
        true
    }

    fn world(&self) -> Arc<dyn World> {
        Arc::new(Machine)
    }

    fn close(&self, within: Duration) -> BoxFuture<'static, ()> {
        self.closed.store(true, Ordering::Relaxed);
        for connection in &self.connections {
            connection.end(FaultKind::Closed);
        }
        let tasks = std::mem::take(&mut *self.tasks.lock());
        for task in &tasks {
            task.abort();
        }
        Box::pin(async move {
            // They end at their next poll, and their sockets with them.
            let _ = tokio::time::timeout(within.min(Duration::from_secs(1)), futures::future::join_all(tasks)).await;
        })
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        // Closed by the engine in every case but one: the runtime was gone before. Then these are gone as well.
        for task in self.tasks.get_mut().drain(..) {
            task.abort();
        }
    }
}
