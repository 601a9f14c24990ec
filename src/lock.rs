//! The trait that every flavour of lock implements.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::acquire::Acquire;
use crate::client::Client;
use crate::engine::protocol::Protocol;
use crate::engine::revoke::unsupported;
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::owner::Owner;
use crate::state::{Released, State};

/// A lock of any flavour. A [`Client`](crate::Client) creates locks. They are cheap to create, clone and drop.
///
/// Each type of lock has these methods itself. Import the trait only to name it, as in `Arc<dyn DistLock>`.
///
/// Every future of this trait may be dropped at any point. A dropped future's effects are undone in the background:
/// no key, subscription or renewal is left behind.
///
/// # Methods of one flavour
///
/// Every lock is an [`Any`], so a lock whose flavour was chosen at run time can be downcast to its type:
///
/// ```no_run
/// # use std::any::Any;
/// # use distlock::{Client, FairLock, Flavour};
/// # async fn example(client: Client, flavour: Flavour) -> distlock::Result<()> {
/// let lock = client.lock(flavour, "orders:42");
/// let any: &dyn Any = &*lock;
/// if let Some(fair) = any.downcast_ref::<FairLock>() {
///     println!("{} wait", fair.queue_len().await?);
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Sealed
///
/// Only the locks of this crate implement this trait, so a later version can add methods to it. To test a service
/// without a server, use the crate `distlock-sim`, which keeps the real types.
pub trait DistLock: Sealed + Any + fmt::Debug + Send + Sync {
    /// Returns the name, without the client's prefix.
    fn name(&self) -> &str;

    /// Acquires the lock as described by `how`. `Ok(None)` means that the wait ended, and that another holder was seen
    /// during the wait.
    ///
    /// The lock is held while the [guard](Guard#bind-it) lives:
    /// `if let Some(guard) = lock.acquire(how).await? { .. }`, not `if lock.acquire(how).await?.is_some() { .. }`,
    /// which releases the lock before the block.
    ///
    /// # Cost
    ///
    /// - A free lock: one round trip, one command.
    /// - A busy lock: one more command after subscribing, and one per wake-up.
    /// - Behind other tasks of this process: no command until this task's turn. Exception: if half of a limited wait
    ///   passes and no task has seen a holder, one command is sent for all waiting tasks.
    /// - If replicas acknowledge ([`Options::acks`](crate::Options::acks)): one more round trip from the server to its
    ///   replicas, and one `WAIT` for all commands sent together.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any point; nothing is left behind.
    ///
    /// # Errors
    ///
    /// - [`Error::Config`]: the name or a duration is impossible.
    /// - [`Error::WrongType`]: the key has another type.
    /// - [`Error::Server`], [`Error::Connection`], [`Error::Timeout`]: the server refuses or cannot be reached.
    /// - [`Error::Replicas`]: too few replicas acknowledge.
    /// - [`Error::WouldDeadlock`]: the owner would wait for itself.
    /// - [`Error::Closed`], [`Error::RuntimeGone`]: the client was shut down, or its runtime has ended.
    ///
    /// Temporary errors ([`Error::is_retryable`]) are retried within the wait, for at most the time given at
    /// [`lock`](Self::lock). If no holder was seen when the wait ends, or if a reply of the server is overdue then, the
    /// result is an error that says what is missing, such as [`Error::Timeout`]. After an error the lock is not held: a
    /// grant whose reply did not arrive is undone in the background.
    fn acquire(&self, how: Acquire) -> BoxFuture<'_, Result<Option<Guard>>>;

    /// Waits until the lock is free, and acquires it. The watchdog renews it.
    ///
    /// The lock is held while the [guard](Guard#bind-it) lives: `let guard = lock.lock().await?;`, not
    /// `let _ = lock.lock().await?;`, which releases the lock at once. Cost, cancel safety and errors as for
    /// [`acquire`](Self::acquire).
    ///
    /// # Waiting time
    ///
    /// Unlimited while somebody holds the lock. If the server cannot be reached, does not answer or refuses each
    /// attempt, the wait ends with the last error.
    ///
    /// The error is returned after ([`command_timeout`](crate::Options::command_timeout) + the longest
    /// [`retry_delay`](crate::Options::retry_delay)) * [`retry_attempts`](crate::Options::retry_attempts), and at most
    /// one pause and two `command_timeout`s later: 20 to 28 s by default. This time starts when the client notices the
    /// failure, and restarts with each answer of the server. Tasks of one client that wait for the same name try one
    /// after another, each for that time. To survive a longer outage, set more `retry_attempts`, or call again while
    /// [`Error::is_retryable`] is true.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(lock: distlock::ReentrantLock) -> distlock::Result<()> {
    /// let guard = lock.lock().await?;
    /// guard.run(async { /* stops here if the lock is lost */ }).await?;
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    fn lock(&self) -> BoxFuture<'_, Result<Guard>> {
        Box::pin(async { self.acquire(Acquire::new()).await?.ok_or(Error::Closed) })
    }

    /// Acquires the lock if it is free now. The watchdog renews it.
    ///
    /// The lock is held while the [guard](Guard#bind-it) lives: `if let Some(guard) = lock.try_lock().await? { .. }`,
    /// not `if lock.try_lock().await?.is_some() { .. }`, which releases the lock before the block.
    ///
    /// # Cost
    ///
    /// One round trip, one command. Cancel safety and errors as for [`acquire`](Self::acquire), without retries.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(lock: distlock::ReentrantLock) -> distlock::Result<()> {
    /// match lock.try_lock().await? {
    ///     Some(guard) => drop(guard.unlock().await?),
    ///     None => println!("busy"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    fn try_lock(&self) -> BoxFuture<'_, Result<Option<Guard>>> {
        self.acquire(Acquire::new().wait(Duration::ZERO))
    }

    /// Waits for the lock for at most `wait`, everything included. The watchdog renews it.
    ///
    /// The lock is held while the [guard](Guard#bind-it) lives:
    /// `if let Some(guard) = lock.lock_for(wait).await? { .. }`, not `lock.lock_for(wait).await?;`, which releases an
    /// acquired lock at once. Cost, cancel safety and errors as for [`acquire`](Self::acquire).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn example(lock: distlock::ReentrantLock) -> distlock::Result<()> {
    /// let Some(guard) = lock.lock_for(Duration::from_secs(5)).await? else {
    ///     return Ok(()); // a holder was seen for 5 s
    /// };
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    fn lock_for(&self, wait: Duration) -> BoxFuture<'_, Result<Option<Guard>>> {
        self.acquire(Acquire::new().wait(wait))
    }

    /// Waits for the lock as [`lock`](Self::lock) does, and holds it for at most `lease`, without renewal.
    ///
    /// The lock is held while the [guard](Guard#bind-it) lives: `let guard = lock.lock_leased(lease).await?;`, not
    /// `let _ = ..`. Cost, cancel safety and errors as for [`acquire`](Self::acquire).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn example(lock: distlock::ReentrantLock) -> distlock::Result<()> {
    /// // Suits work that must never take longer than a minute.
    /// let guard = lock.lock_leased(Duration::from_secs(60)).await?;
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    fn lock_leased(&self, lease: Duration) -> BoxFuture<'_, Result<Guard>> {
        Box::pin(async move { self.acquire(Acquire::new().lease(lease)).await?.ok_or(Error::Closed) })
    }

    /// Returns who holds the lock, and for how long, read from the primary.
    ///
    /// # Cost
    ///
    /// One round trip, one command.
    ///
    /// # Cancel safety
    ///
    /// Only reads.
    ///
    /// # Errors
    ///
    /// As for [`acquire`](Self::acquire).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(lock: distlock::ReentrantLock) -> distlock::Result<()> {
    /// let state = lock.state().await?;
    /// if state.is_locked() {
    ///     println!("held for another {:?} without renewal", state.remaining);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    fn state(&self) -> BoxFuture<'_, Result<State>>;

    /// True if anybody holds the lock. Cost, cancel safety and errors as for [`state`](Self::state).
    fn is_locked(&self) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async { Ok(self.state().await?.is_locked()) })
    }

    /// Returns how long the lock stays held without renewal; `None` if the lock is free. Cost, cancel safety and errors
    /// as for [`state`](Self::state).
    fn remaining_ttl(&self) -> BoxFuture<'_, Result<Option<Duration>>> {
        Box::pin(async { Ok(self.state().await?.remaining) })
    }

    /// Returns how many times `owner` holds the lock. Cost, cancel safety and errors as for [`state`](Self::state).
    fn hold_count<'a>(&'a self, owner: &'a Owner) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move { Ok(self.state().await?.hold_count(owner)) })
    }

    /// True if `owner` holds the lock. Cost, cancel safety and errors as for [`state`](Self::state).
    fn is_held_by<'a>(&'a self, owner: &'a Owner) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move { Ok(self.hold_count(owner).await? > 0) })
    }

    /// Frees the lock, whoever holds it, and wakes a waiter. Returns `false` if the lock was free.
    ///
    /// A holder of this client learns of the loss at once. A holder of another client learns of it at its next
    /// renewal (within a third of the watchdog) or, with an explicit lease, at the end of the lease at the latest.
    ///
    /// # Cost
    ///
    /// One round trip, one command.
    ///
    /// # Cancel safety
    ///
    /// Once begun, it may take effect.
    ///
    /// # Errors
    ///
    /// As for [`acquire`](Self::acquire).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(lock: distlock::ReentrantLock) -> distlock::Result<()> {
    /// if lock.force_unlock().await? {
    ///     println!("freed; the holder learns of it");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    fn force_unlock(&self) -> BoxFuture<'_, Result<bool>>;

    /// Asks the holder to finish: its guard's [`revoked`](Guard::revoked) completes, at once in this client, otherwise
    /// at the guard's next renewal. A guard with an explicit lease is not renewed, so it may not hear the request. The
    /// lock stays held until the holder releases it. Returns `false` if there is nobody to ask: the lock is free, a
    /// client of Java holds it, or a write lock is held for reading. See [`guide::revoke`](crate::guide::revoke).
    ///
    /// # Cost
    ///
    /// One round trip, one command.
    ///
    /// # Cancel safety
    ///
    /// Once begun, it may take effect.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for read locks, plain locks and groups; otherwise as for [`acquire`](Self::acquire).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(lock: distlock::ReentrantLock) -> distlock::Result<()> {
    /// lock.revoke().await?;
    /// let guard = lock.lock().await?; // waits until the holder has released the lock
    /// # Ok(())
    /// # }
    /// ```
    fn revoke(&self) -> BoxFuture<'_, Result<bool>> {
        // Single locks have a method of their own.
        Box::pin(async { Err(unsupported(self.name(), "a group")) })
    }

    /// Releases one hold of `owner` that another process acquired, or that [`Guard::into_owner`] left without a guard,
    /// like Redisson's `unlockAsync(threadId)`. A hold left by `into_owner` is released first.
    ///
    /// # Cost
    ///
    /// One round trip, one command. Two commands if the owner has several holds, or was given to its acquire. In both
    /// cases, one more command (`TIME`) may be needed, as for [`Guard::unlock`]. If each hold of the owner still has a
    /// guard, the release takes half a second longer.
    ///
    /// # Cancel safety
    ///
    /// Once begun, the release is completed.
    ///
    /// # Errors
    ///
    /// [`Error::NotHeld`], and the errors of [`acquire`](Self::acquire).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use distlock::{Owner, ReentrantLock};
    /// # async fn example(lock: ReentrantLock, text: &str) -> distlock::Result<()> {
    /// // Another process acquired, and sent its owner as text.
    /// let owner: Owner = text.parse()?;
    /// lock.release(&owner).await?;
    /// # Ok(())
    /// # }
    /// ```
    fn release<'a>(&'a self, owner: &'a Owner) -> BoxFuture<'a, Result<Released>>;
}

/// Seals [`DistLock`]: this module is private, so no other crate can name this trait.
pub trait Sealed {
    /// Returns the structure of this lock.
    fn inside(&self) -> Inside<'_>;
}

/// The structure of a lock.
pub enum Inside<'a> {
    /// A single lock.
    One(Part<'a>),
    /// A group lock with these members.
    Many(&'a [Arc<dyn DistLock>]),
}

/// A single lock: its client and its scripts.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    pub(crate) client: &'a Client,
    pub(crate) protocol: &'a Arc<dyn Protocol>,
}
