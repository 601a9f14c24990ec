//! The client: connects, and owns one engine. Names no flavour.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::config::{Acks, Options, Prefer, Secret, Sharded, Tls};
use crate::engine::renewal::{self, Which};
use crate::engine::{Engine, Handle, preflight};
use crate::error::{Error, Result};
use crate::owner::{Owner, client_id};
use crate::runtime::home::Home;
use crate::runtime::reaper::Reaper;
use crate::topology::cluster::Cluster;
use crate::topology::url::{Kind, ServersUrl};
use crate::topology::{Address, Primary, Settings, Topology};
use crate::transport::Transport;
use crate::transport::connector::{Connector, Dial, Login};
use crate::transport::direct::Direct;
use crate::transport::node::Node;
use crate::transport::node::connect::Endpoint;
use crate::world::{Machine, World};

mod secure;
mod servers;
#[cfg(all(test, feature = "config"))]
mod told;

/// A connection to one Redis or Valkey server, to a cluster, or to a primary that can be replaced, and all that its locks share: the
/// connections, the renewal scheduler, the registry of waiters. Cheap to clone.
///
/// It lives on the tokio runtime that connected it: its tasks run there, and so does whatever has to be finished. Locks and
/// guards may be used anywhere, on another runtime or on an executor that is not tokio's (`futures::executor::block_on`):
/// what they do is then done by a task on the client's runtime, which has to be running meanwhile. When that runtime ends,
/// what is under way ends with [`Error::RuntimeGone`], and what is held ends with its lease.
///
/// When the last clone, lock and guard of it are gone, it shuts down in the background; [`shutdown`](Self::shutdown) does so
/// in the open.
#[derive(Clone)]
pub struct Client(Arc<Handle>);

impl Client {
    /// Connects with the default options to one of these:
    ///
    /// - `redis://[user:password@]host[:port][/database]`, one server; `rediss://..` over TLS (a TLS feature is needed), or
    ///   `unix:///path/to/socket`;
    /// - `redis-cluster://[user:password@]host[:port],host[:port],..`, the cluster that these servers are some of
    ///   ([`guide::clusters`](crate::guide::clusters));
    /// - `redis-sentinel://[user:password@]host[:port],host[:port],../name[/database]`, the primary that these sentinels look after by
    ///   that name ([`guide::sentinel`](crate::guide::sentinel));
    /// - `redis-replicated://[user:password@]host[:port],host[:port],..[/database]`, that of these servers which is the primary.
    ///
    /// *Cost*: two connections, and one script that probes what this login may do; in a cluster, these for each primary, and before
    /// that two connections, which end again, for each server named; two more to each sentinel, and one to each of the replicated
    /// servers. Where replicas are to acknowledge, one `WAIT` for each primary. *Cancel safety*: dropped, nothing stays. *Errors*:
    /// [`Error::Config`] for a URL that cannot work, and for a single server where a cluster or a sentinel was meant;
    /// [`Error::Connection`] and [`Error::Timeout`] when the server, or each of those named, cannot be reached, or none is a primary;
    /// [`Error::Server`] when it refuses the login or, of several, to tell which servers there are; [`Error::Unsupported`] where replicas
    /// have to acknowledge and cannot be asked.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder(url).connect().await
    }

    /// Options for a connection to this URL.
    pub fn builder(url: &str) -> Builder {
        Builder {
            target: Endpoint { url: Secret(url.to_owned()), ..Endpoint::default() },
            options: Options::default(),
            address_map: Arc::default(),
            sentinel_login: Login::default(),
            sentinel_tls: None,
            scan_interval: None,
            direct: false,
        }
    }

    /// A client over any transport, on the current runtime.
    #[cfg(any(test, feature = "unstable-transport"))]
    pub(crate) fn over(options: Options, node: Arc<dyn Transport>) -> Result<Self> {
        options.validate()?;
        Home::here()?;
        let client = Self(Handle::new(Engine::start(options, node)));
        client.engine().topology.check_lanes()?;
        Ok(client)
    }

    #[cfg(test)]
    pub(crate) fn of(engine: Arc<Engine>) -> Self {
        Self(Handle::new(engine))
    }

    /// A client that speaks to its server over this transport, on the current runtime. Nothing is probed. Options that are
    /// about connections are the transport's to heed. (Feature `unstable-transport`: no promise that it stays as it is.)
    ///
    /// *Cost*: none. *Cancel safety*: never waits. *Errors*: [`Error::Config`] for options that cannot work, or without a
    /// runtime.
    #[cfg(feature = "unstable-transport")]
    pub fn over_transport(transport: Arc<dyn Transport>, options: Options) -> Result<Self> {
        Self::over(options, transport)
    }

    /// A client of a cluster whose servers it reaches by this connector, with this clock and these random numbers, on the current
    /// runtime. `seeds`: `host:port` of some of its servers. What this login may do is not probed. Options that are about connections
    /// are the connector's to heed. (Feature `unstable-transport`: no promise that it stays as it is.)
    ///
    /// *Cost*: a connection to each seed, which ends again, and one to each primary. *Cancel safety*: dropped, nothing stays. *Errors*:
    /// [`Error::Config`] for options or seeds that cannot work, or without a runtime; as [`connect`](Self::connect) of a cluster that
    /// cannot be reached.
    #[cfg(feature = "unstable-transport")]
    pub async fn over_cluster(
        connector: Arc<dyn Connector>,
        world: Arc<dyn World>,
        seeds: &[&str],
        options: Options,
    ) -> Result<Self> {
        options.validate()?;
        Home::here()?;
        let no_seed = || Error::config("the servers of a cluster are named by host:port");
        let read = |seed: &&str| Address::split(seed).and_then(|(host, port)| Address::new(host, port));
        let seeds: Vec<Address> = seeds.iter().map(read).collect::<Option<_>>().ok_or_else(no_seed)?;
        let client = Self::start_cluster(client_id(&*world), seeds, connector, world, options).await?;
        client.engine().topology.check_lanes()?;
        Ok(client)
    }

    async fn start_cluster(
        id: String,
        seeds: Vec<Address>,
        connector: Arc<dyn Connector>,
        world: Arc<dyn World>,
        options: Options,
    ) -> Result<Self> {
        let reaper = Reaper::start();
        let settings = Settings::new(seeds, &options, &reaper);
        let cluster = Cluster::start(settings, connector, Arc::clone(&world)).await?;
        let topology = Topology::cluster(cluster, world);
        Ok(Self(Handle::new(Engine::start_over(id, topology, options, reaper))))
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        self.0.engine()
    }

    pub(crate) fn handle(&self) -> Arc<Handle> {
        Arc::clone(&self.0)
    }

    /// The options in force.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.0.engine().options
    }

    /// This client's id: a uuid of version 8, the first part of its owners.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.0.engine().id
    }

    /// A new owner, for re-entry: acquires with the same owner are one holder coming in again.
    #[must_use]
    pub fn owner(&self) -> Owner {
        self.0.engine().owner()
    }

    /// What this client holds and waits for at the moment.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let engine = self.0.engine();
        Stats {
            holds: engine.holds.len(),
            waiting: engine.registry.waiting(),
            names: engine.registry.names(),
            under_way: engine.reaper.under_way(),
        }
    }

    /// Renews every watched lock now, as the scheduler does every third of the watchdog.
    ///
    /// *Cost*: one command for every [`Options::watchdog_batch`] locks, all in flight together. *Cancel safety*: what
    /// was sent takes effect. *Errors*: none; what could not be renewed is in the report and is tried again.
    pub async fn renew_now(&self) -> Renewed {
        let engine = Arc::clone(self.0.engine());
        let round = self.0.engine().home().run(async move { Ok(renewal::round(&engine, Which::All).await) }).await;
        // Without its runtime it can renew nothing.
        let round: renewal::Round = round.unwrap_or_else(|_: Error| renewal::Round {
            failed: self.0.engine().holds.len(),
            ..renewal::Round::default()
        });
        Renewed { renewed: round.renewed, failed: round.failed, lost: round.lost }
    }

    /// Shuts down: renewals stop, held locks are released (their guards report [`Error::Closed`]), queued releases are
    /// sent, connections and tasks end. Waiting acquires fail with [`Error::Closed`].
    ///
    /// *Cost*: one command a held lock. *Cancel safety*: once begun it is carried through in the background. *Errors*:
    /// [`Error::Timeout`] when `within` was too short for the releases (what was not released ends with its lease; the
    /// connections are closed all the same), [`Error::Closed`] when it was shut down before, [`Error::RuntimeGone`] when
    /// the runtime that it lives on has ended: then nothing was released.
    pub async fn shutdown(&self, within: Duration) -> Result<()> {
        match self.0.engine().shut_down(within) {
            Some(work) => work.await,
            None => Err(Error::Closed),
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("id", &self.id()).field("stats", &self.stats()).finish_non_exhaustive()
    }
}

/// What a client holds and waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Locks held, or just being released.
    pub holds: usize,
    /// Acquires that wait.
    pub waiting: usize,
    /// Names that anybody holds, waits for or listens to.
    pub names: usize,
    /// Commands and clean-ups under way.
    pub under_way: usize,
}

/// What a round of renewal brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Renewed {
    /// Leases started anew.
    pub renewed: usize,
    /// Locks that could not be renewed; tried again until their lease ends.
    pub failed: usize,
    /// Guards whose lock was found lost.
    pub lost: usize,
}

/// How to connect. Every setter names its default; [`Options`] has them all.
#[derive(Clone, Debug)]
#[must_use = "call connect()"]
pub struct Builder {
    target: Endpoint,
    options: Options,
    address_map: Arc<HashMap<String, String>>,
    sentinel_login: Login,
    sentinel_tls: Option<Tls>,
    /// None: the default of the servers' kind.
    scan_interval: Option<Duration>,
    direct: bool,
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
        /// How long connecting may take. Defaults to 10 s.
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
        let primary = match url.kind {
            Kind::Sentinel { name } => Primary::by_sentinels(settings, connector, Arc::clone(&world), name).await?,
            Kind::Replicated | Kind::Cluster => Primary::of_replicated(settings, connector, Arc::clone(&world)).await?,
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
        let preflight = self.options.preflight;
        let client = self.start(false).await?;
        if preflight {
            preflight::probe(client.engine()).await;
        }
        Ok(client)
    }

    async fn start(mut self, lazily: bool) -> Result<Client> {
        self.options.validate()?;
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
                self.several(url, id).await.map_err(|error| secure::with_trouble(error, provider))?
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
