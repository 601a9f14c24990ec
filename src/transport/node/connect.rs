//! Connects to a server: from a URL and options to a [`Node`].

use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, OnceLock};
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
use super::{Messages, Node, tls};
use crate::config::Options;
use crate::error::{Error, Result, Step};
use crate::transport::endpoint::{Endpoint, Parsed};
use distlock_wire::tls::{IS_TLS, PLAIN, Secured, quoted, speaks_plain};
use distlock_wire::{Demotions, FOREIGN, Lanes, MessageLine, Place};

/// Builds fred's configuration.
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
/// needs to know that there were events, not how many.
const EVENTS: usize = 16;

/// The same for the connection for messages. One read of its socket brings fewer, so a reader that is on time gets all
/// of them. If a reader falls further behind, every waiter asks the server itself ([`dispatch`]).
const MESSAGES: usize = 512;

impl Node {
    /// Connects. Returns once every connection is up. If `lazily`, returns at once, and the connections come up when
    /// they can. `sharded`: each channel belongs to one slot.
    pub(crate) async fn connect(target: &Endpoint, options: &Options, lazily: bool, sharded: bool) -> Result<Self> {
        let parsed = target.parsed()?;
        let own = target.target()?;
        let secured = own.as_ref().and_then(|own| own.tls.as_ref());
        let config = config(target, &parsed, secured, options.connect_timeout)?;
        let server = parsed.place.to_string();
        let address = format!("{server}/{}", parsed.database.unwrap_or(0));
        let is_plain = !target.is_tls() && matches!(parsed.place, Place::Tcp(..));
        let plain = answers_in_plain(&parsed.place, target.is_tls(), options.connect_timeout);
        let connection = ConnectionConfig {
            connection_timeout: options.connect_timeout,
            internal_command_timeout: options.connect_timeout,
            // If the connection breaks, fred must not send a script in flight again.
            max_command_attempts: 1,
            unresponsive: UnresponsiveConfig {
                // Later than the command's own timeout, which tells the caller more.
                max_timeout: Some(options.command_timeout * 3 / 2),
                interval: (options.command_timeout / 4).max(Duration::from_millis(10)),
            },
            tcp: TcpConfig { nodelay: Some(true), user_timeout: Some(options.user_timeout()), ..TcpConfig::default() },
            // At the first such reply fred would break the connection, and fail every command in flight with it, even
            // commands that the server carries out. Our code handles such replies one by one, and reconnects if that
            // helps.
            reconnect_errors: Vec::new(),
            ..ConnectionConfig::default()
        };
        let performance = |places| PerformanceConfig {
            default_command_timeout: options.command_timeout,
            broadcast_channel_capacity: places,
            ..PerformanceConfig::default()
        };
        let policy = ReconnectPolicy::new_exponential(0, 20, 2_000, 2);
        let make = |places| {
            Client::new(config.clone(), Some(performance(places)), Some(connection.clone()), Some(policy.clone()))
        };
        let (listener, demotions) = (Arc::new(OnceLock::new()), Demotions::default());
        let connections: Box<[_]> = (0..options.pool_size)
            .map(|_| Connection::new(make(EVENTS), &server, options.command_timeout, demotions.clone()))
            .collect();
        let node = Self {
            connections,
            next: AtomicUsize::new(0),
            // fred does not report that a server ended or refused a subscription. It gives the refusal to the next
            // command, or to none.
            messages: match own.clone() {
                Some(place) => Messages::Own(MessageLine::to(place, &options.into(), sharded, demotions.clone())),
                None => Messages::Fred(Subscriptions::over(make(MESSAGES), sharded, options.subscribe_timeout)),
            },
            listener: Arc::clone(&listener),
            lanes: own.map(|place| Lanes::to(place, &options.into(), demotions.clone())),
            tasks: Mutex::default(),
            connect_tasks: Mutex::default(),
            closed: Arc::new(AtomicBool::new(false)),
            ended: Arc::default(),
            script_cache: options.script_cache,
            address,
        };
        let clients: Vec<_> = node.clients().collect();
        for client in &clients {
            node.connect_tasks.lock().push(client.connect());
        }
        let connected = futures::future::try_join_all(clients.iter().map(|client| client.wait_for_connect()));
        let latest = Mutex::new(None);
        let errors = clients.iter().map(|client| Box::pin(final_error(client.error_rx(), &latest)));
        let errors = futures::future::select_all(errors);
        let outcome = tokio::select! {
            biased;
            () = std::future::ready(()), if lazily => Ok(()),
            outcome = connected => outcome.map(drop),
            // fred retries for ever: only a refused login and a lasting problem with TLS are final.
            (error, ..) = errors => Err(error),
            () = plain => Err(fred::error::Error::new(ErrorKind::IO, quoted(PLAIN))),
            () = tokio::time::sleep(options.connect_timeout) => Err(fred::error::Error::new(ErrorKind::Timeout, "")),
        };
        let error = match outcome {
            Ok(()) => None,
            Err(error) if *error.kind() == ErrorKind::Timeout => Some(
                latest
                    .into_inner()
                    .map_or_else(|| Error::timeout(Step::Connect), |latest| refused(&latest, &server, is_plain)),
            ),
            Err(error) => Some(refused(&error, &server, is_plain)),
        };
        if let Some(error) = error {
            // Without this, fred would retry for ever.
            for task in node.connect_tasks.lock().drain(..) {
                task.abort();
            }
            return Err(error.at(Some(&Arc::from(server))));
        }
        {
            // The receivers are created here, not in the tasks: an event before a task's first poll would be lost.
            let (mut tasks, name) = (node.tasks.lock(), Arc::<str>::from(&*options.client_name));
            tasks.extend(
                clients.iter().map(|client| tokio::spawn(name_connection((*client).clone(), Arc::clone(&name)))),
            );
            if let Messages::Fred(Subscriptions { subscriber, channels, .. }) = &node.messages {
                tasks.push(tokio::spawn(dispatch(subscriber.message_rx(), Arc::clone(&listener))));
                tasks.push(tokio::spawn(keep_listening(
                    subscriber.clone(),
                    subscriber.reconnect_rx(),
                    Arc::clone(channels),
                    Arc::clone(&listener),
                    options.ping_interval,
                    sharded,
                    Arc::clone(&name),
                )));
                tasks.push(tokio::spawn(follow(subscriber.clone(), demotions.clone())));
            }
            for connection in &node.connections {
                let (reconnects, errors) = (connection.client.reconnect_rx(), connection.client.error_rx());
                tasks.push(tokio::spawn(keep_connection(
                    Arc::clone(connection),
                    reconnects,
                    errors,
                    Arc::clone(&listener),
                    Arc::clone(&name),
                )));
            }
        }
        Ok(node)
    }
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

/// Returns once a server that should use TLS has answered without TLS; otherwise never. The server is asked when half
/// of the time for connecting is over, because it may not answer a TLS handshake at all.
async fn answers_in_plain(place: &Place, is_tls: bool, within: Duration) {
    if let (Place::Tcp(host, port), true) = (place, is_tls) {
        tokio::time::sleep(within / 2).await;
        if speaks_plain(host, *port, within / 4).await {
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
