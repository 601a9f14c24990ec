//! The guard of held permits.

use std::fmt;
use std::future::Future;
use std::time::{Duration, Instant};

use super::PermitId;
#[cfg(doc)]
use super::Permits;
use super::id::{ids, split};
use crate::error::{Error, Result};
use crate::guard::Guard;

/// Held permits. Dropping the guard releases them in the background; the drop never blocks and never panics.
///
/// The permits are held while the guard lives, so bind it: `let guard = gate.acquire(1).await?;`, not `let _ = ..`.
///
/// A lease can end while the process is suspended, as with a lock's [`Guard`]. [`lost`](Self::lost) and
/// [`run`](Self::run) report it.
///
/// # Examples
///
/// ```no_run
/// # async fn example(client: distlock::Client) -> distlock::Result<()> {
/// let guard = client.permits("converter").acquire(2).await?;
/// guard.run(async { /* at most as many of these as there are permits */ }).await?;
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping the guard releases the permits at once"]
#[clippy::has_significant_drop]
pub struct PermitGuard(Guard);

impl PermitGuard {
    pub(super) const fn new(guard: Guard) -> Self {
        Self(guard)
    }

    /// Returns the name of the permits, without the client's prefix.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Returns the number of permits of the acquire, also after a loss.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.0.grant().map_or(0, |grant| grant.hold.protocol.permits())
    }

    /// Returns the ids of the permits. Any process can pass them to [`Permits::release_ids`] and
    /// [`Permits::extend_ids`]. After this call, the client does not hand these permits over to another task.
    #[must_use]
    pub fn ids(&self) -> Vec<PermitId> {
        let Some(grant) = self.0.grant() else { return Vec::new() };
        let ids = split(&ids(&grant.hold.owner, &grant.id(), self.count()));
        grant.hold.owner.reveal();
        ids
    }

    /// True until the lease ends by the local clock, or until a loss is known. Uses no I/O and no timer, so the answer
    /// is right even after a long pause of the process.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.0.is_held()
    }

    /// Returns the time until the current lease ends by the local clock. Zero if the permits are lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.remaining()
    }

    /// Returns when the current lease ends by the local clock. If the permits are lost, this moment is in the past. See
    /// [`Guard::deadline`].
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.0.deadline()
    }

    /// Completes with the reason when the permits are lost: their lease ended, they were deleted, or one of them was
    /// released by its id. A shutdown completes it with [`Error::Closed`]. The future does not borrow the guard.
    ///
    /// A deletion or a release by id is detected at the next renewal. A guard with an explicit lease is not renewed, so
    /// it usually completes this future when the lease ends.
    ///
    /// # Cost
    ///
    /// None.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    #[must_use = "futures do nothing unless awaited"]
    pub fn lost(&self) -> impl Future<Output = Error> + Send + 'static {
        self.0.lost()
    }

    /// Completes when only a third of the lease is left, or when the permits are lost, as [`Guard::expiring`].
    ///
    /// # Cost
    ///
    /// None.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    #[must_use = "futures do nothing unless awaited"]
    pub fn expiring(&self) -> impl Future<Output = ()> + Send + 'static {
        self.0.expiring()
    }

    /// Runs `work` while the permits are held. If they are lost, drops `work` at its next await point.
    ///
    /// # Cost
    ///
    /// None.
    ///
    /// # Cancel safety
    ///
    /// Depends on `work`.
    ///
    /// # Errors
    ///
    /// The error of [`lost`](Self::lost): [`Error::Lost`], or [`Error::Closed`] after a shutdown. The error is also
    /// returned if `work` completed after the lease had ended.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output> {
        self.0.run(work).await
    }

    #[cfg(feature = "blocking")]
    pub(crate) fn why_lost(&self) -> Error {
        self.0.why_lost()
    }

    /// Sets the lease to `lease` from now, longer or shorter than before. The lease becomes explicit, so it is no
    /// longer renewed.
    ///
    /// # Cost
    ///
    /// One round trip, one command. Shortening needs one more round trip and command if the client has not learned the
    /// server's time for a minute.
    ///
    /// A late copy of a shortening command could shorten a later lease. So the next `extend` of this guard waits until
    /// no copy can take effect any more: about one [`command_timeout`](crate::Builder::command_timeout) at most.
    ///
    /// # Cancel safety
    ///
    /// Once begun, the extension is completed.
    ///
    /// # Errors
    ///
    /// As for [`Guard::extend`].
    pub async fn extend(&self, lease: Duration) -> Result<()> {
        self.0.extend(lease).await
    }

    /// Ends the guard without releasing the permits, and returns their ids. Any process may then release or extend the
    /// permits by id. They are no longer renewed, so they end with their lease. A shutdown does not release them.
    ///
    /// The client no longer checks for a late copy of the acquire. If the acquire was repeated because its reply was
    /// lost, a copy that arrives after the release takes the permits again, until their lease ends. So prefer short
    /// leases, and let the other process call [`Permits::extend_ids`].
    ///
    /// # Cost
    ///
    /// None.
    ///
    /// # Examples
    ///
    /// Another process releases the permit when the job ends:
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use distlock::Acquire;
    /// # async fn example(gate: distlock::Permits) -> distlock::Result<()> {
    /// let lease = Acquire::new().lease(Duration::from_secs(3600));
    /// if let Some(guard) = gate.acquire_with(1, lease).await? {
    ///     let ids = guard.into_ids();
    ///     println!("started job with permit {}", ids[0]);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "without the ids nobody can release the permits before their lease ends"]
    pub fn into_ids(self) -> Vec<PermitId> {
        let ids = self.ids();
        drop(self.0.into_owner());
        ids
    }

    /// Releases the permits.
    ///
    /// # Cost
    ///
    /// One round trip, one command. None if the permits are handed over to the next waiter of this process.
    ///
    /// # Cancel safety
    ///
    /// Once begun, the release is completed in the background. A future that is dropped before its first poll drops the
    /// guard, which also releases the permits.
    ///
    /// # Errors
    ///
    /// As for [`Guard::unlock`].
    pub async fn release(self) -> Result<()> {
        self.0.unlock().await.map(drop)
    }
}

impl fmt::Debug for PermitGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PermitGuard")
            .field("name", &self.name())
            .field("count", &self.count())
            .field("is_held", &self.is_held())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
