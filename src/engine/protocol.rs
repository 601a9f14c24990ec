//! What differs between flavours. Pure: builds calls and reads replies; no I/O, no clock, no task.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::config::Backoff;
use crate::names::LockName;
use crate::owner::Owner;
use crate::transport::script::Script;
use crate::transport::{Arg, Call};

/// Which hold of an owner a command is about. What a release gives back is bound to what an acquire took by it: a repeat,
/// or a copy that comes late, changes nothing. `lua/common/holds.lua` has what scripts make of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HoldId {
    /// The only one this owner will ever have: nobody else knows it.
    Only,
    /// The one that is not listed in Redis: the first of an owner that became known afterwards.
    Unlisted,
    /// Whichever there is: one that lost its guard, else the one that is not listed, else the newest. One that is listed
    /// is only told: what takes it away has to name it, so that a copy takes no other.
    Any,
    /// The one that its acquire listed by this id.
    Listed(Bytes),
}

impl HoldId {
    fn arg(&self) -> Arg {
        Arg::Text(match self {
            Self::Only => Bytes::new(),
            Self::Unlisted => Bytes::from_static(b"-"),
            Self::Any => Bytes::from_static(b"*"),
            Self::Listed(id) => id.clone(),
        })
    }
}

/// What an attempt to acquire asks for.
#[derive(Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) owner: &'a Owner,
    pub(crate) lease_ms: i64,
    pub(crate) hold: &'a HoldId,
    /// A hold that the owner must have still: it comes in again.
    pub(crate) earlier: Option<HoldId>,
    /// The moment of the server's time after which it has no effect; 0: none.
    pub(crate) last_ms: i64,
    /// True when the owner must have no other hold.
    pub(crate) alone: bool,
    /// True when a refusal is to say for how long, where that is not to be had for nothing.
    pub(crate) looks: bool,
    pub(crate) queueing: Queueing,
    /// What a waiter is registered by, where the flavour keeps a queue in Redis.
    pub(crate) nonce: &'a Bytes,
    /// The command by which messages are sent.
    pub(crate) publish: Bytes,
}

impl Ask<'_> {
    /// As every script that acquires is told.
    pub(crate) fn words(&self) -> [Arg; 6] {
        // The first of a fresh owner is never listed, although its owner may have become known since.
        let hold = if *self.hold == HoldId::Unlisted { &HoldId::Only } else { self.hold };
        [
            Arg::Text(self.owner.bytes()),
            Arg::Int(self.lease_ms),
            hold.arg(),
            self.earlier.as_ref().map_or_else(|| Arg::Text(Bytes::new()), HoldId::arg),
            Arg::Int(self.last_ms),
            Arg::Int(i64::from(self.alone)),
        ]
    }
}

/// What is given back.
#[derive(Debug)]
pub(crate) struct Giving<'a> {
    pub(crate) owner: &'a Owner,
    pub(crate) hold: &'a HoldId,
    pub(crate) lease_left: LeaseLeft,
    /// The holds that this client has left, as a list. Where the owner has others, their leases are not to be cut. Empty:
    /// unknown.
    pub(crate) mine: Bytes,
    /// The moment of the server's time after which it makes no lease shorter; for any hold: takes none away. 0: none.
    pub(crate) last_ms: i64,
    /// To undo an acquire, whatever it has come to: what the waiter is registered by, whose place in the queue or whose mark
    /// goes too.
    pub(crate) waiter: Option<&'a Bytes>,
    /// The command by which messages are sent.
    pub(crate) publish: Bytes,
}

impl Giving<'_> {
    /// As every script that releases is told.
    pub(crate) fn words(&self) -> [Arg; 5] {
        [
            Arg::Text(self.owner.bytes()),
            self.hold.arg(),
            Arg::Int(self.lease_left.lease),
            Arg::Text(self.mine.clone()),
            Arg::Int(self.last_ms),
        ]
    }
}

/// What an attempt does about the queue that a flavour keeps in Redis. Without a queue it makes no difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queueing {
    /// Asks, and does not queue.
    Ask,
    /// Takes a place if the lock is not to be had.
    Join,
    /// Has a place.
    Stay,
}

/// What one attempt to acquire brought.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The owner holds the lock.
    Held,
    /// The owner holds the lock: it was passed on to it before it asked.
    Passed,
    /// The owner holds the lock, and this is its section's fencing token.
    Fenced(u64),
    /// Somebody else does.
    Busy(Busy),
    /// The owner was to come in again, but holds nothing any more.
    Gone,
    /// The owner has no place in the queue any more.
    Displaced,
    /// The lock could be had, but others are to come first: those who wait for the other half of it.
    HeldBack,
    /// The owner holds the lock, or the other half of it, and would wait for itself.
    Deadlock,
    /// Its last moment had passed: nothing was done. The server's time, in ms.
    TooLate(i64),
}

/// Somebody else holds the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Busy {
    /// The lease ends in so many ms at the latest; None: it has no end, or that was not asked.
    pub(crate) ttl: Option<u64>,
    /// With a queue: the server's time, in ms.
    pub(crate) at: i64,
    /// True when its release will be announced.
    pub(crate) announced: bool,
}

/// The queue that a flavour keeps in Redis: how waiters are kept in it.
#[derive(Debug)]
pub(crate) struct Queue {
    /// Keys: `keys` of every lock. Arguments: those of [`Queue::args`]; for every lock its `channels`, the number of waiters,
    /// and each with the server's time of its last answer and what it is registered by. Replies the server's time; for every
    /// lock two: 1 when somebody was served (else 0, or an error text), and its `PTTL`; then for every waiter: 1 it waits, 0 it
    /// does not, above that: it holds the lock for so many ms.
    pub(crate) refresh: &'static Script,
    pub(crate) keys: [Bytes; 4],
    /// What the names of its waiters' channels begin with.
    pub(crate) channels: Bytes,
    /// How long a waiter that is not refreshed keeps its place.
    pub(crate) wait_ms: i64,
    /// For how long a lock is passed on.
    pub(crate) first_lease_ms: i64,
    /// Redisson's `fairLockWaitTimeout`.
    pub(crate) java_wait_ms: i64,
    pub(crate) watchdog_ms: i64,
}

impl Queue {
    /// What every script of the queue is told. `publish`: the command by which messages are sent.
    pub(crate) fn args(&self, publish: Bytes) -> [Arg; 5] {
        let [wait, first_lease] = [self.wait_ms, self.first_lease_ms].map(Arg::Int);
        let [java_wait, watchdog] = [self.java_wait_ms, self.watchdog_ms].map(Arg::Int);
        [wait, first_lease, Arg::Text(publish), java_wait, watchdog]
    }
}

/// What a release is to leave to the holds of the owner that stay, in ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseLeft {
    /// So much has been promised. Above 0 only where every hold has a lease of its own.
    pub(crate) least: i64,
    /// The lease, in full.
    pub(crate) lease: i64,
}

impl LeaseLeft {
    /// The lease, in full.
    pub(crate) const fn span(self) -> Duration {
        Duration::from_millis(self.lease.unsigned_abs())
    }
}

/// What a release brought.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Release {
    /// So many holds are left.
    Left(u32),
    /// The owner holds nothing any more, but the lock is not free: it is shared.
    Others,
    /// Free, and so many clients received the message.
    Free(u32),
    /// Free, but the server refused to publish that: its reason.
    Unannounced(String),
    /// The hold was not there; `Some`: who holds it.
    NotHeld(Option<String>),
    /// The hold was not there, but so many others of its owner are.
    NotThere(u32),
    /// Of any hold: nothing was done, and this one is to be named.
    Which(Bytes),
    /// Its last moment had passed: nothing was done. The server's time, in ms.
    TooLate(i64),
}

/// What freeing a lock by force came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Forced {
    /// It was held.
    Freed,
    /// It was held, but the server refused to publish that: its reason.
    Unannounced(String),
    /// It was free.
    Free,
    /// Its other half is held, which was left alone.
    Other,
    /// Its last moment had passed: nothing was done. The server's time, in ms.
    TooLate(i64),
}

/// One hold, for a renewal.
pub(crate) struct Renewed<'a> {
    pub(crate) name: &'a LockName,
    pub(crate) owner: &'a Owner,
    /// The holds that are relied on, one `,id` each; empty where it is the only one.
    pub(crate) holds: Bytes,
    /// False: its own lease is not to be touched, only kept up against what others do.
    pub(crate) extend: bool,
}

/// What a flavour's holds are renewed by: one script for many locks, whatever their names.
#[derive(Debug)]
pub(crate) struct Renewal {
    /// Keys: the locks, each with those that `about` names. Arguments: the lease (negative: even if it is longer now), the
    /// last moment, then what `about` says of each. Replies as `lua/common/renew.lua`.
    pub(crate) script: &'static Script,
    pub(crate) about: fn(&Renewed<'_>, About<'_>),
    /// True when the server notes the number of a command that makes a lease shorter, so that a copy of it does nothing.
    pub(crate) notes_cuts: bool,
}

/// What a flavour says in a renewal about one of the holds, behind the name of its lock.
pub(crate) struct About<'a> {
    /// True when the lease is to be set even if it is longer now.
    pub(crate) exactly: bool,
    pub(crate) keys: &'a mut Vec<Arg>,
    pub(crate) words: &'a mut Vec<Arg>,
}

impl About<'_> {
    /// Tells the hold by its owner, and by the list of those that are relied on.
    pub(crate) fn by_owner(&mut self, hold: &Renewed<'_>) {
        self.words.extend([Arg::Text(hold.owner.bytes()), Arg::Text(hold.holds.clone())]);
    }
}

impl Renewal {
    /// One command for many holds.
    pub(crate) fn call<'a>(
        &self,
        lease_ms: i64,
        last_ms: i64,
        holds: impl ExactSizeIterator<Item = Renewed<'a>>,
    ) -> Call {
        let mut words = Vec::with_capacity(3 * holds.len() + 2);
        let mut about = Vec::with_capacity(2 * holds.len());
        for hold in holds {
            words.push(Arg::Text(hold.name.key.clone()));
            (self.about)(&hold, About { exactly: lease_ms < 0, keys: &mut words, words: &mut about });
        }
        let keys = words.len();
        words.extend([Arg::Int(lease_ms), Arg::Int(last_ms)]);
        words.append(&mut about);
        Call { script: self.script, keys, words }
    }
}

/// What there is to know of a flavour's locks without asking them: plain data.
#[derive(Debug)]
pub(crate) struct Nature {
    /// The flavour's name, for metrics and logs.
    pub(crate) flavour: &'static str,
    /// True when many owners may hold it side by side.
    pub(crate) shared: bool,
    /// True when one who waits leaves a mark, which the release of a waiter takes back.
    pub(crate) marks: bool,
    /// True when its owner may come in again, so that holds of known owners are listed in Redis.
    pub(crate) reentrant: bool,
    /// True when it is taken by `SET`, whose answers to an acquire mean the opposite of a script's: nil, that somebody has it.
    pub(crate) by_set: bool,
    /// True when every section of it has a fencing token: a number that grows.
    pub(crate) fenced: bool,
    /// True when many of it may be taken by one script ([`super::acquire::batch`]).
    pub(crate) in_batch: bool,
    /// True when every hold of an owner has a lease of its own, which another's release does not start anew; the lock's own
    /// is made of them, and others may cut it short, so that long explicit ones are kept up too.
    pub(crate) leases_apart: bool,
    /// How its holds are renewed.
    pub(crate) renewal: &'static Renewal,
}

impl Nature {
    /// One holder at a time, who may come in again, as simple as can be.
    pub(crate) const fn simple(flavour: &'static str, renewal: &'static Renewal) -> Self {
        Self {
            flavour,
            shared: false,
            marks: false,
            reentrant: true,
            by_set: false,
            fenced: false,
            in_batch: false,
            leases_apart: false,
            renewal,
        }
    }
}

/// What only the halves of a lock have.
pub(crate) trait Halves {
    /// The name of the other half, whose waiters a release concerns as well.
    fn other(&self) -> &Arc<LockName>;

    /// The weaker half that one who holds this one may change to.
    fn weaker(&self) -> Option<Arc<dyn Protocol>>;

    /// The field of an owner's count in the lock's hash.
    fn field(&self, owner: &Owner) -> Bytes;
}

/// One flavour's way of speaking to Redis about one lock: the calls. What scripts answer is the same for all
/// ([`super::replies`]).
pub(crate) trait Protocol: Any + Debug + Send + Sync {
    /// The lock's name.
    fn name(&self) -> &Arc<LockName>;

    /// What kind of lock it is.
    fn nature(&self) -> &'static Nature;

    /// Takes the lock.
    fn acquire(&self, ask: &Ask<'_>) -> Call;

    /// Gives one hold back; and with it what one who waited has left in Redis ([`Giving::waiter`]).
    fn release(&self, giving: &Giving<'_>) -> Call;

    /// Frees the lock whoever holds it, until this moment of the server's time, and publishes by this command.
    fn force(&self, last_ms: i64, publish: Bytes) -> Call;

    /// Asks who holds it.
    fn state(&self) -> Call;

    /// The queue in Redis, for a flavour that keeps one.
    fn queue(&self) -> Option<&Queue> {
        None
    }

    /// The other half, for a lock of halves.
    fn halves(&self) -> Option<&dyn Halves> {
        None
    }

    /// Who a holder is, by what stands in Redis.
    fn holder(&self, text: &[u8]) -> String {
        String::from_utf8_lossy(text).into_owned()
    }

    /// For a lock whose releases nobody may be told of ([`Busy::announced`]): how one who waits sleeps between two looks then.
    fn backoff(&self) -> Option<Backoff> {
        None
    }
}

impl dyn Protocol {
    /// The flavour's name.
    pub(crate) fn flavour(&self) -> &'static str {
        self.nature().flavour
    }

    /// The name of the other half.
    pub(crate) fn other(&self) -> Option<&Arc<LockName>> {
        self.halves().map(Halves::other)
    }

    /// The field of an owner's count in the lock's hash.
    pub(crate) fn field(&self, owner: &Owner) -> Bytes {
        self.halves().map_or_else(|| owner.bytes(), |halves| halves.field(owner))
    }
}
