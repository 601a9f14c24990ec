//! The guard of one lock.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::acquire::Acquire;
use crate::config::check_lease;
use crate::engine::Handle;
use crate::engine::acquire;
use crate::engine::extend::Extension;
use crate::engine::hold::{Grant, lease_until};
use crate::engine::ledger::{End, Entry as _};
use crate::engine::release;
use crate::error::{Error, Result};
use crate::owner::Owner;
use crate::runtime::home::Home;
use crate::runtime::reaper::{Finished, Reaper};
use crate::state::Released;
use crate::world::Moment;

/// A share in a hold, and in the client that keeps it.
pub(crate) struct Single {
    grant: Grant,
    handle: Arc<Handle>,
}

impl Single {
    pub(super) const fn new(grant: Grant, handle: Arc<Handle>) -> Self {
        Self { grant, handle }
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.grant.hold.name().plain
    }

    pub(super) fn owner(&self) -> &Owner {
        &self.grant.hold.owner
    }

    pub(super) fn reaper(&self) -> Reaper {
        self.grant.engine.reaper.clone()
    }

    pub(super) const fn token(&self) -> Option<u64> {
        self.grant.token
    }

    pub(super) fn flavour(&self) -> &'static str {
        self.grant.hold.protocol.flavour()
    }

    pub(super) fn is_held(&self) -> bool {
        self.grant.until().is_some()
    }

    pub(super) fn remaining(&self) -> Duration {
        self.grant.until().map_or(Duration::ZERO, |until| until.since(self.grant.engine.now()))
    }

    /// The runtime of the client.
    pub(super) fn home(&self) -> &Home {
        self.grant.engine.home()
    }

    /// Done when the hold has ended, or only `early` of its lease is left. After a suspend whoever watches is told to look at
    /// the clock anew for as long as the client's runtime goes on; `look`: looks so often by itself.
    pub(super) fn watch(
        &self,
        early: impl Fn(Duration) -> Duration + Send + 'static,
        look: Duration,
    ) -> impl Future<Output = Error> + Send + 'static {
        let (hold, level) = (Arc::clone(&self.grant.hold), self.grant.level);
        let clock = self.grant.engine.topology.clone();
        async move {
            loop {
                let changed = hold.changed.notified();
                let (end, outlook, now) = {
                    let book = hold.book();
                    // Whoever hears of a longer lease later finds it over: what is told is final.
                    (book.end_of(level), book.until_and_lease(level), clock.now())
                };
                if let Some(end) = end {
                    return hold.lost(end);
                }
                let Some((until, lease)) = outlook else {
                    // Released.
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

    pub(super) fn why_lost(&self) -> Error {
        let end = self.grant.hold.book().end_of(self.grant.level);
        self.grant.hold.lost(end.unwrap_or(End::Expired))
    }

    /// Extends the lease. Goes on once it has begun; what it ends with still has to be held.
    pub(super) fn extend(&self, lease: Duration) -> Result<impl Future<Output = Result<()>> + Send + 'static> {
        check_lease(lease)?;
        if !self.is_held() {
            return Err(self.why_lost());
        }
        let Grant { engine, hold, level, .. } = &self.grant;
        let extension = Extension { engine: Arc::clone(engine), hold: Arc::clone(hold), level: *level, lease };
        Ok(Finished::new(&engine.reaper, extension.make()))
    }

    /// Releases it.
    pub(super) fn unlock(self) -> impl Future<Output = Result<Released>> + Send + 'static {
        let Self { grant, handle } = self;
        async move {
            let released = release::unlock(grant).await;
            drop(handle);
            released
        }
    }

    /// As [`Guard::downgrade`](crate::Guard::downgrade).
    pub(super) async fn downgrade(self) -> Result<Self> {
        let Some(weaker) = self.grant.hold.protocol.halves().and_then(|halves| halves.weaker()) else {
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
        self.owner().reveal();
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

    /// As [`Guard::into_owner`](crate::Guard::into_owner).
    pub(super) fn into_owner(mut self) -> Owner {
        let Grant { engine, hold, level, .. } = &self.grant;
        let (engine, hold, level) = (Arc::clone(engine), Arc::clone(hold), *level);
        let owner = hold.owner.clone();
        owner.reveal();
        if self.grant.take() {
            let mut book = hold.book();
            let Some(number) = book.close(level).filter(|_| book.end().is_none()) else {
                // Whoever ended it cleans up.
                return owner;
            };
            let tenure = book.tenure();
            let none_left = book.counted_down(tenure);
            let doubted = book.undoubt(number);
            drop(book);
            if number > 0 {
                release::disown(&engine, &hold, number, doubted);
            }
            if none_left {
                engine.holds.released(&hold.key(), &hold);
                engine.registry.forget(&hold);
            }
        }
        owner
    }
}
