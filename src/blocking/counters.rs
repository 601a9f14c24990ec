//! Permits, semaphores, latches and barriers.

use std::time::Duration;

use super::{Client, PermitGuard};
use crate::acquire::Acquire;
use crate::error::{Error, Result};
use crate::{BarrierWait, PermitCounts};

/// Declares an object over its async counterpart.
macro_rules! objects {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name {
            inner: crate::$name,
            client: Client,
        }

        impl $name {
            pub(super) fn new(inner: crate::$name, client: &Client) -> Self {
                Self { inner, client: client.clone() }
            }

            /// Returns the name, without the client's prefix.
            #[must_use]
            pub fn name(&self) -> &str {
                self.inner.name()
            }

            /// Returns the async object, for calls by [`Client::block_on`].
            #[must_use]
            pub const fn as_async(&self) -> &crate::$name {
                &self.inner
            }
        }
    )*};
}

objects! {
    /// A limited number of permits. See [`crate::Permits`]. Cheap to clone.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn example(client: distlock::blocking::Client) -> distlock::Result<()> {
    /// let gate = client.permits("converter");
    /// gate.try_set_permits(4)?; // no effect if the number is set
    /// let guard = gate.acquire(1)?; // waits; renewed in the background while the guard lives
    /// guard.release()?;
    /// # Ok(())
    /// # }
    /// ```
    Permits;

    /// A number of permits without holders. See [`crate::Semaphore`]. Cheap to clone.
    Semaphore;

    /// A count that threads wait for. See [`crate::Latch`]. Cheap to clone.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn example(client: distlock::blocking::Client) -> distlock::Result<()> {
    /// let imported = client.latch("import:2026-11-29");
    /// imported.try_set(3)?; // three parts
    /// imported.count_down(1)?; // by each part, in any process
    /// imported.wait()?; // until all three parts are done
    /// # Ok(())
    /// # }
    /// ```
    Latch;

    /// A meeting point of n parties. See [`crate::Barrier`]. Cheap to clone.
    Barrier;
}

impl Permits {
    /// Returns the same permits with fair order. See [`crate::Permits::fair`].
    #[must_use]
    pub fn fair(self) -> Self {
        Self { inner: self.inner.fair(), client: self.client }
    }

    /// Acquires `n` permits, all or none. Waits until they are free. See [`crate::Permits::acquire`].
    ///
    /// # Errors
    ///
    /// As for [`acquire_with`](Self::acquire_with).
    pub fn acquire(&self, n: u32) -> Result<PermitGuard> {
        self.acquire_with(n, Acquire::new())?.ok_or(Error::Closed)
    }

    /// Acquires `n` permits if they are free now. See [`crate::Permits::try_acquire`].
    ///
    /// # Errors
    ///
    /// As for [`acquire_with`](Self::acquire_with).
    pub fn try_acquire(&self, n: u32) -> Result<Option<PermitGuard>> {
        self.acquire_with(n, Acquire::new().wait(Duration::ZERO))
    }

    /// Acquires `n` permits, and waits for at most `wait`. See [`crate::Permits::acquire_for`].
    ///
    /// # Errors
    ///
    /// As for [`acquire_with`](Self::acquire_with).
    pub fn acquire_for(&self, n: u32, wait: Duration) -> Result<Option<PermitGuard>> {
        self.acquire_with(n, Acquire::new().wait(wait))
    }

    /// Acquires `n` permits with a wait and a lease of the caller's choice. See [`crate::Permits::acquire_with`].
    ///
    /// # Errors
    ///
    /// As for [`crate::Permits::acquire_with`], and [`Error::Config`]
    /// [inside a runtime](crate::blocking#not-inside-a-runtime).
    pub fn acquire_with(&self, n: u32, how: Acquire) -> Result<Option<PermitGuard>> {
        let guard = self.client.block_on(self.inner.acquire_with(n, how))?;
        Ok(guard.map(|guard| PermitGuard::new(guard, &self.client)))
    }

    calls! {
        /// Sets the number of permits if none is set. See [`crate::Permits::try_set_permits`].
        try_set_permits(n: u32) -> bool;
        /// Returns how many permits are free and how many are held. See [`crate::Permits::counts`].
        counts() -> PermitCounts;
    }
}

impl Semaphore {
    calls! {
        /// Sets the number of free permits if none is set. See [`crate::Semaphore::try_set_permits`].
        try_set_permits(n: u32) -> bool;
        /// Takes `n` permits, all or none. Waits until they are free. See [`crate::Semaphore::acquire`].
        acquire(n: u32) -> ();
        /// Takes `n` permits if they are free now. See [`crate::Semaphore::try_acquire`].
        try_acquire(n: u32) -> bool;
        /// Takes `n` permits, and waits for at most `wait`. See [`crate::Semaphore::acquire_for`].
        acquire_for(n: u32, wait: Duration) -> bool;
        /// Returns `n` permits and wakes waiters. See [`crate::Semaphore::release`].
        release(n: u32) -> ();
        /// Returns the number of free permits. See [`crate::Semaphore::available`].
        available() -> i64;
    }
}

impl Latch {
    calls! {
        /// Sets the count if none is set. See [`crate::Latch::try_set`].
        try_set(n: u32) -> bool;
        /// Counts down by `k`, and returns the count that is left. See [`crate::Latch::count_down`].
        count_down(k: u32) -> u64;
        /// Returns the count. See [`crate::Latch::count`].
        count() -> u64;
        /// Waits until the count is zero. See [`crate::Latch::wait`].
        wait() -> ();
        /// Waits until the count is zero, for at most `wait`. See [`crate::Latch::wait_for`].
        wait_for(wait: Duration) -> bool;
    }
}

impl Barrier {
    calls! {
        /// Arrives, and waits until all parties have arrived. See [`crate::Barrier::wait`].
        wait() -> BarrierWait;
        /// Arrives, and waits for at most `wait`. See [`crate::Barrier::wait_for`].
        wait_for(wait: Duration) -> Option<BarrierWait>;
    }
}
