//! The details inside errors: how a lock was lost, why an owner does not hold it or would wait for itself, and which
//! step timed out.

use std::fmt;

/// How a lock was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Lost {
    /// The lease ended by the local clock. A lease kept by the watchdog was not renewed in time.
    Expired,
    /// The server no longer has the hold: its key was deleted or evicted, the lock was freed by `force_unlock`, or the
    /// server lost its data.
    Gone,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its lease expired",
            Self::Gone => "the server no longer has it for this owner",
        })
    }
}

/// How an owner would wait for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Deadlock {
    /// The owner holds the read lock and asked for the write lock. Release the read hold first, or acquire the write
    /// lock from the start and [downgrade](crate::Guard::downgrade).
    Upgrade,
    /// The owner holds the lock already, and re-entry is refused: by the acquire
    /// ([`not_reentrant`](crate::Acquire::not_reentrant)), or because the lock is a [plain lock](mod@crate::plain).
    NotReentrant,
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Upgrade => {
                "it holds the lock for reading and asks to write; release the read hold first, or acquire for writing and downgrade"
            }
            Self::NotReentrant => "it holds the lock already, and re-entry is refused (by not_reentrant, or because the lock is plain)",
        })
    }
}

/// Why an owner does not hold a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotHeld {
    /// The owner held the lock, but the lease ended, or someone else freed the lock. The lock is free now.
    LeaseOver,
    /// Another owner holds the lock.
    HeldBy {
        /// The holder's field in the lock's hash. [`Client::label_of`](crate::Client::label_of) tells which process it is.
        owner: String,
    },
    /// The lock is free, and this client does not know that this owner ever held it.
    Never,
}

impl fmt::Display for NotHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LeaseOver => f.write_str("its lease expired, or it was forced open, before the release"),
            Self::HeldBy { owner } => write!(f, "{owner} holds it now"),
            Self::Never => f.write_str("this client does not know that this owner ever held it"),
        }
    }
}

/// A step that can take too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Step {
    /// Connecting.
    Connect,
    /// A command's reply.
    Command,
    /// Waiting for releases at shutdown.
    Shutdown,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "connection",
            Self::Command => "reply to a command",
            Self::Shutdown => "shutdown to finish",
        })
    }
}

/// The part of a timeout's text that says what happens next.
pub(super) const fn after(step: Step) -> &'static str {
    match step {
        Step::Connect => ": nothing was sent, and connecting may be tried again",
        Step::Command => {
            ": it may have been carried out; in the background an acquire is undone, and a release is retried"
        }
        Step::Shutdown => ": what is not released yet ends with its lease",
    }
}
