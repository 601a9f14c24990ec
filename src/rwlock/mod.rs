//! The read-write lock: Redisson's `getReadWriteLock`. Many readers at once, or one writer.
//!
//! `client.rw(name).read()` and `.write()` are two separate locks, each a [`DistLock`](crate::DistLock).
//!
//! - **Re-entry**: an owner may re-enter either half, and may acquire the read half while it holds the write half. An
//!   owner that holds only the read half may *not* acquire the write half, because two such owners would wait for each
//!   other. The acquire is refused at once ([`Error::WouldDeadlock`](crate::Error::WouldDeadlock)). In Redisson, the
//!   owner would wait for itself.
//! - **Downgrade**: call [`Guard::downgrade`](crate::Guard::downgrade), or use Redisson's order of calls: acquire the
//!   read lock as the same owner, then release the write hold. No other writer acquires the lock in between, and
//!   waiting readers acquire it at once.
//! - **Leases**: every read hold has its own lease. A dead reader keeps writers out only until its lease ends, however
//!   many other readers there are. A client renews only its own holds.
//! - **Wake-ups**: when a writer releases the lock, all waiting readers of all processes acquire it together, Java's
//!   included. When the last reader releases the lock, one waiter of each half in each process tries. In a process, one
//!   task per half asks Redis on behalf of all waiting tasks.
//!
//! # Who is preferred?
//!
//! [`Prefer::Readers`](crate::Prefer) is Redisson's rule and the default: a new reader joins the current readers. A
//! writer needs a moment without readers, so an endless stream of readers keeps the writer out.
//!
//! [`Prefer::Writers`](crate::Prefer) is set by [`Options::prefer`](crate::Options::prefer) or [`RwLock::prefer`]. A
//! waiting writer of this crate writes a mark to Redis. The mark holds back readers of this crate that arrive later, of
//! any client and with any preference. The mark does not hold back:
//!
//! - an owner that re-enters the lock;
//! - a reader that has waited for [`Options::max_reader_delay`](crate::Options::max_reader_delay) (1 s). So if a task
//!   reads twice under two owners, and a writer begins to wait in between, the second read is delayed for that time
//!   only;
//! - readers of Java, which do not know the mark. A waiting writer of Java writes no mark.
//!
//! # Wire format
//!
//! As Redisson's, without its unlock latch:
//!
//! | key | content |
//! |---|---|
//! | `<name>` | hash: `mode` = `read` or `write`; `<owner>`: its read holds; `<owner>:write`: its write holds |
//! | `{<name>}:<owner>:rwlock_timeout:<n>` | *cover*: `1`, with the lease of the owner's read hold n |
//! | `redisson_rwlock:{<name>}` | the channel of both halves: `0` = the last reader left, `1` = a writer left |
//! | `{<name>}:rwlock_waiting` | only if writers are preferred, only from this crate: sorted set of waiting writers |
//!
//! `docs/wire-format.md` lists the differences from Redisson, which harm neither side.

use std::sync::Arc;

use crate::client::Client;
use crate::config::{LONGEST_LEASE, Prefer, millis};
use crate::names::LockName;
use crate::object::Lock;

mod halves;

use halves::{Reading, Writing};

/// # Read-write locks
impl Client {
    /// Returns the read-write lock of this name: Redisson's `getReadWriteLock(name)`.
    ///
    /// # Cost
    ///
    /// None: nothing is sent until a half is acquired. An impossible name is refused then.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: distlock::Client) -> distlock::Result<()> {
    /// let prices = client.rw("prices");
    /// {
    ///     let _reading = prices.read().lock().await?; // beside other readers
    /// }
    /// let writing = prices.write().lock().await?; // alone
    /// writing.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn rw(&self, name: &str) -> RwLock {
        let (read, write) = LockName::halves(&self.options().name_prefix, name);
        RwLock { client: self.clone(), read, write, prefer: self.options().prefer }
    }
}

/// A lock in two halves: [`read`](Self::read) is shared, [`write`](Self::write) is exclusive. See the [module](self).
#[derive(Clone, Debug)]
pub struct RwLock {
    client: Client,
    read: Arc<LockName>,
    write: Arc<LockName>,
    prefer: Prefer,
}

impl RwLock {
    /// Sets who is preferred when writers of this object wait. Defaults to the client's
    /// [`Options::prefer`](crate::Options::prefer).
    #[must_use]
    pub fn prefer(mut self, prefer: Prefer) -> Self {
        self.prefer = prefer;
        self
    }

    /// Returns the name, without the client's prefix.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.read.as_written
    }

    /// Returns the shared half: Redisson's `readLock()`.
    #[must_use]
    pub fn read(&self) -> ReadLock {
        Lock::new(&self.client, Reading::new(&self.read, &self.write))
    }

    /// Returns the exclusive half: Redisson's `writeLock()`.
    #[must_use]
    pub fn write(&self) -> WriteLock {
        let mark = match self.prefer {
            Prefer::Readers => 0,
            // A waiter asks at least every `poll_cap`, and each attempt renews the mark, which lasts twice that time.
            Prefer::Writers => millis(self.client.options().poll_cap.saturating_mul(2).min(LONGEST_LEASE)),
        };
        Lock::new(&self.client, Writing::new(&self.write, &self.read, mark))
    }
}

/// The shared half of a read-write lock: Redisson's `readLock()`. The [module](self) describes its rules and wire
/// format, [`DistLock`](crate::DistLock) its methods.
///
/// # Cost
///
/// One command each for lock and unlock. While a task of a process asks, tasks that arrive later wait for the reply to
/// that task. If the reply grants the lock, the waiting tasks ask together, up to 32 with one command. A release looks
/// at only a few of the other readers, however many there are: `docs/performance.md`, *What each script costs*.
pub type ReadLock = Lock<Read>;

/// The flavour of [`ReadLock`].
#[derive(Debug)]
pub enum Read {}

/// The exclusive half of a read-write lock: Redisson's `writeLock()`. The [module](self) describes its rules and wire
/// format, [`DistLock`](crate::DistLock) its methods.
///
/// # Cost
///
/// The same as for the [reentrant lock](crate::ReentrantLock). If writers are preferred, a waiter that gives up costs
/// one more command, in the background.
pub type WriteLock = Lock<Write>;

/// The flavour of [`WriteLock`].
#[derive(Debug)]
pub enum Write {}
