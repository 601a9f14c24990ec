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
/// The permits are held while the guard lives, so bind it: `let guard = gate.acquire(1).await?;`, not `let _ = ..`. As
/// with a lock's [`Guard`], a lease can end while the process is suspended: [`lost`](Self::lost) and
/// [`run`](Self::run) say so.
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

    /// Returns the number of permits of the acquire, also after they were lost.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.0.grant().map_or(0, |grant| grant.hold.protocol.permits())
    }

    /// Returns the ids of the permits, for [`Permits::release_ids`] and [`Permits::extend_ids`] in another process. After
    /// this call, the client does not hand these permits over to another task.
    #[must_use]
    pub fn ids(&self) -> Vec<PermitId> {
        let Some(grant) = self.0.grant() else { return Vec::new() };
        let ids = split(&ids(&grant.hold.owner, &grant.id(), self.count()));
        grant.hold.owner.reveal();
        ids
    }

    /// True until the lease ends by the local clock, or a loss is known. Uses no I/O and no timer, so the answer is right even after
    /// a long pause of the process.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.0.is_held()
    }

    /// Returns how long the permits are held without a further renewal; zero when they are lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.remaining()
    }

    /// Returns when the current lease ends by the local clock, as [`Guard::deadline`].
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.0.deadline()
    }

    /// Completes when the permits are lost: their lease ended, they were deleted, or one of them was released by its id.
    /// The future does not borrow the guard.
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
    /// The error of [`lost`](Self::lost), also if `work` completed after the lease had ended.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output> {
        self.0.run(work).await
    }

    /// Sets the lease to `lease` from now, longer or shorter than before. The lease becomes explicit, so it is no longer
    /// renewed.
    ///
    /// # Cost
    ///
    /// One round trip, one command. Shortening needs one more of each if the client has not learned the server's time
    /// for a minute. After a shorter lease, the next `extend` of this guard waits until no copy of this command can arrive
    /// any more: one [`command_timeout`](crate::Builder::command_timeout) at most.
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

    /// Releases the permits.
    ///
    /// # Cost
    ///
    /// One round trip, one command. No command if the permits are handed over to the next waiter of this process.
    ///
    /// # Cancel safety
    ///
    /// Once begun, the release is completed in the background. Dropping the future before its first poll drops the
    /// guard, which releases too.
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
