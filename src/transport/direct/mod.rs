//! One Redis server over connections of this crate's own: a pool for commands, one connection for messages.
//!
//! The caller's task writes a command straight to the socket, and the connection's task passes the reply straight to
//! the caller. There is no queue, channel or timer per command in between. A command that never left is told apart from
//! one in doubt by counting bytes (`pipeline.rs`).

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::config::Options;
use crate::error::Result;
use crate::transport::demotions::Demotions;
use crate::transport::{Acknowledge, Call, Fault, FaultKind, Listener, Replied, Reply, Transport};
use crate::world::{Machine, World};
use connection::Connection;
use dial::{Dialer, open_all};

mod bounds;
mod connection;
mod dial;
mod driver;
mod exchange;
mod lanes;
mod line;
mod link;
mod messages;
mod pipeline;
#[cfg(all(any(feature = "rustls", feature = "rustls-ring"), not(feature = "native-tls")))]
mod secure;
mod silence;
#[cfg(test)]
mod tests;
mod wire;

pub(crate) use dial::Target;
pub(crate) use lanes::Lanes;
pub(crate) use line::MessageLine;
pub(crate) use link::Place;

pub(crate) struct Direct {
    connections: Box<[Arc<Connection>]>,
    next: AtomicUsize,
    /// `None` if nobody subscribes here ([`Direct::for_commands`]).
    messages: Option<MessageLine>,
    lanes: Lanes,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    script_cache: bool,
    address: String,
}

impl Direct {
    /// Connects. Returns once every connection is up. If `lazily`, returns at once, and the connections come up when
    /// they can. `sharded`: each channel belongs to one slot.
    pub(crate) async fn connect(target: Target, options: &Options, lazily: bool, sharded: bool) -> Result<Self> {
        Self::open(target, options, lazily, Some(sharded)).await
    }

    /// Connects without a connection for messages. Returns once every connection is up.
    pub(crate) async fn for_commands(target: Target, options: &Options) -> Result<Self> {
        Self::open(target, options, false, None).await
    }

    async fn open(target: Target, options: &Options, lazily: bool, messages: Option<bool>) -> Result<Self> {
        let server = target.place.to_string();
        let address = format!("{server}/{}", target.database);
        let dialer = Arc::new(Dialer::new(target, options));
        let count = options.pool_size + usize::from(messages.is_some());
        let first = if lazily { Vec::new() } else { open_all(&dialer, count).await? };
        let mut first = first.into_iter();
        let (listener, demotions) = (Arc::new(OnceLock::new()), Demotions::default());
        let mut tasks = Vec::with_capacity(options.pool_size);
        let connections: Box<[_]> = (0..options.pool_size)
            .map(|_| {
                let connection = Connection::new(options.command_timeout);
                let (dialer, listener, demotions) = (Arc::clone(&dialer), Arc::clone(&listener), demotions.clone());
                let driven = driver::drive(Arc::clone(&connection), dialer, listener, first.next(), demotions);
                tasks.push(tokio::spawn(driven));
                connection
            })
            .collect();
        let lanes = Lanes::over(Arc::clone(&dialer), options, demotions.clone());
        let messages =
            messages.map(|sharded| MessageLine::over(dialer, options, sharded, listener, first.next(), demotions));
        Ok(Self {
            connections,
            next: AtomicUsize::new(0),
            messages,
            lanes,
            tasks: Mutex::new(tasks),
            script_cache: options.script_cache,
            address,
        })
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

    fn trouble(&self) -> Option<String> {
        self.connections.iter().find_map(|connection| connection.trouble())
    }

    fn acknowledges(&self) -> bool {
        true
    }

    fn run_acknowledged(
        &self,
        call: Call,
        how: Acknowledge,
        sent: oneshot::Sender<()>,
    ) -> BoxFuture<'static, Result<Replied, Fault>> {
        self.lanes.run(call, how, sent)
    }

    fn subscribe(&self, channel: Bytes) -> BoxFuture<'static, Result<(), Fault>> {
        match &self.messages {
            Some(messages) => messages.subscribe(channel),
            None => {
                Box::pin(std::future::ready(Err(Fault::new(FaultKind::NotSent, "a connection for commands alone"))))
            }
        }
    }

    fn unsubscribe(&self, channel: Bytes) -> BoxFuture<'static, ()> {
        match &self.messages {
            Some(messages) => messages.unsubscribe(channel),
            None => Box::pin(std::future::ready(())),
        }
    }

    fn forget(&self, channel: &Bytes) {
        if let Some(messages) = &self.messages {
            messages.forget(channel);
        }
    }

    fn listen(&self, listener: Weak<dyn Listener>) {
        if let Some(messages) = &self.messages {
            messages.listen(listener);
        }
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
        for connection in &self.connections {
            connection.end(FaultKind::Closed);
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

impl Drop for Direct {
    fn drop(&mut self) {
        // The engine has closed the connections, unless the runtime ended first. Then the tasks are gone as well.
        for task in self.tasks.get_mut().drain(..) {
            task.abort();
        }
    }
}
