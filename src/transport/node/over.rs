//! The program's own fred clients as a [`Transport`]. Commands go over these clients. Messages have a connection of
//! their own, with the configuration of the first client.
//!
//! The program uses its clients for other commands too. So this module never reconnects, renames or closes them, and
//! does not rely on their options:
//! - Each command has its own timeout, and is sent at most once ([`Line::send`]).
//! - After some errors of the server, a client gives up its connection, and fails every command in flight with the text
//!   of that error ([`breaks_off`]). Any of these commands may have run, so all of them count as in doubt.
//! - After a timeout, fred does not tell whether the command was sent, so the command counts as in doubt.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use fred::error::ErrorKind;
use fred::interfaces::{ClientLike as _, EventInterface as _};
use fred::types::config::{Config, ConnectionConfig, Options as CommandOptions, ReconnectError, Server, ServerConfig};
use fred::types::{ClusterHash, ConnectHandle, CustomCommand, RespVersion, Value};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::connect::{MESSAGES, connected, maker};
use super::connection::{name_connection, reply, words};
use super::fault::fault;
use super::messages::{dispatch, keep_listening};
use super::subscriptions::Subscriptions;
use crate::config::Options;
use crate::error::{Error, Result};
use crate::runtime::standstill::{OVERDUE, without_standstill};
use crate::transport::{Call, Fault, FaultKind, Listener, Reply, Transport};
use distlock_wire::{ListenerSlot, Place};

pub(crate) use fred::clients::Client as FredClient;

const NOT_CONNECTED: &str =
    "the fred client is not connected: call its init() before Client::over, and give it a reconnect policy";

pub(crate) struct Over {
    clients: Box<[FredClient]>,
    next: AtomicUsize,
    timeout: Duration,
    script_cache: bool,
    messages: Subscriptions,
    /// Drives the connection for messages.
    connect_task: Mutex<Option<ConnectHandle>>,
    listener: ListenerSlot,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    address: String,
}

impl Over {
    /// Opens the connection for messages. Returns once that connection and all clients are connected.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the clients are not for one server.
    pub(crate) async fn start(clients: &[FredClient], options: &Options) -> Result<Self> {
        let (config, place) = one_server(clients)?;
        let (server, is_tls, database) = (place.to_string(), config.uses_tls(), config.database.unwrap_or(0));
        let config = Config { version: RespVersion::RESP3, fail_fast: false, ..config };
        let subscriber = maker(config, options)(MESSAGES);
        // Made before the wait: if the wait fails, the drop of `over` ends the connection. Otherwise fred would retry
        // forever.
        let over = Self {
            clients: clients.into(),
            next: AtomicUsize::new(0),
            timeout: options.command_timeout,
            script_cache: options.script_cache,
            connect_task: Mutex::new(Some(subscriber.connect())),
            messages: Subscriptions::over(subscriber, false, options.subscribe_timeout),
            listener: ListenerSlot::default(),
            tasks: Mutex::default(),
            address: format!("{server}/{database}"),
        };
        let all: Vec<&FredClient> = clients.iter().chain([&over.messages.subscriber]).collect();
        let outcome = connected(&all, &place, is_tls, options.connect_timeout).await;
        outcome.map_err(|error| {
            let is_away = matches!(error, Error::Timeout { .. }) && clients.iter().any(|client| !client.is_connected());
            let error = if is_away { Error::connection(NOT_CONNECTED, false, None) } else { error };
            error.at(Some(&Arc::from(server)))
        })?;
        over.keep_listening(options);
        Ok(over)
    }

    /// Starts the tasks that follow the events of the connections.
    fn keep_listening(&self, options: &Options) {
        let (subscriber, name) = (&self.messages.subscriber, Arc::<str>::from(&*options.client_name));
        let mut tasks = self.tasks.lock();
        for client in &self.clients {
            tasks.push(tokio::spawn(report_reconnects(client.reconnect_rx(), self.listener.clone())));
        }
        tasks.push(tokio::spawn(name_connection(subscriber.clone(), Arc::clone(&name))));
        tasks.push(tokio::spawn(dispatch(subscriber.message_rx(), self.listener.clone())));
        tasks.push(tokio::spawn(keep_listening(
            subscriber.clone(),
            subscriber.reconnect_rx(),
            Arc::clone(&self.messages.channels),
            self.listener.clone(),
            options.ping_interval,
            false,
            name,
        )));
    }

    /// Returns the next connected client, in turn. If no client is connected, returns the next one.
    fn next(&self) -> &FredClient {
        let (count, first) = (self.clients.len(), self.next.fetch_add(1, Ordering::Relaxed));
        let mut turns = (0..count).map(|n| first.wrapping_add(n) % count);
        &self.clients[turns.find(|at| self.clients[*at].is_connected()).unwrap_or(first % count)]
    }
}

/// Returns the configuration of these clients, and their server.
///
/// # Errors
///
/// [`Error::Config`] if there are no clients, or if they are not for one server.
fn one_server(clients: &[FredClient]) -> Result<(Config, Place)> {
    let Some(first) = clients.first() else {
        return Err(Error::config("there is no fred client: give Client::over at least one"));
    };
    let config = first.client_config();
    let is_other = |client: &FredClient| {
        let other = client.client_config();
        other.server != config.server || other.database != config.database
    };
    if clients.iter().any(is_other) {
        return Err(Error::config(
            "the fred clients are for different servers or databases, so their locks would not exclude each other: \
             create a client for each server",
        ));
    }
    let place = match &config.server {
        ServerConfig::Centralized { server } => {
            let host = server.host.trim_start_matches('[').trim_end_matches(']');
            Place::Tcp(host.to_owned(), server.port)
        }
        ServerConfig::Unix { path } => Place::Unix(path.clone()),
        ServerConfig::Clustered { .. } => {
            return Err(Error::config(
                "a fred client of a cluster follows redirects and does not say which server has answered: \
                 connect by redis-cluster://",
            ));
        }
        ServerConfig::Sentinel { .. } => {
            return Err(Error::config(
                "a fred client with sentinels notices a failover only when its connection breaks: \
                 connect by redis-sentinel://",
            ));
        }
    };
    Ok((config, place))
}

/// Reports each reconnect of a client for commands.
async fn report_reconnects(mut reconnects: Receiver<Server>, listener: ListenerSlot) {
    while !matches!(reconnects.recv().await, Err(RecvError::Closed)) {
        listener.tell(|listener| listener.reconnected());
    }
}

/// True if fred gives up the connection after this error of the server. Then the other commands in flight fail with the
/// same text.
fn breaks_off(config: &ConnectionConfig, error: &fred::error::Error) -> bool {
    let begins = |by: &ReconnectError| {
        let prefix = match by {
            ReconnectError::ClusterDown => "CLUSTERDOWN",
            ReconnectError::Loading => "LOADING",
            ReconnectError::MasterDown => "MASTERDOWN",
            ReconnectError::ReadOnly => "READONLY",
            ReconnectError::Misconf => "MISCONF",
            ReconnectError::Busy => "BUSY",
            ReconnectError::NoReplicas => "NOREPLICAS",
            ReconnectError::Custom(prefix) => *prefix,
        };
        error.details().starts_with(prefix)
    };
    let is_login = config.reconnect_on_auth_error && *error.kind() == ErrorKind::Auth;
    is_login || config.reconnect_errors.iter().any(begins)
}

/// A client, and the options of one call over it.
struct Line {
    client: FredClient,
    timeout: Duration,
    script_cache: bool,
}

impl Line {
    /// Sends a command at most once. fred ends it after `within`, and does not send it later.
    async fn send(
        &self,
        command: &'static str,
        script: Option<Bytes>,
        call: &Call,
        within: Duration,
    ) -> Result<Value, fred::error::Error> {
        // For fred, a timeout of zero means no timeout.
        let timeout = Some(within.max(Duration::from_millis(1)));
        let options = CommandOptions { max_attempts: Some(1), timeout, ..CommandOptions::default() };
        let client = self.client.with_options(&options);
        let command = CustomCommand::new_static(command, ClusterHash::FirstKey, false);
        // Boxed, because this future takes kilobytes, and so would each future that contains it.
        let sent = Box::pin(client.custom(command, words(script, call)));
        without_standstill(sent, within + OVERDUE).await
    }

    async fn run_script(&self, call: &Call) -> Result<Value, fred::error::Error> {
        let began = Instant::now();
        if self.script_cache {
            let outcome = self.send("EVALSHA", Some(call.script.sha()), call, self.timeout).await;
            if !outcome.as_ref().is_err_and(|error| error.details().starts_with("NOSCRIPT")) {
                return outcome;
            }
        }
        // Both commands together have the time limit of one.
        let left = self.timeout.saturating_sub(began.elapsed());
        self.send("EVAL", Some(Bytes::from_static(call.script.source.as_bytes())), call, left).await
    }

    async fn run(&self, call: &Call) -> Result<Reply, Fault> {
        let outcome = match call.script.command {
            Some(command) => self.send(command, None, call, self.timeout).await,
            None => self.run_script(call).await,
        };
        outcome.map(reply).map_err(|error| {
            let is_broken_off = breaks_off(self.client.connection_config(), &error);
            let fault = fault(error);
            match fault.kind {
                _ if is_broken_off => Fault { kind: FaultKind::Lost, ..fault },
                FaultKind::TimedOut if !self.client.is_connected() => Fault::new(FaultKind::Lost, NOT_CONNECTED),
                _ => fault,
            }
        })
    }
}

impl fmt::Debug for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Over").field("clients", &self.clients.len()).finish_non_exhaustive()
    }
}

impl Transport for Over {
    fn run(&self, call: Call) -> BoxFuture<'static, Result<Reply, Fault>> {
        let line = Line { client: self.next().clone(), timeout: self.timeout, script_cache: self.script_cache };
        Box::pin(async move { line.run(&call).await })
    }

    fn trouble(&self) -> Option<String> {
        let is_away = !self.clients.iter().any(|client| client.is_connected());
        is_away.then(|| NOT_CONNECTED.to_owned())
    }

    fn subscribe(&self, channel: Bytes) -> BoxFuture<'static, Result<(), Fault>> {
        self.messages.subscribe(channel)
    }

    fn unsubscribe(&self, channel: Bytes) -> BoxFuture<'static, ()> {
        self.messages.unsubscribe(channel)
    }

    fn forget(&self, channel: &Bytes) {
        self.messages.forget(channel);
    }

    fn listen(&self, listener: Weak<dyn Listener>) {
        self.listener.set(listener);
    }

    fn address(&self) -> &str {
        &self.address
    }

    /// Closes the connection for messages only. Commands in flight end by their own timeouts: if they were dropped,
    /// fred could still send them after a reconnect.
    fn close(&self, within: Duration) -> BoxFuture<'static, ()> {
        for task in self.tasks.lock().drain(..) {
            task.abort();
        }
        let (subscriber, connect_task) = (self.messages.subscriber.clone(), self.connect_task.lock().take());
        Box::pin(async move {
            let until = Instant::now() + within.min(Duration::from_secs(1));
            // `quit` can hang if the server does not answer.
            let _ = tokio::time::timeout_at(until, subscriber.quit()).await;
            let Some(task) = connect_task else { return };
            let abort = task.abort_handle();
            if tokio::time::timeout_at(until, task).await.is_err() {
                abort.abort();
            }
        })
    }
}

impl Drop for Over {
    fn drop(&mut self) {
        self.tasks.get_mut().iter().for_each(JoinHandle::abort);
        self.connect_task.get_mut().iter().for_each(JoinHandle::abort);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands in flight get the text of another command's error, although the server carries them out.
    #[test]
    fn error_that_makes_fred_reconnect_leaves_commands_in_doubt() {
        let by_default = ConnectionConfig::default();
        let never = ConnectionConfig { reconnect_errors: Vec::new(), ..ConnectionConfig::default() };
        let own = ConnectionConfig {
            reconnect_errors: vec![ReconnectError::Custom("OOM")],
            reconnect_on_auth_error: true,
            ..ConnectionConfig::default()
        };
        for (config, kind, text, expected) in [
            (&by_default, ErrorKind::Unknown, "READONLY You can't write against a read only replica.", true),
            (&by_default, ErrorKind::Unknown, "LOADING Redis is loading the dataset in memory", true),
            (&by_default, ErrorKind::Unknown, "OOM command not allowed", false),
            (&by_default, ErrorKind::Auth, "NOAUTH Authentication required.", false),
            (&never, ErrorKind::Unknown, "READONLY You can't write against a read only replica.", false),
            (&own, ErrorKind::Unknown, "OOM command not allowed", true),
            (&own, ErrorKind::Auth, "NOAUTH Authentication required.", true),
        ] {
            assert_eq!(breaks_off(config, &fred::error::Error::new(kind, text)), expected, "{text}");
        }
    }
}
