//! The errors of this crate. [`guide::errors`](crate::guide::errors) says what to do about each.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

mod details;
mod origin;

pub use details::{Deadlock, Lost, NotHeld, Step};
pub(crate) use distlock_wire::passing;
pub use origin::Origin;
use passing::Passing;

/// Result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong. A busy lock is not an error: it is `Ok(None)`.
///
/// # Examples
///
/// ```no_run
/// # use std::time::Duration;
/// # async fn example(lock: distlock::ReentrantLock) -> distlock::Result<()> {
/// match lock.lock_for(Duration::from_secs(1)).await {
///     Ok(Some(guard)) => drop(guard),
///     Ok(None) => println!("somebody else holds the lock"),
///     Err(error) if error.is_retryable() => println!("try again later: {error}"),
///     Err(error) => return Err(error), // names the lock, the server and the next step
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The client was shut down.
    #[error("the client is shut down: connect a new one")]
    Closed,
    /// The runtime of the client has ended, and so have all calls in flight. Nothing is sent or cleaned up any more, so
    /// every lock that the client held or requested ends with its lease.
    #[error(
        "the runtime that this client lives on has ended: nothing is sent any more, and what was held ends with its lease; connect a new client, on a runtime that lasts"
    )]
    RuntimeGone,
    /// An impossible option, name or duration. Nothing was sent.
    #[error("{what}")]
    Config {
        /// What is wrong, and what would be right.
        what: String,
    },
    /// No usable connection, or the connection broke while a command was in flight.
    #[error("{}", self.text())]
    Connection {
        /// What the connection reported.
        message: String,
        /// True if the command may have run although its reply never came.
        outcome_unknown: bool,
        /// The underlying error.
        source: Option<Arc<dyn StdError + Send + Sync>>,
        /// The lock and the server, if known.
        origin: Origin,
    },
    /// The lock is no longer held, although its guard did not release it.
    #[error("the lock {name:?} was lost: {why}; stop the work it protects")]
    Lost {
        /// The lock's name.
        name: Arc<str>,
        /// How the lock was lost.
        why: Lost,
    },
    /// A release or an extension of a lock that this owner does not hold. Nothing was changed.
    #[error("the lock {name:?} is not held: {why}")]
    NotHeld {
        /// The lock's name.
        name: Arc<str>,
        /// Why the owner does not hold the lock.
        why: NotHeld,
    },
    /// The release of a guard is not confirmed: the server does not answer, or refuses with a temporary error. The
    /// guard has ended. The release is retried in the background until the lease has ended. If no retry succeeds, the
    /// end of the lease frees the lock.
    #[error(
        "the release of the lock {name:?} is not confirmed ({}); it is retried in the background until the lease is over",
        why.brief()
    )]
    ReleasePending {
        /// The lock's name.
        name: Arc<str>,
        /// Why the release is not confirmed.
        #[source]
        why: Arc<Self>,
    },
    /// The server refused the command.
    #[error("{}", self.text())]
    Server {
        /// The server's text. Its first word is the code (`OOM`, `NOAUTH`, `READONLY`, ...).
        message: String,
        /// The lock and the server, if known.
        origin: Origin,
    },
    /// A step took too long. If the step was a command of an acquire, the acquire is undone in the background. If the
    /// step was a command of a release, the release is retried in the background.
    #[error("{}", self.text())]
    Timeout {
        /// The step.
        step: Step,
        /// The lock and the server, if known.
        origin: Origin,
    },
    /// This owner already holds the lock, so it would wait for itself. Nothing was changed.
    #[error("the lock {name:?} is already held by this owner, which would wait for itself: {why}")]
    WouldDeadlock {
        /// The lock's name.
        name: Arc<str>,
        /// Why the owner would wait for itself.
        why: Deadlock,
    },
    /// Too few of a RedLock's servers answered to know who holds the lock. Grants that arrived are released.
    #[error("the lock {name:?} needs {needed} of its servers, and {granted} granted it; one failure: {why}")]
    NoQuorum {
        /// The lock's name.
        name: Arc<str>,
        /// Number of servers that granted the lock.
        granted: usize,
        /// Number of grants that are needed.
        needed: usize,
        /// The error of one of the servers that failed.
        #[source]
        why: Arc<Self>,
    },
    /// Too few replicas acknowledged ([`Options::acks`](crate::Options::acks)). An acquire is undone, and may be
    /// retried. If an extension fails with this error, the guard assumes the shorter of the old and the new lease,
    /// although the server may keep the longer lease.
    #[error("{}", self.text())]
    Replicas {
        /// Number of replicas that are known to have acknowledged.
        got: usize,
        /// Number of replicas that must acknowledge.
        wanted: usize,
        /// The lock and the server, if known.
        origin: Origin,
    },
    /// A party of a [barrier](mod@crate::barrier) died before all had arrived, or the barrier's keys were deleted. All
    /// waiting parties of the round get this error. The next round starts with no arrivals.
    #[error(
        "the barrier {name:?} is broken: a party died, or the keys were deleted, before all had arrived; arrive again for the next round"
    )]
    Broken {
        /// The barrier's name.
        name: Arc<str>,
    },
    /// This server or build does not support the operation.
    #[error("{what}")]
    Unsupported {
        /// What is missing, and how to get it.
        what: String,
    },
    /// The key of this name holds another kind of lock, or a value that is not a lock. This kind of lock cannot use
    /// the key.
    #[error(
        "the key {name:?} holds {} than this kind of lock has (a plain lock, permits, a semaphore and a latch are strings, every other lock is a hash): {message}; \
         use one kind of lock for a name, or another name or name prefix",
        found.as_ref().map_or_else(|| "another type".to_owned(), |found| format!("another type ({found})"))
    )]
    WrongType {
        /// The lock's name.
        name: Arc<str>,
        /// The server's text.
        message: String,
        /// The type of the key as `TYPE` reports it (`string`, `list`, ...). None if the type is unknown, or if the key
        /// with the wrong type is not the lock's main key. Only acquires look up the type. An acquire of several locks
        /// by one command does not.
        found: Option<Arc<str>>,
    },
}

const TOO_LATE: &str = "the reply took longer than the lease";

/// Substrings of the errors with which a cluster server stops a script. Either a key that the script needs has already
/// moved to another server or has not arrived yet, or the cluster is down. The script has written nothing by then
/// (`lua/rwlock/covers.lua`). The start of each error text is left out, because its words and its letter case differ
/// between servers.
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

    /// The error for a grant whose reply arrived after the end of its lease. The grant is released.
    pub(crate) fn too_late() -> Self {
        Self::connection(TOO_LATE, false, None)
    }

    pub(crate) fn is_too_late(&self) -> bool {
        matches!(self, Self::Connection { message, outcome_unknown: false, .. } if message == TOO_LATE)
    }

    /// The error for an answer that a server gave when the name's slot may already have moved to another server.
    pub(crate) fn moved() -> Self {
        let message =
            "the lock's name moved to another server while the command was in flight, so the answer may be stale";
        Self::connection(message, true, None)
    }

    /// True if one command named keys of several slots of a cluster.
    pub(crate) fn crosses_slots(&self) -> bool {
        matches!(self, Self::Server { message, .. } if message.starts_with("CROSSSLOT"))
    }

    /// True if the login has no right to a key of the command ("to access a key", before Redis 7 "one of the keys").
    pub(crate) fn denies_key(&self) -> bool {
        matches!(self, Self::Server { message, .. } if message.starts_with("NOPERM") && message.contains(" key"))
    }

    /// True if the server may have refused a command with several names because of only one of the names:
    ///
    /// - `CROSSSLOT`: a proxy in front of a cluster takes only names of one slot.
    /// - `TRYAGAIN`: the slot is being moved, so its names are on two servers.
    /// - `NOPERM` for a key.
    pub(crate) fn may_concern_one_name(&self) -> bool {
        let is_moving = matches!(self, Self::Server { message, .. } if message.starts_with("TRYAGAIN"));
        is_moving || self.crosses_slots() || self.denies_key()
    }

    /// True if the same call may succeed a little later.
    ///
    /// A failed [`Guard::unlock`](crate::Guard::unlock) cannot be called again, because it has consumed the guard. After
    /// [`Error::ReleasePending`], the release is retried in the background.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Connection { .. } | Self::Replicas { .. } => true,
            // The client stays closed, even if the shutdown took too long.
            Self::Timeout { step, .. } => !matches!(step, Step::Shutdown),
            Self::Server { message, .. } => {
                Passing::of(message).is_some() || OUT_OF_REACH.iter().any(|what| message.contains(what))
            }
            Self::NoQuorum { why, .. } => why.is_retryable(),
            _ => false,
        }
    }

    /// True if the operation may have taken effect although no reply came.
    ///
    /// The client undoes an acquire in the background, unless its runtime has ended. Until the acquire is undone, for
    /// one lease at most, the lock may look held.
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

    /// The error for a reply that no script of this crate returns.
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
