//! The spin lock: Redisson's `RSpinLock`.
//!
//! A [reentrant lock](mod@crate::reentrant) without messages: a release announces nothing, and waiters poll with a
//! [`Backoff`]. It suits many short holds of many names, and logins that may not publish or subscribe. In each process
//! only the first waiter polls. A lock is handed over inside a process, like a reentrant lock.
//!
//! Spin, reentrant and fenced locks of the same name exclude each other. But the release of a spin lock does not wake
//! waiters of the other two flavours, which poll every [`Options::poll_cap`](crate::Options::poll_cap) and at the end
//! of the lease.
//!
//! # Wire format
//!
//! The same as for the reentrant lock, without the message.

use std::sync::Arc;

use crate::client::Client;
use crate::config::Backoff;
use crate::engine::protocol::Nature;
use crate::engine::simple::{HASH_RENEWAL, Kind, Simple};
use crate::names::LockName;
use crate::object::Lock;
use crate::reentrant::{ACQUIRE, FORCE, RELEASE};

static KIND: Kind = Kind {
    nature: Nature { in_batch: true, ..Nature::simple("spin", &HASH_RENEWAL) },
    acquire: &ACQUIRE,
    release: &RELEASE,
    force: &FORCE,
    announces: false,
};

/// # Spin locks
impl Client {
    /// Returns the spin lock of this name, with Redisson's default back-off: Redisson's `getSpinLock(name)`.
    ///
    /// # Cost
    ///
    /// None: nothing is sent until an acquire. An impossible name is refused then.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn example(client: distlock::Client) -> distlock::Result<()> {
    /// let lock = client.spin("cache:warm-up"); // waiters poll: a release sends no message
    /// if let Some(guard) = lock.lock_for(Duration::from_secs(2)).await? {
    ///     guard.unlock().await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn spin(&self, name: &str) -> SpinLock {
        let name = LockName::new(&self.options().name_prefix, name);
        let protocol = Simple::new(name, &KIND).spinning(Backoff::default());
        Lock::new(self, protocol)
    }
}

/// A reentrant lock without messages: Redisson's `RSpinLock`. The [module](self) describes it,
/// [`DistLock`](crate::DistLock) its methods.
///
/// # Cost
///
/// One command each for lock and unlock. Waiting costs one command per pause of the [`Backoff`].
pub type SpinLock = Lock<Spin>;

/// The flavour of [`SpinLock`].
#[derive(Debug)]
pub enum Spin {}

impl SpinLock {
    /// Sets the pauses between polls of this object's waiters. Defaults to [`Backoff::default`].
    #[must_use]
    pub fn backoff(self, backoff: Backoff) -> Self {
        let name = Arc::clone(self.protocol().name());
        Self::new(self.client(), Simple::new(name, &KIND).spinning(backoff))
    }
}
