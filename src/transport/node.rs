//! One Redis server over fred: a pool of connections for commands, one for messages. The only place that imports fred.
//!
//! fred 10.1 is used around its traps (`tests/client/traps.rs` has a test for each): scripts go out by
//! `custom`, at most once; a subscription is confirmed by a `PING` behind it; silent connections are noticed by counting
//! timeouts; connections are closed by hand.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use fred::clients::Client;
use fred::error::ErrorKind;
use fred::interfaces::{ClientLike as _, PubsubInterface as _};
use fred::types::config::Server;
use fred::types::{ClusterHash, ConnectHandle, CustomCommand, Message, Value};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::runtime::standstill::{OVERDUE, unhurried, within};
use crate::transport::{Arg, Call, Fault, FaultKind, Listener, Reply, Transport};
use crate::world::{Machine, World};
use fault::fault;

pub(crate) mod connect;
mod fault;
#[cfg(all(any(feature = "rustls", feature = "rustls-ring"), not(feature = "native-tls")))]
mod tls;

/// After so many timeouts in a row a connection is taken for dead: fred itself notices only silent ones that are not
/// being written to.
const TIMEOUTS_TOLERATED: u32 = 2;

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
    subscribe_timeout: Duration,
    address: String,
}

/// One connection for commands.
struct Connection {
    client: Client,
    timeout: Duration,
    timeouts: AtomicU32,
    heal: Notify,
    /// Why there is no connection, while there is none.
    trouble: Mutex<Option<fred::error::Error>>,
}

type ErrorReceiver = Receiver<(fred::error::Error, Option<Server>)>;

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Nothing of fred's own: its configuration prints the password.
        f.debug_struct("Node").field("connections", &self.connections.len()).finish_non_exhaustive()
    }
}

impl Connection {
    /// Sends a command once. `script`: what it is told of one, in front of what that is told.
    async fn send(
        &self,
        command: &'static str,
        script: Option<Bytes>,
        call: &Call,
    ) -> Result<Value, fred::error::Error> {
        let mut words = Vec::with_capacity(call.words.len() + 2);
        if let Some(script) = script {
            words.push(Value::Bytes(script));
            words.push(Value::Integer(i64::try_from(call.keys).unwrap_or(i64::MAX)));
        }
        words.extend(call.words.iter().map(|word| match word {
            Arg::Text(text) => Value::Bytes(text.clone()),
            Arg::Int(int) => Value::Integer(*int),
        }));
        let sent = self.client.custom(CustomCommand::new_static(command, ClusterHash::FirstKey, false), words);
        // Boxed: it has kilobytes, which would be copied with everything that it is put into.
        let sent = Box::pin(sent);
        unhurried(sent, self.timeout + OVERDUE).await
    }

    async fn run_script(&self, call: &Call, script_cache: bool) -> Result<Value, fred::error::Error> {
        let began = Instant::now();
        let mut outcome = Err(fred::error::Error::new(ErrorKind::Unknown, "NOSCRIPT"));
        if script_cache {
            outcome = self.send("EVALSHA", Some(call.script.sha()), call).await;
        }
        if outcome.as_ref().is_err_and(|error| error.details().starts_with("NOSCRIPT")) {
            let eval = self.send("EVAL", Some(Bytes::from_static(call.script.source.as_bytes())), call);
            // Both together have the time of one.
            outcome = within(self.timeout.saturating_sub(began.elapsed()), eval)
                .await
                .unwrap_or_else(|| Err(fred::error::Error::new(ErrorKind::Timeout, "no answer in time")));
        }
        outcome
    }

    async fn run(&self, call: Call, script_cache: bool) -> Result<Reply, Fault> {
        let outcome = match call.script.command {
            Some(command) => self.send(command, None, &call).await,
            None => self.run_script(&call, script_cache).await,
        };
        match outcome {
            Ok(value) => {
                self.timeouts.store(0, Ordering::Relaxed);
                Ok(reply(value))
            }
            Err(error) => {
                let mut fault = fault(error);
                let demoted = fault.kind == FaultKind::Refused
                    && ["READONLY", "MASTERDOWN"].iter().any(|code| fault.message.contains(code));
                let dead = fault.kind == FaultKind::TimedOut
                    && self.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= TIMEOUTS_TOLERATED;
                if demoted || dead {
                    self.timeouts.store(0, Ordering::Relaxed);
                    self.heal.notify_one();
                }
                if let (FaultKind::TimedOut, Some(trouble)) = (fault.kind, self.trouble.lock().clone()) {
                    // The reason says more than that time is up: a refused login, say.
                    let message = trouble.details().to_owned();
                    fault = Fault { kind: FaultKind::Lost, message, source: Some(Arc::new(trouble)) };
                }
                Err(fault)
            }
        }
    }
}

fn reply(value: Value) -> Reply {
    match value {
        Value::Null => Reply::Nil,
        Value::Integer(int) => Reply::Int(int),
        Value::Boolean(truth) => Reply::Int(i64::from(truth)),
        Value::String(text) => Reply::Text(text.into_inner()),
        Value::Bytes(bytes) => Reply::Text(bytes),
        Value::Double(double) => Reply::Text(Bytes::from(double.to_string())),
        Value::Queued => Reply::Text(Bytes::from_static(b"QUEUED")),
        Value::Array(values) => Reply::List(values.into_iter().map(reply).collect()),
        Value::Map(map) => Reply::List(
            map.inner().into_iter().flat_map(|(key, value)| [Reply::Text(key.into_bytes()), reply(value)]).collect(),
        ),
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
        let (subscriber, limit) = (self.subscriber.clone(), self.subscribe_timeout);
        Box::pin(async move {
            let confirmed = async {
                subscriber.subscribe(text(&channel)).await?;
                // fred is done when the command is queued; the reply to a PING behind it says that it took effect.
                subscriber.ping::<Value>(None).await
            };
            match tokio::time::timeout(limit, confirmed).await {
                Ok(Ok(_)) => Ok(()),
                Ok(Err(error)) => Err(fault(error)),
                Err(_) => Err(Fault::new(FaultKind::TimedOut, "the subscription was not confirmed in time")),
            }
        })
    }

    fn unsubscribe(&self, channel: Bytes) -> BoxFuture<'static, ()> {
        self.channels.lock().remove(&channel);
        let (subscriber, limit) = (self.subscriber.clone(), self.subscribe_timeout);
        Box::pin(async move {
            let done = async {
                subscriber.unsubscribe(text(&channel)).await?;
                subscriber.ping::<Value>(None).await
            };
            // A failure means a broken connection, and with it the subscription is gone.
            let _ = tokio::time::timeout(limit, done).await;
        })
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

/// Channel names are made from `str`s.
fn text(channel: &Bytes) -> String {
    String::from_utf8_lossy(channel).into_owned()
}

/// Tells the listener of every message. Does nothing else, so that it never falls behind for long.
async fn dispatch(mut messages: Receiver<Message>, listener: Arc<OnceLock<Weak<dyn Listener>>>) {
    loop {
        let message = messages.recv().await;
        let Some(listener) = listener.get() else { continue };
        let Some(listener) = listener.upgrade() else { return };
        match message {
            Ok(message) => listener.message(message.channel.as_bytes(), message.value.as_bytes().unwrap_or_default()),
            Err(RecvError::Lagged(missed)) => {
                tracing::warn!(
                    missed,
                    "messages came in faster than they could be read: every waiter looks for itself"
                );
                listener.missed();
            }
            Err(RecvError::Closed) => return,
        }
    }
}

/// Keeps the subscriptions alive: makes them anew after a reconnect, and notices a connection that has fallen silent.
async fn keep_listening(
    subscriber: Client,
    mut reconnects: Receiver<Server>,
    channels: Arc<Mutex<HashSet<Bytes>>>,
    listener: Arc<OnceLock<Weak<dyn Listener>>>,
    ping_interval: Duration,
) {
    loop {
        tokio::select! {
            reconnect = reconnects.recv() => match reconnect {
                Ok(_) | Err(RecvError::Lagged(_)) => {
                    let all: Vec<String> = channels.lock().iter().map(text).collect();
                    if !all.is_empty() {
                        let made = async {
                            subscriber.subscribe(all.clone()).await?;
                            // One that was ended meanwhile, by a command that went out before this one, is not wanted.
                            let ended: Vec<String> = {
                                let wanted = channels.lock();
                                all.into_iter().filter(|channel| !wanted.contains(channel.as_bytes())).collect()
                            };
                            if !ended.is_empty() {
                                subscriber.unsubscribe(ended).await?;
                            }
                            subscriber.ping::<Value>(None).await
                        };
                        if let Err(error) = made.await {
                            tracing::warn!(%error, "could not subscribe anew after a reconnect");
                            let _ = subscriber.force_reconnection().await;
                        }
                    }
                    if let Some(listener) = listener.get().and_then(Weak::upgrade) {
                        listener.missed();
                    }
                }
                Err(RecvError::Closed) => return,
            },
            () = tokio::time::sleep(ping_interval) => {
                if let Err(error) = subscriber.ping::<Value>(None).await {
                    tracing::warn!(%error, "the connection for messages is silent: reconnecting");
                    let _ = subscriber.force_reconnection().await;
                }
            }
        }
    }
}

/// Tells the listener when a connection for commands is back, and breaks one that was taken for dead.
async fn keep_connection(
    connection: Arc<Connection>,
    mut reconnects: Receiver<Server>,
    mut errors: ErrorReceiver,
    listener: Arc<OnceLock<Weak<dyn Listener>>>,
) {
    loop {
        tokio::select! {
            // What comes of both at once: the connection is back.
            biased;
            error = errors.recv() => match error {
                Ok((error, _)) => *connection.trouble.lock() = Some(error),
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            },
            reconnect = reconnects.recv() => match reconnect {
                Ok(_) | Err(RecvError::Lagged(_)) => {
                    *connection.trouble.lock() = None;
                    if let Some(listener) = listener.get().and_then(Weak::upgrade) {
                        listener.reconnected();
                    }
                }
                Err(RecvError::Closed) => return,
            },
            () = connection.heal.notified() => {
                tracing::warn!("a connection for commands does not answer, or its server was demoted: reconnecting");
                let _ = connection.client.force_reconnection().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use fred::types::MessageKind;

    use super::*;

    #[derive(Default)]
    struct Heard(Mutex<Vec<Vec<u8>>>);

    impl Listener for Heard {
        fn message(&self, _channel: &[u8], payload: &[u8]) {
            self.0.lock().push(payload.to_vec());
        }

        fn missed(&self) {}

        fn reconnected(&self) {}
    }

    /// A client that was just connected, on a busy machine: its first message is here before the task that tells of it has
    /// run.
    #[tokio::test]
    async fn what_came_before_anybody_listened_is_heard() {
        let (sender, messages) = tokio::sync::broadcast::channel(8);
        let heard = Arc::new(Heard::default());
        let listener: Arc<dyn Listener> = Arc::<Heard>::clone(&heard);
        let task = tokio::spawn(dispatch(messages, Arc::new(OnceLock::from(Arc::downgrade(&listener)))));
        let message = Message {
            channel: "x".into(),
            kind: MessageKind::Message,
            value: Value::from("0"),
            server: Server::new("localhost", 6379),
        };
        sender.send(message).unwrap();
        drop(sender);
        task.await.unwrap();
        assert_eq!(*heard.0.lock(), [b"0".to_vec()]);
    }
}
