//! `with`: acquire, work, release, in one call. For every kind of lock.

use std::time::Duration;

use crate::error::Result;
use crate::guard::Guard;
use crate::lock::DistLock;
use crate::multi::MultiLock;
use crate::object::Lock;
use crate::redlock::RedLock;
use crate::striped::Striped;

async fn with<T>(lock: &dyn DistLock, wait: Duration, work: impl AsyncFnOnce(&Guard) -> T) -> Result<Option<T>> {
    let Some(guard) = lock.lock_for(wait).await? else { return Ok(None) };
    let output = guard.run(work(&guard)).await?;
    guard.unlock().await?;
    Ok(Some(output))
}

impl<F: 'static> Lock<F> {
    /// Waits for the lock for at most `wait`, runs `work` while the lock is held, and releases the lock. Returns `None`
    /// if the lock stayed busy.
    ///
    /// The watchdog renews the lock. If the lock is lost, `work` is dropped at its next await point.
    /// [`MultiLock`](crate::MultiLock), [`RedLock`](crate::RedLock), [`Striped`](crate::Striped) and
    /// `dyn` [`DistLock`](crate::DistLock) have the same method.
    ///
    /// # Cost
    ///
    /// As [`DistLock::lock_for`](crate::DistLock::lock_for) and [`Guard::unlock`](crate::Guard::unlock): two commands if
    /// the lock is free.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, `work` is dropped and the lock is released in the background.
    ///
    /// # Errors
    ///
    /// - The errors of [`DistLock::acquire`](crate::DistLock::acquire): `work` was not called.
    /// - [`Error::Lost`](crate::Error::Lost): the lock was lost. `work` was stopped, or ended after the loss.
    ///   [`Error::Closed`](crate::Error::Closed): the same, by a shutdown.
    /// - [`Error::ReleasePending`](crate::Error::ReleasePending) and the other errors of
    ///   [`Guard::unlock`](crate::Guard::unlock): `work` was completed, and its output is dropped.
    ///
    /// # Examples
    ///
    /// If `work` returns a `Result`, [`Option::transpose`] moves its error to the outside:
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn save(_: u64) -> distlock::Result<()> { Ok(()) }
    /// # async fn example(client: distlock::Client) -> distlock::Result<()> {
    /// let lock = client.fenced("orders:42");
    /// let saved = lock.with(Duration::from_secs(5), async |guard| save(guard.fencing_token()?).await).await?;
    /// match saved.transpose()? {
    ///     Some(()) => println!("saved"),
    ///     None => println!("busy for 5 s"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// From a lock whose flavour was chosen at run time, in a task of its own:
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use distlock::{Client, Flavour};
    /// # async fn job() -> u32 { 1 }
    /// # fn example(client: Client, flavour: Flavour) {
    /// let lock = client.lock(flavour, "orders:42");
    /// tokio::spawn(async move { lock.with(Duration::from_secs(5), async |_| job().await).await });
    /// # }
    /// ```
    pub async fn with<T>(&self, wait: Duration, work: impl AsyncFnOnce(&Guard) -> T) -> Result<Option<T>> {
        with(self, wait, work).await
    }
}

macro_rules! with_of {
    ($($lock:ty),+) => {
        $(impl $lock {
            /// Acquires the lock, runs `work` and releases the lock, as [`Lock::with`](crate::Lock::with) does.
            pub async fn with<T>(&self, wait: Duration, work: impl AsyncFnOnce(&Guard) -> T) -> Result<Option<T>> {
                with(self, wait, work).await
            }
        })+
    };
}

with_of!(dyn DistLock, MultiLock, RedLock, Striped);
