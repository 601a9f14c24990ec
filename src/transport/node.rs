//! One Redis server over fred: a pool of connections for commands, and one connection for messages. Only this module
//! imports fred.
//!
//! This module works around problems of fred 10.1 (`tests/client/traps.rs` has a test for each):
//! - Scripts are sent by `custom`, at most once.
//! - Silent connections are detected by counting timeouts.
//! - Connections are closed explicitly.
//!
//! Messages use a connection of this crate's own, except over native-tls. Over native-tls, messages use fred, and a
//! `PING` after each subscription confirms the subscription. So do the messages of a client over the program's own fred
//! clients ([`over`]).

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use fred::clients::Client;
use fred::interfaces::ClientLike as _;
use fred::types::ConnectHandle;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

use crate::transport::{Acknowledge, Call, Fault, Listener, Replied, Reply, Transport, cannot_acknowledge};
use connection::Connection;
use distlock_wire::{Lanes, ListenerSlot, MessageLine};
use subscriptions::Subscriptions;

pub(crate) mod connect;
mod connection;
mod fault;
mod login;
mod messages;
pub(crate) mod over;
mod subscriptions;
mod tls;
mod together;

pub(crate) struct Node {
    connections: Box<[Arc<Connection>]>,
    next: AtomicUsize,
    special: Special,
    listener: ListenerSlot,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    connect_tasks: Mutex<Vec<ConnectHandle>>,
    closed: Arc<AtomicBool>,
    /// Notified when the connections are closed.
    ended: Arc<Notify>,
    script_cache: bool,
    address: String,
}

/// Connections outside the pool: for messages, and for calls that replicas must acknowledge.
enum Special {
    /// Connections of this crate's own, which detect that a server has ended or refused a subscription. fred does not
    /// report the end of a subscription. It reports a refusal to the next command, or not at all.
    Own(MessageLine, Lanes),
    /// Over native-tls: a connection for messages only.
    Fred(Subscriptions),
}

impl Node {
    fn clients(&self) -> impl Iterator<Item = &Client> {
        let subscriber = if let Special::Fred(messages) = &self.special { Some(&messages.subscriber) } else { None };
        self.connections.iter().map(|connection| &connection.client).chain(subscriber)
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // fred's configuration is left out: its `Debug` prints the password.
        f.debug_struct("Node").field("connections", &self.connections.len()).finish_non_exhaustive()
    }
}

impl Transport for Node {
    fn run(&self, call: Call) -> BoxFuture<'static, Result<Reply, Fault>> {
        let next = self.next.fetch_add(1, Ordering::Relaxed) % self.connections.len();
        let (connection, script_cache) = (Arc::clone(&self.connections[next]), self.script_cache);
        let (closed, ended) = (Arc::clone(&self.closed), Arc::clone(&self.ended));
        Box::pin(async move {
            // `ended` is created before `closed` is checked, because it sees only notifications after its creation.
            let ended = ended.notified();
            if closed.load(Ordering::Acquire) {
                return Err(Fault::closed());
            }
            tokio::select! {
                biased;
                outcome = connection.run(call, script_cache) => match outcome {
                    Err(_) if closed.load(Ordering::Relaxed) => Err(Fault::closed()),
                    outcome => outcome,
                },
                // fred keeps an unsent command until the command times out.
                () = ended => Err(Fault::closed()),
            }
        })
    }

    fn trouble(&self) -> Option<String> {
        self.connections.iter().find_map(|connection| connection.trouble()).map(|(message, _)| message)
    }

    fn acknowledges(&self) -> bool {
        matches!(self.special, Special::Own(..))
    }

    fn run_acknowledged(
        &self,
        call: Call,
        how: Acknowledge,
        sent: oneshot::Sender<()>,
    ) -> BoxFuture<'static, Result<Replied, Fault>> {
        match &self.special {
            Special::Own(_, lanes) => lanes.run(call.into(), how, sent),
            Special::Fred(_) => cannot_acknowledge(),
        }
    }

    fn subscribe(&self, channel: Bytes) -> BoxFuture<'static, Result<(), Fault>> {
        match &self.special {
            Special::Own(messages, _) => messages.subscribe(channel),
            Special::Fred(messages) => messages.subscribe(channel),
        }
    }

    fn unsubscribe(&self, channel: Bytes) -> BoxFuture<'static, ()> {
        match &self.special {
            Special::Own(messages, _) => messages.unsubscribe(channel),
            Special::Fred(messages) => messages.unsubscribe(channel),
        }
    }

    fn forget(&self, channel: &Bytes) {
        match &self.special {
            Special::Own(messages, _) => messages.forget(channel),
            Special::Fred(messages) => messages.forget(channel),
        }
    }

    fn listen(&self, listener: Weak<dyn Listener>) {
        if let Special::Own(messages, _) = &self.special {
            messages.listen(Weak::clone(&listener));
        }
        self.listener.set(listener);
    }

    fn address(&self) -> &str {
        &self.address
    }

    fn close(&self, within: Duration) -> BoxFuture<'static, ()> {
        self.closed.store(true, Ordering::Release);
        for task in self.tasks.lock().drain(..) {
            task.abort();
        }
        let clients: Vec<_> = self.clients().cloned().collect();
        let own: Vec<_> = match &self.special {
            Special::Own(messages, lanes) => messages.end().into_iter().chain(lanes.end()).collect(),
            Special::Fred(_) => Vec::new(),
        };
        let closing = Arc::clone(&self.ended);
        let connect_tasks = std::mem::take(&mut *self.connect_tasks.lock());
        Box::pin(async move {
            let until = tokio::time::Instant::now() + within.min(Duration::from_secs(1));
            let quits = futures::future::join_all(clients.iter().map(|client| client.quit()));
            // `quit` can hang if the server does not answer.
            let _ = tokio::time::timeout_at(until, quits).await;
            let ended = connect_tasks.into_iter().map(|task| async move {
                let abort = task.abort_handle();
                if tokio::time::timeout_at(until, task).await.is_err() {
                    abort.abort();
                }
            });
            futures::future::join_all(ended).await;
            let _ = tokio::time::timeout_at(until, futures::future::join_all(own)).await;
            closing.notify_waiters();
        })
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // The owner has closed the connections. If the runtime ended first, the tasks are gone as well.
        self.tasks.get_mut().iter().for_each(JoinHandle::abort);
        self.connect_tasks.get_mut().iter().for_each(JoinHandle::abort);
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Instant;

    use super::*;
    use crate::config::{Options, Secret};
    use crate::transport::FaultKind;
    use crate::transport::endpoint::Endpoint;
    use crate::transport::script::Script;

    static SCRIPT: Script = Script::new("x", "return 1");

    /// As when a slot moves back and forth: the connection was never up.
    #[tokio::test]
    async fn command_that_waits_for_a_connection_fails_when_the_node_is_closed() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = Secret(format!("redis://{}", silent.local_addr().unwrap()));
        let options = Options { command_timeout: Duration::from_secs(600), ..Options::default() };
        let target = Endpoint { url, ..Endpoint::default() };
        let node = Arc::new(Node::connect(&target, &options, true, false).await.unwrap());
        let run = || tokio::spawn(node.run(Call { script: &SCRIPT, keys: 0, words: Vec::new() }));
        let waiting = [run(), run()];
        tokio::time::sleep(Duration::from_millis(50)).await;
        let began = Instant::now();
        node.close(Duration::from_millis(50)).await;
        for waiting in waiting {
            assert_eq!(waiting.await.unwrap().unwrap_err().kind, FaultKind::Closed);
        }
        assert_eq!(run().await.unwrap().unwrap_err().kind, FaultKind::Closed);
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    }
}
