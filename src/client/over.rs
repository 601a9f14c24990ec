//! A client over fred clients that the program has made itself.

use std::sync::Arc;

use super::{Client, label};
use crate::config::Options;
use crate::engine::{Engine, Handle, preflight};
use crate::error::Result;
use crate::owner::client_id;
use crate::runtime::home::Home;
use crate::runtime::standstill::within;
use crate::transport::node::over::{FredClient, Over};
use crate::world::Machine;

impl Client {
    /// Returns a client that sends its commands over the program's own fred clients of one server: one client, or the
    /// `clients()` of a pool. See [`guide::bring_your_client`](crate::guide::bring_your_client).
    ///
    /// The program may go on using its fred clients. They keep their options, and reconnect by their own policy.
    /// Messages need a connection of their own, which is made with the configuration of the first fred client.
    ///
    /// [`pool_size`](Options::pool_size) is the number of fred clients, whatever the option says.
    /// [`client_name`](Options::client_name) and [`ping_interval`](Options::ping_interval) concern the connection for
    /// messages only.
    ///
    /// The types of fred 10 are part of this method, so a new major version of fred is a breaking change of this crate.
    ///
    /// # Cost
    ///
    /// One connection, and one script that probes what the login may do ([`preflight`](Options::preflight)).
    ///
    /// # Cancel safety
    ///
    /// A dropped call leaves nothing behind.
    ///
    /// # Errors
    ///
    /// - [`Error::Config`](crate::Error::Config): an option cannot work, no tokio runtime is running, there is no fred
    ///   client, or the fred clients are for several servers, a cluster or sentinels.
    /// - [`Error::Connection`](crate::Error::Connection), [`Error::Timeout`](crate::Error::Timeout): a fred client is
    ///   not connected, or the server cannot be reached.
    /// - [`Error::Server`](crate::Error::Server): the server refuses the login.
    /// - [`Error::Unsupported`](crate::Error::Unsupported): replicas must acknowledge ([`acks`](Options::acks)). On a
    ///   shared connection, a `WAIT` would delay the program's own commands.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use distlock::{Client, Options};
    /// use fred::interfaces::ClientLike as _;
    /// use fred::types::Builder;
    /// use fred::types::config::{Config, ReconnectPolicy};
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let config = Config::from_url("redis://127.0.0.1:6379")?;
    /// let pool = Builder::from_config(config).set_policy(ReconnectPolicy::default()).build_pool(4)?;
    /// pool.init().await?;
    ///
    /// let client = Client::over(pool.clients(), Options::default()).await?;
    /// let guard = client.reentrant("orders:42").lock().await?;
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn over(fred: &[FredClient], options: Options) -> Result<Self> {
        // `Over` refuses an empty list with a better error than the check of `pool_size` would.
        let mut options = Options { pool_size: fred.len().max(1), ..options }.checked()?;
        options.check_no_sentinels()?;
        Home::here()?;
        let id = client_id(&Machine);
        if options.client_name.is_empty() {
            options.client_name = format!("distlock-{id}");
        }
        let Options { preflight, connect_timeout, .. } = options;
        let transport = Arc::new(Over::start(fred, &options).await?);
        let client = Self(Handle::new(Engine::start_as(id, options, transport)));
        client.engine().topology.check_lanes()?;
        if preflight {
            // If the server does not answer the probe, the first acquire reports that.
            let _ = within(connect_timeout, preflight::probe(client.engine())).await;
        }
        tracing::info!(client = client.id(), servers = client.engine().topology.identity(), "connected");
        Ok(label::keep(client))
    }
}
