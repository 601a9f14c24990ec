//! The read-write lock: Redisson's `getReadWriteLock`. Many readers side by side, or one writer.
//!
//! `client.rw(name).read()` and `.write()` are locks of their own, each a [`DistLock`](crate::DistLock); what is said here
//! is all there is to say of them together.
//!
//! - **Re-entry**: an owner may come in again in either half, and for reading while it writes. It may *not* come in for
//!   writing while it only reads: two such owners would wait for one another. That is refused at once
//!   ([`Error::WouldDeadlock`](crate::Error::WouldDeadlock)); Redisson's waits for itself.
//! - **Downgrade**: [`Guard::downgrade`](crate::Guard::downgrade), or Redisson's order of calls: take the lock for reading as
//!   the same owner, then give the write hold back. No writer comes in between, and readers that wait come in at once.
//! - **Leases**: every hold for reading has its own. A reader that dies keeps writers out until its lease ends and no
//!   longer, however many others read on; a client renews its own holds and nobody else's.
//! - **Waking**: when a writer leaves, all readers that wait come in together, of all processes, Java's included. When the
//!   last reader leaves, one waiter of each kind a process tries. In a process one task a half speaks for all that wait.
//!
//! # Whom it prefers
//!
//! [`Prefer::Readers`](crate::Prefer), Redisson's rule and the default: whoever comes for reading joins those who read. A
//! writer gets in when there is a moment without readers; an endless stream of them keeps it out.
//!
//! [`Prefer::Writers`](crate::Prefer), by [`Options::prefer`](crate::Options::prefer) or [`RwLock::prefer`]: a writer of ours
//! that waits is known in Redis, and holds back readers of ours that come after it, of any client and whatever they prefer
//! themselves. It holds back nobody who is in already and comes in again, and nobody for longer than
//! [`Options::hold_back`](crate::Options::hold_back), 1 s: a reader that has waited so long comes in as if readers were
//! preferred. So a task that reads twice at a time under two owners, with a writer waiting in between, is held up for that
//! long and no longer. Readers of Java are not held back, and its writers hold back nobody: to them the lock is as it was.
//!
//! # Wire format
//!
//! As Redisson's, without its unlock latch:
//!
//! | | |
//! |---|---|
//! | `<name>` | hash: `mode` = `read` or `write`; `<owner>`: its holds for reading; `<owner>:write`: its holds for writing |
//! | `{<name>}:<owner>:rwlock_timeout:<n>` | its cover: `1`, with the lease of the owner's hold number n for reading |
//! | `redisson_rwlock:{<name>}` | the channel of both halves: `0` = the last reader left, `1` = a writer left |
//! | `{<name>}:rwlock_waiting` | only where writers are preferred, ours alone: sorted set of the writers that wait |
//!
//! Where it differs from Redisson's, to the good of both: `docs/wire-format.md` has the list.

use std::sync::Arc;

use crate::client::Client;
use crate::config::{LONGEST_LEASE, Prefer, millis};
use crate::names::LockName;
use crate::object::Lock;

mod halves;

use halves::{Reading, Writing};

/// # Read-write locks
impl Client {
    /// The read-write lock of this name: Redisson's `getReadWriteLock(name)`.
    ///
    /// *Cost*: none; nothing is sent until a half of it is acquired. An impossible name is refused then.
    #[must_use]
    pub fn rw(&self, name: &str) -> RwLock {
        let (read, write) = LockName::halves(&self.options().name_prefix, name);
        RwLock { client: self.clone(), read, write, prefer: self.options().prefer }
    }
}

/// A lock in two halves: [`read`](Self::read) for many, [`write`](Self::write) for one. See the [module](self).
#[derive(Clone, Debug)]
pub struct RwLock {
    client: Client,
    read: Arc<LockName>,
    write: Arc<LockName>,
    prefer: Prefer,
}

impl RwLock {
    /// Whom this lock prefers, as far as its own writers go. Defaults to the client's
    /// [`Options::prefer`](crate::Options::prefer).
    #[must_use]
    pub fn prefer(mut self, prefer: Prefer) -> Self {
        self.prefer = prefer;
        self
    }

    /// The name, without the client's prefix.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.read.as_written
    }

    /// The half that many may hold side by side: Redisson's `readLock()`.
    #[must_use]
    pub fn read(&self) -> ReadLock {
        Lock::new(&self.client, Reading::new(&self.read, &self.write))
    }

    /// The half that one holds alone: Redisson's `writeLock()`.
    #[must_use]
    pub fn write(&self) -> WriteLock {
        let mark = match self.prefer {
            Prefer::Readers => 0,
            // A waiter looks for itself that often, and sets its mark anew.
            Prefer::Writers => millis(self.client.options().poll_cap.saturating_mul(2).min(LONGEST_LEASE)),
        };
        Lock::new(&self.client, Writing::new(&self.write, &self.read, mark))
    }
}

/// The half of a read-write lock that many may hold side by side: Redisson's `readLock()`. See the [module](self) for its
/// rules and its wire format, and [`DistLock`](crate::DistLock) for what it can do.
///
/// *Cost*: lock and unlock are one command each. Tasks of one process that come while one of them asks wait for its answer;
/// if it comes in they all ask together, up to 32 with one command. A release looks at a few of the other readers, not at all of
/// them, however many read: `docs/performance.md`, *What each script costs*.
pub type ReadLock = Lock<Read>;

/// The flavour of [`ReadLock`].
#[derive(Debug)]
pub enum Read {}

/// The half of a read-write lock that one owner holds alone: Redisson's `writeLock()`. See the [module](self) for its rules
/// and its wire format, and [`DistLock`](crate::DistLock) for what it can do.
///
/// *Cost*: as of the [reentrant lock](crate::ReentrantLock). Where writers are preferred, a wait that is given up costs one
/// more command, in the background.
pub type WriteLock = Lock<Write>;

/// The flavour of [`WriteLock`].
#[derive(Debug)]
pub enum Write {}
