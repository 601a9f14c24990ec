//! RedLock: one lock over independent servers, held by the owner that holds most of them.
//!
//! This is Antirez's algorithm, as in Redisson's `RedissonRedLock`, with all servers asked at the same time. Servers
//! are *independent* if no event at one of them destroys data of another: none is a replica of another, and no two
//! share a host.
//!
//! # What is promised
//!
//! - **Held**: the lock counts as held while the leases on a majority of the servers run, by the local clock. Each
//!   lease counts from the moment before its command is sent, less 1 % and 2 ms. If the grants of a majority arrive
//!   after these leases have ended, the lock is not held, and the grants are released on every server, even where no
//!   answer came.
//! - **Failures**: fewer than half of the servers may be down, paused or cut off. A failed server costs no time: nobody
//!   waits for its timeout. If more servers fail, an acquire returns [`Error::NoQuorum`] within its wait.
//! - **Loss**: the watchdog renews on each server separately. [`Guard::lost`] completes when leases on fewer than a
//!   majority of the servers still run. The remaining grants are released at that moment, because they would only block
//!   others.
//! - **Release by owner**: [`release(&owner)`](DistLock::release) releases one hold on every server. If a server missed
//!   the acquire of that hold, for example because the server was cut off, another hold of the owner may be released
//!   there. The guard of that other hold learns of this at its next renewal.
//! - **One holder**: two holders at a time are impossible *while any two majorities share a server that kept its
//!   data and its clock*.
//!
//! A server loses data if it restarts without its data file, restarts with a file that lacks the last second, or is
//! replaced by a promoted replica. If that happens within a holder's lease, the server may grant the lock to another
//! owner. The first holder learns of this at its next renewal, at most a third of the watchdog lease later. So use
//! `appendfsync always`, or keep a server that has lost data offline for the longest lease before it restarts. If the
//! clock of a shared server steps forward by more than 1 % of the lease, the lease ends there too early. If the clock
//! steps back, the lock is kept for longer.
//!
//! # No fencing
//!
//! [`Guard::fencing_token`] is an error, even over fenced locks. Each server has its own counter, and two successive
//! holds may share only one server. For example, with five servers, one section may get number 6 from servers 0 to 2.
//! The next section may get number 7 from server 2, but number 6 from servers 3 and 4. So the largest number that a
//! majority has reached is 6 for both sections. Growing numbers would need a second round trip, which writes the
//! largest number to a majority before the number is used. If the storage must be able to refuse late writes, use a
//! [fenced lock](mod@crate::fenced) on one server, and accept the risk that this server loses data.
//!
//! # Wire format
//!
//! On every server the wire format is that of the inner flavour. Each server sees another owner (the last byte of the
//! uuid differs), so that a server with two addresses never counts as two servers. This lock and Redisson's
//! `RedissonRedLock` over the same servers and names exclude each other.

use std::collections::HashMap;
use std::fmt;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;

use crate::acquire::Acquire;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::flavour::Flavour;
use crate::group::{self, common, parts};
use crate::guard::{Guard, enough, released, renamed};
use crate::lock::{DistLock, Inside, Sealed};
use crate::owner::{Owner, moved};
use crate::runtime::home;
use crate::runtime::standstill::within;
use crate::state::{Released, State};

mod acquire;
mod look;
mod votes;

/// Most servers of one lock.
const MOST: usize = 255;

/// One lock over several independent servers, held by the owner that holds most of them. The [module](self) says
/// what is promised.
///
/// # Cost
///
/// - Acquire and release: one command per server, all at once. They take one round trip to the slowest server of
///   the majority.
/// - Waiting: at the first server where another owner holds the lock, by messages. After 20 to 60 ms, and then about
///   once a second, one command per server (two for a writer) checks whether that server is still the right one.
#[derive(Clone)]
pub struct RedLock {
    name: Arc<str>,
    nodes: Arc<[Arc<dyn DistLock>]>,
    node_timeout: Duration,
    /// Recent results of looks, shared by all waiters on this object and its clones.
    known: Arc<Mutex<look::Sightings>>,
    odd: Option<Error>,
}

impl RedLock {
    /// Returns the reentrant lock of this name over the servers of these clients.
    ///
    /// All users of a lock should list its servers in the same order: a waiter waits at the first server that reported
    /// a holder, and contention is settled there. For servers that may be unreachable, connect with
    /// [`Builder::connect_lazily`](crate::Builder::connect_lazily).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use distlock::{Client, RedLock};
    /// # async fn example() -> distlock::Result<()> {
    /// let mut clients = Vec::new();
    /// for host in ["redis-a", "redis-b", "redis-c"] {
    ///     // A server may be away: two of three are enough.
    ///     clients.push(Client::builder(&format!("redis://{host}")).connect_lazily().await?);
    /// }
    /// let guard = RedLock::new(clients, "orders:42").lock().await?;
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(clients: impl IntoIterator<Item = Client>, name: &str) -> Self {
        Self::over(clients, Flavour::Reentrant, name)
    }

    /// Returns a lock as [`new`](Self::new) does, of any flavour.
    pub fn over(clients: impl IntoIterator<Item = Client>, flavour: Flavour, name: &str) -> Self {
        let nodes = clients.into_iter().map(|client| client.lock(flavour, name)).collect();
        Self::of(name, nodes)
    }

    /// Makes a RedLock of any locks, one per server. `name` is for errors and logs.
    #[must_use]
    pub fn of(name: &str, locks: Vec<Arc<dyn DistLock>>) -> Self {
        let odd = check(name, &locks).err();
        let (name, node_timeout) = (Arc::from(name), Duration::from_millis(500));
        Self { name, nodes: locks.into(), node_timeout, known: Arc::default(), odd }
    }

    /// Sets how long a server may take to answer an attempt before it counts as failed for that attempt. The timeout
    /// costs time only if the other servers do not decide the attempt. Defaults to 500 ms.
    #[must_use]
    pub const fn node_timeout(mut self, timeout: Duration) -> Self {
        self.node_timeout = timeout;
        self
    }

    /// Returns the number of servers that must grant the lock.
    #[must_use]
    pub fn quorum(&self) -> usize {
        self.nodes.len() / 2 + 1
    }

    fn check(&self) -> Result<()> {
        self.odd.clone().map_or(Ok(()), Err)
    }

    /// Sends a request to every server, and waits for at most the node timeout. Most servers must answer.
    async fn each<T: Send + 'static>(
        &self,
        ask: impl Fn(usize, Arc<dyn DistLock>) -> BoxFuture<'static, Result<T>>,
    ) -> Result<Vec<T>> {
        self.check()?;
        let limit = self.node_timeout;
        let all: FuturesUnordered<_> = self
            .nodes
            .iter()
            .enumerate()
            .map(|(at, lock)| {
                let asking = ask(at, Arc::clone(lock));
                let lock = Arc::clone(lock);
                home::run_on(group::home(&self.nodes), async move {
                    let answer = within(limit, asking).await;
                    answer.unwrap_or_else(|| Err(group::unanswered(&[lock])))
                })
            })
            .collect();
        enough(all, self.quorum(), true).await.map_err(|why| match renamed(why, &self.name) {
            why if why.is_retryable() => {
                Error::NoQuorum { name: Arc::clone(&self.name), granted: 0, needed: self.quorum(), why: Arc::new(why) }
            }
            error => error,
        })
    }
}

impl Sealed for RedLock {
    fn inside(&self) -> Inside<'_> {
        Inside::Many(&self.nodes)
    }
}

impl DistLock for RedLock {
    fn name(&self) -> &str {
        &self.name
    }

    fn acquire(&self, how: Acquire) -> BoxFuture<'_, Result<Option<Guard>>> {
        let lock = self.clone();
        home::run_on(group::home(&self.nodes), async move { lock.carry_out(how).await })
    }

    /// Returns who holds most of the servers.
    ///
    /// If no owner holds most servers, but so many servers are held that the rest is no majority, returns all holders
    /// of any server, by their names there. This is how Redisson's holders are found, which have another name on every
    /// server.
    ///
    /// # Cost
    ///
    /// One command per server, all at once. It takes as long as the slowest server, at most the node timeout.
    ///
    /// # Cancel safety
    ///
    /// Only reads.
    ///
    /// # Errors
    ///
    /// [`Error::NoQuorum`] if fewer than a majority of the servers answer. Other errors, which would be the same on
    /// every server, as for [`acquire`](DistLock::acquire).
    fn state(&self) -> BoxFuture<'_, Result<State>> {
        Box::pin(async {
            let needed = self.quorum();
            let states =
                self.each(|at, lock| Box::pin(async move { Ok::<_, Error>((at, lock.state().await?)) })).await?;
            // Converts each holder's text at a server to the owner of the whole lock, if a RedLock of this crate wrote
            // it.
            let whole = |(at, state): &(usize, State)| {
                let holders = state.holders.iter().map(|(holder, count)| (moved(holder, *at), *count)).collect();
                State { holders, remaining: state.remaining }
            };
            let wholes: Vec<_> = states.iter().map(whole).collect();
            let most = common(wholes.clone(), needed);
            let locked = wholes.iter().filter(|state| state.is_locked()).count();
            if most.is_locked() || locked <= self.nodes.len() - needed {
                return Ok(most);
            }
            let remaining = common(wholes.clone(), 1).remaining;
            // A holder found on one server only may or may not be a RedLock of this crate.
            let several = common(wholes.clone(), 2).holders;
            let is_several = |holder: &String| several.iter().any(|(known, _)| known == holder);
            let each = states.into_iter().zip(wholes).flat_map(|((_, state), whole)| {
                let both = state.holders.into_iter().zip(whole.holders);
                both.map(|(there, whole)| if is_several(&whole.0) { whole } else { there }).collect::<Vec<_>>()
            });
            let mut holders: Vec<_> = each.collect();
            holders.sort_unstable();
            holders.dedup();
            Ok(State { holders, remaining })
        })
    }

    /// Frees the lock on every server that can be reached. Most servers must answer. Returns `false` if the lock was
    /// free on all of them. Cost and errors as for [`state`](Self::state).
    ///
    /// # Cancel safety
    ///
    /// Once begun it may take effect, possibly on some servers only.
    fn force_unlock(&self) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async {
            let freed = self.each(|_, lock| Box::pin(async move { lock.force_unlock().await })).await?;
            Ok(freed.contains(&true))
        })
    }

    /// Releases one hold of `owner` on every server that can be reached. Most servers must answer. The
    /// [module](self) says what happens at a server that missed the acquire.
    ///
    /// # Cost
    ///
    /// One command per server, all servers at once. Two if the owner has several holds, or was given to the acquire.
    ///
    /// # Cancel safety
    ///
    /// Once begun it is completed.
    ///
    /// # Errors
    ///
    /// [`Error::NotHeld`] if too few servers had a hold of this owner; otherwise as [`state`](Self::state).
    fn release<'a>(&'a self, owner: &'a Owner) -> BoxFuture<'a, Result<Released>> {
        Box::pin(async {
            owner.reveal();
            let each = self
                .each(|at, lock| {
                    let owner = owner.at(at);
                    Box::pin(async move { lock.release(&owner).await })
                })
                .await?;
            Ok(released(&each, self.nodes.len(), self.quorum()))
        })
    }
}

impl fmt::Debug for RedLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedLock").field("name", &self.name).field("nodes", &self.nodes.len()).finish_non_exhaustive()
    }
}

/// Refuses lists that cannot form a majority of independent servers.
fn check(name: &str, nodes: &[Arc<dyn DistLock>]) -> Result<()> {
    if nodes.is_empty() || nodes.len() > MOST {
        return Err(Error::config(format!("a RedLock over {} servers: 1 to {MOST} are allowed", nodes.len())));
    }
    // A node may itself be a group, of one server or more.
    let mut places = HashMap::new();
    for (at, lock) in nodes.iter().enumerate() {
        for part in parts(slice::from_ref(lock)) {
            let server = part.client.engine().topology.identity().to_owned();
            if *places.entry(server.clone()).or_insert(at) != at {
                return Err(Error::config(format!(
                    "the RedLock {name:?} names the server {server} twice: its servers have to be independent"
                )));
            }
        }
    }
    Ok(())
}
