//! What an acquire is asked for.

use std::time::Duration;

use crate::config::check_lease;
use crate::error::Result;
use crate::owner::Owner;

/// How to acquire: how long to wait, for how long to hold, as whom.
///
/// Without a wait, an acquire waits until the lock is free. While the server is away it fails as [`DistLock::lock`](crate::DistLock::lock)
/// says. Without a lease, the watchdog keeps the lock while the guard lives. Without an owner, a fresh one is made.
#[derive(Clone, Debug, Default)]
#[must_use = "pass it to acquire()"]
pub struct Acquire {
    pub(crate) wait: Option<Duration>,
    pub(crate) lease: Option<Duration>,
    pub(crate) owner: Option<Owner>,
    /// True when the owner must hold nothing yet.
    pub(crate) not_reentrant: bool,
    /// True when the owner, though it is given, was made for this acquire, and holds nothing.
    pub(crate) holds_nothing: bool,
    /// True for one of several locks that make up another one: its guard is a part of that one's.
    pub(crate) grouped: bool,
    /// For how long the acquire that this one is a part of had waited when this one began: a reader's patience is counted from
    /// the beginning of that.
    pub(crate) waited_before: Duration,
    /// True when the first failure ends the wait, because the caller then asks other servers.
    pub(crate) ends_with_failure: bool,
}

impl Acquire {
    /// Waits without limit while somebody holds the lock, with a lease kept by the watchdog, as a fresh owner.
    pub fn new() -> Self {
        Self::default()
    }

    /// How long the acquire may take, *everything included*: queueing, subscribing, every command. Zero asks once.
    /// Defaults to no limit.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Hold for this long and no longer: an explicit lease is never renewed. At least 3 ms, since 1 % and 2 ms of
    /// it are taken off for drift; rounded up to whole ms. Defaults to the watchdog.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Acquire as this owner: if it holds the lock already, it comes in once more. Defaults to the owner of the
    /// enclosing [`Owner::scope`], else to a fresh one.
    pub fn owner(mut self, owner: &Owner) -> Self {
        self.owner = Some(owner.clone());
        self
    }

    /// Do not come in again: an owner that holds the lock already is told so at once, by
    /// [`Error::WouldDeadlock`](crate::Error::WouldDeadlock), and keeps what it has, as with Redisson's non-reentrant locks.
    /// Defaults to coming in again.
    pub fn not_reentrant(mut self) -> Self {
        self.not_reentrant = true;
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.lease.map_or(Ok(()), check_lease)
    }
}
