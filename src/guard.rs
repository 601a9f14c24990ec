//! What an acquire gives: the guard of a held lock.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::{BoxFuture, Either};

use crate::engine::Handle;
use crate::engine::hold::Grant;
use crate::engine::suspend::LOOK;
use crate::error::{Error, Result};
use crate::group::Held;
use crate::owner::Owner;
use crate::runtime::home::Home;
use crate::runtime::reaper::Reaper;
use crate::state::Released;

mod single;
mod unused;

use single::Single;
use unused::Unused;

/// A held lock. Dropping it releases the lock in the background: that never blocks, never panics and needs no runtime;
/// if the client's runtime is gone, the lease ends the lock.
///
/// *A guard is not proof*: its lease may run out while the process is suspended. [`is_held`](Self::is_held) asks the
/// local clock, which ends the hold before the server does; [`run`](Self::run) stops the work when the lock is lost.
/// What must never happen twice has to be checked where it happens, by a fencing token.
///
/// # Bind it
///
/// The lock is held for as long as this lives, so it needs a variable that lives as long as the work:
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
/// A guard that is dropped within a millisecond, and of which nothing was asked, is told of by a warning in the log, once a
/// name.
#[must_use = "dropping the guard releases the lock at once"]
#[clippy::has_significant_drop]
pub struct Guard(Inner, Unused);

enum Inner {
    /// Of one lock.
    One(Single),
    /// Of a lock that is made of others.
    Many(Arc<Held>),
}

/// One of the locks behind a guard: the lock itself, or one of those that a multi lock or a RedLock is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// Its name.
    pub name: Arc<str>,
    /// Its fencing token, where its flavour has one.
    pub token: Option<u64>,
    /// True while it is held by the local clock.
    pub is_held: bool,
}

impl Guard {
    pub(crate) fn new(grant: Grant, handle: Arc<Handle>) -> Self {
        let unused = Unused::new(&grant.hold.name().as_written);
        Self(Inner::One(Single::new(grant, handle)), unused)
    }

    /// Of one of several locks that are acquired together: the user never has it.
    pub(crate) const fn part(grant: Grant, handle: Arc<Handle>) -> Self {
        Self(Inner::One(Single::new(grant, handle)), Unused::ignored())
    }

    pub(crate) fn of(held: Arc<Held>) -> Self {
        let unused = Unused::new(held.name());
        Self(Inner::Many(held), unused)
    }

    /// What it is made of, for something that is asked of it.
    fn inner(&self) -> &Inner {
        self.1.touch();
        &self.0
    }

    /// The lock's name, without the client's prefix.
    #[must_use]
    pub fn name(&self) -> &str {
        match self.inner() {
            Inner::One(one) => one.name(),
            Inner::Many(many) => many.name(),
        }
    }

    /// Who holds. Give it to [`Acquire::owner`](crate::Acquire::owner) to come in once more. A lock whose owner was asked
    /// for is not handed over inside this process, since the next one would hold it as the same owner.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        let owner = match self.inner() {
            Inner::One(one) => one.owner(),
            Inner::Many(many) => many.owner(),
        };
        owner.reveal();
        owner
    }

    /// The fencing token: a number that grows with every section of this lock, for the storage to check. `None` for
    /// flavours without one, and for locks made of others: [`members`](Self::members) has theirs.
    #[must_use]
    pub fn token(&self) -> Option<u64> {
        match self.inner() {
            Inner::One(one) => one.token(),
            Inner::Many(_) => None,
        }
    }

    /// The fencing token, where there has to be one: an error for a lock that has none, rather than a number that is left out.
    ///
    /// *Errors*: [`Error::Unsupported`] for every flavour but [fenced](mod@crate::fenced), and for locks made of others.
    pub fn fencing_token(&self) -> Result<u64> {
        self.token().ok_or_else(|| {
            let what = match self.inner() {
                Inner::One(one) => format!("held as {}", one.flavour()),
                Inner::Many(_) => "made of several locks".to_owned(),
            };
            let what = format!(
                "the lock {:?} is {what}, which has no fencing token: use client.fenced(..) where the storage is to check one",
                self.name()
            );
            Error::Unsupported { what }
        })
    }

    /// The locks behind this guard: one, or for a multi lock or a RedLock those of its members that were granted.
    #[must_use]
    pub fn members(&self) -> Vec<Member> {
        match self.inner() {
            Inner::One(one) => {
                vec![Member { name: Arc::clone(one.name()), token: one.token(), is_held: one.is_held() }]
            }
            Inner::Many(many) => many.members(),
        }
    }

    /// True while the lock is held by the local clock: before the [`deadline`](Self::deadline), and not known to be
    /// lost. No I/O and no timer: true after a long pause only if the lease has outlasted it.
    #[must_use]
    pub fn is_held(&self) -> bool {
        match self.inner() {
            Inner::One(one) => one.is_held(),
            Inner::Many(many) => many.is_held(),
        }
    }

    /// How long the lock is held without a further renewal; zero when it is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        match self.inner() {
            Inner::One(one) => one.remaining(),
            Inner::Many(many) => many.remaining(),
        }
    }

    /// Until when the lock is held without a further renewal: the moment before the last confirmed command was sent,
    /// plus the lease, less 1 % and 2 ms for drift. Reckoned on a clock that goes on during suspend; as an [`Instant`]
    /// it is as of now. In the past when the lock is lost.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        let now = Instant::now();
        match self.remaining() {
            Duration::ZERO => now.checked_sub(Duration::from_nanos(1)).unwrap_or(now),
            left => now.checked_add(left).unwrap_or(now),
        }
    }

    /// Done when the lock is lost, with the reason: [`Error::Lost`], or [`Error::Closed`] after a shutdown. Never done by
    /// a release. On an executor without timers [`Error::RuntimeGone`] as soon as the client's runtime has ended. The future
    /// is its own: it may outlive the guard, and move to another task.
    ///
    /// *Cost*: none. *Cancel safety*: may be dropped and asked for again.
    #[must_use = "futures do nothing unless awaited"]
    pub fn lost(&self) -> impl Future<Output = Error> + Send + 'static {
        self.watch(|_| Duration::ZERO)
    }

    /// Done when a third of the lease is left and no renewal has come through, or at once when the lock is lost: time to
    /// bring the work to an end. Never done by a release.
    ///
    /// *Cost*: none. *Cancel safety*: may be dropped and asked for again.
    #[must_use = "futures do nothing unless awaited"]
    pub fn expiring(&self) -> impl Future<Output = ()> + Send + 'static {
        let watch = self.watch(|lease| lease / 3);
        async move { drop(watch.await) }
    }

    /// Done when the hold has ended, or only `early` of its lease is left.
    pub(crate) fn watch(
        &self,
        early: impl Fn(Duration) -> Duration + Copy + Send + Sync + 'static,
    ) -> impl Future<Output = Error> + Send + 'static {
        match self.inner() {
            Inner::One(one) => {
                let watching = one.home().run(one.watch(early, Duration::MAX));
                let here = one.watch(early, LOOK);
                Either::Left(async move {
                    match watching.await {
                        // Nobody renews it any more, but its lease may run still: a clock is to be had here as well.
                        Error::RuntimeGone if Home::here().is_ok() => here.await,
                        error => error,
                    }
                })
            }
            Inner::Many(many) => Either::Right(many.watch(early)),
        }
    }

    /// Runs `work` under the lock, and stops it when the lock is lost: `work` is then dropped at its next await point.
    /// The lock stays held afterwards; the guard releases it.
    ///
    /// *Cost*: none. *Cancel safety*: that of `work`. *Errors*: [`Error::Lost`], [`Error::Closed`].
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output> {
        tokio::select! {
            biased;
            lost = self.lost() => Err(lost),
            output = work => {
                // Done, but was it in time?
                if self.is_held() { Ok(output) } else { Err(self.why_lost()) }
            }
        }
    }

    /// What goes on on the client's runtime, of one of its clients.
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

    /// Sets the lease to `lease` from now; it becomes an explicit one, which is not renewed. Where the same owner holds
    /// the lock more than once, the key lives as long as the longest of its leases.
    ///
    /// The answer has to come before the shorter of both leases ends: the guard is lost by then, whatever the server says.
    ///
    /// *Cost*: one round trip, one command. *Cancel safety*: once begun it is carried out. *Errors*: [`Error::Lost`] when
    /// the lock is not held any more, and those of [`DistLock::acquire`](crate::DistLock::acquire); after one that leaves
    /// open what became of it ([`Error::outcome_unknown`]) the shorter of both leases counts.
    pub async fn extend(&self, lease: Duration) -> Result<()> {
        match self.inner() {
            Inner::One(one) => one.extend(lease)?.await?,
            Inner::Many(many) => many.extend(lease).await?,
        }
        if self.is_held() { Ok(()) } else { Err(self.why_lost()) }
    }

    /// As [`extend`](Self::extend), as a future of its own; its caller checks whether the lock is still held.
    pub(crate) fn extending(&self, lease: Duration) -> BoxFuture<'static, Result<()>> {
        match self.inner() {
            Inner::One(one) => match one.extend(lease) {
                Ok(extending) => Box::pin(extending),
                Err(error) => Box::pin(std::future::ready(Err(error))),
            },
            Inner::Many(many) => many.extend(lease),
        }
    }

    /// Releases the lock and says what is left of it.
    ///
    /// *Cost*: one round trip, one command; none at all when the lock is handed over to the next waiter of this process. A release that
    /// leaves other holds of the owner costs one more (`TIME`) after a minute without news of the server's time. *Duration*: at most until
    /// the end of the lease ([`remaining`](Self::remaining)), and no longer than [`DistLock::lock`](crate::DistLock::lock) retries at a
    /// server that is away. A lost guard returns at once.
    ///
    /// *Cancel safety*: once begun it is carried out in the background; dropped before its first poll, the guard is dropped, which releases
    /// too. *Errors*: [`Error::Lost`] when [`is_held`](Self::is_held) was false, for whatever reason. [`Error::ReleasePending`] when the
    /// server does not answer, or refuses for the moment, for all that time: the release is retried in the background until the lease is
    /// over, and the lock is no longer renewed. [`Error::NotHeld`] when the server no longer had the hold, with who holds the lock now.
    /// [`Error::Server`] when it refuses for good. [`Error::Closed`] after a shutdown.
    pub async fn unlock(self) -> Result<Released> {
        self.1.touch();
        match self.0 {
            Inner::One(one) => one.unlock().await,
            Inner::Many(many) => many.unlock().await,
        }
    }

    /// As [`unlock`](Self::unlock), as a future of its own.
    pub(crate) fn unlocking(self) -> BoxFuture<'static, Result<Released>> {
        self.1.touch();
        match self.0 {
            Inner::One(one) => Box::pin(one.unlock()),
            Inner::Many(many) => many.unlock(),
        }
    }

    /// Changes a hold for writing into one for reading, as the same owner: no writer comes in between, and readers that wait
    /// come in at once. The lease stays what it is: the watchdog's, or what is left of an explicit one. Where the owner holds
    /// the lock for writing more than once, the other holds stay.
    ///
    /// *Cost*: two round trips, two commands: Redisson's order of calls, reading before writing ends. *Cancel safety*: once
    /// begun, the write hold is given back; whatever was taken for reading is given back too when nobody waits for it.
    /// *Errors*: [`Error::Unsupported`] for a lock that is not held for writing; [`Error::Lost`] and [`Error::NotHeld`] when
    /// the write hold had ended; those of [`DistLock::acquire`](crate::DistLock::acquire). After an error nothing is held.
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

    /// Gives the lock up without releasing it, and returns who holds it: another task or another process may then
    /// release it by [`DistLock::release`](crate::DistLock::release), or come in by acquiring as this owner. Nobody
    /// renews it until then: it lives as long as its lease.
    ///
    /// *Cost*: none on the caller's path; one command in the background where the lock was acquired as a given owner.
    #[must_use = "without the owner nobody can release the lock before its lease ends"]
    pub fn into_owner(self) -> Owner {
        self.1.touch();
        match self.0 {
            Inner::One(one) => one.into_owner(),
            Inner::Many(many) => many.give_up(),
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
