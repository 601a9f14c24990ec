//! The client: connects, and owns one engine. Names no flavour.

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
use crate::transport::node::connect::Endpoint;
use crate::world::World;

mod builder;
mod secure;
mod servers;
#[cfg(all(test, feature = "config"))]
mod told;

pub use builder::Builder;

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
    ///   `unix://[user:password@]/path/to/socket`;
    /// - `redis-cluster://[user:password@]host[:port],host[:port],..`, the cluster that these servers are some of
    ///   ([`guide::clusters`](crate::guide::clusters));
    /// - `redis-sentinel://[user:password@]host[:port],host[:port],../name[/database]`, the primary that these sentinels look after by
    ///   that name ([`guide::sentinel`](crate::guide::sentinel));
    /// - `redis-replicated://[user:password@]host[:port],host[:port],..[/database]`, that of these servers which is the primary.
    ///
    /// The query `?db=3` (or `?database=3`) names the database too, except in a cluster's URL. Any other query is refused, and so is a
    /// fragment. Percent-encode the characters `/`, `?`, `#` and `%` in a login.
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
        let options = options.checked()?;
        options.check_no_sentinels()?;
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
        let options = options.checked()?;
        options.check_no_sentinels()?;
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

    /// Shuts down, as a service does at SIGTERM:
    ///
    /// 1. New and waiting acquires fail at once with [`Error::Closed`]. One whose command is in flight ends with its answer, or after one
    ///    [`command_timeout`](crate::Options::command_timeout).
    /// 2. Users have until `within` to release their guards. Meanwhile guards are renewed and may be extended, and locks may be asked for
    ///    their state. A [downgrade](crate::Guard::downgrade) counts as an acquire. The step ends early once no guard is held.
    /// 3. Locks that are still held are released, and their guards report [`Error::Closed`]. Renewals stop.
    /// 4. Releases and clean-ups in flight have the rest of `within`, or one [`command_timeout`](crate::Options::command_timeout) if that
    ///    is longer. Then connections and tasks end.
    ///
    /// A shutdown takes at most `within` plus one `command_timeout`. A zero `within` releases all locks at once.
    ///
    /// *Cost*: one command a held lock. *Cancel safety*: once begun it is carried through in the background. *Errors*: [`Error::Timeout`]
    /// when the time was too short for the releases: unreleased locks end with their leases, and connections are closed nevertheless.
    /// [`Error::Closed`] when the client was shut down before. [`Error::RuntimeGone`] when the client's runtime has ended: then nothing was
    /// released.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use distlock::{Client, DistLock as _, Error};
    /// # async fn job() {}
    /// # #[cfg(unix)]
    /// # async fn example(client: Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use tokio::signal::unix::{SignalKind, signal};
    ///
    /// let worker = tokio::spawn({
    ///     let lock = client.reentrant("orders");
    ///     async move {
    ///         loop {
    ///             match lock.lock().await {
    ///                 Ok(guard) => drop(guard.run(job()).await),
    ///                 Err(Error::Closed) => return,
    ///                 Err(error) => eprintln!("{error}"),
    ///             }
    ///         }
    ///     }
    /// });
    ///
    /// signal(SignalKind::terminate())?.recv().await;
    /// // The job under way has 20 s; whoever waits for the lock is told at once.
    /// client.shutdown(Duration::from_secs(20)).await?;
    /// worker.await?;
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
