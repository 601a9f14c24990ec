//! The plain lock, which most lock libraries share: `SET key value NX PX lease`.
//!
//! Redisson does not have this lock. Redlock's page describes it, and these libraries use it: `redlock` for Node,
//! `redsync` and `bsm/redislock` for Go, `redis-py`'s `Lock`, `rslock`, and ShedLock's Redis provider. A holder in any
//! of these libraries excludes all others. To share a lock, use the same key ([`prefix`](PlainLock::prefix)). The
//! values may differ, because a library needs to recognize only its own values.
//!
//! The plain lock is the cheapest flavour: one `SET` without a script acquires a free lock, and one short script
//! releases it.
//!
//! # Differences from other flavours
//!
//! - *No re-entry.* An owner that holds the lock and asks again gets [`WouldDeadlock`](crate::Error::WouldDeadlock),
//!   at once and in every process.
//! - *Waiting.* This crate announces its releases on its own channel, so its waiters are woken. A lock is handed over
//!   inside a process, like a reentrant lock. Other libraries announce nothing. While such a library holds the lock,
//!   one waiter per process polls: first after 5 ms, later up to every 100 ms ([`poll`](PlainLock::poll)), and right
//!   after the end of the lease. Processes have no order. A library that polls ten times a second loses most races
//!   against a waiter that is woken.
//! - *No fencing token*: the value identifies the holder, but does not grow.
//!   [`Guard::fencing_token`](crate::Guard::fencing_token) is [`Unsupported`](crate::Error::Unsupported); use a [fenced
//!   lock](mod@crate::fenced).
//! - *A key of another type* looks busy to `try_lock`, which returns `None`. All other calls return
//!   [`WrongType`](crate::Error::WrongType).
//! - After an [`extend`](crate::Guard::extend) to a *shorter* lease, the guard's next `extend` waits until no late copy
//!   of the first command can arrive (one command timeout, 3 s). A value has no room for a number that would identify
//!   such a copy.
//! - [`release`](crate::DistLock::release) by owner needs two commands: the first command reads the value.
//!
//! Everything else is as for all flavours. [`RedLock::over`](crate::RedLock::over) with
//! [`Flavour::Plain`](crate::Flavour::Plain) is the Redlock that other languages use: see
//! [`redlock`](mod@crate::redlock).
//!
//! # Wire format
//!
//! As on Redlock's page (*Distributed Locks with Redis*), and in the libraries above.
//!
//! | step | `<key>` | message |
//! |---|---|---|
//! | acquire | `SET <key> <value> NX PX <lease>` | |
//! | renewal, `extend` | `PEXPIRE` lease, if the value matches | |
//! | release | deleted, if the value matches | `0` on `distlock_plain:{<key>}`, for waiters of this crate |
//! | force | deleted, whatever its value | the same |
//!
//! Each value is created for one acquire and never reused. [`PlainValue`] describes the forms.
//!
//! # How to share a lock with each library
//!
//! | library | its key | what to set here |
//! |---|---|---|
//! | `redlock` (Node), `redsync`, `bsm/redislock` (Go), `rslock` | the name as given | nothing |
//! | `redis-py`'s `Lock` | the name as given | nothing; without `timeout` its lock has no end |
//! | ShedLock's Redis provider | `job-lock:<environment>:<name>` | `.prefix("job-lock:default:")`; held for `lockAtLeastFor` |
//!
//! A program that deletes the key without comparing the value (ShedLock without `safeUpdate`, a manual `DEL`) may
//! delete the lock of any holder, also of this crate.

use std::any::Any;
use std::time::Duration;

use crate::client::Client;
use crate::config::Backoff;
use crate::names::LockName;
use crate::object::Lock;

mod protocol;
mod value;

pub use value::PlainValue;

/// The default pauses of a waiter while another library holds the lock.
const POLL: Backoff = Backoff::of(Duration::from_millis(5), 2.0, Duration::from_millis(100));

/// # Plain locks
impl Client {
    /// Returns the plain lock of this name, which other libraries can share: `SET name value NX PX lease`.
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
    /// // The same key as `redis.lock.Lock` of Python, `redsync` of Go and others would use.
    /// let guard = client.plain("orders:42").lock_leased(Duration::from_secs(10)).await?;
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn plain(&self, name: &str) -> PlainLock {
        let name = LockName::of_plain(&self.options().name_prefix, name);
        Lock::new(self, protocol::Plain { name, value: PlainValue::Owner, poll: POLL })
    }
}

/// An exclusive lock that other libraries can share. The [module](self) describes it, [`DistLock`](crate::DistLock)
/// its methods.
///
/// # Cost
///
/// One command each for lock and unlock. While this crate holds the lock, waiting costs the same as for other locks.
/// While another library holds it, each poll costs one command ([`poll`](Self::poll)).
pub type PlainLock = Lock<Plain>;

/// The flavour of [`PlainLock`].
#[derive(Debug)]
pub enum Plain {}

impl PlainLock {
    /// Sets the prefix of the key, instead of the client's [`name_prefix`](crate::Builder::name_prefix). The key is
    /// this prefix and the name. Use this for another library's prefix, such as `job-lock:default:`.
    #[must_use]
    pub fn prefix(self, prefix: &str) -> Self {
        self.changed(|plain| plain.name = LockName::of_plain(prefix, &plain.name.as_written))
    }

    /// Sets the form of the values. Locks of different forms exclude each other. Defaults to [`PlainValue::Owner`].
    #[must_use]
    pub fn value(self, value: PlainValue) -> Self {
        self.changed(|plain| plain.value = value)
    }

    /// Sets the pauses between polls of this object's waiters while another library holds the lock. Defaults to
    /// pauses that double from 5 to 100 ms, less a random part of up to a half.
    #[must_use]
    pub fn poll(self, backoff: Backoff) -> Self {
        self.changed(|plain| plain.poll = backoff)
    }

    fn changed(self, change: impl FnOnce(&mut protocol::Plain)) -> Self {
        let known: &dyn Any = &**self.protocol();
        let Some(mut plain) = known.downcast_ref().cloned() else { return self };
        change(&mut plain);
        Self::new(self.client(), plain)
    }
}
