//! RedLock: one lock over independent servers, held by who holds most of them.
//!
//! Antirez's algorithm, as Redisson's `RedissonRedLock`, with every server asked at the same time. A server is
//! *independent* when nothing that happens to one takes data from another: no replica of another, not on the same host.
//!
//! # What is promised
//!
//! - It is held while most of its servers' leases run, by the local clock: each lease is counted from before its command was
//!   sent, less 1 % and 2 ms. A majority that came too slowly for that is none, and is given back on every server, those that
//!   never answered included.
//! - Servers may be down, paused or cut off, fewer than half of them: they cost nothing but their own timeouts, off the
//!   caller's path. With more, an acquire ends with [`Error::NoQuorum`] within its wait.
//! - The watchdog renews on every server by itself. [`Guard::lost`] tells when no majority can be proven any more; what is
//!   left of the votes is given back at that moment, whatever becomes of the guard: it would only be in the way of others.
//! - Two holders at a time are impossible *as long as any two majorities share a server that kept its data and its clock*. A
//!   server that loses the lock within the lease (it restarted without its file, or with a file that lacks the last second; a
//!   replica was promoted) may give it to another, and the first holder finds out at its next renewal, a third of the watchdog
//!   later at the most. So: `appendfsync always`, or keep a server that has lost data away for the longest lease before it
//!   comes back. A clock that steps forward by more than 1 % of the lease on a shared server ends the lease there too early;
//!   one that steps back keeps the lock for longer. `tests/redlock` shows all of these.
//!
//! - [`release(&owner)`](DistLock::release) gives one hold back on every server. One whose vote for the hold that was meant is
//!   missing (it was cut off when that was taken) gives back another hold of that owner there, if it has one: whoever relies on
//!   that finds out at its next renewal.
//!
//! # No fencing
//!
//! [`Guard::token`] is `None`, also over fenced locks. Each server counts for itself, and holds that follow one another need
//! have only one server in common: with five servers, after sections numbered 6 on servers 0 to 2 and 6 on 2 to 4, the largest
//! number that a majority knows can be the same for two sections. Growing numbers would take a second round trip that writes
//! the largest one to a majority before it is used. What a storage has to be able to refuse belongs under a
//! [fenced lock](mod@crate::fenced) on one server, whose loss of data is then the risk.
//!
//! # Wire format
//!
//! On every server that of the inner flavour; each server sees an owner of its own (the last byte of its uuid differs), so that
//! one server under two addresses is never counted twice. Redisson's `RedissonRedLock` over the same servers and names and
//! this one keep each other out.

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
use crate::group::{self, common, enough, parts, released, renamed};
use crate::guard::Guard;
use crate::lock::DistLock;
use crate::owner::{Owner, moved};
use crate::runtime::home;
use crate::runtime::standstill::within;
use crate::state::{Released, State};

mod acquire;
mod look;
mod votes;

/// The most servers that one lock can be over.
const MOST: usize = 255;

/// One lock over several independent servers: held by who holds most of them. See the [module](self) for what is promised.
///
/// *Cost*: one command for each server and acquire, and one for each release, all at once: one round trip to the slowest of
/// the majority. Waiting: at the first server that somebody else holds, by messages; one command for each server (two for a
/// writer) looks after 20 to 60 ms, and then about once a second, whether that is still right.
#[derive(Clone)]
pub struct RedLock {
    name: Arc<str>,
    nodes: Arc<[Arc<dyn DistLock>]>,
    node_timeout: Duration,
    /// What looks have found out of late, for all who wait by this object or its clones.
    known: Arc<Mutex<look::Sightings>>,
    odd: Option<Error>,
}

impl RedLock {
    /// The reentrant lock of this name over the servers of these clients. All users of a lock should name its servers in the
    /// same order: who waits does so at the first of those that it heard to be held, and contention is settled there.
    ///
    /// Connect with [`Builder::connect_lazily`](crate::Builder::connect_lazily) to servers that may be away.
    pub fn new(clients: impl IntoIterator<Item = Client>, name: &str) -> Self {
        Self::over(clients, Flavour::Reentrant, name)
    }

    /// As [`new`](Self::new), of any flavour.
    pub fn over(clients: impl IntoIterator<Item = Client>, flavour: Flavour, name: &str) -> Self {
        let nodes = clients.into_iter().map(|client| client.lock(flavour, name)).collect();
        Self::of(name, nodes)
    }

    /// A RedLock of any locks, one a server. `name` is for errors and logs.
    #[must_use]
    pub fn of(name: &str, locks: Vec<Arc<dyn DistLock>>) -> Self {
        let odd = check(name, &locks).err();
        let (name, node_timeout) = (Arc::from(name), Duration::from_millis(500));
        Self { name, nodes: locks.into(), node_timeout, known: Arc::default(), odd }
    }

    /// How long a server may take to answer an attempt before it counts as away for that attempt. Matters only where the
    /// others do not decide it: when fewer than half are away it costs nobody anything. Defaults to 500 ms.
    #[must_use]
    pub const fn node_timeout(mut self, timeout: Duration) -> Self {
        self.node_timeout = timeout;
        self
    }

    /// How many servers have to grant it.
    #[must_use]
    pub fn quorum(&self) -> usize {
        self.nodes.len() / 2 + 1
    }

    /// Its locks, one a server.
    pub(crate) fn nodes(&self) -> &[Arc<dyn DistLock>] {
        &self.nodes
    }

    fn check(&self) -> Result<()> {
        self.odd.clone().map_or(Ok(()), Err)
    }

    /// Asks every server, and waits for each as long as one may take. Most of them have to answer.
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

impl DistLock for RedLock {
    fn name(&self) -> &str {
        &self.name
    }

    fn acquire(&self, how: Acquire) -> BoxFuture<'_, Result<Option<Guard>>> {
        let lock = self.clone();
        home::run_on(group::home(&self.nodes), async move { lock.carry_out(how).await })
    }

    /// Who holds most of the servers. Where nobody does, and yet nobody could (Redisson's holders have another name on every
    /// server), all who hold any, by the names that they have there.
    ///
    /// *Cost*: one command for each server, all at once; as long as the slowest of them takes, the node timeout at the most.
    /// *Cancel safety*: reads only. *Errors*: [`Error::NoQuorum`] where fewer than most of them answer, and what would be the same
    /// on every server, as [`acquire`](DistLock::acquire).
    fn state(&self) -> BoxFuture<'_, Result<State>> {
        Box::pin(async {
            let needed = self.quorum();
            let states =
                self.each(|at, lock| Box::pin(async move { Ok::<_, Error>((at, lock.state().await?)) })).await?;
            // As owners of the whole, which those are that hold as a RedLock of this crate.
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
            // Of a name that stands on one server nobody knows whether it is that of a whole.
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

    /// Frees it on every server that can be reached, most of which have to be; `false` when it was free on all of these.
    ///
    /// *Cost*, *errors*: as [`state`](Self::state). *Cancel safety*: once begun it may take effect, on some of them too.
    fn force_unlock(&self) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async {
            let freed = self.each(|_, lock| Box::pin(async move { lock.force_unlock().await })).await?;
            Ok(freed.contains(&true))
        })
    }

    /// Gives back one hold of `owner` on every server that can be reached, most of which have to be. See the
    /// [module](self) for what that means where one of them missed the acquire.
    ///
    /// *Cost*: for each server one command, or two where the owner has several holds or was given, all servers at once. *Cancel
    /// safety*: once begun it is carried out. *Errors*: [`Error::NotHeld`] where too few servers had a hold of this owner, and
    /// those of [`state`](Self::state).
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

/// Refuses what cannot be a majority of independent servers.
fn check(name: &str, nodes: &[Arc<dyn DistLock>]) -> Result<()> {
    if nodes.is_empty() || nodes.len() > MOST {
        return Err(Error::config(format!("a RedLock over {} servers: 1 to {MOST} are allowed", nodes.len())));
    }
    // Each of them may be made of several locks, of one server or more.
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
