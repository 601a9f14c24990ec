//! How to connect: options, logins, and which kind of servers a URL names.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Client;
use crate::config::url::trimmed;
use crate::config::{Acks, Options, Prefer, Secret, Sharded, Tls};
use crate::engine::{Engine, Handle, preflight};
use crate::error::{Error, Result};
use crate::owner::client_id;
use crate::runtime::home::Home;
use crate::runtime::reaper::Reaper;
use crate::runtime::standstill::within;
use crate::topology::url::{Kind, ServersUrl};
use crate::topology::{Primary, Settings, Topology};
use crate::transport::Transport;
use crate::transport::connector::{Connector, Dial, Login};
use crate::transport::direct::Direct;
use crate::transport::node::Node;
use crate::transport::node::connect::Endpoint;
use crate::world::{Machine, World};

/// How to connect. Every setter names its default; [`Options`] has them all.
#[derive(Clone, Debug)]
#[must_use = "call connect()"]
pub struct Builder {
    pub(super) target: Endpoint,
    pub(super) options: Options,
    pub(super) address_map: Arc<HashMap<String, String>>,
    pub(super) sentinel_login: Login,
    pub(super) sentinel_tls: Option<Tls>,
    /// None: the default of the servers' kind.
    pub(super) scan_interval: Option<Duration>,
    pub(super) direct: bool,
}

/// How often servers are asked which of them is the primary, where no other time is set: Redisson's default.
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
        /// Lease of locks without an explicit lease. Defaults to 30 s.
        watchdog: Duration,
        /// Locks renewed by one command. Defaults to 100.
        watchdog_batch: usize,
        /// How long a command may take. Defaults to 3 s.
        command_timeout: Duration,
        /// How long connecting may take. What is asked of the server after that has [`command_timeout`](Self::command_timeout). Defaults to 10 s.
        connect_timeout: Duration,
        /// How often an operation is tried again after errors that pass. Defaults to 4.
        retry_attempts: u32,
        /// Shortest and longest pause before such a retry. Defaults to 1 s and 2 s.
        retry_delay: (Duration, Duration),
        /// How long a subscription may take before waiters poll instead. Defaults to 7.5 s.
        subscribe_timeout: Duration,
        /// How long an unused subscription is kept. Defaults to 5 s.
        subscription_linger: Duration,
        /// The longest a waiter sleeps without looking for itself. Defaults to 5 s.
        poll_cap: Duration,
        /// How often the connection for messages is checked. Defaults to 30 s.
        ping_interval: Duration,
        /// How many times in a row a lock is handed over inside this process. Defaults to 16; 0 turns it off.
        handoff_limit: u32,
        /// How long a lock is handed over inside this process. Defaults to 50 ms.
        handoff_time: Duration,
        /// Let the processes that a release told have the lock first, for 10 ms each at the most. Defaults to true.
        take_turns: bool,
        /// Sentinel: a renewal counts only if most sentinels confirmed the primary within the last lease of the watchdog. A primary that is
        /// cut off from them then keeps no lock for longer than that. Without Sentinel, connecting is [`Error::Config`]. Defaults to false.
        confirm_primary: bool,
        /// Fair locks: within this time a waiter that has stopped loses its place. Defaults to 5 s.
        fair_wait: Duration,
        /// Fair locks: Redisson's `fairLockWaitTimeout`, as the Java processes at the same locks have it. Defaults to 5 min.
        java_fair_wait: Duration,
        /// Read-write locks: whom they prefer. Defaults to readers, as in Redisson.
        prefer: Prefer,
        /// Read-write locks that prefer writers: for how long a reader is held back. Defaults to 1 s.
        hold_back: Duration,
        /// Connections for commands. Defaults to 1.
        pool_size: usize,
        /// Send scripts by their hash. Defaults to true.
        script_cache: bool,
        /// Under load, send several acquires and releases in one command. Defaults to true.
        coalesce: bool,
        /// Clusters: whether channels are a slot's own. Defaults to what the servers know, as Redisson does.
        sharded: Sharded,
        /// Which replicas have to have an acquire and a renewal before it counts. Defaults to Redisson's rule.
        acks: Acks,
        /// How long replicas have for that. Defaults to 1 s; a third of the watchdog at the most.
        ack_timeout: Duration,
        /// Probe at connect what this login may do. Defaults to true.
        preflight: bool,
    }

    /// All options at once, as [`Options`] read from a file has them. What it says of
    /// [`scan_interval`](Options::scan_interval) counts where that is another than its default.
    pub fn options(mut self, options: Options) -> Self {
        let is_set = options.scan_interval != Options::default().scan_interval;
        self.scan_interval = is_set.then_some(options.scan_interval);
        self.options = options;
        self
    }

    /// Several servers: how often they are asked which of them has which slot, or is the primary, beside when there is a reason.
    /// Defaults to 5 s in clusters, and to 1 s with sentinels and replicated servers.
    pub fn scan_interval(mut self, scan_interval: Duration) -> Self {
        self.options.scan_interval = scan_interval;
        self.scan_interval = Some(scan_interval);
        self
    }

    /// Put before every name, as a Redisson `NameMapper` would. Defaults to nothing.
    pub fn name_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.options.name_prefix = prefix.into();
        self
    }

    /// The name by which servers list the connections of this client. Defaults to `distlock-` and its [id](Client::id).
    pub fn client_name(mut self, name: impl Into<String>) -> Self {
        self.options.client_name = name.into();
        self
    }

    /// Log in as this user. Defaults to what the URL says.
    pub fn username(mut self, username: impl Into<String>) -> Self {
        self.target.username = Some(Secret(username.into()));
        self
    }

    /// Log in with this password. Defaults to what the URL says.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.target.password = Some(Secret(password.into()));
        self
    }

    /// Use this database. Defaults to what the URL says, else 0.
    pub fn database(mut self, database: u8) -> Self {
        self.target.database = Some(database);
        self
    }

    /// Several servers: where they are reached, `host:port` each, that call themselves otherwise, as behind a translation of addresses.
    /// Sentinels too. Defaults to where they say.
    pub fn address_map(mut self, map: HashMap<String, String>) -> Self {
        self.address_map = Arc::new(map);
        self
    }

    /// Speak to the server over connections of this crate's own instead of those of the library `fred`: less work a command,
    /// buffers that grow only with what is sent, and a command that has never left is known not to have run. Over TLS by the platform's
    /// library (feature `native-tls`) it is fred all the same. Defaults to false.
    pub fn direct(mut self, direct: bool) -> Self {
        self.direct = direct;
        self
    }

    async fn transport(&self, lazily: bool) -> Result<Arc<dyn Transport>> {
        if self.direct
            && let Some(target) = self.target.direct()?
        {
            return Ok(Arc::new(Direct::connect(target, &self.options, lazily, false).await?));
        }
        Ok(Arc::new(Node::connect(&self.target, &self.options, lazily, false).await?))
    }

    /// A client of the servers that the URL names.
    async fn several(&self, url: ServersUrl, id: String) -> Result<Client> {
        let is_cluster = url.kind == Kind::Cluster;
        if is_cluster && self.target.database.is_some_and(|database| database != 0) {
            return Err(Error::config("a cluster has database 0 alone: set no other"));
        }
        if let Some(tls) = &self.sentinel_tls {
            tls.check(url.scheme)?;
        }
        let (login, database) = Endpoint { url: Secret(url.login), ..self.target.clone() }.login()?;
        let mut options = self.options.clone();
        if let (None, false) = (self.scan_interval, is_cluster) {
            options.scan_interval = SCAN_INTERVAL;
        }
        let dial = Dial {
            scheme: url.scheme,
            login,
            database: database.filter(|_| !is_cluster),
            tls: self.target.tls.clone(),
            sentinel_login: self.sentinel_login.clone(),
            sentinel_tls: self.sentinel_tls.clone().or_else(|| self.target.tls.clone()),
            options: options.clone(),
            address_map: Arc::clone(&self.address_map),
            direct: self.direct,
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

    /// As [`connect`](Self::connect), without waiting for the server: its connections come to stand when they can, and
    /// nothing is probed. For the nodes of a [`RedLock`](crate::RedLock), some of which may be away.
    ///
    /// Of several servers, one of those that are named has to answer all the same, as it tells where the others are; and behind sentinels,
    /// or of replicated servers, the primary has to be there.
    ///
    /// *Cost*: none; two connections in the background. *Cancel safety*: never waits, but for the first answer of several servers.
    /// *Errors*: [`Error::Config`] for a URL or options that cannot work; of several servers also those of [`connect`](Self::connect). A
    /// server that is away, or refuses the login, fails what is asked of it.
    pub async fn connect_lazily(self) -> Result<Client> {
        self.start(true).await
    }

    /// Connects. As [`Client::connect`].
    pub async fn connect(self) -> Result<Client> {
        let Options { preflight, connect_timeout, .. } = self.options;
        let began = Instant::now();
        let client = self.start(false).await?;
        if preflight {
            // If the server does not answer, the first acquire fails. A server that was slow to connect to gets a little time all the same.
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
                let transport = self.transport(lazily).await?;
                Client(Handle::new(Engine::start_as(id, self.options, transport)))
            }
        };
        client.engine().topology.check_lanes()?;
        if !lazily {
            client.engine().topology.check_acknowledgement().await?;
        }
        tracing::info!(client = client.id(), servers = client.engine().topology.identity(), "connected");
        Ok(client)
    }
}
