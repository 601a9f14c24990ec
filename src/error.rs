//! The errors of this crate. [`guide::errors`](crate::guide::errors) has a table of them, with what to do about each.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

mod origin;
pub(crate) mod passing;

pub use origin::Origin;
use passing::Passing;

/// What this crate's functions return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong. A lock that is busy is no error but a value (`Ok(None)`).
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The client was shut down.
    #[error("the client is shut down: connect a new one")]
    Closed,
    /// The runtime that the client was connected on has ended, and with it all that the client had under way. Nothing can
    /// be sent any more, and nobody cleans up: whatever was held or asked for ends with its lease.
    #[error(
        "the runtime that this client lives on has ended: nothing is sent any more, and what was held ends with its lease; connect a new client, on a runtime that lasts"
    )]
    RuntimeGone,
    /// An option, a name or a duration that cannot work. Nothing was sent.
    #[error("{what}")]
    Config {
        /// What is wrong and what would be right.
        what: String,
    },
    /// No usable connection, or it broke while a command was under way.
    #[error("{}", self.text())]
    Connection {
        /// What the connection reported.
        message: String,
        /// True when the command may have been carried out although its reply never came.
        outcome_unknown: bool,
        /// The underlying error.
        source: Option<Arc<dyn StdError + Send + Sync>>,
        /// The lock and the server, where they are known.
        origin: Origin,
    },
    /// The lock was held and is not any more, without having been released by its guard.
    #[error("the lock {name:?} was lost: {why}; stop the work it protects")]
    Lost {
        /// The lock's name.
        name: Arc<str>,
        /// How it was lost.
        why: Lost,
    },
    /// A release or an extension of a lock that this owner does not hold. Nothing was changed.
    #[error("the lock {name:?} is not held: {why}")]
    NotHeld {
        /// The lock's name.
        name: Arc<str>,
        /// Why it is not.
        why: NotHeld,
    },
    /// The release of a guard is not confirmed: the server does not answer, or refuses for the moment. The guard is gone. The release is
    /// retried in the background until the lease is over. The end of the lease frees the lock at the latest.
    #[error(
        "the release of the lock {name:?} is not confirmed ({}); it is retried in the background until the lease is over",
        why.brief()
    )]
    ReleasePending {
        /// The lock's name.
        name: Arc<str>,
        /// Why it is not confirmed.
        #[source]
        why: Arc<Self>,
    },
    /// The server carried the command out and refused it.
    #[error("{}", self.text())]
    Server {
        /// The server's text, its first word the code (`OOM`, `NOAUTH`, `READONLY`, ...).
        message: String,
        /// The lock and the server, where they are known.
        origin: Origin,
    },
    /// A step took longer than allowed. In the background an acquire is undone, and a release is retried.
    #[error("{}", self.text())]
    Timeout {
        /// Which step.
        step: Step,
        /// The lock and the server, where they are known.
        origin: Origin,
    },
    /// This owner holds the lock in a way that it would wait for itself. Nothing was changed.
    #[error("the lock {name:?} is held by the owner that wants it, which would wait for itself: {why}")]
    WouldDeadlock {
        /// The lock's name.
        name: Arc<str>,
        /// In which way.
        why: Deadlock,
    },
    /// Too few of a lock's independent servers answered for a majority. What the others granted is given back.
    #[error("the lock {name:?} needs {needed} of its servers, and {granted} granted it; one that did not: {why}")]
    NoQuorum {
        /// The lock's name.
        name: Arc<str>,
        /// So many servers granted it.
        granted: usize,
        /// So many have to.
        needed: usize,
        /// What the last of those that failed reported.
        #[source]
        why: Arc<Self>,
    },
    /// Too few replicas have what was asked for ([`Options::acks`](crate::Options::acks)). An acquire is undone, and may be tried again; of
    /// an extension the guard relies on nothing, though the server may keep it.
    #[error("{}", self.text())]
    Replicas {
        /// So many have it, as far as is known.
        got: usize,
        /// So many have to.
        wanted: usize,
        /// The lock and the server, where they are known.
        origin: Origin,
    },
    /// This server, or this build, cannot do that.
    #[error("{what}")]
    Unsupported {
        /// What is missing and how to get it.
        what: String,
    },
    /// The key of this name holds another kind of lock, or a value that is no lock. This kind of lock cannot use it.
    #[error(
        "the key {name:?} holds {} than this kind of lock has (a plain lock is a string, every other lock a hash): {message}; \
         use one kind of lock for a name, or another name or name prefix",
        found.as_ref().map_or_else(|| "another type".to_owned(), |found| format!("another type ({found})"))
    )]
    WrongType {
        /// The lock's name.
        name: Arc<str>,
        /// The server's text.
        message: String,
        /// The type of the key as `TYPE` says it (`string`, `list`, ...). None if it is not known, or if not the lock's own key but a key
        /// beside it has the wrong type. Only acquires ask for it, and not those of a multi lock by one command.
        found: Option<Arc<str>>,
    },
}

/// How a lock was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Lost {
    /// Its lease ran out by the local clock before a renewal was confirmed.
    Expired,
    /// The server no longer has it for this owner: deleted, forced open, evicted, or gone in a restart.
    Gone,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its lease ran out",
            Self::Gone => "the server does not have it for this owner any more",
        })
    }
}

/// How an owner would wait for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Deadlock {
    /// It holds the lock for reading and asked to write. Give the read hold back first, or take the lock for writing from
    /// the start and [downgrade](crate::Guard::downgrade).
    Upgrade,
    /// It asked [not to come in again](crate::Acquire::not_reentrant), or the lock is one that nobody comes into again: a
    /// [plain](mod@crate::plain) one.
    NotReentrant,
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Upgrade => {
                "it holds it for reading and wants to write; give the read hold back first, or begin by writing and downgrade"
            }
            Self::NotReentrant => "it holds it already, and was not to come in again, which a plain lock never allows",
        })
    }
}

/// Why an owner does not hold a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotHeld {
    /// It held the lock, but the lease ran out or somebody freed it; nobody holds it now.
    LeaseOver,
    /// Somebody else holds it.
    HeldBy {
        /// The holder's field in the lock's hash.
        owner: String,
    },
    /// As far as this client knows, this owner never held it, and nobody does.
    Never,
}

impl fmt::Display for NotHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LeaseOver => f.write_str("its lease ran out, or it was forced open, before the release"),
            Self::HeldBy { owner } => write!(f, "{owner} holds it now"),
            Self::Never => f.write_str("this owner never took it"),
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
    /// Draining at shutdown.
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
const fn after(step: Step) -> &'static str {
    match step {
        Step::Connect => ": nothing was sent, and connecting may be tried again",
        Step::Command => {
            ": it may have been carried out; in the background an acquire is undone, and a release is repeated"
        }
        Step::Shutdown => ": what is not released yet ends with its lease",
    }
}

/// A grant whose lease was over before anybody had it.
const TOO_LATE: &str = "the reply took longer than the lease";

/// What a cluster's server says of a script that needs a key which has been moved already, or has not come yet. Nothing was
/// written by then (`lua/rwlock/covers.lua`).
/// Beginnings differ with the server, capitals too.
const OUT_OF_REACH: [&str; 4] = [
    "ttempted to access a non local key",
    "undeclared keys were accessed during rehashing",
    "to access a slot not served",
    "while the cluster is down",
];

impl Error {
    pub(crate) fn config(what: impl Into<String>) -> Self {
        Self::Config { what: what.into() }
    }

    /// A grant that came after its lease was over. It is given back.
    pub(crate) fn too_late() -> Self {
        Self::connection(TOO_LATE, false, None)
    }

    pub(crate) fn is_too_late(&self) -> bool {
        matches!(self, Self::Connection { message, outcome_unknown: false, .. } if message == TOO_LATE)
    }

    /// An answer of a server that may have lost the name before it gave it: it says nothing about now.
    pub(crate) fn moved() -> Self {
        let message = "the lock's name moved to another server while that was asked: its answer counts for nothing";
        Self::connection(message, true, None)
    }

    /// True for a command whose keys are in two places, because their slot is being moved.
    pub(crate) fn is_of_half_moved_slot(&self) -> bool {
        matches!(self, Self::Server { message, .. } if message.starts_with("TRYAGAIN"))
    }

    /// True when the names of several slots of a cluster were sent together.
    pub(crate) fn crosses_slots(&self) -> bool {
        matches!(self, Self::Server { message, .. } if message.starts_with("CROSSSLOT"))
    }

    /// True when the same call may succeed a little later. A failed [`Guard::unlock`](crate::Guard::unlock) cannot be called again: its
    /// guard is gone, and the release is retried in the background.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Connection { .. } | Self::Replicas { .. } => true,
            // After a shutdown the client stays closed, even if the shutdown took too long.
            Self::Timeout { step, .. } => !matches!(step, Step::Shutdown),
            Self::Server { message, .. } => {
                Passing::of(message).is_some() || OUT_OF_REACH.iter().any(|what| message.contains(what))
            }
            Self::NoQuorum { why, .. } => why.is_retryable(),
            _ => false,
        }
    }

    /// True when the operation may have taken place although no reply came. The client undoes it in the background, unless its
    /// runtime has ended; until then, and for a lease at the most, the lock may look taken.
    #[must_use]
    pub fn outcome_unknown(&self) -> bool {
        match self {
            Self::Connection { outcome_unknown, .. } => *outcome_unknown,
            Self::Timeout { step, .. } => matches!(step, Step::Command),
            Self::RuntimeGone | Self::Replicas { .. } | Self::ReleasePending { .. } => true,
            Self::NoQuorum { why, .. } => why.outcome_unknown(),
            _ => false,
        }
    }

    /// A reply that no script of ours gives.
    pub(crate) fn odd_reply(script: &str, reply: &impl fmt::Debug) -> Self {
        let mut text = format!("{reply:?}");
        if text.len() > 200 {
            text = text.chars().take(200).chain("...".chars()).collect();
        }
        Self::server(format!("ERR unexpected reply of {script}: {text}"))
    }
}

#[cfg(test)]
mod tests;
