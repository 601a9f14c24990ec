//! Builds a [`Node`] from a URL and options, and connects it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;

use fred::clients::Client;
use fred::error::ErrorKind;
use fred::interfaces::{ClientLike as _, EventInterface as _};
use fred::types::RespVersion;
use fred::types::config::{
    Config, ConnectionConfig, PerformanceConfig, ReconnectPolicy, ServerConfig, TcpConfig, UnresponsiveConfig,
};
use parking_lot::Mutex;
use tokio::sync::broadcast::error::RecvError;

use super::connection::{Connection, ErrorReceiver, keep_connection, name_connection};
use super::fault::{refuses_hello, source, told, trouble_of_tls};
use super::login::{Login as Asked, word};
use super::messages::{dispatch, follow, keep_listening};
use super::subscriptions::Subscriptions;
use super::{Node, Special, tls};
use crate::config::Options;
use crate::error::{Error, Result, Step};
use crate::transport::endpoint::{Endpoint, Parsed};
use distlock_wire::tls::{IS_TLS, PLAIN, Secured, accepts_without_tls, quoted};
use distlock_wire::{Demotions, FOREIGN, Lanes, ListenerSlot, MessageLine, Place};

fn config(endpoint: &Endpoint, parsed: &Parsed, secured: Option<&Secured>, within: Duration) -> Result<Config> {
    let server = match &parsed.place {
        Place::Unix(path) => ServerConfig::Unix { path: path.clone() },
        Place::Tcp(host, port) if host.contains(':') => ServerConfig::new_centralized(format!("[{host}]"), *port),
        Place::Tcp(host, port) => ServerConfig::new_centralized(host.as_str(), *port),
    };
    let mut config = Config {
        server,
        username: parsed.username.as_ref().map(|username| word(&username.0)),
        password: parsed.password.as_ref().map(|password| word(&password.0)),
        database: parsed.database,
        version: RespVersion::RESP3,
        // While a connection is down, commands wait for a reconnect up to their timeout, instead of failing at once.
        fail_fast: false,
        ..Config::default()
    };
    if endpoint.is_tls() {
        tls::apply(&mut config, endpoint.tls.as_ref(), secured)?;
    }
    if let Some(provider) = endpoint.credentials.clone() {
        config.credential_provider = Some(Arc::new(Asked { provider, within }));
    }
    Ok(config)
}

/// Capacity of each of fred's eight event channels per connection, which are allocated in full at connect. A reader
/// only needs to know that there were events, not how many.
const EVENTS: usize = 16;

/// The same capacity, for the connection for messages. One read of the socket brings fewer messages, so a reader that
/// is on time gets all messages. If the reader falls behind by more messages, every waiter checks its lock
/// ([`dispatch`]).
pub(super) const MESSAGES: usize = 512;

/// Returns a function that creates clients of fred, whose event channels have this capacity.
pub(super) fn maker(config: Config, options: &Options) -> impl Fn(usize) -> Client {
    let connection = ConnectionConfig {
        connection_timeout: options.connect_timeout,
        internal_command_timeout: options.connect_timeout,
        // If the connection breaks, fred must not send a script in flight again.
        max_command_attempts: 1,
        unresponsive: UnresponsiveConfig {
            // This limit is longer than the command's own timeout, which tells the caller more.
            max_timeout: Some(options.command_timeout * 3 / 2),
            interval: (options.command_timeout / 4).max(Duration::from_millis(10)),
        },
        tcp: TcpConfig { nodelay: Some(true), user_timeout: Some(options.user_timeout()), ..TcpConfig::default() },
        // For an error in this list, fred would break the connection and fail every command in flight, even commands
        // that the server carries out. Our code handles such errors one by one, and reconnects if that helps.
        reconnect_errors: Vec::new(),
        ..ConnectionConfig::default()
    };
    let default_command_timeout = options.command_timeout;
    move |broadcast_channel_capacity| {
        let performance =
            PerformanceConfig { default_command_timeout, broadcast_channel_capacity, ..Default::default() };
        let policy = ReconnectPolicy::new_exponential(0, 20, 2_000, 2);
        Client::new(config.clone(), Some(performance), Some(connection.clone()), Some(policy))
    }
}

impl Node {
    /// Connects. Returns once every connection is up. If `lazily`, returns at once, and the connections come up in the
    /// background. `sharded`: each channel belongs to one slot.
    pub(crate) async fn connect(target: &Endpoint, options: &Options, lazily: bool, sharded: bool) -> Result<Self> {
        let parsed = target.parsed()?;
        let own = target.target()?;
        let secured = own.as_ref().and_then(|own| own.tls.as_ref());
        let make = maker(config(target, &parsed, secured, options.connect_timeout)?, options);
        let (server, demotions) = (parsed.place.to_string(), Demotions::default());
        let connections = (0..options.pool_size)
            .map(|_| Connection::new(make(EVENTS), &server, options.command_timeout, demotions.clone()));
        let node = Self {
            connections: connections.collect(),
            next: AtomicUsize::new(0),
            special: match own {
                Some(place) => Special::Own(
                    MessageLine::to(place.clone(), &options.into(), sharded, demotions.clone()),
                    Lanes::to(place, &options.into(), demotions.clone()),
                ),
                None => Special::Fred(Subscriptions::over(make(MESSAGES), sharded, options.subscribe_timeout)),
            },
            listener: ListenerSlot::default(),
            tasks: Mutex::default(),
            connect_tasks: Mutex::default(),
            closed: Arc::new(AtomicBool::new(false)),
            ended: Arc::default(),
            script_cache: options.script_cache,
            address: format!("{server}/{}", parsed.database.unwrap_or(0)),
        };
        node.connect_tasks.lock().extend(node.clients().map(|client| client.connect()));
        if !lazily {
            // After an error, the node is dropped here, because fred would retry forever.
            let all: Vec<&Client> = node.clients().collect();
            let outcome = connected(&all, &parsed.place, target.is_tls(), options.connect_timeout).await;
            outcome.map_err(|error| error.at(Some(&Arc::from(server))))?;
        }
        node.keep_connections(options, sharded, &demotions);
        Ok(node)
    }

    /// Starts the tasks that name the connections, follow their events and replace them.
    fn keep_connections(&self, options: &Options, sharded: bool, demotions: &Demotions) {
        // The receivers are created here, not in the tasks: an event before a task's first poll would be lost.
        let (mut tasks, name) = (self.tasks.lock(), Arc::<str>::from(&*options.client_name));
        tasks.extend(self.clients().map(|client| tokio::spawn(name_connection(client.clone(), Arc::clone(&name)))));
        if let Special::Fred(Subscriptions { subscriber, channels, .. }) = &self.special {
            tasks.push(tokio::spawn(dispatch(subscriber.message_rx(), self.listener.clone())));
            tasks.push(tokio::spawn(keep_listening(
                subscriber.clone(),
                subscriber.reconnect_rx(),
                Arc::clone(channels),
                self.listener.clone(),
                options.ping_interval,
                sharded,
                Arc::clone(&name),
            )));
            tasks.push(tokio::spawn(follow(subscriber.clone(), demotions.clone())));
        }
        for connection in &self.connections {
            let (reconnects, errors) = (connection.client.reconnect_rx(), connection.client.error_rx());
            let (connection, listener) = (Arc::clone(connection), self.listener.clone());
            tasks.push(tokio::spawn(keep_connection(connection, reconnects, errors, listener, Arc::clone(&name))));
        }
    }
}

/// Waits until these clients of one server are connected.
pub(super) async fn connected(clients: &[&Client], place: &Place, is_tls: bool, within: Duration) -> Result<()> {
    let latest = Mutex::new(None);
    let connected = futures::future::try_join_all(clients.iter().map(|client| client.wait_for_connect()));
    let errors = clients.iter().map(|client| Box::pin(final_error(client.error_rx(), &latest)));
    let mut error = tokio::select! {
        biased;
        outcome = connected => match outcome {
            Ok(_) => return Ok(()),
            Err(error) => error,
        },
        // fred retries forever, so only a final error ends the wait early.
        (error, ..) = futures::future::select_all(errors) => error,
        () = answers_without_tls(place, is_tls, within) => fred::error::Error::new(ErrorKind::IO, quoted(PLAIN)),
        () = tokio::time::sleep(within) => fred::error::Error::new(ErrorKind::Timeout, ""),
    };
    if *error.kind() == ErrorKind::Timeout {
        error = latest.into_inner().unwrap_or(error);
    }
    Err(refused(&error, &place.to_string(), !is_tls && matches!(place, Place::Tcp(..))))
}

/// Returns the first error that no retry can fix. Stores other errors in `latest`.
async fn final_error(mut errors: ErrorReceiver, latest: &Mutex<Option<fred::error::Error>>) -> fred::error::Error {
    loop {
        match errors.recv().await {
            Ok((error, _)) if is_final(&error) => return error,
            Ok((error, _)) => *latest.lock() = Some(error),
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return std::future::pending().await,
        }
    }
}

/// True for an error that no retry can fix, such as a missing login or database, a server without `HELLO`, or a lasting
/// problem with TLS.
fn is_final(error: &fred::error::Error) -> bool {
    matches!(error.kind(), ErrorKind::Auth | ErrorKind::Config | ErrorKind::Url | ErrorKind::Protocol)
        || trouble_of_tls(error).is_some_and(|meaning| meaning.lasts)
        || refuses_hello(error.details())
        || ["NOPERM", "ERR DB index", "ERR invalid DB index"].iter().any(|text| error.details().starts_with(text))
}

/// Returns once a server that should use TLS has answered without TLS; otherwise never. The check starts after half of
/// the time for connecting, because such a server may not answer a TLS handshake at all.
async fn answers_without_tls(place: &Place, is_tls: bool, within: Duration) {
    if let (Place::Tcp(host, port), true) = (place, is_tls) {
        tokio::time::sleep(within / 2).await;
        if accepts_without_tls(host, *port, within / 4).await {
            return;
        }
    }
    std::future::pending().await
}

/// Converts fred's error. `is_plain`: the connection is TCP without TLS.
fn refused(error: &fred::error::Error, server: &str, is_plain: bool) -> Error {
    let mut message = told(error);
    let details = error.details();
    let is_broken_off = ["ConnectionReset", "BrokenPipe", "UnexpectedEof"].iter().any(|kind| details.contains(kind));
    if is_plain && is_broken_off && *error.kind() == ErrorKind::IO {
        message = format!("{message}: {IS_TLS}");
    }
    if *error.kind() == ErrorKind::Protocol {
        FOREIGN.clone_into(&mut message);
    }
    match error.kind() {
        _ if refuses_hello(details) => Error::Unsupported { what: format!("{server}: {message}") },
        ErrorKind::Auth | ErrorKind::Unknown if is_final(error) => Error::server(message),
        ErrorKind::Config | ErrorKind::Url => Error::config(message),
        ErrorKind::Timeout => Error::timeout(Step::Connect),
        _ => {
            let message = format!("{server}: {message}");
            Error::connection(message, false, source(error.clone()))
        }
    }
}
