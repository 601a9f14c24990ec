//! Operations of a guard on its share in a hold: watch, extend, downgrade.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::acquire;
use super::extend::Extension;
use super::hold::{Grant, lease_until};
use super::ledger::{End, Entry as _};
use super::release;
use crate::acquire::Acquire;
use crate::config::check_lease;
use crate::error::{Error, Result};
use crate::runtime::reaper::Finished;
use crate::world::Moment;

impl Grant {
    /// Completes when the hold has ended, or when only `early` of its lease is left. While the client's runtime runs,
    /// the watcher is woken after a suspend (`suspend.rs`). It also reads the clock at least every `look`.
    pub(crate) fn watch(
        &self,
        early: impl Fn(Duration) -> Duration + Send + 'static,
        look: Duration,
    ) -> impl Future<Output = Error> + Send + 'static {
        let (hold, level) = (Arc::clone(&self.hold), self.level);
        let clock = self.engine.topology.clone();
        async move {
            loop {
                let changed = hold.changed.notified();
                let (end, outlook, now) = {
                    let book = hold.book();
                    // The clock is read under the book's lock, as in [`Grant::until`]: a reported end is final.
                    (book.end_of(level), book.until_and_lease(level), clock.now())
                };
                if let Some(end) = end {
                    return hold.lost(end);
                }
                let Some((until, lease)) = outlook else {
                    // Released: there is nothing left to report.
                    drop(clock);
                    return std::future::pending().await;
                };
                let due = Moment::from_nanos(until) - early(Duration::from_nanos(lease));
                let left = due.since(now);
                if left.is_zero() {
                    return hold.lost(End::Expired);
                }
                tokio::select! {
                    biased;
                    () = changed => {}
                    () = tokio::time::sleep(left.min(look)) => {}
                }
            }
        }
    }

    /// Completes when the holder was asked to finish while this guard has not been released.
    pub(crate) fn revoked(&self) -> impl Future<Output = ()> + Send + 'static {
        let (hold, level) = (Arc::clone(&self.hold), self.level);
        async move {
            loop {
                let changed = hold.changed.notified();
                let is_revoked = hold.book().is_revoked_for(level);
                if is_revoked {
                    return;
                }
                changed.await;
            }
        }
    }

    /// The guard's end as an error. If the book knows no other reason, the lease has expired.
    pub(crate) fn why_lost(&self) -> Error {
        let end = self.hold.book().end_of(self.level);
        self.hold.lost(end.unwrap_or(End::Expired))
    }

    /// Extends the lease. Once started, the extension continues even if the future is dropped. After the extension, the
    /// caller must check whether the lock is still held.
    pub(crate) fn extend(&self, lease: Duration) -> Result<impl Future<Output = Result<()>> + Send + 'static> {
        check_lease(lease)?;
        if self.until().is_none() {
            return Err(self.why_lost());
        }
        let Self { engine, hold, level, .. } = self;
        let extension = Extension { engine: Arc::clone(engine), hold: Arc::clone(hold), level: *level, lease };
        Ok(Finished::new(&engine.reaper, extension.make()))
    }

    /// Converts a write hold into a read hold: [`Guard::downgrade`](crate::Guard::downgrade).
    pub(crate) async fn downgrade(self) -> Result<Self> {
        let (engine, hold) = (Arc::clone(&self.engine), Arc::clone(&self.hold));
        let Some(weaker) = hold.protocol.halves().and_then(|halves| halves.weaker()) else {
            let what = format!(
                "the lock {:?} is held as {}: only a write lock can be downgraded",
                hold.name().as_written,
                hold.protocol.flavour()
            );
            return Err(Error::Unsupported { what });
        };
        let Some(until) = self.until() else { return Err(self.why_lost()) };
        let explicit = hold.book().lease(self.level).is_some();
        hold.owner.reveal();
        let how = Acquire::new().owner(&hold.owner).wait(Duration::ZERO);
        let how = if explicit { how.lease(lease_until(engine.now(), until)) } else { how };
        // A writer may always read, so a refusal means that the write hold is gone.
        let reading = match acquire::acquire(&engine, &weaker, how).await {
            Ok(Some(grant)) => grant,
            Err(error) if self.until().is_some() => return Err(error),
            _ => return Err(self.why_lost()),
        };
        // The write hold must have lasted until the read hold began. Otherwise another writer may have held the lock in
        // between.
        if self.until().is_none() {
            return Err(self.why_lost());
        }
        match release::unlock(self).await {
            Ok(_) => {}
            Err(Error::ReleasePending { .. }) => {}
            Err(error) => return Err(error),
        }
        // The release of the write hold may have taken longer than the read hold lasts.
        if reading.until().is_some() { Ok(reading) } else { Err(reading.why_lost()) }
    }
}
