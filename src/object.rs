//! The lock object: one type for all flavours.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::acquire::Acquire;
use crate::client::Client;
use crate::engine::protocol::Protocol;
use crate::engine::{acquire, release, revoke};
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::lock::{DistLock, Inside, Part, Sealed};
use crate::owner::Owner;
use crate::state::{Released, State};
use crate::transport::{Call, Reply};

/// A lock of flavour `F`, with a type alias for each flavour: [`ReentrantLock`](crate::ReentrantLock),
/// [`FairLock`](crate::FairLock), [`ReadLock`](crate::ReadLock), [`WriteLock`](crate::WriteLock),
/// [`FencedLock`](crate::FencedLock), [`SpinLock`](crate::SpinLock) and [`PlainLock`](crate::PlainLock).
///
/// A [`Client`] creates locks; they are cheap to clone and drop. [`DistLock`] describes the methods. This type has all
/// of them too, so callers need not import the trait. The methods that acquire need no boxed future.
pub struct Lock<F> {
    client: Client,
    protocol: Arc<dyn Protocol>,
    /// `F` is only a function's result type, so that the lock is `Send` and `Sync` for any `F`.
    flavour: PhantomData<fn() -> F>,
}

impl<F> Lock<F> {
    pub(crate) fn new(client: &Client, protocol: impl Protocol) -> Self {
        Self { client: client.clone(), protocol: Arc::new(protocol), flavour: PhantomData }
    }

    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) const fn protocol(&self) -> &Arc<dyn Protocol> {
        &self.protocol
    }

    /// Sends a call that only reads state of this lock.
    pub(crate) async fn ask(&self, call: Call) -> Result<Reply> {
        self.client.engine().ask(self.protocol.name(), call).await
    }

    /// Returns the name, without the client's prefix.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.protocol.name().as_written
    }

    /// [`DistLock::acquire`] without a boxed future.
    ///
    /// The lock is held while the [guard](Guard#bind-it) lives: `if let Some(guard) = lock.acquire(how).await? { .. }`,
    /// not `if lock.acquire(how).await?.is_some() { .. }`.
    pub async fn acquire(&self, how: Acquire) -> Result<Option<Guard>> {
        let guard = if how.is_inner { Guard::part } else { Guard::new };
        let grant = acquire::acquire(self.client.engine(), &self.protocol, how).await?;
        Ok(grant.map(|grant| guard(grant, self.client.handle())))
    }

    /// [`DistLock::lock`] without a boxed future.
    ///
    /// The lock is held while the [guard](Guard#bind-it) lives: `let guard = lock.lock().await?;`, not
    /// `let _ = lock.lock().await?;`.
    pub async fn lock(&self) -> Result<Guard> {
        self.acquire(Acquire::new()).await?.ok_or(Error::Closed)
    }

    /// [`DistLock::try_lock`] without a boxed future.
    ///
    /// The lock is held while the [guard](Guard#bind-it) lives: `if let Some(guard) = lock.try_lock().await? { .. }`,
    /// not `if lock.try_lock().await?.is_some() { .. }`.
    pub async fn try_lock(&self) -> Result<Option<Guard>> {
        self.acquire(Acquire::new().wait(Duration::ZERO)).await
    }

    /// [`DistLock::lock_for`] without a boxed future.
    ///
    /// The lock is held while the [guard](Guard#bind-it) lives:
    /// `if let Some(guard) = lock.lock_for(wait).await? { .. }`, not `lock.lock_for(wait).await?;`.
    pub async fn lock_for(&self, wait: Duration) -> Result<Option<Guard>> {
        self.acquire(Acquire::new().wait(wait)).await
    }

    /// [`DistLock::lock_leased`] without a boxed future.
    ///
    /// The lock is held while the [guard](Guard#bind-it) lives: `let guard = lock.lock_leased(lease).await?;`, not
    /// `let _ = ..`.
    pub async fn lock_leased(&self, lease: Duration) -> Result<Guard> {
        self.acquire(Acquire::new().lease(lease)).await?.ok_or(Error::Closed)
    }
}

impl<F> Sealed for Lock<F> {
    fn inside(&self) -> Inside<'_> {
        Inside::One(Part { client: &self.client, protocol: &self.protocol })
    }
}

impl<F: 'static> DistLock for Lock<F> {
    fn name(&self) -> &str {
        Self::name(self)
    }

    fn acquire(&self, how: Acquire) -> BoxFuture<'_, Result<Option<Guard>>> {
        Box::pin(Self::acquire(self, how))
    }

    fn state(&self) -> BoxFuture<'_, Result<State>> {
        Box::pin(acquire::state(self.client.engine(), &self.protocol))
    }

    fn force_unlock(&self) -> BoxFuture<'_, Result<bool>> {
        Box::pin(release::force(self.client.engine(), &self.protocol))
    }

    fn revoke(&self) -> BoxFuture<'_, Result<bool>> {
        Box::pin(revoke::revoke(self.client.engine(), &self.protocol))
    }

    fn release<'a>(&'a self, owner: &'a Owner) -> BoxFuture<'a, Result<Released>> {
        Box::pin(release::by_owner(self.client.engine(), &self.protocol, owner))
    }
}

// Not derived: a derive would require `F: Clone` and `F: Debug`.
impl<F> Clone for Lock<F> {
    fn clone(&self) -> Self {
        Self { client: self.client.clone(), protocol: Arc::clone(&self.protocol), flavour: PhantomData }
    }
}

impl<F> fmt::Debug for Lock<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("client", &self.client).field("protocol", &self.protocol).finish()
    }
}
