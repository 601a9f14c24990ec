//! All flavours by name. No other file knows them all.

use std::any::Any;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::client::Client;
use crate::error::{Error, Result};
use crate::group::{Inside, Part};
use crate::lock::DistLock;
use crate::multi::MultiLock;
use crate::object::Lock;
use crate::redlock::RedLock;
use crate::striped::Striped;
use crate::{fair, fenced, plain, reentrant, rwlock, spin};

/// The flavours of locks, to choose one at run time: `client.lock(Flavour::Reentrant, "orders:42")`.
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
    /// Redisson's fenced lock: like `Reentrant`, and every section gets a growing number for the storage to check.
    Fenced,
    /// Redisson's spin lock: like `Reentrant`, but releases send no message, and waiters poll.
    Spin,
    /// The lock that most other libraries share, which Redisson does not have: `SET key value NX PX lease`. No
    /// re-entry.
    Plain,
}

/// One flavour: its name, its constructor, and a downcast of its locks.
struct Entry {
    name: &'static str,
    make: fn(&Client, &str) -> Arc<dyn DistLock>,
    /// The part behind a lock of this flavour; None for any other lock.
    part: fn(&dyn Any) -> Option<Part<'_>>,
}

impl Flavour {
    /// Every flavour.
    pub const ALL: &'static [Self] =
        &[Self::Reentrant, Self::Fair, Self::Read, Self::Write, Self::Fenced, Self::Spin, Self::Plain];

    const fn entry(self) -> Entry {
        match self {
            Self::Reentrant => Entry {
                name: "reentrant",
                make: |client, name| Arc::new(client.reentrant(name)),
                part: part::<reentrant::Reentrant>,
            },
            Self::Fair => {
                Entry { name: "fair", make: |client, name| Arc::new(client.fair(name)), part: part::<fair::Fair> }
            }
            Self::Read => Entry {
                name: "read",
                make: |client, name| Arc::new(client.rw(name).read()),
                part: part::<rwlock::Read>,
            },
            Self::Write => Entry {
                name: "write",
                make: |client, name| Arc::new(client.rw(name).write()),
                part: part::<rwlock::Write>,
            },
            Self::Fenced => Entry {
                name: "fenced",
                make: |client, name| Arc::new(client.fenced(name)),
                part: part::<fenced::Fenced>,
            },
            Self::Spin => {
                Entry { name: "spin", make: |client, name| Arc::new(client.spin(name)), part: part::<spin::Spin> }
            }
            Self::Plain => {
                Entry { name: "plain", make: |client, name| Arc::new(client.plain(name)), part: part::<plain::Plain> }
            }
        }
    }

    /// Returns the name that `FromStr` parses.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.entry().name
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
        (flavour.entry().make)(self, name)
    }
}

fn part<F: 'static>(lock: &dyn Any) -> Option<Part<'_>> {
    let lock: &Lock<F> = lock.downcast_ref()?;
    Some(Part { client: lock.client(), protocol: lock.protocol() })
}

/// The parts or members of a lock of this crate. None for a user's own implementation.
pub(crate) fn inside(lock: &dyn DistLock) -> Option<Inside<'_>> {
    let lock: &dyn Any = lock;
    if let Some(part) = Flavour::ALL.iter().find_map(|flavour| (flavour.entry().part)(lock)) {
        return Some(Inside::One(part));
    }
    let multi = lock.downcast_ref().map(MultiLock::locks);
    let red = || lock.downcast_ref().map(RedLock::nodes);
    let striped = || lock.downcast_ref().map(Striped::segments);
    multi.or_else(red).or_else(striped).map(Inside::Many)
}
