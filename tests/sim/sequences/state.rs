//! What is known of a sequence: its guards, what was given up, what is to go wrong, how the looks fared.

use super::given::Given;
use crate::prelude::*;

/// A guard on the scene.
pub struct Held {
    pub guard: Guard,
    pub spot: Spot,
    /// Its owner in the server.
    pub owner: String,
    /// Who it is: fresh owners may be handed over inside a process, from one holder to the next.
    pub who: String,
    /// It has been forced open, or may have been.
    pub exempt: bool,
    /// Until when a copy of its acquire may come in that is in time: that counts it once more where it is gone.
    pub copied: Option<Instant>,
    /// It was forced open for certain, before this, and no such copy may have brought it back.
    pub forced: Option<Instant>,
    /// An extend of it was dropped, or is in doubt: it is carried out all the same, perhaps, when its turn has come.
    pub may_be_cut: bool,
    /// Until when it said that it holds.
    pub promised: Option<Instant>,
}

/// A lock, as one client takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    pub party: usize,
    /// Which lock.
    pub lock: usize,
    pub reads: bool,
}

/// A hold whose guard was given up for its owner.
pub struct Guardless {
    pub owner: Owner,
    pub spot: Spot,
    pub text: String,
    pub until: Instant,
}

/// Something that is to go wrong with a command.
pub struct Planned {
    pub link: SimLink,
    /// Whose link that is, and to which server.
    pub at: (usize, usize),
    /// Which command of the link.
    pub number: u64,
    /// How late a copy of it comes in.
    pub late: Option<Duration>,
    /// Its answer does not come.
    pub lost: bool,
    pub since: Instant,
}

/// A hold that stays at one of a RedLock's servers: a release by owner has lost a command there, and is not repeated.
pub struct Stranded {
    pub server: usize,
    pub key: usize,
    /// Its owner, at that server.
    pub owner: String,
}

/// How many looks there were that compared something.
#[derive(Clone, Copy, Debug, Default)]
pub struct Looks {
    /// The counts of the server with the guards.
    pub counts: u64,
    /// The queues with nothing.
    pub queues: u64,
}

/// What `troubled`, `unsure`, `in_time` and `loose` say about the looks is told in `late`.
#[derive(Default)]
pub struct State {
    pub given: Vec<Given>,
    pub held: BTreeMap<usize, Held>,
    pub guardless: Vec<Guardless>,
    /// Locks that are being forced open: key, and until when holds of it may end by that.
    pub forced: Vec<(usize, Option<Instant>)>,
    /// What is to go wrong, with commands that are still to be sent.
    pub planned: Vec<Planned>,
    /// Commands that were lost, or their replies: of which client, to which server, the number.
    pub lost: Vec<((usize, usize), u64)>,
    /// For as long as their owners hold anything there.
    pub stranded: Vec<Stranded>,
    /// When a command was last found to be lost, or its reply.
    pub troubled: Option<Instant>,
    /// The server's clock may not be known any more to those who sent something that comes in late.
    pub unsure: bool,
    /// Until when copies may come in that are in time; nothing when those are over and nothing is left of them.
    pub in_time: Option<Instant>,
    /// Such a copy may have taken a hold for nobody, which is there still.
    pub loose: bool,
    /// When late copies come in.
    pub copies: Vec<Instant>,
    /// Messages heard on the wire.
    pub heard: Vec<(Vec<u8>, Vec<u8>)>,
    pub wrong: Vec<String>,
    pub trace: Vec<String>,
    /// Steps under way.
    pub busy: usize,
    pub holds: usize,
    pub looks: Looks,
    /// When the last late copy, or forged message, will have come in: until then the end waits.
    pub quiet: Option<Instant>,
    /// When the next runtime begins.
    pub next_runtime: Option<Instant>,
    /// The longest lease that was asked for.
    pub longest: Duration,
}
