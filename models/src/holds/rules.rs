//! The commands, the clients' programs, and the rules that can be switched off.

use super::world::CLIENTS;

/// Number of ticks after sending in which a command still has an effect.
pub(super) const LAWFUL: u8 = 1;

/// A step of a client's program. A slot is the number of one of the client's guards.
#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    Acquire { slot: u8, lease: u8 },
    Release { slot: u8 },
    Extend { slot: u8, lease: u8 },
    Force,
}

/// The rule that is switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Switch {
    /// All rules are in force.
    All,
    /// A release whose hold is not listed removes another hold.
    ReleaseAny,
    /// An acquire counts up even if its id is listed.
    CountAgain,
    /// An acquire ignores whether the owner's earlier hold still exists.
    NoWitness,
    AcquireLate,
    ExtendLate,
    ForceLate,
    /// After an extend that may shorten the lease got no reply, the client continues at once, although copies may
    /// arrive.
    ExtendAtOnce,
    /// The server does not check whether this extend, or a later one, has already run.
    ExtendTwice,
    /// The server records only extends that did shorten the lease.
    ExtendUnnoted,
    /// An extend shortens the lease even if another client of the owner also has a hold.
    ExtendOthers,
    /// An extend shortens the lease if the lock has as many holds as the caller. Ids are not compared.
    ExtendByNumber,
    /// A release shortens the lease if all remaining holds are the caller's.
    ReleaseShortens,
    /// A release shortens the lease if the lock has as many remaining holds as the caller. Ids are not compared.
    ReleaseByNumber,
    /// A guard counts its lease from the time of the reply, not from the time when the command was sent.
    CountFromReply,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum What {
    Acquire {
        id: u8,
        earlier: Option<u8>,
        lease: u8,
    },
    /// `mine`: the ids of the caller's remaining holds. `rest`: the lease that these holds need.
    Release {
        id: u8,
        mine: u8,
        rest: u8,
    },
    Extend {
        id: u8,
        mine: u8,
        lease: u8,
        /// The number of this extend among the client's extends that may shorten the lease; 0 for any other extend.
        number: u8,
    },
    Force,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Sent {
    pub(super) client: u8,
    /// The step of the client's program that waits for the reply.
    pub(super) step: u8,
    pub(super) what: What,
    pub(super) sent: u8,
    /// Copies that may still arrive.
    pub(super) copies: u8,
}

/// The clients' programs, the number of ticks, and the rule that is switched off.
#[derive(Clone, Debug)]
pub(super) struct Play {
    pub(super) programs: [Vec<Op>; CLIENTS],
    pub(super) ticks: u8,
    pub(super) switch: Switch,
}
