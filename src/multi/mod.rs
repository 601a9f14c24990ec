//! The multi lock: several locks as one, all or none. Redisson's `RedissonMultiLock`.
//!
//! Any mix of locks, of one client or of several, others of this kind and [RedLocks](crate::RedLock) included. All are asked
//! for at the same time; what is free on one server and simple (reentrant, spin) is taken by one script, all or nothing, and by several where
//! there are more than 250: one after the other in the order of their keys, so that no script keeps the server's other users
//! waiting for long. What the first of them took is given back when a later one finds a busy lock. Where some are busy, it
//! waits for them one after the other in one order for all callers (by key, whatever order they were listed in), holding only
//! those that come before: two callers with reversed lists cannot wait for one another. Against those who keep to another
//! order (Redisson's multi lock, or two addresses of one server) it does not hold while it waits for longer than half a second
//! or so, then gives all back and begins anew. Name a server by one address: a lock that is listed by two is not known to be one.
//!
//! It is held while all of its members are; once one is lost, the others are given back at once, in the background, whatever
//! becomes of the guard. Giving it back gives back every one, whatever becomes of the others.
//!
//! What Redisson's does and this does not: members have the lease that was asked for from the start, not twice
//! the wait; the counter of a fenced member, and the queue of a fair one, get no end; an unlock does not stop at the first
//! error.
//!
//! # Wire format
//!
//! That of the members, each taken and released as it would be alone.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;

use crate::acquire::Acquire;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::group::{self, common, each, part, released, renamed};
use crate::guard::Guard;
use crate::lock::DistLock;
use crate::owner::Owner;
use crate::runtime::home;
use crate::state::{Released, State};

mod acquire;

/// The most locks that can be held as one.
const MOST: usize = 65_536;

/// # Multi locks
impl Client {
    /// The reentrant locks of these names as one: Redisson's `getMultiLock(..)`. All of them are taken, or none.
    ///
    /// *Cost*: none; nothing is sent until it is acquired. Impossible names are refused then.
    #[must_use]
    pub fn multi(&self, names: impl IntoIterator<Item = impl AsRef<str>>) -> MultiLock {
        let lock = |name: &str| -> Arc<dyn DistLock> { Arc::new(self.reentrant(name)) };
        MultiLock::of(names.into_iter().map(|name| lock(name.as_ref())).collect())
    }
}

/// Several locks as one: held when all of them are. See the [module](self). At most 65 536: a longer list is refused by
/// [`Error::Config`] when it is acquired.
///
/// *Cost*: free, one command for up to 250 simple ones (reentrant, spin) of one client, and one for each other lock, all at
/// once; longer lists, one such command after the other. Releasing is one command for each, many of them sent together.
#[derive(Clone)]
pub struct MultiLock {
    name: Arc<str>,
    /// In the order in which they are waited for.
    locks: Arc<[Arc<dyn DistLock>]>,
    odd: Option<Error>,
}

impl MultiLock {
    /// Any locks as one. Listed twice, a lock is taken once.
    #[must_use]
    pub fn of(locks: Vec<Arc<dyn DistLock>>) -> Self {
        // The order, of the same locks always the same: by key, by server, by flavour.
        let mut locks: Vec<_> = locks.into_iter().map(|lock| (SortKey::of(&lock), lock)).collect();
        locks.sort_by(|(a, _), (b, _)| a.cmp(b));
        // Of a lock of somebody else's making nobody knows whether it is the same.
        locks.dedup_by(|(a, _), (b, _)| a.flavour.is_some() && a == b);
        let odd = check(&locks).err();
        let locks: Vec<_> = locks.into_iter().map(|(_, lock)| lock).collect();
        let mut name: String = locks.iter().take(3).map(|lock| lock.name()).collect::<Vec<_>>().join("+");
        if locks.len() > 3 {
            name.push_str(&format!("+{} more", locks.len() - 3));
        }
        Self { name: Arc::from(name), locks: locks.into(), odd }
    }

    /// The locks, in the order in which they are waited for.
    #[must_use]
    pub fn locks(&self) -> &[Arc<dyn DistLock>] {
        &self.locks
    }

    fn check(&self) -> Result<()> {
        self.odd.clone().map_or(Ok(()), Err)
    }

    /// Asks every lock.
    async fn each<T>(&self, ask: impl Fn(Arc<dyn DistLock>) -> BoxFuture<'static, Result<T>>) -> Result<Vec<T>> {
        self.check()?;
        each(&self.locks, ask).await.map_err(|error| renamed(error, &self.name))
    }
}

impl DistLock for MultiLock {
    /// The names of the first of its locks.
    fn name(&self) -> &str {
        &self.name
    }

    fn acquire(&self, how: Acquire) -> BoxFuture<'_, Result<Option<Guard>>> {
        let lock = self.clone();
        home::run_on(group::home(&self.locks), async move { lock.carry_out(how).await })
    }

    /// Who holds all of them.
    ///
    /// *Cost*: one command for each lock, all at once. *Cancel safety*: reads only. *Errors*: those of the locks, as
    /// [`acquire`](DistLock::acquire): each of them has to answer.
    fn state(&self) -> BoxFuture<'_, Result<State>> {
        Box::pin(async {
            let states = self.each(|lock| async move { lock.state().await }.boxed()).await?;
            Ok(common(states, self.locks.len()))
        })
    }

    /// Frees each of them; `false` when all were free.
    ///
    /// *Cost*: one command for each lock, all at once. *Cancel safety*: once begun it may take effect, on some of them too.
    /// *Errors*: those of the locks, as [`acquire`](DistLock::acquire); the others are freed all the same.
    fn force_unlock(&self) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async {
            let freed = self.each(|lock| async move { lock.force_unlock().await }.boxed()).await?;
            Ok(freed.contains(&true))
        })
    }

    /// Gives back one hold of each of them, whatever becomes of the others.
    ///
    /// *Cost*: for each lock what its own release costs, all at once: one command, or two where the owner has several holds or
    /// was given. *Cancel safety*: once begun it is carried out. *Errors*: [`Error::NotHeld`] where one of them was not held,
    /// and those of [`acquire`](DistLock::acquire).
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

/// Where a lock lives: what makes two of them the same, and their order.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SortKey {
    key: Bytes,
    server: String,
    /// None for one that this crate did not make.
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

/// Refuses what cannot be taken together.
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

/// For how long locks are held while another one is waited for, before all are given back: one to two of this.
const HOLD: Duration = Duration::from_millis(300);
