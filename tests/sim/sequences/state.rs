//! State of a sequence: its guards, holds without guards, planned faults, and the number of looks.

use super::given::Given;
use crate::prelude::*;

pub struct Held {
    pub guard: Guard,
    pub spot: Spot,
    /// The owner's text on the server.
    pub owner: String,
    /// Identity of the holder. A new owner may be handed over inside a process, so its text alone does not identify the
    /// holder.
    pub who: String,
    /// True if the lock was forced open, or may have been.
    pub exempt: bool,
    /// The time until which a copy of the acquire may arrive in time. After a release, such a copy creates the hold
    /// again.
    pub copied: Option<Instant>,
    /// The time when a force was known to have ended this hold. `None` if a copy may have restored the hold.
    pub forced: Option<Instant>,
    /// True if an extend that may shorten the lease was dropped, or is in doubt.
    pub may_be_cut: bool,
    /// The end of validity that the guard reported at the last look.
    pub promised: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    pub party: usize,
    pub lock: usize,
    pub reads: bool,
}

/// A hold whose guard was turned into its owner.
pub struct Guardless {
    pub owner: Owner,
    pub spot: Spot,
    pub text: String,
    pub until: Instant,
}

pub struct Planned {
    pub link: SimLink,
    /// The client, and the server to which the link leads.
    pub at: (usize, usize),
    /// Number of the command on the link.
    pub number: u64,
    pub late: Option<Duration>,
    /// True if the reply does not arrive.
    pub lost: bool,
    pub since: Instant,
}

/// A hold that stays at one server of a RedLock, because the command of a release by owner was lost there and is not
/// repeated.
pub struct Stranded {
    pub server: usize,
    pub key: usize,
    pub owner: String,
}

/// Number of looks that compared something.
#[derive(Clone, Copy, Debug, Default)]
pub struct Looks {
    /// Looks that compared the server's counts with the guards.
    pub counts: u64,
    pub queues: u64,
}

/// State of the scene. `late.rs` explains `troubled`, `unsure`, `in_time` and `loose`.
#[derive(Default)]
pub struct State {
    pub given: Vec<Given>,
    pub held: BTreeMap<usize, Held>,
    pub guardless: Vec<Guardless>,
    /// Locks that are forced open, by their number in `keys`. Until the given time a copy of the force may end holds;
    /// `None` while the step runs.
    pub forced: Vec<(usize, Option<Instant>)>,
    pub planned: Vec<Planned>,
    /// Commands that were lost, or whose reply was lost: client, server and number.
    pub lost: Vec<((usize, usize), u64)>,
    /// Holds that a release by owner could not reach; each entry stays while the owner holds anything there.
    pub stranded: Vec<Stranded>,
    /// When a lost command or reply was last noticed.
    pub troubled: Option<Instant>,
    /// True if a client that sent a command with a late copy may have forgotten the server's clock (see `late.rs`).
    pub unsure: bool,
    /// The time until which copies may arrive in time. `None` when no copy can arrive, and no effect of a copy is left.
    pub in_time: Option<Instant>,
    /// True if such a copy may have acquired a hold that no task knows.
    pub loose: bool,
    pub copies: Vec<Instant>,
    pub heard: Vec<(Vec<u8>, Vec<u8>)>,
    pub wrong: Vec<String>,
    pub trace: Vec<String>,
    pub busy: usize,
    pub holds: usize,
    pub looks: Looks,
    /// Arrival time of the last late copy or forged message. The trial ends only after it.
    pub quiet: Option<Instant>,
    pub next_runtime: Option<Instant>,
    pub longest: Duration,
}
