//! The three ways to end a guard: release the lock, turn a write hold into a read hold, or keep the hold without a
//! guard.

use futures::future::BoxFuture;

use super::unused::Unused;
use super::{Guard, Inner};
use crate::error::{Error, Result};
use crate::owner::Owner;
use crate::state::Released;

impl Guard {
    /// Releases the lock and returns whether the owner still has other holds.
    ///
    /// # Duration
    ///
    /// At most the rest of the lease ([`remaining`](Self::remaining)), and no longer than
    /// [`DistLock::lock`](crate::DistLock::lock) retries at an unreachable server. If the lock is lost, the call
    /// returns at once.
    ///
    /// # Cost
    ///
    /// One round trip, one command. No command if the lock is handed over to the next waiter of this process. A release
    /// that leaves other holds of the owner needs one more command (`TIME`) if the client has not learned the server's
    /// time for a minute.
    ///
    /// # Cancel safety
    ///
    /// Once begun, the release is completed in the background. Dropping the future before its first poll drops the
    /// guard, which releases too.
    ///
    /// # Errors
    ///
    /// - [`Error::Lost`]: [`is_held`](Self::is_held) was false, for whatever reason.
    /// - [`Error::ReleasePending`]: for the whole duration above, the server did not answer, or refused with a
    ///   temporary error. The lock is no longer renewed, and the release is retried in the background until the lease
    ///   has ended.
    /// - [`Error::NotHeld`]: the server no longer had the hold. The error names the current holder, if any.
    /// - [`Error::Server`]: the server refuses with an error that a retry does not change.
    /// - [`Error::Closed`]: the client was shut down.
    pub async fn unlock(self) -> Result<Released> {
        self.1.touch();
        match self.0 {
            Inner::One(one) => one.unlock().await,
            Inner::Many(many) => many.unlock().await,
        }
    }

    pub(crate) fn unlocking(self) -> BoxFuture<'static, Result<Released>> {
        self.1.touch();
        match self.0 {
            Inner::One(one) => Box::pin(one.unlock()),
            Inner::Many(many) => many.unlock(),
        }
    }

    /// Turns a write hold into a read hold of the same owner. No other writer acquires the lock in between, and waiting
    /// readers acquire it at once.
    ///
    /// The lease stays: the watchdog's lease, or the rest of an explicit lease. If the owner holds the lock for writing
    /// more than once, its other holds stay.
    ///
    /// # Cost
    ///
    /// Two round trips, two commands. As in Redisson, the read hold is acquired before the write hold is released.
    ///
    /// # Cancel safety
    ///
    /// Once begun, the write hold is released. A read hold that no caller receives is released too.
    ///
    /// # Errors
    ///
    /// - [`Error::Unsupported`]: the lock is not held for writing.
    /// - [`Error::Lost`], [`Error::NotHeld`]: the write hold had ended.
    /// - The errors of [`DistLock::acquire`](crate::DistLock::acquire).
    ///
    /// After an error nothing is held.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(prices: distlock::RwLock) -> distlock::Result<()> {
    /// let writing = prices.write().lock().await?;
    /// // Change the prices.
    /// let reading = writing.downgrade().await?; // no other writer gets in between
    /// // Publish what was written, beside other readers.
    /// reading.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn downgrade(self) -> Result<Self> {
        self.1.touch();
        match self.0 {
            Inner::One(one) => Ok(Self(Inner::One(one.downgrade().await?), Unused::ignored())),
            Inner::Many(many) => Err(Error::Unsupported {
                what: format!(
                    "{:?} is made of several locks: only a write lock by itself can be downgraded",
                    many.name()
                ),
            }),
        }
    }

    /// Ends the guard without releasing the lock, and returns the owner. Another task or process may then release the
    /// lock by [`DistLock::release`](crate::DistLock::release), or re-enter it by acquiring as this owner. Until then
    /// the lock is not renewed, so it ends with its lease.
    ///
    /// # Cost
    ///
    /// The caller waits for no command. If the lock was acquired as a given owner, one command is sent in the
    /// background.
    #[must_use = "without the owner nobody can release the lock before its lease ends"]
    pub fn into_owner(self) -> Owner {
        self.1.touch();
        match self.0 {
            Inner::One(one) => one.into_owner(),
            Inner::Many(many) => many.give_up(),
        }
    }
}
