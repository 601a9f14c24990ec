//! All flavours by name. No other file lists all flavours.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::client::Client;
use crate::error::{Error, Result};
use crate::lock::DistLock;

/// The flavours of locks, for a choice at run time: `client.lock(Flavour::Reentrant, "orders:42")`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Flavour {
    /// Redisson's `RLock`: one holder, re-entry by the same owner, no order among waiters.
    Reentrant,
    /// Redisson's fair lock: like `Reentrant`, but first come, first served among all processes.
    Fair,
    /// The shared half of Redisson's read-write lock.
    Read,
    /// The exclusive half of Redisson's read-write lock.
    Write,
    /// Redisson's fenced lock: like `Reentrant`, and every critical section gets a growing number for the storage to
    /// check.
    Fenced,
    /// Redisson's spin lock: like `Reentrant`, but releases send no message, and waiters poll.
    Spin,
    /// The lock of most other libraries: `SET key value NX PX lease`. Redisson does not have this lock. No re-entry.
    Plain,
}

impl Flavour {
    /// Every flavour.
    pub const ALL: &'static [Self] =
        &[Self::Reentrant, Self::Fair, Self::Read, Self::Write, Self::Fenced, Self::Spin, Self::Plain];

    /// Returns the name that `FromStr` parses.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reentrant => "reentrant",
            Self::Fair => "fair",
            Self::Read => "read",
            Self::Write => "write",
            Self::Fenced => "fenced",
            Self::Spin => "spin",
            Self::Plain => "plain",
        }
    }
}

impl fmt::Display for Flavour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Flavour {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.iter().copied().find(|flavour| flavour.as_str() == text).ok_or_else(|| {
            let known: Vec<_> = Self::ALL.iter().map(|flavour| flavour.as_str()).collect();
            Error::config(format!("{text:?} is no flavour of lock: one of {}", known.join(", ")))
        })
    }
}

/// # Locks of any flavour
impl Client {
    /// Returns a lock whose flavour is chosen at run time.
    ///
    /// # Cost
    ///
    /// None: nothing is sent until an acquire. An impossible name is refused then.
    #[must_use]
    pub fn lock(&self, flavour: Flavour, name: &str) -> Arc<dyn DistLock> {
        match flavour {
            Flavour::Reentrant => Arc::new(self.reentrant(name)),
            Flavour::Fair => Arc::new(self.fair(name)),
            Flavour::Read => Arc::new(self.rw(name).read()),
            Flavour::Write => Arc::new(self.rw(name).write()),
            Flavour::Fenced => Arc::new(self.fenced(name)),
            Flavour::Spin => Arc::new(self.spin(name)),
            Flavour::Plain => Arc::new(self.plain(name)),
        }
    }
}
