//! The plan of a sequence: the locks, the theme, and the steps that a seed produces.

use crate::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Reentrant,
    Fair,
    /// Two fair locks, `x` and `{x}`, that share queue, deadlines and channels.
    Pair,
    Rw,
    Fenced,
    Spin,
    Plain,
    /// A multi lock of two names, through one or two clients, and each name on its own.
    Multi,
    Red,
    /// A RedLock of plain locks over three servers.
    RedPlain,
}

impl Kind {
    pub fn is_red(self) -> bool {
        matches!(self, Self::Red | Self::RedPlain)
    }

    /// True if waiters have a queue in Redis.
    pub fn has_queues(self) -> bool {
        matches!(self, Self::Fair | Self::Pair)
    }
}

/// Which clients use the owners that are passed to acquires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Only the client that made the owner.
    Alone,
    /// Every client from the start; each one parses the owner's text.
    Text,
    /// As `Text`, but a client gets the owner's text only when it first needs the owner.
    Becoming,
    /// Every client; all clients share one `Owner` object.
    Object,
    Any,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Faults {
    None,
    /// Commands are duplicated, lost or late.
    Late,
    /// As `Late`; also connections break or stall, and a server restarts or freezes.
    All,
}

#[derive(Clone, Copy, Debug)]
pub struct Theme {
    pub name: &'static str,
    pub sharing: Sharing,
    pub faults: Faults,
    /// Explicit leases, and their extension.
    pub leases: bool,
    /// Guards are turned into their owners, and holds are released by owner.
    pub by_owner: bool,
    /// Owners of guards are passed to acquires of other clients.
    pub lent: bool,
    pub force: bool,
    pub forged: bool,
    pub cancel: bool,
    /// The runtime ends in the middle of the sequence, and another runtime starts.
    pub runtimes: bool,
}

const CALM: Theme = Theme {
    name: "calm",
    sharing: Sharing::Alone,
    faults: Faults::None,
    leases: false,
    by_owner: false,
    lent: false,
    force: false,
    forged: false,
    cancel: false,
    runtimes: false,
};

impl Theme {
    /// Each owner stays with its client. No faults.
    pub const ALONE: Self = Self { name: "alone", leases: true, cancel: true, ..CALM };
    /// Several clients use an owner by its text. Leases expire.
    pub const SHARED: Self = Self { name: "shared", sharing: Sharing::Text, leases: true, ..CALM };
    /// Owners become shared in the middle of a sequence.
    pub const BECOMING: Self = Self { name: "becoming", sharing: Sharing::Becoming, ..CALM };
    /// Owner objects are passed to another client, or taken from a guard.
    pub const LENT: Self = Self { name: "lent", sharing: Sharing::Object, lent: true, ..CALM };
    /// Holds are released by owner, while other holds of the owner have guards.
    pub const BY_OWNER: Self = Self { name: "by owner", sharing: Sharing::Text, leases: true, by_owner: true, ..CALM };
    /// Late commands. Each owner stays with its client.
    pub const LATE: Self = Self { name: "late", faults: Faults::Late, leases: true, cancel: true, ..CALM };
    /// Late commands. Several clients use each owner.
    pub const LATE_SHARED: Self =
        Self { name: "late shared", sharing: Sharing::Text, faults: Faults::Late, leases: true, cancel: true, ..CALM };
    /// Locks are forced open, and commands are late.
    pub const FORCED: Self =
        Self { name: "forced", sharing: Sharing::Text, faults: Faults::Late, leases: true, force: true, ..CALM };
    /// Releases by owner, with late commands.
    pub const BY_OWNER_LATE: Self = Self {
        name: "by owner late",
        sharing: Sharing::Text,
        faults: Faults::Late,
        leases: true,
        by_owner: true,
        ..CALM
    };
    /// Messages are forged or repeated.
    pub const FORGED: Self = Self { name: "forged", forged: true, leases: true, ..CALM };
    /// Connections break and runtimes end. Each owner stays with its client.
    pub const BROKEN: Self =
        Self { name: "broken", faults: Faults::All, leases: true, cancel: true, runtimes: true, ..CALM };
    pub const STORM: Self = Self {
        name: "storm",
        sharing: Sharing::Any,
        faults: Faults::All,
        leases: true,
        by_owner: true,
        lent: true,
        force: true,
        forged: true,
        cancel: true,
        runtimes: true,
    };

    /// True if the server's counts are exact whenever nothing is in flight.
    pub fn is_exact(&self) -> bool {
        self.faults == Faults::None && !self.cancel && !self.force && !self.forged
    }
}

/// The action of a step. The step's own seed decides the details when it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Acquire,
    GiveBack,
    Extend,
    IntoOwner,
    ByOwner,
    Lend,
    Downgrade,
    Force,
    Forge,
    Pause,
    Break,
    Runtime,
}

#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub act: Act,
    pub seed: u64,
}

/// The steps of a seed. Any subset of them is a valid sequence, because a step's random numbers do not depend on other
/// steps.
pub fn steps(seed: u64, kind: Kind, theme: &Theme) -> Vec<Step> {
    let mut dice = Numbers::lane(seed, 7);
    let mut acts = vec![(Act::Acquire, 12), (Act::GiveBack, 8), (Act::Pause, 4)];
    let mut some = |is: bool, act, share| acts.extend(is.then_some((act, share)));
    some(theme.leases, Act::Extend, if theme.faults == Faults::Late { 6 } else { 3 });
    let by_owner = if theme.faults == Faults::Late { 6 } else { 3 };
    some(theme.by_owner, Act::IntoOwner, by_owner);
    some(theme.by_owner, Act::ByOwner, by_owner);
    some(theme.lent, Act::Lend, 3);
    some(kind == Kind::Rw, Act::Downgrade, 2);
    some(theme.force, Act::Force, if theme.faults == Faults::Late { 3 } else { 1 });
    some(theme.forged, Act::Forge, 8);
    some(theme.faults == Faults::All, Act::Break, 3);
    some(theme.runtimes, Act::Runtime, 1);
    let sum: u64 = acts.iter().map(|(_, share)| share).sum();
    let n = 6 + dice.below(9);
    let mut steps: Vec<Step> = (0..n)
        .map(|n| {
            let mut at = dice.below(sum);
            let act = acts.iter().find_map(|(act, share)| {
                let here = at < *share;
                at = at.wrapping_sub(*share);
                here.then_some(*act)
            });
            Step { act: act.unwrap_or(Act::Acquire), seed: dice.below(u64::MAX) ^ n }
        })
        .collect();
    steps[0].act = Act::Acquire;
    steps
}
