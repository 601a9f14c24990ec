//! Connections for raw commands.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use distlock_wire::tls::Secured;
use fred::error::{Error, ErrorKind};
use fred::interfaces::ClientLike as _;
use fred::types::config::{
    Config, ConnectionConfig, CredentialProvider, PerformanceConfig, ReconnectPolicy, Server, ServerConfig, TcpConfig,
    TlsConnector,
};
use fred::types::{ClusterHash, CustomCommand, Value};

use super::Login;
use crate::exit::Failure;

/// Time limit of connecting and of a raw command.
const WITHIN: Duration = Duration::from_secs(10);

type UserAndPassword = (Option<String>, Option<String>);

/// A connection for raw commands to one server. Replies have the types of RESP2: a map is a flat array, a score is
/// text.
pub struct Raw {
    address: String,
    pub(super) client: fred::clients::Client,
}

impl Raw {
    pub(super) async fn open(address: &str, login: &Login) -> Result<Self, Failure> {
        let mut config = Config {
            server: match address.strip_prefix("unix:") {
                Some(path) => ServerConfig::Unix { path: path.into() },
                None => {
                    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
                    ServerConfig::new_centralized(host, port.parse().unwrap_or(6379))
                }
            },
            username: login.username.clone(),
            password: login.password.clone(),
            database: login.database,
            ..Config::default()
        };
        if login.password.is_none() {
            config.credential_provider = Some(Arc::new(NoLogin));
        }
        if let (Some(tls), ServerConfig::Centralized { server }) = (&login.tls, &mut config.server) {
            let secured = Secured::new(tls, &server.host).map_err(Failure::Usage)?;
            server.tls_server_name = Some(secured.name.to_str().into_owned().into());
            config.tls = Some(TlsConnector::from((*secured.config).clone()).into());
        }
        let performance = PerformanceConfig { default_command_timeout: WITHIN, ..PerformanceConfig::default() };
        let connection = ConnectionConfig {
            connection_timeout: WITHIN,
            internal_command_timeout: WITHIN,
            max_command_attempts: 1,
            reconnect_errors: Vec::new(),
            tcp: TcpConfig { nodelay: Some(true), ..TcpConfig::default() },
            ..ConnectionConfig::default()
        };
        let policy = ReconnectPolicy::new_exponential(0, 20, 2_000, 2);
        let client = fred::clients::Client::new(config, Some(performance), Some(connection), Some(policy));
        let raw = Self { address: address.to_owned(), client };
        raw.client.init().await.map_err(|error| raw.failure(&error))?;
        Ok(raw)
    }

    /// Returns the server's address: `host:port`, or `unix:/path`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Sends a command, given as its words, and returns the reply.
    ///
    /// # Errors
    ///
    /// [`Failure::Server`] for an error reply, [`Failure::Unreachable`] without a reply.
    pub async fn call<W: Into<Bytes>>(&self, words: impl IntoIterator<Item = W>) -> Result<Value, Failure> {
        let (command, words) = custom(words.into_iter().map(Into::into));
        self.client.custom(command, words).await.map_err(|error| self.failure(&error))
    }

    /// Sends several commands in one pipeline, and returns their replies in order.
    ///
    /// # Errors
    ///
    /// An element is [`Failure::Server`] for an error reply. The call fails with [`Failure::Unreachable`] if
    /// replies are missing.
    pub async fn calls(&self, commands: Vec<Vec<Bytes>>) -> Result<Vec<Result<Value, Failure>>, Failure> {
        let sent = commands.len();
        let pipeline = self.client.pipeline();
        for words in commands {
            let (command, words) = custom(words.into_iter());
            pipeline.custom::<(), _>(command, words).await.map_err(|error| self.failure(&error))?;
        }
        let replies = pipeline.try_all::<Value>().await;
        // fred reports a failure of the whole pipeline as its only reply.
        if let Some(Err(error)) = replies.iter().find(|reply| matches!(reply, Err(error) if is_away(error))) {
            return Err(self.failure(error));
        }
        if replies.len() != sent {
            let text = format!("{}: {} replies to {sent} commands", self.address, replies.len());
            return Err(Failure::Unreachable(text));
        }
        Ok(replies.into_iter().map(|reply| reply.map_err(|error| self.failure(&error))).collect())
    }

    fn failure(&self, error: &Error) -> Failure {
        let (address, details) = (&self.address, error.details());
        if is_away(error) {
            Failure::Unreachable(format!("{address} does not answer: {details}"))
        } else {
            Failure::Server(format!("{details} (from {address})"))
        }
    }
}

/// A login without a user and a password. Without a provider, fred would send `PING` at connect. A server that cannot
/// write to its disk refuses `PING`.
#[derive(Debug)]
struct NoLogin;

impl CredentialProvider for NoLogin {
    // The signature that the macro `async_trait` would generate.
    fn fetch<'a, 'b, 'c>(
        &'a self,
        _server: Option<&'b Server>,
    ) -> Pin<Box<dyn Future<Output = Result<UserAndPassword, Error>> + Send + 'c>>
    where
        'a: 'c,
        'b: 'c,
        Self: 'c,
    {
        Box::pin(std::future::ready(Ok((None, None))))
    }
}

/// True for an error that is not the server's reply.
fn is_away(error: &Error) -> bool {
    use ErrorKind::{Canceled, IO, Protocol, Routing, Timeout, Tls};
    matches!(error.kind(), Canceled | IO | Protocol | Routing | Timeout | Tls)
}

/// Splits a command into its first word, as fred wants it, and the others.
fn custom(mut words: impl Iterator<Item = Bytes>) -> (CustomCommand, Vec<Value>) {
    let name = words.next().unwrap_or_default();
    let name = String::from_utf8_lossy(&name).into_owned();
    (CustomCommand::new(name, ClusterHash::FirstKey, false), words.map(Value::Bytes).collect())
}
