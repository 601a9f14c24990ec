//! The machinery that all flavours share. The engine depends on no particular flavour.
//!
//! [`Engine`] owns the parts of one client: the topology, the waiters ([`registry`]), the holds ([`hold`], [`ledger`]),
//! the reaper (`runtime/reaper.rs`), and three background tasks. The tasks refresh queue entries ([`queue`]), renew
//! leases ([`renewal`]) and detect suspends ([`suspend`]).
//!
//! # Lock order
//!
//! A task that holds one of these locks may take only locks further down this list. Only the async locks 2 and 3 are
//! held across awaits.
//!
//! 1. `LocalQueues` in `striped/local.rs`, then the `waiting` lock of one of its queues. No other lock of this list is
//!    taken under these two.
//! 2. The right to change a channel's subscription ([`channels::Change`]), held until the server has answered.
//! 3. The order of an owner's commands ([`hold::Order`]). A hand-over holds lock 7 already, so it takes the order only
//!    if the order is free.
//! 4. `EndState` in `runtime/home.rs`, which delays the end of the client's runtime. Held while another executor polls
//!    work that began on that runtime.
//! 5. `Queues::entries`
//! 6. `Queues::marked`
//! 7. A table of the registry (`Registry::shards`)
//! 8. `Seat::state`
//! 9. A shard of the table of holds
//! 10. The book of a hold (`Hold::book`). Group guards read books under a lock of their own (`inside` in
//!     `guard/group.rs`).
//!
//! These locks are taken alone: `Queues::after`, the table in `Channels`, `Spares`, `Kick`, a RedLock's `known`,
//! `WARNED` in `guard/unused.rs`, and locks inside of `transport/`. The topology has lock orders of its own
//! (`topology/cluster.rs`, `topology/primary.rs`), and takes no lock of the engine under them.
//!
//! No waker of a caller's task is called under any of these locks except 4, because an executor may poll the task at
//! once. The registry sends its notifications after its locks are released ([`registry::Wakes`]).

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{Notify, OnceCell, watch};

use crate::capabilities::Capabilities;
use crate::config::Options;
use crate::error::{Error, Result};
use crate::owner::Owners;
#[cfg(any(test, feature = "unstable-transport"))]
use crate::owner::client_id;

pub(crate) mod acquire;
pub(crate) mod change;
pub(crate) mod channels;
pub(crate) mod clock;
pub(crate) mod extend;
mod grant;
pub(crate) mod hold;
mod ids;
pub(crate) mod ledger;
mod losses;
pub(crate) mod metrics;
pub(crate) mod once;
pub(crate) mod preflight;
pub(crate) mod protocol;
pub(crate) mod queue;
pub(crate) mod registry;
pub(crate) mod release;
pub(crate) mod renewal;
pub(crate) mod replies;
pub(crate) mod revoke;
mod shutdown;
pub(crate) mod simple;
pub(crate) mod suspend;
pub(crate) mod sync;
#[cfg(test)]
mod tests;
pub(crate) mod wait;

use crate::names::LockName;
use crate::runtime::home::Home;
use crate::runtime::reaper::Reaper;
use crate::runtime::repeated::Repeated;
use crate::runtime::standstill::within;
use crate::topology::{AckRule, MemberListener, Topology};
use crate::transport::coalesce::Coalesced;
use crate::transport::{Arg, Call, Reply, Script, Transport};
use crate::world::Moment;
use acquire::admission::Admission;
use hold::Holds;
use protocol::Protocol;
use queue::Queues;
use registry::Registry;
use renewal::Kick;
pub(crate) use shutdown::Handle;

static TYPE: Script = Script::bare("engine/type", "TYPE");

const SHARDS: usize = 16;

/// The machinery of one client.
pub(crate) struct Engine {
    pub(crate) options: Options,
    pub(crate) topology: Topology,
    pub(crate) registry: Arc<Registry>,
    pub(crate) kick: Arc<Kick>,
    pub(crate) queues: Arc<Queues>,
    /// Limits the waiters' attempts in flight.
    pub(crate) attempts: Arc<Admission>,
    /// Limits the undos in flight.
    pub(crate) undos: Arc<Admission>,
    pub(crate) holds: Holds,
    pub(crate) reaper: Reaper,
    /// The client's uuid. Its version is 8 and Redisson's is 4, so that scripts can tell their owners apart.
    pub(crate) id: Arc<str>,
    /// Prefix of the ids of this client's holds.
    id_prefix: Box<str>,
    owners: Owners,
    /// Owners of group locks (multi, RedLock) whose first lock is this client's. Their client id differs from `id`
    /// after the first 16 digits, because other clients' locks in the group have the same owner.
    group_owners: OnceLock<Owners>,
    /// Tokens of commands that must count exactly once.
    pub(crate) lanes: once::Lanes,
    /// The last number that [`Engine::hold_number`] returned, or 0.
    taken: AtomicU64,
    /// Rate limit for warnings about a lasting fault.
    pub(crate) warnings: Repeated,
    /// Features of the servers, once they have been queried.
    pub(crate) capabilities: OnceCell<Capabilities>,
    /// Set to true when the client closes. Ends all waits for locks.
    closing: watch::Sender<bool>,
    /// True once acquires are refused.
    closed: AtomicBool,
    /// Set to true when a shutdown stops waiting for guards. Ends the background tasks.
    ended: watch::Sender<bool>,
    /// Notified when a guard leaves its book ([`ledger`]) while the client closes.
    left: Notify,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("id", &self.id).field("holds", &self.holds.len()).finish_non_exhaustive()
    }
}

impl Engine {
    /// Starts an engine over one server, on the current runtime.
    #[cfg(any(test, feature = "unstable-transport"))]
    pub(crate) fn start(options: Options, server: Arc<dyn Transport>) -> Arc<Self> {
        let id = client_id(&*server.world());
        Self::start_as(id, options, server)
    }

    pub(crate) fn start_as(id: String, options: Options, server: Arc<dyn Transport>) -> Arc<Self> {
        let (world, reaper) = (server.world(), Reaper::start());
        let server = if options.batching { Coalesced::over(server, &options, reaper.clone()) } else { server };
        let topology = Topology::single(server, world, AckRule::single(&options));
        Self::start_over(id, topology, options, reaper)
    }

    pub(crate) fn start_over(id: String, topology: Topology, options: Options, reaper: Reaper) -> Arc<Self> {
        self::metrics::announce();
        let kick = Arc::new(Kick::default());
        let ((closing, closed), (ended, end)) = (watch::channel(false), watch::channel(false));
        let registry = Registry::new(&options, topology.clone(), reaper.clone(), Arc::clone(&kick), closed);
        let registry = Arc::new(registry.ending(end.clone()));
        let listener: Arc<dyn MemberListener> = Arc::<Registry>::clone(&registry);
        topology.listen(&Arc::downgrade(&listener));
        let watchdog = options.watchdog;
        let queues = Arc::new(Queues::default());
        let [attempts, undos] = [(); 2].map(|()| Admission::new(options.pool_size));
        let engine = Arc::new(Self {
            attempts,
            undos,
            options,
            topology,
            registry,
            kick: Arc::clone(&kick),
            queues: Arc::clone(&queues),
            holds: Holds::new(SHARDS),
            reaper,
            id_prefix: format!("{}{}.", &id[..8], &id[9..13]).into(),
            owners: Owners::new(&id),
            group_owners: OnceLock::new(),
            id: Arc::from(id),
            lanes: once::Lanes::default(),
            taken: AtomicU64::new(0),
            warnings: Repeated::default(),
            capabilities: OnceCell::new(),
            closing,
            closed: AtomicBool::new(false),
            ended,
            left: Notify::new(),
        });
        tokio::spawn(queue::run(Arc::downgrade(&engine), queues, end.clone()));
        tokio::spawn(suspend::run(Arc::downgrade(&engine), end.clone()));
        tokio::spawn(renewal::run(Arc::downgrade(&engine), kick, end, watchdog));
        engine
    }

    pub(crate) fn now(&self) -> Moment {
        self.topology.now()
    }

    /// The runtime that this client lives on.
    pub(crate) fn home(&self) -> &Home {
        self.reaper.home()
    }

    /// Sends a read-only command to the server of a lock.
    pub(crate) async fn ask(self: &Arc<Self>, name: &Arc<LockName>, call: Call) -> Result<Reply> {
        self.check(name)?;
        let (engine, name) = (Arc::clone(self), Arc::clone(name));
        self.home().run(async move { engine.run(&name, call).await }).await
    }

    /// Sends a command once and converts any fault to an error.
    pub(crate) async fn run(&self, name: &LockName, call: Call) -> Result<Reply> {
        self.topology.run(name, call).await.map_err(|fault| Error::of_fault(&fault, &name.as_written))
    }

    /// Adds the type of the lock's key to [`Error::WrongType`]; returns any other error unchanged.
    ///
    /// # Cost
    ///
    /// One command for [`Error::WrongType`], none otherwise.
    pub(crate) async fn with_type(&self, error: Error, protocol: &dyn Protocol, limit: Duration) -> Error {
        let (name, expected) = (protocol.name(), protocol.nature().key_type());
        let Error::WrongType { name: named, message, .. } = error else { return error };
        let call = Call { script: &TYPE, keys: 1, words: vec![Arg::Text(name.key.clone())] };
        let reply = within(limit, self.topology.run(name, call)).await;
        let found = match &reply {
            Some(Ok(Reply::Text(found))) => Some(String::from_utf8_lossy(found)),
            _ => None,
        };
        // If this key has the expected type, the error is about another key of the lock. `none`: the key is gone by
        // now.
        let found = found.filter(|found| found != expected && found != "none");
        Error::WrongType { name: named, message, found: found.map(Arc::from) }
    }

    /// Completes once `moment` has passed.
    pub(crate) async fn after(&self, moment: Moment) {
        if moment.as_nanos() == 0 {
            // 0: no moment was set.
            return;
        }
        let left = moment.since(self.now());
        // Even a timer of zero takes a millisecond, in which other commands would overtake this command.
        if !left.is_zero() {
            tokio::time::sleep(left).await;
        }
    }

    /// Refuses commands for an invalid name, and after the client has ended. While a shutdown waits for guards, only
    /// acquires are refused, by [`Self::check_open`].
    pub(crate) fn check(&self, name: &LockName) -> Result<()> {
        name.check()?;
        self.topology.check(name)?;
        if *self.ended.borrow() { Err(Error::Closed) } else { Ok(()) }
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Relaxed) { Err(Error::Closed) } else { Ok(()) }
    }

    /// The moment from which a renewed lease counts: `sent`, when the command was sent. With `confirm_primary`, it is
    /// the last confirmation of the primary, if that was earlier.
    pub(crate) fn counted(&self, sent: Moment) -> Moment {
        self.topology.confirmed().map_or(sent, |confirmed| confirmed.min(sent))
    }

    pub(crate) fn closing(&self) -> watch::Receiver<bool> {
        self.closing.subscribe()
    }

    pub(crate) fn ended(&self) -> watch::Receiver<bool> {
        self.ended.subscribe()
    }

    /// Time limit for the retries of an operation.
    pub(crate) fn patience(&self) -> Duration {
        let once = self.options.command_timeout.saturating_add(self.options.retry_delay.1);
        once.saturating_mul(self.options.retry_attempts)
    }

    /// The pause before a retry: [`wait::pause`] with the option `retry_delay`, and a tenth of that before the first
    /// retry.
    pub(crate) fn pause(&self, failures: u32) -> Duration {
        let pause = wait::pause(&**self.topology.world(), self.options.retry_delay, failures);
        if failures == 0 { pause / 10 } else { pause }
    }

    pub(crate) fn jitter(&self, most: Duration) -> Duration {
        self.topology.world().jitter(most)
    }

    /// A random number from 0 to 1.
    pub(crate) fn random(&self) -> f64 {
        self.topology.world().fraction()
    }
}
