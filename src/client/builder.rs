//! The builder of a client: options, logins, and the kind of servers that a URL names.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Client, label};
use crate::config::url::trimmed;
use crate::config::{Acks, CLUSTER_SCAN_INTERVAL, Options, Secret, Tls};
use crate::engine::{Engine, Handle, preflight};
use crate::error::{Error, Result};
use crate::owner::client_id;
use crate::runtime::home::Home;
use crate::runtime::reaper::Reaper;
use crate::runtime::standstill::within;
use crate::topology::url::{Kind, ServersUrl};
use crate::topology::{Primary, Settings, Topology};
use crate::transport::connector::{Connector, Dial, Login, connect};
use crate::transport::endpoint::Endpoint;
use crate::world::{Machine, World};

/// Builder of a [`Client`]. Every setter names its default. [`configure`](Self::configure) sets any of the
/// [`Options`].
///
/// # Examples
///
/// ```no_run
/// # use std::time::Duration;
/// # use distlock::Client;
/// # async fn example() -> distlock::Result<()> {
/// let client = Client::builder("redis://localhost:6379")
///     .watchdog(Duration::from_secs(10)) // a dead holder's lock is free after 10 s
///     .name_prefix("shop:")
///     .connect()
///     .await?;
/// client.shutdown(Duration::from_secs(5)).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "call connect()"]
pub struct Builder {
    pub(crate) target: Endpoint,
    pub(super) options: Options,
    pub(super) address_map: Arc<HashMap<String, String>>,
    pub(crate) sentinel_login: Login,
    pub(super) sentinel_tls: Option<Tls>,
}

/// Default interval at which sentinels and replicated servers are asked who is the primary. As in Redisson.
const SCAN_INTERVAL: Duration = Duration::from_secs(1);

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $type:ty,)*) => {
        $($(#[$doc])* pub fn $name(mut self, $name: $type) -> Self {
            self.options.$name = $name;
            self
        })*
    };
}

impl Builder {
    setters! {
        /// Sets the lease of locks without an explicit lease. Defaults to 30 s.
        watchdog: Duration,
        /// Sets how long a command may take. Defaults to 3 s.
        command_timeout: Duration,
        /// Sets how long connecting may take. Later commands have [`command_timeout`](Self::command_timeout). Defaults
        /// to 10 s.
        connect_timeout: Duration,
        /// Sets for how long, not how often, an operation is retried after temporary errors: this many times the sum of
        /// `command_timeout` and the longest `retry_delay`. Defaults to 4.
        retry_attempts: u32,
        /// Sets the number of connections for commands. Defaults to 1.
        pool_size: usize,
        /// Sets which replicas must acknowledge an acquire or renewal before it counts. Defaults to Redisson's rule.
        acks: Acks,
    }

    /// Sets all options at once, for [`Options`] that were read from a file.
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Sets any of the [`Options`], also those without a method here.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn example() -> distlock::Result<()> {
    /// let client = distlock::Client::builder("redis://localhost:6379")
    ///     .configure(|options| options.poll_cap = Duration::from_secs(1))
    ///     .connect()
    ///     .await?;
    /// # drop(client);
    /// # Ok(())
    /// # }
    /// ```
    pub fn configure(mut self, set: impl FnOnce(&mut Options)) -> Self {
        set(&mut self.options);
        self
    }

    /// Sets a prefix for every name, as a Redisson `NameMapper` would add. Defaults to none.
    pub fn name_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.options.name_prefix = prefix.into();
        self
    }

    /// Sets the user name. Defaults to the URL's.
    pub fn username(mut self, username: impl Into<String>) -> Self {
        self.target.username = Some(Secret(username.into()));
        self
    }

    /// Sets the password. Defaults to the URL's.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.target.password = Some(Secret(password.into()));
        self
    }

    /// Sets the database. Defaults to the URL's, else 0.
    pub fn database(mut self, database: u8) -> Self {
        self.target.database = Some(database);
        self
    }

    /// Several servers: maps addresses that servers report to addresses that the client can reach, both as
    /// `host:port`, for example behind NAT. Applies to sentinels too. Defaults to no mapping.
    pub fn address_map(mut self, map: HashMap<String, String>) -> Self {
        self.address_map = Arc::new(map);
        self
    }

    /// Connects to the servers of a URL that names several.
    async fn several(&self, url: ServersUrl, id: String) -> Result<Client> {
        let is_cluster = url.kind == Kind::Cluster;
        if is_cluster && self.target.database.is_some_and(|database| database != 0) {
            return Err(Error::config("a cluster has only database 0: set no other"));
        }
        if let Some(tls) = &self.sentinel_tls {
            crate::config::check_tls(tls, url.scheme)?;
        }
        let (login, database) = Endpoint { url: Secret(url.login), ..self.target.clone() }.login()?;
        let mut options = self.options.clone();
        let scan_interval = if is_cluster { CLUSTER_SCAN_INTERVAL } else { SCAN_INTERVAL };
        options.scan_interval = options.scan_interval.or(Some(scan_interval));
        let dial = Dial {
            scheme: url.scheme,
            login,
            database: database.filter(|_| !is_cluster),
            tls: self.target.tls.clone(),
            sentinel_login: self.sentinel_login.clone(),
            sentinel_tls: self.sentinel_tls.clone().or_else(|| self.target.tls.clone()),
            options: options.clone(),
            address_map: Arc::clone(&self.address_map),
        };
        let (connector, world): (Arc<dyn Connector>, Arc<dyn World>) = (Arc::new(dial), Arc::new(Machine));
        if is_cluster {
            return Client::start_cluster(id, url.seeds, connector, world, options).await;
        }
        let reaper = Reaper::start();
        let settings = Settings::new(url.seeds, &options, &reaper);
        let primary = if let Kind::Sentinel { name } = url.kind {
            Primary::by_sentinels(settings, connector, Arc::clone(&world), name).await?
        } else {
            Primary::of_replicated(settings, connector, Arc::clone(&world)).await?
        };
        let topology = Topology::primary(primary, world);
        Ok(Client(Handle::new(Engine::start_over(id, topology, options, reaper))))
    }

    /// Creates a client without waiting for its server. Connections are made in the background, and the rights of the
    /// login are not checked. Use this for a [`RedLock`](crate::RedLock), because some of its servers may be
    /// unreachable.
    ///
    /// With several servers, one server of the URL must answer, because it lists the others. With sentinels and
    /// replicated servers the primary must answer too.
    ///
    /// # Cost
    ///
    /// None at once; two connections in the background. With several servers, the connections of
    /// [`connect`](Self::connect).
    ///
    /// # Cancel safety
    ///
    /// Waits only for the first answers of several servers. A dropped call leaves nothing behind.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the URL or an option cannot work. With several servers also the errors of
    /// [`connect`](Self::connect). If a single server is unreachable or refuses the login, later calls fail.
    pub async fn connect_lazily(self) -> Result<Client> {
        self.start(true).await
    }

    /// Connects, as [`Client::connect`] does.
    pub async fn connect(self) -> Result<Client> {
        let Options { preflight, connect_timeout, .. } = self.options;
        let began = Instant::now();
        let client = self.start(false).await?;
        if preflight {
            // If the server does not answer the check, the first acquire fails. If connecting used up most of the time,
            // the check still gets a tenth of `connect_timeout`.
            let left = connect_timeout.saturating_sub(began.elapsed()).max(connect_timeout / 10);
            let _ = within(left, preflight::probe(client.engine())).await;
        }
        Ok(client)
    }

    async fn start(mut self, lazily: bool) -> Result<Client> {
        self.options = self.options.checked()?;
        self.target.url = Secret(trimmed(&self.target.url.0)?.to_owned());
        Home::here()?;
        let id = client_id(&Machine);
        if self.options.client_name.is_empty() {
            self.options.client_name = format!("distlock-{id}");
        }
        let url = ServersUrl::read(&self.target.url.0)?;
        if !matches!(&url, Some(ServersUrl { kind: Kind::Sentinel { .. }, .. })) {
            self.check_no_sentinels()?;
        }
        let client = match url {
            Some(url) => {
                let provider = self.target.credentials.as_ref();
                self.several(url, id).await.map_err(|error| super::secure::with_trouble(error, provider))?
            }
            None => {
                let transport = connect(&self.target, &self.options, !self.options.use_fred, lazily, false).await?;
                Client(Handle::new(Engine::start_as(id, self.options, transport)))
            }
        };
        client.engine().topology.check_lanes()?;
        if !lazily {
            client.engine().topology.check_acknowledgement().await?;
        }
        tracing::info!(client = client.id(), servers = client.engine().topology.identity(), "connected");
        Ok(label::keep(client))
    }
}
