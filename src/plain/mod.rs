//! The plain lock: the one that everybody else speaks, `SET key value NX PX lease`.
//!
//! Not Redisson's: the lock of Redlock's page, which `redlock` for Node, `redsync` and `bsm/redislock` for Go, `redis-py`'s
//! `Lock`, `rslock` and ShedLock's Redis provider write. Who holds a key of this name in one of these keeps all others out,
//! whatever their language. To share one, give it the same key ([`prefix`](PlainLock::prefix)); whose value it is only its
//! writer has to know.
//!
//! It costs the least of all flavours: one `SET` takes a free lock, and no script; one short script gives it back.
//!
//! # What is different from other flavours
//!
//! - *No re-entry.* An owner that holds it and asks again is told [`WouldDeadlock`](crate::Error::WouldDeadlock), at once and
//!   in every process.
//! - *Waiting.* A release of ours is announced on a channel of ours, so that waiters of this crate are woken, and a lock is
//!   handed over inside a process, as with the reentrant lock. Nobody else announces anything: where another library holds it,
//!   the one of a process's waiters whose turn it is looks, after 5 ms at first and up to every 100 ms
//!   ([`poll`](PlainLock::poll)), and right after the lease's end. There is no order among processes; a library that looks
//!   ten times a second loses most races against one that is woken.
//! - *No fencing token*: the value says who, not when. [`Guard::fencing_token`](crate::Guard::fencing_token) is
//!   [`Unsupported`](crate::Error::Unsupported); use a [fenced lock](mod@crate::fenced).
//! - *A busy key is busy*, whatever it is: `try_lock` of a key that is no string says `None`. Everything else says
//!   [`WrongType`](crate::Error::WrongType).
//! - [`extend`](crate::Guard::extend) to a *shorter* lease has the guard's next `extend` wait until a copy of that command can
//!   come in no more (a command timeout, 3 s): a value has no place for a number that would tell a copy.
//! - [`release`](crate::DistLock::release) by owner is two commands: the value is asked for first.
//!
//! Watchdog, [`lost`](crate::Guard::lost), drop, cancel safety, doubts, and the owner that can be passed on are those of
//! every flavour. [`RedLock::over`](crate::RedLock::over) with [`Flavour::Plain`](crate::Flavour::Plain) is the Redlock that
//! other languages speak too: see [there](mod@crate::redlock).
//!
//! # Wire format
//!
//! Redlock's page (*Distributed Locks with Redis*), and the libraries above.
//!
//! | step | `<key>` | message |
//! |---|---|---|
//! | acquire | `SET <key> <value> NX PX <lease>` | |
//! | renewal, `extend` | `PEXPIRE` lease, if the value is the own one | |
//! | release | deleted, if the value is the own one | `0` on `distlock_plain:{<key>}`, for this crate's waiters |
//! | force | deleted, whatever its value | the same |
//!
//! A value is made for one acquire and never used again: [`PlainValue`]. It begins with the owner.
//!
//! # With whom
//!
//! | library | its key | what it takes here |
//! |---|---|---|
//! | `redlock` (Node), `redsync`, `bsm/redislock` (Go), `rslock` | the name as given | nothing |
//! | `redis-py`'s `Lock` | the name as given | nothing; a lock of its own without `timeout` has no end, and is waited for |
//! | ShedLock's Redis provider | `job-lock:<environment>:<name>` | `.prefix("job-lock:default:")`; its `lockAtLeastFor` keeps the key to that end |
//!
//! Whoever deletes without comparing (ShedLock without `safeUpdate`, `DEL` by hand) may delete anybody's lock, ours too.

use std::any::Any;
use std::time::Duration;

use crate::client::Client;
use crate::config::Backoff;
use crate::names::LockName;
use crate::object::Lock;

mod protocol;
mod value;

pub use value::PlainValue;

/// How those who wait look while another library holds the lock.
const POLL: Backoff = Backoff::of(Duration::from_millis(5), 2.0, Duration::from_millis(100));

/// # Plain locks
impl Client {
    /// The plain lock of this name, by which other libraries know it too: `SET name value NX PX lease`.
    ///
    /// *Cost*: none; nothing is sent until it is acquired. An impossible name is refused then.
    #[must_use]
    pub fn plain(&self, name: &str) -> PlainLock {
        let name = LockName::of_plain(&self.options().name_prefix, name);
        Lock::new(self, protocol::Plain { name, value: PlainValue::Owner, poll: POLL })
    }
}

/// One owner at a time, also of those who use other libraries. See the [module](self), and [`DistLock`](crate::DistLock) for
/// what it can do.
///
/// *Cost*: lock and unlock are one command each. Waiting behind a holder of this crate's: as for other locks. Behind a
/// holder of another library's: one command for each look, by [`poll`](Self::poll).
pub type PlainLock = Lock<Plain>;

/// The flavour of [`PlainLock`].
#[derive(Debug)]
pub enum Plain {}

impl PlainLock {
    /// Put this before the name to make the key, in place of the client's
    /// [`name_prefix`](crate::Builder::name_prefix): another library's, such as `job-lock:default:`.
    #[must_use]
    pub fn prefix(self, prefix: &str) -> Self {
        self.changed(|plain| plain.name = LockName::of_plain(prefix, &plain.name.as_written))
    }

    /// How its values are written. Defaults to [`PlainValue::Owner`]. Makes no difference to whom it keeps out.
    #[must_use]
    pub fn value(self, value: PlainValue) -> Self {
        self.changed(|plain| plain.value = value)
    }

    /// How those who wait by this object sleep between two looks while another library holds it. Defaults to pauses from 5 to
    /// 100 ms, doubled each time, a random part of up to a half taken off.
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
