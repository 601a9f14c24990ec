//! The spin lock: Redisson's `RSpinLock`.
//!
//! As the [reentrant lock](mod@crate::reentrant), without messages: a release tells nobody, and those who wait look from
//! time to time, by a [`Backoff`]. For many short holds of many names, or where a login may not publish or subscribe. Of one
//! process's tasks only the first in the queue looks, and a lock is handed over inside a process as the reentrant one is.
//!
//! On one name it keeps out reentrant and fenced locks, and they it; but who waits for one of those is not woken by the
//! release of a spin lock, and looks after [`Options::poll_cap`](crate::Options::poll_cap) or at the end of the lease.
//!
//! # Wire format
//!
//! That of the reentrant lock, without the message.

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
    /// The spin lock of this name: Redisson's `getSpinLock(name)`, with its default back-off.
    ///
    /// *Cost*: none; nothing is sent until it is acquired. An impossible name is refused then.
    #[must_use]
    pub fn spin(&self, name: &str) -> SpinLock {
        let name = LockName::new(&self.options().name_prefix, name);
        let protocol = Simple::new(name, &KIND).spinning(Backoff::default());
        Lock::new(self, protocol)
    }
}

/// One owner at a time, who may come in again, without messages: Redisson's `RSpinLock`. See the [module](self), and
/// [`DistLock`](crate::DistLock) for what it can do.
///
/// *Cost*: lock and unlock are one command each. Waiting: one command after every pause of the [`Backoff`].
pub type SpinLock = Lock<Spin>;

/// The flavour of [`SpinLock`].
#[derive(Debug)]
pub enum Spin {}

impl SpinLock {
    /// How those who wait by this object sleep between two looks. Defaults to [`Backoff::default`].
    #[must_use]
    pub fn backoff(self, backoff: Backoff) -> Self {
        let name = Arc::clone(self.protocol().name());
        Self::new(self.client(), Simple::new(name, &KIND).spinning(backoff))
    }
}
