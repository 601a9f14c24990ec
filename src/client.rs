//! The client, which connects and owns one engine. This module knows no flavour of lock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::config::{Options, Secret};
use crate::engine::renewal::{self, Which};
use crate::engine::{Engine, Handle};
use crate::error::{Error, Result};
use crate::owner::Owner;
#[cfg(feature = "unstable-transport")]
use crate::owner::client_id;
#[cfg(any(test, feature = "unstable-transport"))]
use crate::runtime::home::Home;
use crate::runtime::reaper::Reaper;
use crate::topology::cluster::Cluster;
use crate::topology::{Address, Settings, Topology};
#[cfg(any(test, feature = "unstable-transport"))]
use crate::transport::Transport;
use crate::transport::connector::{Connector, Login};
use crate::transport::endpoint::Endpoint;
use crate::world::World;

mod builder;
mod capabilities;
mod label;
#[cfg(feature = "fred")]
mod over;
mod secure;
mod servers;
#[cfg(all(test, feature = "redisson-yaml"))]
mod told;

pub use builder::Builder;

/// A client of one Redis or Valkey server, of a cluster, or of a primary with failover.
///
/// All locks of a client share its connections, its renewal scheduler and its registry of waiters. Cheap to clone.
///
/// # Runtime
///
/// A client lives on the tokio runtime on which it was connected: its tasks and all clean-up run there. Locks and
/// guards also work on another runtime, or on an executor that is not tokio's (`futures::executor::block_on`). Their
/// calls then run as tasks on the client's runtime, which must be running. When the client's runtime ends, calls in
/// flight end with [`Error::RuntimeGone`], and held locks end with their leases.
///
/// # Shutdown
///
/// [`shutdown`](Self::shutdown) ends a client in an orderly way. When the last clone, lock and guard of a client are
/// dropped, the client shuts down in the background.
#[derive(Clone)]
pub struct Client(Arc<Handle>);

impl Client {
    /// Connects with the default options.
    ///
    /// # URLs
    ///
    /// - `redis://[user:password@]host[:port][/database]`: one server. `rediss://..` is the same over TLS and needs a
    ///   TLS feature; `unix://[user:password@]/path/to/socket` is a Unix socket.
    /// - `redis-cluster://[user:password@]host[:port],host[:port],..`: the cluster that these servers belong to
    ///   ([`guide::clusters`](crate::guide::clusters)).
    /// - `redis-sentinel://[user:password@]host[:port],host[:port],../name[/database]`: the primary that these
    ///   sentinels monitor under that name ([`guide::sentinel`](crate::guide::sentinel)).
    /// - `redis-replicated://[user:password@]host[:port],host[:port],..[/database]`: the primary among these servers.
    ///
    /// The query `?db=3` (or `?database=3`) names the database too, except in a cluster's URL. Any other query and
    /// any fragment is refused. Percent-encode the characters `/`, `?`, `#` and `%` in a login.
    ///
    /// # Cost
    ///
    /// | servers | connections | commands |
    /// |---|---|---|
    /// | one server | two | one script that probes what this login may do |
    /// | cluster | two to each primary ¹ | one script for each primary |
    /// | sentinels | two to the primary, two to each sentinel | one script |
    /// | replicated | two to the primary, one to each server | one script |
    ///
    /// ¹ Before that, two connections to each server of the URL, which are closed again.
    ///
    /// If replicas must acknowledge, each primary also gets a `WAIT`.
    ///
    /// # Cancel safety
    ///
    /// A dropped call leaves nothing behind.
    ///
    /// # Errors
    ///
    /// - [`Error::Config`]: the URL or an option cannot work, no tokio runtime is running, or the server is not of the
    ///   kind that the URL names: a cluster node, or a sentinel that knows the primary.
    /// - [`Error::Connection`], [`Error::Timeout`]: no server of the URL can be reached, or none is a primary.
    /// - [`Error::Server`]: the server refuses the login, or the command that lists the other servers.
    /// - [`Error::Unsupported`]: replicas must acknowledge, but the server does not support `WAIT`.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder(url).connect().await
    }

    /// Returns a builder with the default options for this URL.
    pub fn builder(url: &str) -> Builder {
        Builder {
            target: Endpoint { url: Secret(url.to_owned()), ..Endpoint::default() },
            options: Options::default(),
            address_map: Arc::default(),
            sentinel_login: Login::default(),
            sentinel_tls: None,
        }
    }

    #[cfg(test)]
    pub(crate) fn of(engine: Arc<Engine>) -> Self {
        Self(Handle::new(engine))
    }

    /// Returns a client that talks to its server over this transport, on the current runtime.
    ///
    /// The rights of the login are not checked. Options about connections are left to the transport. The feature
    /// `unstable-transport` has no stability promise.
    ///
    /// # Cost
    ///
    /// None.
    ///
    /// # Errors
    ///
    /// - [`Error::Config`]: an option cannot work, or no runtime is running.
    /// - [`Error::Unsupported`]: replicas must acknowledge ([`Options::acks`]), and the transport cannot ask them.
    #[cfg(any(test, feature = "unstable-transport"))]
    pub fn over_transport(transport: Arc<dyn Transport>, options: Options) -> Result<Self> {
        let options = options.checked()?;
        options.check_no_sentinels()?;
        Home::here()?;
        let client = Self(Handle::new(Engine::start(options, transport)));
        client.engine().topology.check_lanes().map(|()| label::keep(client))
    }

    /// Returns a client of a cluster that reaches its servers by `connector`, on the current runtime.
    ///
    /// `world` is the client's clock and source of random numbers. `seeds` are some servers of the cluster, as
    /// `host:port`. The rights of the login are not checked. Options about connections are left to the connector. The
    /// feature `unstable-transport` has no stability promise.
    ///
    /// # Cost
    ///
    /// One connection to each seed, which is closed afterwards, and one to each primary.
    ///
    /// # Cancel safety
    ///
    /// A dropped call leaves nothing behind.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if an option or a seed cannot work, or if no runtime is running. If the cluster cannot be
    /// reached, the errors of [`connect`](Self::connect).
    #[cfg(feature = "unstable-transport")]
    pub async fn over_cluster(
        connector: Arc<dyn Connector>,
        world: Arc<dyn World>,
        seeds: &[&str],
        options: Options,
    ) -> Result<Self> {
        let options = options.checked()?;
        options.check_no_sentinels()?;
        Home::here()?;
        let no_seed = || Error::config("the servers of a cluster are named by host:port");
        let read = |seed: &&str| Address::split(seed).and_then(|(host, port)| Address::new(host, port));
        let seeds: Vec<Address> = seeds.iter().map(read).collect::<Option<_>>().ok_or_else(no_seed)?;
        let client = Self::start_cluster(client_id(&*world), seeds, connector, world, options).await?;
        client.engine().topology.check_lanes().map(|()| label::keep(client))
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

    /// Returns the options in force.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.0.engine().options
    }

    /// Returns this client's id, a UUID of version 8. The text of every owner of this client begins with the id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.0.engine().id
    }

    /// Returns a new owner, for re-entry: acquires with the same owner re-enter the lock.
    #[must_use]
    pub fn owner(&self) -> Owner {
        self.0.engine().owner()
    }

    /// Returns what this client holds and waits for now.
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

    /// Renews at once every lock without an explicit lease. The scheduler does the same each time a third of the
    /// watchdog's lease has passed.
    ///
    /// # Cost
    ///
    /// One command per [`Options::watchdog_batch`] locks, all in flight together.
    ///
    /// # Cancel safety
    ///
    /// Commands that were sent take effect.
    ///
    /// # Errors
    ///
    /// None. The result counts locks that could not be renewed; their renewal is retried.
    pub async fn renew_now(&self) -> Renewed {
        let engine = Arc::clone(self.0.engine());
        let round = self.0.engine().home().run(async move { Ok(renewal::round(&engine, Which::All).await) }).await;
        // An error means that the client's runtime has ended, so nothing was renewed.
        let round: renewal::Round = round.unwrap_or_else(|_: Error| renewal::Round {
            failed: self.0.engine().holds.len(),
            ..renewal::Round::default()
        });
        Renewed { renewed: round.renewed, failed: round.failed, lost: round.lost }
    }

    /// Shuts down the client, for example when a service receives SIGTERM.
    ///
    /// 1. New and waiting acquires fail at once with [`Error::Closed`]. An acquire whose command is in flight ends
    ///    with the reply, or after one [`command_timeout`](crate::Options::command_timeout).
    /// 2. Users have the time `within` to release their guards. Meanwhile guards are renewed and can be extended, and
    ///    the state of locks can be read. A [downgrade](crate::Guard::downgrade) fails like a new acquire. This step
    ///    ends early once no guard is held.
    /// 3. Locks that are still held are released, and their guards report [`Error::Closed`]. Renewals stop.
    /// 4. Releases and clean-ups in flight have the rest of `within`, or one
    ///    [`command_timeout`](crate::Options::command_timeout) if that is longer. Then connections and tasks end.
    ///
    /// A shutdown takes at most `within` plus one `command_timeout`. A zero `within` releases all locks at once.
    ///
    /// # Cost
    ///
    /// One command per held lock.
    ///
    /// # Cancel safety
    ///
    /// Once begun, the shutdown is completed in the background.
    ///
    /// # Errors
    ///
    /// - [`Error::Timeout`]: the time was too short for the releases. Unreleased locks end with their leases;
    ///   connections are closed nevertheless.
    /// - [`Error::Closed`]: the client was shut down before.
    /// - [`Error::RuntimeGone`]: the client's runtime has ended, and nothing was released.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use distlock::{Client, Error};
    /// # async fn job() {}
    /// # #[cfg(unix)]
    /// # async fn example(client: Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use tokio::signal::unix::{SignalKind, signal};
    ///
    /// let mut terminate = signal(SignalKind::terminate())?; // before the first lock
    /// let worker = tokio::spawn({
    ///     let lock = client.reentrant("orders");
    ///     async move {
    ///         loop {
    ///             match lock.lock().await {
    ///                 Ok(guard) => drop(guard.run(job()).await),
    ///                 Err(Error::Closed) => return,
    ///                 Err(error) => {
    ///                     eprintln!("{error}");
    ///                     tokio::time::sleep(Duration::from_secs(1)).await;
    ///                 }
    ///             }
    ///         }
    ///     }
    /// });
    ///
    /// terminate.recv().await;
    /// // The job under way has 20 s; waiters for the lock fail at once.
    /// let released = client.shutdown(Duration::from_secs(20)).await;
    /// worker.await?;
    /// released?;
    /// # Ok(())
    /// # }
    /// ```
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

/// Counts of what a client holds and waits for, from [`Client::stats`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Locks that are held, or whose release is in flight.
    pub holds: usize,
    /// Waiting acquires.
    pub waiting: usize,
    /// Names of locks that tasks of this client wait for or may hand over, or whose messages the client receives.
    pub names: usize,
    /// Commands and clean-ups in flight.
    pub under_way: usize,
}

/// Outcome of a round of renewals, from [`Client::renew_now`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Renewed {
    /// Locks whose lease was restarted.
    pub renewed: usize,
    /// Locks that could not be renewed. Their renewal is retried until their lease ends.
    pub failed: usize,
    /// Guards whose lock turned out to be lost.
    pub lost: usize,
}
