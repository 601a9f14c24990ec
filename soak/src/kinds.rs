//! The kinds of locks and their names: a few hot names, and names that are always new.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use distlock::{Client, DistLock, Flavour, RedLock};
use distlock_support::Numbers;

/// The number of hot names per kind. Many tasks compete for each of them.
const HOT: u64 = 3;
const SEGMENTS: usize = 4;
/// The number of other fenced names. Counters of fenced locks never expire, so a new name for every lock would fill the
/// server.
const FENCED: u64 = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    One(Flavour),
    Multi,
    Striped,
    Red,
}

/// A lock, and the names under which its sections are checked. Names that are used only once are not checked.
pub struct Made {
    pub lock: Arc<dyn DistLock>,
    pub names: Vec<String>,
}

impl Kind {
    pub const ALL: [Self; 10] = [
        Self::One(Flavour::Reentrant),
        Self::One(Flavour::Fair),
        Self::One(Flavour::Read),
        Self::One(Flavour::Write),
        Self::One(Flavour::Fenced),
        Self::One(Flavour::Spin),
        Self::One(Flavour::Plain),
        Self::Multi,
        Self::Striped,
        Self::Red,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::One(Flavour::Reentrant) => "reentrant",
            Self::One(Flavour::Fair) => "fair",
            Self::One(Flavour::Read) => "read",
            Self::One(Flavour::Write) => "write",
            Self::One(Flavour::Fenced) => "fenced",
            Self::One(Flavour::Spin) => "spin",
            Self::One(_) => "plain",
            Self::Multi => "multi",
            Self::Striped => "striped",
            Self::Red => "red",
        }
    }

    /// Whether a holder excludes everybody else.
    pub fn alone(self) -> bool {
        self != Self::One(Flavour::Read)
    }

    /// Whether an owner may re-enter.
    pub fn comes_in_again(self) -> bool {
        matches!(self, Self::One(flavour) if flavour != Flavour::Plain)
    }

    /// Makes a lock of this kind, with a hot name or another one.
    pub fn make(self, client: &Client, red: &[Client], hot: bool, numbers: &mut Numbers) -> Made {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Both halves belong to one lock.
        let family = if self == Self::One(Flavour::Read) { "write" } else { self.name() };
        let name = if hot {
            format!("hot:{family}:{}", numbers.below(HOT))
        } else if self == Self::One(Flavour::Fenced) {
            format!("cool:fenced:{}", numbers.below(FENCED))
        } else {
            format!("new:{family}:{}:{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
        };
        let names = if hot { vec![name.clone()] } else { Vec::new() };
        match self {
            Self::One(flavour) => Made { lock: client.lock(flavour, &name), names },
            Self::Red => Made { lock: Arc::new(RedLock::new(red.iter().cloned(), &name)), names },
            Self::Striped => Made { lock: Arc::new(client.striped(&name, SEGMENTS)), names: Vec::new() },
            Self::Multi => {
                let mut parts = vec![name, format!("{family}:beside:{}", numbers.below(HOT))];
                if numbers.once_in(2) {
                    parts.reverse();
                }
                let lock = Arc::new(client.multi(&parts));
                if !hot {
                    parts.retain(|part| !part.starts_with("new:"));
                }
                Made { lock, names: parts }
            }
        }
    }
}
