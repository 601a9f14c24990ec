//! The connections to one server: a pool for commands, one connection for messages.
//!
//! The caller's task writes a command straight to the socket, and the connection's task passes the reply straight to
//! the caller. When a connection breaks, the number of bytes written tells which commands were not sent, and which may
//! have run (`pipeline.rs`).

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::connection::Connection;
use crate::dial::{Dialer, Target, open_all};
use crate::driver;
use crate::lanes::Lanes;
use crate::line::MessageLine;
use crate::{
    Acknowledge, Call, ConnectError, Demotions, Fault, FaultKind, Listener, ListenerSlot, Replied, Reply, Settings,
};

/// The connections to one server. Apart from the constructors, no method waits: a method that needs the server returns
/// a future at once.
pub struct Connections {
    connections: Box<[Arc<Connection>]>,
    next: AtomicUsize,
    /// `None` after [`Connections::for_commands`].
    messages: Option<MessageLine>,
    lanes: Lanes,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    script_cache: bool,
    address: String,
}

impl Connections {
    /// Connects. Returns once every connection is up. If `lazily`, returns at once, and the connections come up when
    /// they can. `sharded`: subscribes by `SSUBSCRIBE`, where each channel belongs to one slot. Must be called within a
    /// tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connections that are up.
    ///
    /// # Errors
    ///
    /// Fails after [`Settings::connect_timeout`], or at once for a problem that no retry can fix, such as a refused
    /// login. Never fails if `lazily`.
    pub async fn connect(
        target: Target,
        settings: &Settings,
        lazily: bool,
        sharded: bool,
    ) -> Result<Self, ConnectError> {
        Self::open(target, settings, lazily, Some(sharded)).await
    }

    /// Connects without a connection for messages. Returns once every connection is up.
    ///
    /// # Cancel safety
    ///
    /// As with [`connect`](Self::connect).
    ///
    /// # Errors
    ///
    /// As with [`connect`](Self::connect).
    pub async fn for_commands(target: Target, settings: &Settings) -> Result<Self, ConnectError> {
        Self::open(target, settings, false, None).await
    }

    async fn open(
        target: Target,
        settings: &Settings,
        lazily: bool,
        messages: Option<bool>,
    ) -> Result<Self, ConnectError> {
        let server = target.place.to_string();
        let address = format!("{server}/{}", target.database);
        let dialer = Arc::new(Dialer::new(target, settings));
        let count = settings.pool_size + usize::from(messages.is_some());
        let first = if lazily { Vec::new() } else { open_all(&dialer, count).await? };
        let mut first = first.into_iter();
        let (listener, demotions) = (ListenerSlot::default(), Demotions::default());
        let mut tasks = Vec::with_capacity(settings.pool_size);
        let connections: Box<[_]> = (0..settings.pool_size)
            .map(|_| {
                let connection = Connection::new(settings.command_timeout);
                let (dialer, listener, demotions) = (Arc::clone(&dialer), listener.clone(), demotions.clone());
                let driven = driver::drive(Arc::clone(&connection), dialer, listener, first.next(), demotions);
                tasks.push(tokio::spawn(driven));
                connection
            })
            .collect();
        let lanes = Lanes::over(Arc::clone(&dialer), demotions.clone());
        let messages = messages.map(|sharded| MessageLine::over(dialer, sharded, listener, first.next(), demotions));
        Ok(Self {
            connections,
            next: AtomicUsize::new(0),
            messages,
            lanes,
            tasks: Mutex::new(tasks),
            script_cache: settings.script_cache,
            address,
        })
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").field("connections", &self.connections.len()).finish_non_exhaustive()
    }
}

impl Connections {
    /// Runs a call once.
    ///
    /// Nothing is sent before the first poll. The script is sent again only after `NOSCRIPT`, which means that it has
    /// not run. The future ends after one command timeout at the latest.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not recall a command that was sent.
    ///
    /// # Errors
    ///
    /// The [kind](Fault::kind) of the fault says whether the command may have run.
    pub fn run(&self, call: Call) -> BoxFuture<'static, Result<Reply, Fault>> {
        let next = match self.connections.len() {
            1 => 0,
            several => self.next.fetch_add(1, Ordering::Relaxed) % several,
        };
        Box::pin(self.connections[next].run(call, self.script_cache))
    }

    /// Returns why a connection for commands is down. `None` if all are up, or if no reason is known.
    pub fn trouble(&self) -> Option<String> {
        self.connections.iter().find_map(|connection| connection.trouble())
    }

    /// Runs a call once, and reports how many replicas have its writes.
    ///
    /// See [`Lanes::run`], also for its cancel safety and errors.
    pub fn run_acknowledged(
        &self,
        call: Call,
        how: Acknowledge,
        sent: oneshot::Sender<()>,
    ) -> BoxFuture<'static, Result<Replied, Fault>> {
        self.lanes.run(call, how, sent)
    }

    /// Subscribes to `channel`.
    ///
    /// See [`MessageLine::subscribe`], also for its cancel safety and errors.
    pub fn subscribe(&self, channel: Bytes) -> BoxFuture<'static, Result<(), Fault>> {
        match &self.messages {
            Some(messages) => messages.subscribe(channel),
            None => {
                Box::pin(std::future::ready(Err(Fault::new(FaultKind::NotSent, "a connection for commands alone"))))
            }
        }
    }

    /// Ends a subscription.
    ///
    /// See [`MessageLine::unsubscribe`], also for its cancel safety.
    pub fn unsubscribe(&self, channel: Bytes) -> BoxFuture<'static, ()> {
        match &self.messages {
            Some(messages) => messages.unsubscribe(channel),
            None => Box::pin(std::future::ready(())),
        }
    }

    /// Notes that the server has ended a subscription, so that a new connection does not renew it.
    pub fn forget(&self, channel: &Bytes) {
        if let Some(messages) = &self.messages {
            messages.forget(channel);
        }
    }

    /// Sets the receiver of messages. Called once, before the first subscription.
    pub fn listen(&self, listener: Weak<dyn Listener>) {
        if let Some(messages) = &self.messages {
            messages.listen(listener);
        }
    }

    /// Returns the server and the database: `host:port/database`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Closes every connection. The future completes when they are closed, or after `within` (at most 1 s).
    ///
    /// # Cancel safety
    ///
    /// The connections are closed even if the future is dropped.
    pub fn close(&self, within: Duration) -> BoxFuture<'static, ()> {
        for connection in &self.connections {
            connection.end(Fault::closed());
        }
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        for task in &tasks {
            task.abort();
        }
        tasks.extend(self.messages.as_ref().and_then(MessageLine::end));
        tasks.extend(self.lanes.end());
        Box::pin(async move {
            // Each aborted task ends at its next poll, and closes its socket.
            let _ = tokio::time::timeout(within.min(Duration::from_secs(1)), futures::future::join_all(tasks)).await;
        })
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        for task in self.tasks.get_mut().drain(..) {
            task.abort();
        }
    }
}
