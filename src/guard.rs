//! What an acquire gives: the guard of a held lock.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::client::Handle;
use crate::config::{check_lease, millis};
use crate::engine::acquire;
use crate::engine::hold::{Grant, lease_until, valid_until};
use crate::engine::ledger::{End, Entry as _};
use crate::engine::protocol::Renewed;
use crate::engine::reaper::Finished;
use crate::engine::release;
use crate::engine::transport::{Moment, Reply, nanos};
use crate::error::{Error, Lost, Result};
use crate::lock::Acquire;
use crate::owner::Owner;

/// What a release left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Released {
    /// This owner holds the lock no more: it is free, or others have it: the next waiter of this process, to whom it was
    /// passed; other readers; the same owner in the other half of a read-write lock.
    Free,
    /// The owner came in several times; so many holds are left.
    StillHeld(u32),
}

/// A held lock. Dropping it releases the lock in the background: that never blocks, never panics and needs no runtime;
/// if the client's runtime is gone, the lease ends the lock.
///
/// *A guard is not proof*: its lease may run out while the process is suspended. [`is_held`](Self::is_held) asks the
/// local clock, which ends the hold before the server does; [`run`](Self::run) stops the work when the lock is lost.
/// What must never happen twice has to be checked where it happens, by a fencing token.
#[must_use = "dropping the guard releases the lock at once"]
#[clippy::has_significant_drop]
pub struct Guard {
    grant: Grant,
    handle: Arc<Handle>,
}

impl Guard {
    pub(crate) fn new(grant: Grant, handle: Arc<Handle>) -> Self {
        Self { grant, handle }
    }

    /// The lock's name, without the client's prefix.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.grant.hold.name().plain
    }

    /// Who holds. Give it to [`Acquire::owner`](crate::Acquire::owner) to come in once more. A lock whose owner was asked
    /// for is not passed on inside this process, since the next one would hold it as the same owner.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        self.grant.hold.owner.reveal();
        &self.grant.hold.owner
    }

    /// The fencing token: a number that grows with every section of this lock, for the storage to check. `None` for
    /// flavours without one.
    #[must_use]
    pub fn token(&self) -> Option<u64> {
        None
    }

    /// True while the lock is held by the local clock: before the [`deadline`](Self::deadline), and not known to be
    /// lost. No I/O and no timer: true after a long pause only if the lease has outlasted it.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.grant.until().is_some()
    }

    /// How long the lock is held without a further renewal; zero when it is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.grant.until().map_or(Duration::ZERO, |until| until.since(self.grant.engine.now()))
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
    /// a release. The future is its own: it may outlive the guard, and move to another task.
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
    fn watch(
        &self,
        early: impl Fn(Duration) -> Duration + Send + 'static,
    ) -> impl Future<Output = Error> + Send + 'static {
        let (hold, level) = (Arc::clone(&self.grant.hold), self.grant.level);
        let clock = self.grant.engine.topology.clone();
        async move {
            let name = || Arc::clone(&hold.name().plain);
            loop {
                let changed = hold.changed.notified();
                let (end, until, lease) = {
                    let book = hold.book();
                    let lease = Duration::from_nanos(book.lease(level).unwrap_or_else(|| book.watched_for()));
                    (book.end_of(level), book.until(level), lease)
                };
                match end {
                    Some(End::Expired) => return Error::Lost { name: name(), why: Lost::Expired },
                    Some(End::Gone) => return Error::Lost { name: name(), why: Lost::Gone },
                    Some(End::Closed) => return Error::Closed,
                    None => {}
                }
                let Some(until) = until else {
                    // Released.
                    drop(clock);
                    return std::future::pending().await;
                };
                let due = Moment::from_nanos(until) - early(lease);
                let left = due.since(clock.now());
                if left.is_zero() {
                    return Error::Lost { name: name(), why: Lost::Expired };
                }
                tokio::select! {
                    () = changed => {}
                    () = tokio::time::sleep(left) => {}
                }
            }
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

    fn why_lost(&self) -> Error {
        let name = Arc::clone(&self.grant.hold.name().plain);
        match self.grant.hold.book().end() {
            Some(End::Gone) => Error::Lost { name, why: Lost::Gone },
            Some(End::Closed) => Error::Closed,
            Some(End::Expired) | None => Error::Lost { name, why: Lost::Expired },
        }
    }

    /// Sets the lease to `lease` from now; it becomes an explicit one, which is not renewed. Where the same owner holds
    /// the lock more than once, the key lives as long as the longest of its leases.
    ///
    /// *Cost*: one round trip, one command. *Cancel safety*: once begun it is carried out. *Errors*: [`Error::Lost`] when
    /// the lock is not held any more, and those of [`DistLock::acquire`](crate::DistLock::acquire); after one that leaves
    /// open what became of it ([`Error::outcome_unknown`]) the shorter of both leases counts.
    pub async fn extend(&self, lease: Duration) -> Result<()> {
        check_lease(lease)?;
        if !self.is_held() {
            return Err(self.why_lost());
        }
        let engine = Arc::clone(&self.grant.engine);
        let (hold, level) = (Arc::clone(&self.grant.hold), self.grant.level);
        let reaper = engine.reaper.clone();
        let extended = Finished::new(&reaper, async move {
            let _order = hold.order.lock().await;
            let (others, kept) = {
                let book = hold.book();
                (Moment::from_nanos(book.until_others(level)), book.is_watched_without(level))
            };
            let sent = engine.now();
            let armed = lease.max(lease_until(sent, others));
            let until = valid_until(sent, lease).as_nanos();
            // Without a reply the lease may be the shorter of both.
            let shortens = hold.book().lease(level).is_some() || lease < engine.options.watchdog;
            let before = hold.book().capped(level, if shortens { until } else { u64::MAX });
            let renewal = hold.protocol.renewal();
            // Negative: exactly so, be it shorter than before. Not where the watchdog keeps it for another guard: a
            // renewal that is under way may have promised that one more.
            let armed = if kept { millis(armed) } else { -millis(armed) };
            let each = Renewed { name: hold.name(), owner: &hold.owner, extend: true };
            let call = renewal.call(armed, std::iter::once(each));
            let reply = engine.topology.node(hold.name()).run(call).await;
            let reply = reply.map_err(|fault| {
                if fault.in_doubt() {
                    // A late copy may shorten the lease of whatever this owner holds then.
                    hold.book().doubt();
                } else {
                    hold.book().uncapped(level, before);
                }
                Error::from_fault(&fault, &hold.name().plain)
            })?;
            match &reply {
                Reply::List(entries) if entries == &[Reply::Int(1)] => {
                    hold.book().extended(level, nanos(lease), until);
                    hold.changed.notify_waiters();
                    Ok(())
                }
                Reply::List(entries) if entries == &[Reply::Int(0)] => {
                    engine.lose(&hold, End::Gone);
                    Err(Error::Lost { name: Arc::clone(&hold.name().plain), why: Lost::Gone })
                }
                odd => Err(Error::odd_reply(renewal.script.name, odd)),
            }
        });
        extended.await?;
        if self.is_held() { Ok(()) } else { Err(self.why_lost()) }
    }

    /// Releases the lock and says what is left of it.
    ///
    /// *Cost*: one round trip, one command; none at all when the lock is passed to the next waiter of this process.
    /// *Cancel safety*: once begun it is carried out in the background; dropped before its first poll, the guard is
    /// dropped, which releases too. *Errors*: [`Error::Lost`] when the hold had been lost before; [`Error::NotHeld`] when
    /// its lease was over, with who holds the lock now; [`Error::Connection`], [`Error::Timeout`] and [`Error::Server`]
    /// when no answer can be had: the release goes on in the background then, and the lock is not renewed any more.
    pub async fn unlock(self) -> Result<Released> {
        let Self { grant, handle } = self;
        let released = release::unlock(grant).await;
        drop(handle);
        released
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
        let Some(weaker) = self.grant.hold.protocol.weaker() else {
            let what = format!(
                "the lock {:?} is held as {}: only a write lock can be downgraded",
                self.name(),
                self.grant.hold.protocol.flavour()
            );
            return Err(Error::Unsupported { what });
        };
        let Some(until) = self.grant.until() else { return Err(self.why_lost()) };
        let engine = Arc::clone(&self.grant.engine);
        let explicit = self.grant.hold.book().lease(self.grant.level).is_some();
        let how = Acquire::new().owner(self.owner()).wait(Duration::ZERO);
        let how = if explicit { how.lease(lease_until(engine.now(), until)) } else { how };
        // Who writes may always read: it is refused only to one who does not write any more.
        let grant = match acquire::acquire(&engine, &weaker, how).await {
            Ok(Some(grant)) => grant,
            Err(error) if self.is_held() => return Err(error),
            _ => return Err(self.why_lost()),
        };
        let reading = Self::new(grant, Arc::clone(&self.handle));
        // It must have been held for writing until the reading began: nobody else wrote in between.
        if self.grant.until().is_none() {
            return Err(self.why_lost());
        }
        match self.unlock().await {
            // The rest of it goes on in the background.
            Ok(_) => {}
            Err(error) if error.is_retryable() => {}
            Err(error) => return Err(error),
        }
        // Giving the other back may have taken longer than this one lasts.
        if reading.is_held() { Ok(reading) } else { Err(reading.why_lost()) }
    }

    /// Gives the lock up without releasing it, and returns who holds it: another task or another process may then
    /// release it by [`DistLock::release`](crate::DistLock::release), or come in by acquiring as this owner. Nobody
    /// renews it until then: it lives as long as its lease.
    ///
    /// *Cost*: none.
    #[must_use = "without the owner nobody can release the lock before its lease ends"]
    pub fn into_owner(mut self) -> Owner {
        let Grant { engine, hold, level, .. } = &self.grant;
        let (engine, hold, level) = (Arc::clone(engine), Arc::clone(hold), *level);
        let owner = hold.owner.clone();
        owner.share();
        if self.grant.take() {
            let mut book = hold.book();
            book.close(level);
            // Whoever ended it cleans up.
            let none_left = book.counted_down() == 0 && book.end().is_none();
            drop(book);
            if none_left {
                engine.holds.released(&hold.key(), &hold);
                engine.registry.forget(&hold);
            }
        }
        owner
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", &self.name())
            .field("owner", &self.grant.hold.owner)
            .field("is_held", &self.is_held())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
