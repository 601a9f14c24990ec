//! The multi lock: several locks as one, all or none. Redisson's `RedissonMultiLock`.
//!
//! The members may be any locks, of one client or several, including multi locks and [RedLocks](crate::RedLock). The
//! multi lock is held while all members are held. If a member is lost, the other members are released in the background
//! at once. A release releases every member, whatever the result of each.
//!
//! # How it is acquired
//!
//! 1. All members are requested at the same time. Simple members (reentrant, spin) of one client at one server, or in
//!    one slot of a cluster, are acquired by one script, all or none. More than 250 simple members need several
//!    scripts, which are sent one after another in the order of the keys.
//! 2. All callers use the same order of the members, by key, however they list the locks. If some members are busy, the
//!    members before the first busy one in this order stay held, and the rest are released. So two callers with
//!    reversed lists never wait for each other.
//! 3. The acquire waits for the busy member, then requests the members that are not held.
//!
//! Redisson's multi lock, and a client that uses another address of a server, may use another order. Therefore a
//! waiting multi lock keeps members for at most 0.3 to 0.6 s. Then it releases all of them, and waits without holding
//! any. Use one address per server: a lock that is listed by two addresses counts as two locks.
//!
//! # Differences from Redisson
//!
//! - Members have the requested lease from the start. In Redisson, their first lease is twice the wait.
//! - The counter of a fenced member and the queue of a fair member get no expiry.
//! - An unlock does not stop at the first error.
//!
//! # Wire format
//!
//! Each member is acquired and released like a lock outside of a group.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;

use crate::acquire::Acquire;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::group::{self, common, each, part};
use crate::guard::{Guard, released, renamed};
use crate::lock::{DistLock, Inside, Sealed};
use crate::owner::Owner;
use crate::runtime::home;
use crate::state::{Released, State};

mod acquire;

/// Most members of one multi lock.
const MOST: usize = 65_536;

/// # Multi locks
impl Client {
    /// Returns one lock over the reentrant locks of these names: Redisson's `getMultiLock(..)`. All are acquired,
    /// or none.
    ///
    /// # Cost
    ///
    /// None: nothing is sent until an acquire. Impossible names are refused then.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: distlock::Client) -> distlock::Result<()> {
    /// let both = client.multi(["account:1", "account:2"]);
    /// let guard = both.lock().await?; // both or none, in any order
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn multi(&self, names: impl IntoIterator<Item = impl AsRef<str>>) -> MultiLock {
        let lock = |name: &str| -> Arc<dyn DistLock> { Arc::new(self.reentrant(name)) };
        MultiLock::of(names.into_iter().map(|name| lock(name.as_ref())).collect())
    }
}

/// Several locks as one lock, held while all of them are held. See the [module](self). At most 65 536 locks: an acquire
/// of a longer list returns [`Error::Config`].
///
/// # Cost
///
/// - Acquire, if free: one command for up to 250 simple locks (reentrant, spin) of one client at one server (in a
///   cluster: of one slot). One command for each other lock. All commands are sent at once, except that the commands
///   for more than 250 such simple locks are sent one after another.
/// - Release: one command per lock, many of them sent together.
#[derive(Clone)]
pub struct MultiLock {
    name: Arc<str>,
    /// In the order in which an acquire waits for them.
    locks: Arc<[Arc<dyn DistLock>]>,
    odd: Option<Error>,
}

impl MultiLock {
    /// Combines any locks into one. A lock that is listed twice is acquired once.
    #[must_use]
    pub fn of(locks: Vec<Arc<dyn DistLock>>) -> Self {
        // All callers use one order: by key, then by server, then by flavour.
        let mut locks: Vec<_> = locks.into_iter().map(|lock| (SortKey::of(&lock), lock)).collect();
        locks.sort_by(|(a, _), (b, _)| a.cmp(b));
        // Two groups of one name may be different locks.
        locks.dedup_by(|(a, _), (b, _)| a.flavour.is_some() && a == b);
        let odd = check(&locks).err();
        let locks: Vec<_> = locks.into_iter().map(|(_, lock)| lock).collect();
        let mut name: String = locks.iter().take(3).map(|lock| lock.name()).collect::<Vec<_>>().join("+");
        if locks.len() > 3 {
            name.push_str(&format!("+{} more", locks.len() - 3));
        }
        Self { name: Arc::from(name), locks: locks.into(), odd }
    }

    /// Returns the locks, in the order in which an acquire waits for them.
    #[must_use]
    pub fn locks(&self) -> &[Arc<dyn DistLock>] {
        &self.locks
    }

    fn check(&self) -> Result<()> {
        self.odd.clone().map_or(Ok(()), Err)
    }

    async fn each<T>(&self, ask: impl Fn(Arc<dyn DistLock>) -> BoxFuture<'static, Result<T>>) -> Result<Vec<T>> {
        self.check()?;
        each(&self.locks, ask).await.map_err(|error| renamed(error, &self.name))
    }
}

impl Sealed for MultiLock {
    fn inside(&self) -> Inside<'_> {
        Inside::Many(&self.locks)
    }
}

impl DistLock for MultiLock {
    /// Returns the names of the first three locks, joined by `+`, and the number of the others.
    fn name(&self) -> &str {
        &self.name
    }

    fn acquire(&self, how: Acquire) -> BoxFuture<'_, Result<Option<Guard>>> {
        let lock = self.clone();
        home::run_on(group::home(&self.locks), async move { lock.carry_out(how).await })
    }

    /// Returns who holds all of the locks.
    ///
    /// # Cost
    ///
    /// One command per lock, all at once.
    ///
    /// # Cancel safety
    ///
    /// Only reads.
    ///
    /// # Errors
    ///
    /// As [`acquire`](DistLock::acquire). Every lock must answer.
    fn state(&self) -> BoxFuture<'_, Result<State>> {
        Box::pin(async {
            let states = self.each(|lock| async move { lock.state().await }.boxed()).await?;
            Ok(common(states, self.locks.len()))
        })
    }

    /// Frees every lock, whoever holds it. Returns `false` if all were free.
    ///
    /// # Cost
    ///
    /// One command per lock, all at once.
    ///
    /// # Cancel safety
    ///
    /// Once begun it may take effect, possibly on some of the locks only.
    ///
    /// # Errors
    ///
    /// As [`acquire`](DistLock::acquire). The other locks are freed nevertheless.
    fn force_unlock(&self) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async {
            let freed = self.each(|lock| async move { lock.force_unlock().await }.boxed()).await?;
            Ok(freed.contains(&true))
        })
    }

    /// Releases one hold of `owner` on every lock, whatever the result of each.
    ///
    /// # Cost
    ///
    /// One command per lock, all at once. Two if the owner has several holds, or was given to the acquire.
    ///
    /// # Cancel safety
    ///
    /// Once begun it is completed.
    ///
    /// # Errors
    ///
    /// [`Error::NotHeld`] if one of the locks was not held; otherwise as [`acquire`](DistLock::acquire).
    fn release<'a>(&'a self, owner: &'a Owner) -> BoxFuture<'a, Result<Released>> {
        Box::pin(async {
            owner.reveal();
            let each = self
                .each(|lock| {
                    let owner = owner.clone();
                    async move { lock.release(&owner).await }.boxed()
                })
                .await?;
            Ok(released(&each, self.locks.len(), self.locks.len()))
        })
    }
}

impl fmt::Debug for MultiLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiLock").field("name", &self.name).field("locks", &self.locks.len()).finish_non_exhaustive()
    }
}

/// The key, server and flavour of a lock. Defines the order of locks, and which locks are the same.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SortKey {
    key: Bytes,
    server: String,
    /// None for a group.
    flavour: Option<&'static str>,
}

impl SortKey {
    fn of(lock: &Arc<dyn DistLock>) -> Self {
        match part(lock) {
            Some(part) => {
                let name = part.protocol.name();
                let server = part.client.engine().topology.identity().to_owned();
                Self { key: name.key.clone(), server, flavour: Some(part.protocol.flavour()) }
            }
            None => {
                let key = Bytes::copy_from_slice(lock.name().as_bytes());
                Self { key, server: String::new(), flavour: None }
            }
        }
    }
}

/// Refuses lists that cannot be acquired together.
fn check(locks: &[(SortKey, Arc<dyn DistLock>)]) -> Result<()> {
    if locks.is_empty() {
        return Err(Error::config("a multi lock needs locks: the list is empty"));
    }
    if locks.len() > MOST {
        return Err(Error::config(format!("a multi lock of {} locks: at most {MOST} are allowed", locks.len())));
    }
    for pair in locks.windows(2) {
        let [(a, lock), (b, _)] = pair else { continue };
        if let (Some(one), Some(other)) = (a.flavour, b.flavour)
            && (&a.key, &a.server) == (&b.key, &b.server)
        {
            return Err(Error::config(format!(
                "the multi lock lists {:?} both as {one} and as {other}: it would wait for itself",
                lock.name()
            )));
        }
    }
    locks.iter().filter_map(|(_, lock)| part(lock)).try_for_each(|part| part.protocol.name().check())
}

/// During the wait for another lock, the held locks are kept for at least this time and at most twice this time.
const HOLD: Duration = Duration::from_millis(300);
