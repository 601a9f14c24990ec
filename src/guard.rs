//! The guard of a held lock.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;

use crate::engine::Handle;
use crate::engine::hold::Grant;
use crate::error::{Error, Result};
use crate::owner::Owner;
use crate::runtime::reaper::Reaper;

mod ending;
mod group;
mod single;
mod unused;
mod watch;

pub(crate) use group::{Held, enough, released, renamed};
use single::Single;
use unused::Unused;

/// A held lock. Dropping the guard releases the lock in the background. The drop never blocks, never panics and needs
/// no runtime. If the client's runtime has ended, the lock ends with its lease.
///
/// *A guard is no proof that the lock is held.* The lease may end while the process is suspended.
/// [`is_held`](Self::is_held) compares the lease with the local clock, and turns false before the server ends the
/// lease. [`run`](Self::run) stops the work when the lock is lost. If an action must never happen twice, let the
/// storage check a fencing token.
///
/// # Bind it
///
/// The lock is held while the guard lives. Bind the guard to a variable that lives as long as the work:
///
/// ```no_run
/// # use std::time::Duration;
/// # async fn example(lock: distlock::ReentrantLock) -> distlock::Result<()> {
/// if let Some(guard) = lock.try_lock().await? { /* held in here */ }
/// if lock.try_lock().await?.is_some() { /* WRONG: released before the block begins */ }
///
/// let _guard = lock.lock().await?; // held to the end of the scope
/// let _ = lock.lock().await?; // WRONG: released at once
///
/// lock.lock_for(Duration::from_secs(1)).await?; // WRONG, and if the lock was busy it was never held
/// # Ok(())
/// # }
/// ```
///
/// If a guard is dropped within a millisecond and no method of it was called, a warning is logged, once per name.
#[must_use = "dropping the guard releases the lock at once"]
#[clippy::has_significant_drop]
pub struct Guard(Inner, Unused);

enum Inner {
    /// The guard of one lock.
    One(Single),
    /// The guard of a multi lock or RedLock.
    Many(Arc<Held>),
}

/// One lock behind a guard: the lock itself, or a member of a multi lock or RedLock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// The lock's name.
    pub name: Arc<str>,
    /// The fencing token, if the flavour has one.
    pub token: Option<u64>,
    /// True while the lock is held, by the local clock.
    pub is_held: bool,
}

impl Guard {
    pub(crate) fn new(grant: Grant, handle: Arc<Handle>) -> Self {
        let unused = Unused::new(&grant.hold.name().as_written);
        Self(Inner::One(Single::new(grant, handle)), unused)
    }

    /// The guard of a group member, which never reaches the user.
    pub(crate) const fn part(grant: Grant, handle: Arc<Handle>) -> Self {
        Self(Inner::One(Single::new(grant, handle)), Unused::ignored())
    }

    pub(crate) fn of(held: Arc<Held>) -> Self {
        let unused = Unused::new(held.name());
        Self(Inner::Many(held), unused)
    }

    /// The lock or group behind this guard. Marks the guard as used.
    fn inner(&self) -> &Inner {
        self.1.touch();
        &self.0
    }

    /// Returns the lock's name, without the client's prefix.
    #[must_use]
    pub fn name(&self) -> &str {
        match self.inner() {
            Inner::One(one) => one.name(),
            Inner::Many(many) => many.name(),
        }
    }

    /// Returns the owner of this hold, for re-entry by [`Acquire::owner`](crate::Acquire::owner). After this call, the
    /// client does not hand the lock over to another task, because the caller and that task could act as one owner.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        let owner = match self.inner() {
            Inner::One(one) => one.owner(),
            Inner::Many(many) => many.owner(),
        };
        owner.reveal();
        owner
    }

    /// Returns the fencing token: a number that grows with every [section](mod@crate::fenced) of this lock, for the
    /// storage to check.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for every flavour except [fenced](mod@crate::fenced), and for multi locks and RedLocks,
    /// whose [`members`](Self::members) may have tokens.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: distlock::Client) -> distlock::Result<()> {
    /// let guard = client.fenced("orders:42").lock().await?;
    /// let token = guard.fencing_token()?;
    /// // The storage refuses a token below the largest that it has seen.
    /// println!("UPDATE orders SET total = 7, token = {token} WHERE id = 42 AND token <= {token}");
    /// # Ok(())
    /// # }
    /// ```
    pub fn fencing_token(&self) -> Result<u64> {
        let what = match self.inner() {
            Inner::One(one) => match one.token() {
                Some(token) => return Ok(token),
                None => format!("held as {}", one.flavour()),
            },
            Inner::Many(_) => "made of several locks".to_owned(),
        };
        let what = format!(
            "the lock {:?} is {what}, which has no fencing token: use client.fenced(..) if the storage checks tokens",
            self.name()
        );
        Err(Error::Unsupported { what })
    }

    /// Returns the locks behind this guard: the lock itself, or the granted members of a multi lock or RedLock.
    #[must_use]
    pub fn members(&self) -> Vec<Member> {
        match self.inner() {
            Inner::One(one) => {
                vec![Member { name: Arc::clone(one.name()), token: one.token(), is_held: one.is_held() }]
            }
            Inner::Many(many) => many.members(),
        }
    }

    /// True while the lock is held by the local clock: the [`deadline`](Self::deadline) has not passed, and no loss is
    /// known. The call uses no I/O and no timer, so the answer is right even after a long pause of the process.
    #[must_use]
    pub fn is_held(&self) -> bool {
        match self.inner() {
            Inner::One(one) => one.is_held(),
            Inner::Many(many) => many.is_held(),
        }
    }

    /// Returns how long the lock is held without a further renewal; zero when it is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        match self.inner() {
            Inner::One(one) => one.remaining(),
            Inner::Many(many) => many.remaining(),
        }
    }

    /// Returns until when the lock is held without a further renewal: the moment at which the last confirmed command
    /// was sent, plus the lease, less 1 % and 2 ms for drift. If the lock is lost, the returned moment is in the past.
    ///
    /// The deadline counts on a clock that keeps running during suspend. It is converted to an [`Instant`] at the time
    /// of the call.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        let now = Instant::now();
        match self.remaining() {
            Duration::ZERO => now.checked_sub(Duration::from_nanos(1)).unwrap_or(now),
            left => now.checked_add(left).unwrap_or(now),
        }
    }

    /// The grant of the lock behind this guard; none for a multi lock or RedLock.
    pub(crate) fn grant(&self) -> Option<&Grant> {
        match self.inner() {
            Inner::One(one) => Some(one.grant()),
            Inner::Many(_) => None,
        }
    }

    /// The reaper of a client whose lock is behind this guard.
    pub(crate) fn reaper(&self) -> Option<Reaper> {
        match &self.0 {
            Inner::One(one) => Some(one.reaper()),
            Inner::Many(many) => many.reaper(),
        }
    }

    pub(crate) fn why_lost(&self) -> Error {
        match self.inner() {
            Inner::One(one) => one.why_lost(),
            Inner::Many(many) => many.why_lost(),
        }
    }

    /// Sets the lease to `lease` from now, longer or shorter than before. The lease becomes explicit, so it is no
    /// longer renewed. If the same owner holds the lock more than once, the key lives as long as the longest of that
    /// owner's leases.
    ///
    /// The reply must arrive before the shorter of the old and the new lease ends. Otherwise the lock counts as lost,
    /// even if the server has extended the lease.
    ///
    /// # Cost
    ///
    /// One round trip, one command.
    ///
    /// # Cancel safety
    ///
    /// Once begun, the extension is completed.
    ///
    /// # Errors
    ///
    /// - [`Error::Config`]: the lease is shorter than 3 ms or longer than ten years.
    /// - [`Error::Lost`], [`Error::Closed`]: the lock is no longer held.
    /// - The errors of [`DistLock::acquire`](crate::DistLock::acquire). If the outcome is unknown
    ///   ([`Error::outcome_unknown`]), the guard assumes the shorter of its old and its new lease.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn example(guard: distlock::Guard) -> distlock::Result<()> {
    /// guard.extend(Duration::from_secs(120)).await?; // two minutes from now, and no renewal
    /// # Ok(())
    /// # }
    /// ```
    pub async fn extend(&self, lease: Duration) -> Result<()> {
        match self.inner() {
            Inner::One(one) => one.extend(lease)?.await?,
            Inner::Many(many) => many.extend(lease).await?,
        }
        if self.is_held() { Ok(()) } else { Err(self.why_lost()) }
    }

    /// [`extend`](Self::extend) as a future that does not borrow the guard. The caller checks whether the lock is
    /// still held.
    pub(crate) fn extending(&self, lease: Duration) -> BoxFuture<'static, Result<()>> {
        match self.inner() {
            Inner::One(one) => match one.extend(lease) {
                Ok(extending) => Box::pin(extending),
                Err(error) => Box::pin(std::future::ready(Err(error))),
            },
            Inner::Many(many) => many.extend(lease),
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", &self.name())
            .field(
                "owner",
                match &self.0 {
                    Inner::One(one) => one.owner(),
                    Inner::Many(many) => many.owner(),
                },
            )
            .field("is_held", &self.is_held())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
