//! Connects to the servers of a topology. [`Dial`] adapts one set of options to each connection's purpose. A simulation
//! has its own [`Connector`].

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;

use super::Transport;
use super::endpoint::Endpoint;
use super::wire::Wire;
use crate::config::{Options, Provider, Secret, Tls};
use crate::error::Result;

/// Purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To find out which servers exist. The connection is returned once it is up.
    Seed,
    /// For commands and messages of locks whose names live on the server. The connection is returned at once, and comes
    /// up in the background.
    Names {
        /// True for sharded channels: each channel belongs to one slot.
        sharded: bool,
    },
    /// For commands that are each sent behind an `ASKING`. The connection is returned at once, as for `Names`. Commands
    /// must arrive in the order in which they are sent.
    Asking,
    /// For occasional queries about the server. The connection is returned once it is up.
    Watch,
    /// For commands and messages of a sentinel, with the sentinels' login. The connection is returned once it is up.
    Sentinel,
}

/// Connects to servers that belong together, by address.
///
/// [`Client::over_cluster`](crate::Client::over_cluster) builds a client on a connector.
pub trait Connector: Send + Sync + fmt::Debug {
    /// Connects to the server at `host:port`.
    ///
    /// # Errors
    ///
    /// [`Purpose::Seed`], [`Purpose::Watch`] and [`Purpose::Sentinel`] fail if the server cannot be reached. The other
    /// purposes fail only if no retry can help, as with an invalid address.
    fn connect(&self, address: &str, purpose: Purpose) -> BoxFuture<'static, Result<Arc<dyn Transport>>>;
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Login {
    pub(crate) username: Option<Secret>,
    pub(crate) password: Option<Secret>,
    /// Queried before each login. The answer replaces both user and password.
    pub(crate) credentials: Option<Provider>,
}

#[derive(Clone, Debug)]
pub(crate) struct Dial {
    /// The scheme of one server's URL: `redis` or `rediss`.
    pub(crate) scheme: &'static str,
    pub(crate) login: Login,
    pub(crate) database: Option<u8>,
    pub(crate) tls: Option<Tls>,
    pub(crate) sentinel_login: Login,
    pub(crate) sentinel_tls: Option<Tls>,
    pub(crate) options: Options,
    /// Maps the address that a server reports to the address at which the client reaches that server.
    pub(crate) address_map: Arc<HashMap<String, String>>,
}

impl Connector for Dial {
    fn connect(&self, address: &str, purpose: Purpose) -> BoxFuture<'static, Result<Arc<dyn Transport>>> {
        let address = self.address_map.get(address).map_or(address, String::as_str);
        let is_sentinel = purpose == Purpose::Sentinel;
        let login = if is_sentinel { &self.sentinel_login } else { &self.login }.clone();
        let endpoint = Endpoint {
            url: Secret(format!("{}://{address}", self.scheme)),
            username: login.username,
            password: login.password,
            credentials: login.credentials,
            tls: if is_sentinel { &self.sentinel_tls } else { &self.tls }.clone(),
            database: self.database.filter(|_| !is_sentinel),
        };
        let mut options = self.options.clone();
        let is_of_names = matches!(purpose, Purpose::Names { .. });
        if !is_of_names {
            options.pool_size = 1;
        }
        // `ASKING` covers the next command only, and an `EVALSHA` that fails with `NOSCRIPT` would use it up.
        options.script_cache &= purpose != Purpose::Asking;
        let lazily = is_of_names || purpose == Purpose::Asking;
        let sharded = purpose == Purpose::Names { sharded: true };
        // Connections without fred are cheaper, and send no command that sentinels lack.
        let direct = !options.use_fred || matches!(purpose, Purpose::Watch | Purpose::Sentinel);
        Box::pin(async move {
            if purpose == Purpose::Watch
                && let Some(target) = endpoint.target()?
            {
                return Ok(Arc::new(Wire::for_commands(target, &options).await?) as Arc<dyn Transport>);
            }
            connect(&endpoint, &options, direct, lazily, sharded).await
        })
    }
}

/// Connects to one server. If `direct`, connects without fred where that is possible.
pub(crate) async fn connect(
    endpoint: &Endpoint,
    options: &Options,
    direct: bool,
    lazily: bool,
    sharded: bool,
) -> Result<Arc<dyn Transport>> {
    if (direct || cfg!(not(feature = "fred")))
        && let Some(target) = endpoint.target()?
    {
        return Ok(Arc::new(Wire::connect(target, options, lazily, sharded).await?));
    }
    #[cfg(feature = "fred")]
    return Ok(Arc::new(super::node::Node::connect(endpoint, options, lazily, sharded).await?));
    // Not reached: without the feature `fred`, every endpoint has a target.
    #[cfg(not(feature = "fred"))]
    Err(crate::config::not_built_in())
}
