//! Semaphores: a number of permits that any task may take and any task may return. Redisson's `RSemaphore`.
//!
//! A semaphore has no holders. **If a process crashes, its permits stay taken** until [`Semaphore::add_permits`]
//! restores them. If a process may crash, use [permits](mod@crate::permits) instead: their leases end. Use a semaphore
//! if Java services use the name as `RSemaphore`, or if one process takes permits and another process returns them.
//!
//! Inside one process, waiters are served first come, first served. Processes have no order.
//!
//! # Lost replies
//!
//! If a reply is lost, the command still takes effect once:
//!
//! - Each acquire and release carries a *token*. Redis remembers the token until no copy of the command can arrive any
//!   more (30 s with the default options). A repeat with the same token changes nothing.
//! - A release is repeated until it is answered.
//! - If an acquire fails or is dropped, it is undone in the background.
//!
//! If the server cannot be reached for 24 s, permits in doubt may stay taken. A warning is logged then.
//!
//! A token costs a Redis key of about 150 bytes for 30 s. There is one for each name and each command that the client
//! had in flight at once. Java clients do not see tokens.
//!
//! # Wire format
//!
//! As Redisson's: the *free count* (the number of free permits) is a string under `<name>`. A release sends the new
//! free count on `redisson_sc:{<name>}` if it is positive. A token is a key `distlock_once:{<name>}:<client>:<n>`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::client::Client;
use crate::engine::wait::Looking;
use crate::error::{Error, Result};
use crate::names::LockName;

mod admin;
mod taken;

use taken::{acquire, release};

/// The text of a script that must take effect exactly once: the shared functions of `once.lua`, then this file.
macro_rules! once {
    ($file:literal) => {
        concat!(include_str!("../../lua/common/once.lua"), include_str!(concat!("../../lua/", $file, ".lua")))
    };
}
pub(crate) use once;

/// # Semaphores
impl Client {
    /// Returns the semaphore of this name: Redisson's `getSemaphore(name)`.
    ///
    /// # Cost
    ///
    /// None. An invalid name is refused by the first call that sends a command.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: distlock::Client) -> distlock::Result<()> {
    /// let seats = client.semaphore("seats");
    /// seats.try_set_permits(3).await?; // no effect if a free count is set
    ///
    /// seats.acquire(1).await?; // waits
    /// // ... if this process dies here, the permit stays taken ...
    /// seats.release(1).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn semaphore(&self, name: &str) -> Semaphore {
        Semaphore { client: self.clone(), name: LockName::of_permits(&self.options().name_prefix, name) }
    }
}

/// A number of permits without holders. The [module](self) describes it. Cheap to clone.
#[derive(Clone)]
pub struct Semaphore {
    client: Client,
    name: Arc<LockName>,
}

impl Semaphore {
    /// Returns the name, without the client's prefix.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name.as_written
    }

    /// Takes `n` permits, all or none. Waits until enough permits are free. With `n` = 0 it returns at once.
    ///
    /// If no free count is set, the call waits until somebody sets, adds or releases permits.
    ///
    /// # Cost
    ///
    /// One round trip, one command if enough permits are free. One more of each if the client has not learned the
    /// server's time for a minute. All waiting tasks of this process share one subscription, and one of them at a time
    /// sends commands.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, permits that it took are returned in the background.
    ///
    /// # Errors
    ///
    /// The errors of [`DistLock::acquire`](crate::DistLock::acquire). After an error, the caller has no permits. An
    /// acquire that may have run is undone in the background.
    pub async fn acquire(&self, n: u32) -> Result<()> {
        if self.take(n, None).await? { Ok(()) } else { Err(Error::Closed) }
    }

    /// Takes `n` permits if enough are free now. Otherwise returns false.
    ///
    /// # Cost
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Errors
    ///
    /// As for [`acquire`](Self::acquire).
    pub async fn try_acquire(&self, n: u32) -> Result<bool> {
        self.take(n, Some(Duration::ZERO)).await
    }

    /// Takes `n` permits, and waits for at most `wait`. Returns false if the wait ran out.
    ///
    /// # Cost
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Errors
    ///
    /// As for [`acquire`](Self::acquire).
    pub async fn acquire_for(&self, n: u32, wait: Duration) -> Result<bool> {
        self.take(n, Some(wait)).await
    }

    async fn take(&self, n: u32, wait: Option<Duration>) -> Result<bool> {
        let engine = self.client.engine();
        if n == 0 {
            engine.check(&self.name)?;
            return Ok(true);
        }
        let (owned, name) = (Arc::clone(engine), Arc::clone(&self.name));
        let look = Box::new(move || acquire(&owned, &name, n));
        let taken = engine.look(&self.name, wait, Looking { look, for_all: None, every: None }).await?;
        Ok(taken.map(taken::Taken::keep).is_some())
    }

    /// Returns `n` permits and wakes waiters. Any process may have taken them. Creates the free count if there is none.
    ///
    /// # Cost
    ///
    /// One round trip, one command. One more of each if the client has not learned the server's time for a minute.
    ///
    /// # Cancel safety
    ///
    /// Once begun, it is completed in the background.
    ///
    /// # Errors
    ///
    /// The errors of [`DistLock::acquire`](crate::DistLock::acquire). If the outcome is unknown
    /// ([`Error::outcome_unknown`]), the release continues in the background: do not repeat it. After any other error
    /// nothing was changed: repeat it.
    pub async fn release(&self, n: u32) -> Result<()> {
        self.give(n, false).await.map(drop)
    }

    /// Returns `n` permits if there is a free count. Returns false if there is none, for example because it has
    /// expired.
    ///
    /// # Cost
    ///
    /// As [`release`](Self::release).
    ///
    /// # Cancel safety
    ///
    /// As [`release`](Self::release).
    ///
    /// # Errors
    ///
    /// As for [`release`](Self::release).
    pub async fn release_if_exists(&self, n: u32) -> Result<bool> {
        self.give(n, true).await
    }

    async fn give(&self, n: u32, if_exists: bool) -> Result<bool> {
        let engine = self.client.engine();
        engine.check(&self.name)?;
        if n == 0 && !if_exists {
            return Ok(true);
        }
        release(engine, &self.name, n, if_exists).await
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore").field("client", &self.client).field("name", &self.name).finish()
    }
}
