//! Locks of any flavour and permits with a total of one, behind the calls that both have.

use std::sync::Arc;
use std::time::Duration;

use distlock::{Acquire, DistLock, Error, Guard, PermitGuard, Permits, Released, Result};
use futures::FutureExt as _;
use futures::future::BoxFuture;

/// A lock, or permits with a total of one.
#[derive(Clone, Debug)]
pub enum Mutex {
    Lock(Arc<dyn DistLock>),
    Permits(Permits),
}

/// The guard of a [`Mutex`].
#[derive(Debug)]
pub enum Held {
    Lock(Guard),
    Permit(PermitGuard),
}

impl Mutex {
    pub fn name(&self) -> &str {
        match self {
            Self::Lock(lock) => lock.name(),
            Self::Permits(permits) => permits.name(),
        }
    }

    pub fn acquire(&self, how: Acquire) -> BoxFuture<'_, Result<Option<Held>>> {
        Box::pin(async move {
            Ok(match self {
                Self::Lock(lock) => lock.acquire(how).await?.map(Held::Lock),
                Self::Permits(permits) => permits.acquire_with(1, how).await?.map(Held::Permit),
            })
        })
    }

    pub fn lock(&self) -> BoxFuture<'_, Result<Held>> {
        Box::pin(async move {
            Ok(match self {
                Self::Lock(lock) => Held::Lock(lock.lock().await?),
                Self::Permits(permits) => Held::Permit(permits.acquire(1).await?),
            })
        })
    }

    pub fn try_lock(&self) -> BoxFuture<'_, Result<Option<Held>>> {
        Box::pin(async move {
            Ok(match self {
                Self::Lock(lock) => lock.try_lock().await?.map(Held::Lock),
                Self::Permits(permits) => permits.try_acquire(1).await?.map(Held::Permit),
            })
        })
    }

    pub fn lock_for(&self, wait: Duration) -> BoxFuture<'_, Result<Option<Held>>> {
        Box::pin(async move {
            Ok(match self {
                Self::Lock(lock) => lock.lock_for(wait).await?.map(Held::Lock),
                Self::Permits(permits) => permits.acquire_for(1, wait).await?.map(Held::Permit),
            })
        })
    }

    pub fn lock_leased(&self, lease: Duration) -> BoxFuture<'_, Result<Held>> {
        Box::pin(async move {
            match self {
                Self::Lock(lock) => lock.lock_leased(lease).await.map(Held::Lock),
                Self::Permits(_) => self.acquire(Acquire::new().lease(lease)).await?.ok_or(Error::Closed),
            }
        })
    }

    /// True if anybody holds the mutex.
    pub async fn is_locked(&self) -> Result<bool> {
        match self {
            Self::Lock(lock) => lock.is_locked().await,
            Self::Permits(permits) => Ok(permits.counts().await?.acquired > 0),
        }
    }

    /// True if the server lists the hold of this guard.
    pub async fn is_held_by(&self, guard: &Held) -> Result<bool> {
        match (self, guard) {
            (Self::Lock(lock), Held::Lock(guard)) => lock.is_held_by(guard.owner()).await,
            (Self::Permits(permits), Held::Permit(guard)) => {
                let ids = guard.ids();
                Ok(permits.holders().await?.iter().any(|held| ids.contains(&held.id)))
            }
            _ => panic!("{guard:?} is no guard of {self:?}"),
        }
    }

    /// The time until the hold ends. `None` if nobody holds the mutex, or if the hold has no end.
    pub async fn remaining_ttl(&self) -> Result<Option<Duration>> {
        match self {
            Self::Lock(lock) => lock.remaining_ttl().await,
            Self::Permits(permits) => Ok(permits.holders().await?.first().and_then(|held| held.remaining)),
        }
    }

    /// Ends the hold although its guard lives: a forced release of a lock, or the deletion of the permits. Returns false
    /// if there was nothing to end.
    pub async fn take_away(&self) -> Result<bool> {
        match self {
            Self::Lock(lock) => lock.force_unlock().await,
            Self::Permits(permits) => permits.delete().await,
        }
    }
}

impl Held {
    pub fn name(&self) -> &str {
        match self {
            Self::Lock(guard) => guard.name(),
            Self::Permit(guard) => guard.name(),
        }
    }

    pub fn is_held(&self) -> bool {
        match self {
            Self::Lock(guard) => guard.is_held(),
            Self::Permit(guard) => guard.is_held(),
        }
    }

    pub fn remaining(&self) -> Duration {
        match self {
            Self::Lock(guard) => guard.remaining(),
            Self::Permit(guard) => guard.remaining(),
        }
    }

    pub fn lost(&self) -> BoxFuture<'static, Error> {
        match self {
            Self::Lock(guard) => guard.lost().boxed(),
            Self::Permit(guard) => guard.lost().boxed(),
        }
    }

    pub fn expiring(&self) -> BoxFuture<'static, ()> {
        match self {
            Self::Lock(guard) => guard.expiring().boxed(),
            Self::Permit(guard) => guard.expiring().boxed(),
        }
    }

    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output> {
        match self {
            Self::Lock(guard) => guard.run(work).await,
            Self::Permit(guard) => guard.run(work).await,
        }
    }

    pub async fn extend(&self, lease: Duration) -> Result<()> {
        match self {
            Self::Lock(guard) => guard.extend(lease).await,
            Self::Permit(guard) => guard.extend(lease).await,
        }
    }

    /// Releases the hold. The release of the only permit leaves the mutex free.
    pub async fn unlock(self) -> Result<Released> {
        match self {
            Self::Lock(guard) => guard.unlock().await,
            Self::Permit(guard) => guard.release().await.map(|()| Released::Free),
        }
    }
}
