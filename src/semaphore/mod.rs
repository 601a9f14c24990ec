//! Semaphores: a number of permits that any task may take and any task may return. Redisson's `RSemaphore`.
//!
//! A semaphore has no holders. **The permits of a crashed process are gone**, until somebody adds permits. Use
//! [permits](mod@crate::permits) instead if a process may crash: their permits have leases and come back. This type is
//! for names that Java services use as `RSemaphore`, and for permits that one process takes and another returns.
//!
//! Inside one process, waiters are served first come, first served. Processes have no order.
//!
//! # Lost replies
//!
//! If a reply is lost, the command still takes effect once, as long as the server can be reached again. Each acquire and release carries a *token*, which Redis
//! remembers until no copy of the command can arrive any more (30 s with the default options). A repeat with the same
//! token changes nothing. If an acquire fails or is dropped, its permits are returned in the background. If the server
//! cannot be reached for all this time, permits in doubt may be lost, and a warning is logged. The cost is a
//! key of about 150 bytes for each name and each command that the client had in flight at once. Java clients do not see
//! tokens.
//!
//! # Wire format
//!
//! As Redisson's: the number of free permits is a string under `<name>`. A release sends the new number on
//! `redisson_sc:{<name>}` if it is positive. Tokens: `distlock_once:{<name>}:<client>:<n>`.

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

/// The text of a script of a command that must count exactly once.
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
    /// None: nothing is sent until a call. An impossible name is refused then.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: distlock::Client) -> distlock::Result<()> {
    /// let seats = client.semaphore("seats");
    /// seats.try_set_permits(3).await?; // no effect if the number is set
    ///
    /// seats.acquire(1).await?; // waits
    /// // ... if this process dies here, the permit is gone ...
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

    /// Takes `n` permits, all or none. Waits until there are enough. With `n` = 0 it returns at once.
    ///
    /// # Cost
    ///
    /// One round trip, one command if there are enough permits. One more of each if the client has not learned the
    /// server's time for a minute. All waiting tasks of this process share one subscription, and one of them at a time
    /// sends commands.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind: permits that it took are returned in the background.
    ///
    /// # Errors
    ///
    /// The errors of [`DistLock::acquire`](crate::DistLock::acquire). After an error no permit is taken: a command that
    /// may have run is undone in the background.
    pub async fn acquire(&self, n: u32) -> Result<()> {
        if self.take(n, None).await? { Ok(()) } else { Err(Error::Closed) }
    }

    /// Takes `n` permits if there are enough now. Returns false if there are not.
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

    /// Returns `n` permits, whoever took them, and wakes waiters. Creates the number if there is none.
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
    /// ([`Error::outcome_unknown`]), the release continues in the background: do not repeat it. After any other error nothing
    /// was changed.
    pub async fn release(&self, n: u32) -> Result<()> {
        self.give(n, false).await.map(drop)
    }

    /// Returns `n` permits if there is a number. Returns false if there is none, for example because it has expired.
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
