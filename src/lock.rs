//! The contract: what every flavour of lock can do.

use std::any::Any;
use std::fmt;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::acquire::Acquire;
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::owner::Owner;
use crate::state::{Released, State};

/// A lock of any flavour. Made by a [`Client`](crate::Client); cheap to make, to clone and to throw away.
///
/// Every future of this trait may be dropped at any point. What it had begun is then undone in the background: no key,
/// no subscription and no renewal stays behind.
///
/// # What only one flavour can do
///
/// Every lock is an [`Any`], so that one whose flavour was chosen at run time can be asked for its type:
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
/// # Your own
///
/// A lock of your own making may be a member of a [`MultiLock`](crate::MultiLock), a [`RedLock`](crate::RedLock) or a
/// [`Striped`](crate::Striped) lock. They ask it through this trait alone: it is never taken by a script for many, nobody
/// knows whether two of them are the same, and its work is done on the runtime of whoever calls.
pub trait DistLock: Any + fmt::Debug + Send + Sync {
    /// The name, without the client's prefix.
    fn name(&self) -> &str;

    /// Acquires as told by `how`; `Ok(None)` when the wait ran out.
    ///
    /// Held while the [guard](Guard#bind-it) lives: `if let Some(guard) = lock.acquire(how).await? { .. }`, not
    /// `if lock.acquire(how).await?.is_some() { .. }`, which releases it before the block.
    ///
    /// *Cost*: one round trip and one command when the lock is free; where replicas acknowledge ([`Options::acks`](crate::Options::acks)),
    /// one more from the server to them, and one `WAIT` for all that go together. Behind other tasks of this process, none of its own
    /// until its turn comes; if no task has seen a holder by the middle of a limited wait, one command for all of them. When busy: one
    /// more command after subscribing, one for every wake-up.
    ///
    /// *Cancel safety*: may be dropped at any point; nothing stays behind.
    ///
    /// *Errors*: [`Error::Config`] for impossible names and durations, [`Error::WrongType`] when the key is something
    /// else, [`Error::Server`], [`Error::Connection`] and [`Error::Timeout`] when the server refuses or cannot be
    /// reached, [`Error::Replicas`] when too few replicas acknowledge: passing errors are tried again within the wait,
    /// [`Options::retry_attempts`](crate::Options::retry_attempts) times. `Ok(None)` means that a holder was seen within the wait. A wait
    /// that ends without that, or at a silent server, is an error that says what is missing, such as [`Error::Timeout`]. After an error
    /// the lock is not held: what may have happened unseen is undone in the background.
    fn acquire(&self, how: Acquire) -> BoxFuture<'_, Result<Option<Guard>>>;

    /// Waits until the lock is free, and takes it; kept by the watchdog. Held while the [guard](Guard#bind-it) lives:
    /// `let guard = lock.lock().await?;`, not `let _ = lock.lock().await?;`, which releases it at once. Cost, cancel safety and errors as
    /// [`acquire`](Self::acquire).
    ///
    /// *Waiting time*: unlimited while somebody holds the lock. A server that cannot be reached, does not answer or refuses each attempt
    /// ends the wait with the last error. The error comes after ([`command_timeout`](crate::Options::command_timeout) + the longest
    /// [`retry_delay`](crate::Options::retry_delay)) * [`retry_attempts`](crate::Options::retry_attempts), and at most one pause and two
    /// `command_timeout`s later: 20 to 28 s by default. The time starts when the client notices, and each answer restarts it. Tasks of one
    /// client that wait for the same name try one after another, each for that time. For a longer outage set more `retry_attempts`, or
    /// call again while [`Error::is_retryable`] is true.
    fn lock(&self) -> BoxFuture<'_, Result<Guard>> {
        Box::pin(async { self.acquire(Acquire::new()).await?.ok_or(Error::Closed) })
    }

    /// Takes the lock if it is free now; kept by the watchdog. Held while the [guard](Guard#bind-it) lives:
    /// `if let Some(guard) = lock.try_lock().await? { .. }`, not `if lock.try_lock().await?.is_some() { .. }`, which
    /// releases it before the block.
    ///
    /// *Cost*: one round trip, one command. Cancel safety and errors as [`acquire`](Self::acquire), without retries.
    fn try_lock(&self) -> BoxFuture<'_, Result<Option<Guard>>> {
        self.acquire(Acquire::new().wait(Duration::ZERO))
    }

    /// Waits for the lock for at most `wait`, everything included; kept by the watchdog. Held while the
    /// [guard](Guard#bind-it) lives: `if let Some(guard) = lock.lock_for(wait).await? { .. }`, not
    /// `lock.lock_for(wait).await?;`, which releases it at once, or never had it. Cost, cancel safety and errors
    /// as [`acquire`](Self::acquire).
    fn lock_for(&self, wait: Duration) -> BoxFuture<'_, Result<Option<Guard>>> {
        self.acquire(Acquire::new().wait(wait))
    }

    /// Waits for the lock as [`lock`](Self::lock) does, and holds it for at most `lease`, without renewal. Held while the
    /// [guard](Guard#bind-it) lives: `let guard = lock.lock_leased(lease).await?;`, not `let _ = ..`. Cost, cancel safety and errors as
    /// [`acquire`](Self::acquire).
    fn lock_leased(&self, lease: Duration) -> BoxFuture<'_, Result<Guard>> {
        Box::pin(async move { self.acquire(Acquire::new().lease(lease)).await?.ok_or(Error::Closed) })
    }

    /// Who holds the lock, and for how long, as the primary knows it.
    ///
    /// *Cost*: one round trip, one command. *Cancel safety*: reads only. *Errors*: as [`acquire`](Self::acquire).
    fn state(&self) -> BoxFuture<'_, Result<State>>;

    /// True when anybody holds the lock. Cost, cancel safety and errors as [`state`](Self::state).
    fn is_locked(&self) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async { Ok(self.state().await?.is_locked()) })
    }

    /// How long the lock lives without renewal; `None` when it is free. Cost, cancel safety and errors as
    /// [`state`](Self::state).
    fn remaining_ttl(&self) -> BoxFuture<'_, Result<Option<Duration>>> {
        Box::pin(async { Ok(self.state().await?.remaining) })
    }

    /// How often `owner` holds the lock. Cost, cancel safety and errors as [`state`](Self::state).
    fn hold_count<'a>(&'a self, owner: &'a Owner) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move { Ok(self.state().await?.hold_count(owner)) })
    }

    /// True when `owner` holds the lock. Cost, cancel safety and errors as [`state`](Self::state).
    fn is_held_by<'a>(&'a self, owner: &'a Owner) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move { Ok(self.hold_count(owner).await? > 0) })
    }

    /// Frees the lock whoever holds it, and wakes a waiter; `false` when it was free. The holder learns of the loss at
    /// its next renewal (a third of the watchdog at the most), or at once when it is a guard of this client.
    ///
    /// *Cost*: one round trip, one command. *Cancel safety*: once begun it may take effect. *Errors*: as
    /// [`acquire`](Self::acquire).
    fn force_unlock(&self) -> BoxFuture<'_, Result<bool>>;

    /// Gives back one hold of `owner`, taken by another process or left by [`Guard::into_owner`]: Redisson's
    /// `unlockAsync(threadId)`. A hold whose guard was turned into its owner comes first.
    ///
    /// *Cost*: one round trip, one command; two where the owner has several holds, or was given to its acquire, and then
    /// at times a `TIME` more, as [`Guard::unlock`] says. Half a second more where a guard relies on each of them. *Cancel safety*: once begun it is carried out. *Errors*:
    /// [`Error::NotHeld`], and the errors of [`acquire`](Self::acquire).
    fn release<'a>(&'a self, owner: &'a Owner) -> BoxFuture<'a, Result<Released>>;
}
