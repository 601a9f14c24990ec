//! Options of one acquire.

use std::time::Duration;

use crate::config::{check_lease, check_lock_delay};
use crate::error::{Error, Result};
use crate::owner::Owner;

/// How to acquire: how long to wait, how long to hold, as which owner.
///
/// Without [`wait`](Self::wait), an acquire waits until the lock is free. If the server is unreachable, the acquire
/// fails as described at [`DistLock::lock`](crate::DistLock::lock). Without [`lease`](Self::lease), the watchdog renews
/// the lock while the guard lives. Without [`owner`](Self::owner), the holder is the owner of the enclosing
/// [`Owner::scope`], else a fresh owner.
///
/// # Examples
///
/// ```no_run
/// # use std::time::Duration;
/// # use distlock::Acquire;
/// # async fn example(lock: distlock::ReentrantLock) -> distlock::Result<()> {
/// let how = Acquire::new().wait(Duration::from_secs(5)).lease(Duration::from_secs(30));
/// if let Some(guard) = lock.acquire(how).await? {
///     // Held for 30 s at most: an explicit lease is not renewed.
///     guard.unlock().await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "pass it to acquire()"]
pub struct Acquire {
    pub(crate) wait: Option<Duration>,
    pub(crate) lease: Option<Duration>,
    pub(crate) lock_delay: Duration,
    pub(crate) owner: Option<Owner>,
    /// True if an owner that already holds the lock is refused.
    pub(crate) not_reentrant: bool,
    /// True if `owner` was created for this acquire, and so holds nothing else.
    pub(crate) holds_nothing: bool,
    /// True for a lock inside another object: a member of a multi lock or RedLock, or the fair lock of fair permits. Its
    /// guard does not reach the user, and the owner of an [`Owner::scope`] does not count.
    pub(crate) is_inner: bool,
    /// Time that the group's acquire had waited before this acquire of a member began. A reader's `max_reader_delay`
    /// counts from the start of the group's acquire.
    pub(crate) waited_before: Duration,
    /// True if a failing server ends the wait, because the caller then tries other servers.
    pub(crate) ends_with_failure: bool,
}

impl Acquire {
    /// Returns the defaults: no limit on the wait while somebody holds the lock, a lease that the watchdog renews, and
    /// no given owner.
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits the time of the acquire, *everything included*: queueing, subscribing, every command. With zero, the
    /// acquire makes one attempt. Defaults to no limit.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Sets an explicit lease, which is never renewed. The shortest lease is 3 ms, because a guard counts its lease 1 %
    /// and 2 ms shorter, for clock drift. The longest is ten years. A lease is rounded up to whole milliseconds.
    /// Defaults to the watchdog's lease.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Keeps the name closed for this long after a *lost* lease, so that writes that the former holder has already sent
    /// arrive before the next holder begins. Consul has the same option.
    ///
    /// The lease in Redis is longer by this time, and the guard does not count the additional time. If the holder dies
    /// or is cut off, the next holder acquires at most `lease` + `lock_delay` after the last renewal. A release before
    /// the end of the lease opens the name at once, and so does [`force_unlock`](crate::DistLock::force_unlock). A
    /// release after the end of the lease does not.
    ///
    /// For locks with one holder: reentrant, fair, fenced, spin, plain, and the write half of a read-write lock. Read
    /// locks, permits and groups refuse a delay with [`Error::Config`](crate::Error::Config). At most a day, rounded up
    /// to whole milliseconds. Defaults to none. [`guide::leases`](crate::guide::leases) has the details.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use distlock::Acquire;
    /// # async fn example(lock: distlock::FairLock) -> distlock::Result<()> {
    /// let how = Acquire::new().lock_delay(Duration::from_secs(15));
    /// if let Some(guard) = lock.acquire(how).await? {
    ///     // After a crash here, the name stays closed for up to 45 s: the watchdog's lease and the delay.
    ///     guard.unlock().await?; // opens it at once
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.lock_delay = delay;
        self
    }

    /// Acquires as this owner. If the owner holds the lock already, the acquire is a re-entry. Defaults to the owner of
    /// the enclosing [`Owner::scope`], else to a fresh owner.
    pub fn owner(mut self, owner: &Owner) -> Self {
        self.owner = Some(owner.clone());
        self
    }

    /// Refuses re-entry: an owner that already holds the lock gets
    /// [`Error::WouldDeadlock`](crate::Error::WouldDeadlock) at once and keeps its hold, as with Redisson's
    /// non-reentrant locks. Defaults to allowing re-entry.
    pub fn not_reentrant(mut self) -> Self {
        self.not_reentrant = true;
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.lease.map_or(Ok(()), check_lease)?;
        check_lock_delay(self.lock_delay)
    }

    /// Refuses a lock delay for a flavour that cannot have one.
    pub(crate) fn check_no_lock_delay(&self, flavour: &str) -> Result<()> {
        if self.lock_delay.is_zero() {
            return Ok(());
        }
        Err(Error::config(format!(
            "locks of the flavour {flavour} cannot have a lock delay: use a single lock with one holder"
        )))
    }
}
