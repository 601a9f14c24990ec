//! Locks of all flavours.

use std::sync::Arc;
use std::time::Duration;

use super::{Client, Guard};
use crate::acquire::Acquire;
use crate::error::{Error, Result};
use crate::lock::DistLock;
use crate::owner::Owner;
use crate::state::{Released, State};

/// A lock of any flavour. [`DistLock`] describes the methods. Cheap to clone.
///
/// The lock is held while the [guard](Guard) lives, so bind it: `let guard = lock.lock()?;`, not `let _ = ..`.
///
/// # Examples
///
/// ```no_run
/// # use std::time::Duration;
/// # use distlock::Acquire;
/// # fn example(client: distlock::blocking::Client) -> distlock::Result<()> {
/// let lock = client.fair("orders:42");
/// let how = Acquire::new().wait(Duration::from_secs(5)).lease(Duration::from_secs(30));
/// if let Some(guard) = lock.acquire(how)? {
///     guard.unlock()?;
/// } // else: busy for 5 s, not an error
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Lock {
    inner: Arc<dyn DistLock>,
    client: Client,
}

impl Lock {
    pub(super) fn new(inner: Arc<dyn DistLock>, client: &Client) -> Self {
        Self { inner, client: client.clone() }
    }

    /// Returns the name, without the client's prefix.
    #[must_use]
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// Returns the async lock, for calls by [`Client::block_on`].
    #[must_use]
    pub const fn as_async(&self) -> &Arc<dyn DistLock> {
        &self.inner
    }

    /// Acquires the lock as described by `how`. `Ok(None)` means that the wait ended. See [`DistLock::acquire`].
    ///
    /// # Errors
    ///
    /// The errors of [`DistLock::acquire`], and [`Error::Config`]
    /// [inside a runtime](crate::blocking#not-inside-a-runtime).
    pub fn acquire(&self, how: Acquire) -> Result<Option<Guard>> {
        let guard = self.client.block_on(self.inner.acquire(how))?;
        Ok(guard.map(|guard| Guard::new(guard, &self.client)))
    }

    /// Waits until the lock is free, and acquires it. See [`DistLock::lock`].
    ///
    /// # Errors
    ///
    /// As for [`acquire`](Self::acquire).
    pub fn lock(&self) -> Result<Guard> {
        self.acquire(Acquire::new())?.ok_or(Error::Closed)
    }

    /// Acquires the lock if it is free now. See [`DistLock::try_lock`].
    ///
    /// # Errors
    ///
    /// As for [`acquire`](Self::acquire).
    pub fn try_lock(&self) -> Result<Option<Guard>> {
        self.acquire(Acquire::new().wait(Duration::ZERO))
    }

    /// Waits for the lock for at most `wait`. See [`DistLock::lock_for`].
    ///
    /// # Errors
    ///
    /// As for [`acquire`](Self::acquire).
    pub fn lock_for(&self, wait: Duration) -> Result<Option<Guard>> {
        self.acquire(Acquire::new().wait(wait))
    }

    /// Waits for the lock, and holds it for at most `lease`, without renewal. See [`DistLock::lock_leased`].
    ///
    /// # Errors
    ///
    /// As for [`acquire`](Self::acquire).
    pub fn lock_leased(&self, lease: Duration) -> Result<Guard> {
        self.acquire(Acquire::new().lease(lease))?.ok_or(Error::Closed)
    }

    calls! {
        /// Returns who holds the lock, and for how long. See [`DistLock::state`].
        state() -> State;
        /// True if anybody holds the lock. See [`DistLock::is_locked`].
        is_locked() -> bool;
        /// Frees the lock, whoever holds it. Returns false if it was free. See [`DistLock::force_unlock`].
        force_unlock() -> bool;
        /// Asks the holder to finish. Returns false if there is nobody to ask. See [`DistLock::revoke`].
        revoke() -> bool;
        /// Releases a hold of `owner` that has no guard in this process. See [`DistLock::release`].
        release(owner: &Owner) -> Released;
    }
}

/// A lock in two halves: [`read`](Self::read) is shared, [`write`](Self::write) is exclusive. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RwLock {
    inner: crate::RwLock,
    client: Client,
}

impl RwLock {
    pub(super) fn new(inner: crate::RwLock, client: &Client) -> Self {
        Self { inner, client: client.clone() }
    }

    /// Returns the shared half.
    #[must_use]
    pub fn read(&self) -> Lock {
        Lock::new(Arc::new(self.inner.read()), &self.client)
    }

    /// Returns the exclusive half.
    #[must_use]
    pub fn write(&self) -> Lock {
        Lock::new(Arc::new(self.inner.write()), &self.client)
    }
}
