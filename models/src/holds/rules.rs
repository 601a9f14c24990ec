//! What is sent, by whom, and the rules that can be taken out.

use super::world::CLIENTS;

/// For how many ticks a command may be carried out, but for the one in which it was sent.
pub(super) const LAWFUL: u8 = 1;

/// A step of a client's program. Slots are its guards.
#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    Acquire { slot: u8, lease: u8 },
    Release { slot: u8 },
    Extend { slot: u8, lease: u8 },
    Force,
}

/// A rule that is taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Switch {
    /// None.
    All,
    /// A release takes a hold away whichever it is.
    ReleaseAny,
    /// An acquire counts up even if its id is listed.
    CountAgain,
    /// Nobody looks whether the earlier hold is still there.
    NoWitness,
    AcquireLate,
    ExtendLate,
    ForceLate,
    /// A client goes on at once after an extend without a reply, whose copies may still come in.
    ExtendAtOnce,
    /// Nobody looks whether an extend, or one after it, was carried out before.
    ExtendTwice,
    /// Only an extend that made the lease shorter counts as carried out.
    ExtendUnnoted,
    /// An extend sets a shorter lease, whoever else holds.
    ExtendOthers,
    /// It does so where there are as many holds as the caller's, whosever they are.
    ExtendByNumber,
    /// A release sets a shorter lease, where all that is left is the caller's.
    ReleaseShortens,
    /// It does so where there are as many holds as the caller's, whosever they are.
    ReleaseByNumber,
    /// A guard counts on its lease from the reply on, not from the command.
    CountFromReply,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum What {
    Acquire {
        id: u8,
        earlier: Option<u8>,
        lease: u8,
    },
    /// `mine`: how many holds the caller has left; `rest`: the lease for them.
    Release {
        id: u8,
        mine: u8,
        rest: u8,
    },
    Extend {
        id: u8,
        mine: u8,
        lease: u8,
        /// Which one it is of its client's that make a lease shorter; 0: it does not.
        number: u8,
    },
    Force,
}

/// A command that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Sent {
    pub(super) client: u8,
    /// The client's step, which waits for the reply.
    pub(super) step: u8,
    pub(super) what: What,
    pub(super) sent: u8,
    /// How often it may still come in.
    pub(super) copies: u8,
}

/// What the clients do, for how long, and by which rules.
#[derive(Clone, Debug)]
pub(super) struct Play {
    pub(super) programs: [Vec<Op>; CLIENTS],
    pub(super) ticks: u8,
    pub(super) switch: Switch,
}
