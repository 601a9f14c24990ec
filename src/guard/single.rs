//! The guard of one lock.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::Handle;
use crate::engine::hold::Grant;
use crate::engine::release;
use crate::error::{Error, Result};
use crate::owner::Owner;
use crate::runtime::home::Home;
use crate::runtime::reaper::Reaper;
use crate::state::Released;

/// One guard's grant, with a handle that keeps the client open.
pub(crate) struct Single {
    grant: Grant,
    handle: Arc<Handle>,
}

impl Single {
    pub(super) const fn new(grant: Grant, handle: Arc<Handle>) -> Self {
        Self { grant, handle }
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.grant.hold.name().as_written
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

    pub(super) const fn grant(&self) -> &Grant {
        &self.grant
    }

    pub(super) fn is_held(&self) -> bool {
        self.grant.until().is_some()
    }

    pub(super) fn remaining(&self) -> Duration {
        self.grant.until().map_or(Duration::ZERO, |until| until.since(self.grant.engine.now()))
    }

    pub(super) fn home(&self) -> &Home {
        self.grant.engine.home()
    }

    pub(super) fn watch(
        &self,
        early: impl Fn(Duration) -> Duration + Send + 'static,
        look: Duration,
    ) -> impl Future<Output = Error> + Send + 'static {
        self.grant.watch(early, look)
    }

    pub(super) fn revoked(&self) -> impl Future<Output = ()> + Send + 'static {
        self.grant.revoked()
    }

    pub(super) fn why_lost(&self) -> Error {
        self.grant.why_lost()
    }

    pub(super) fn extend(&self, lease: Duration) -> Result<impl Future<Output = Result<()>> + Send + 'static> {
        self.grant.extend(lease)
    }

    pub(super) fn unlock(self) -> impl Future<Output = Result<Released>> + Send + 'static {
        let Self { grant, handle } = self;
        async move {
            let released = release::unlock(grant).await;
            drop(handle);
            released
        }
    }

    pub(super) async fn downgrade(self) -> Result<Self> {
        let Self { grant, handle } = self;
        Ok(Self { grant: grant.downgrade().await?, handle })
    }

    pub(super) fn into_owner(self) -> Owner {
        let Self { grant, handle } = self;
        let owner = release::give_up(grant);
        drop(handle);
        owner
    }
}
