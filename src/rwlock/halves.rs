//! The calls of the two halves of a read-write lock.

use std::sync::Arc;

use bytes::Bytes;

use crate::engine::protocol::{About, Ask, Giving, Halves, HoldId, Nature, Protocol, Queueing, Renewal, Sharing};
use crate::engine::replies::{gone_alone, is_held, is_renewed};
use crate::names::{Half, LockName};
use crate::owner::Owner;
use crate::transport::script::Script;
use crate::transport::{Arg, Call};

/// The text of a script file of this flavour.
macro_rules! part {
    ($file:literal) => {
        include_str!(concat!("../../lua/rwlock/", $file, ".lua"))
    };
}

/// The parts that all scripts of this flavour share.
macro_rules! covers {
    () => {
        concat!(include_str!("../../lua/common/holds.lua"), part!("covers"))
    };
}

static MANY: Script = Script::new(
    "rwlock/many",
    concat!(
        covers!(),
        part!("many/begin"),
        include_str!("../../lua/common/many/begin.lua"),
        part!("read"),
        include_str!("../../lua/common/many/next.lua"),
        part!("read_release"),
        include_str!("../../lua/common/many/next.lua"),
        part!("write"),
        include_str!("../../lua/common/many/next.lua"),
        part!("write_release"),
        include_str!("../../lua/common/many/run.lua"),
        part!("many/end"),
    ),
);
/// Work of a reader's call, as a multiple of a reentrant lock's call. A reader has one more key, and its scripts look
/// at other readers.
const WORK: usize = 2;

static READ: Script = Script::step("rwlock/read", concat!(covers!(), part!("read")), &MANY, 1)
    .gaining(is_held)
    .working(WORK)
    .reaching_beyond();
static READ_RELEASE: Script = Script::step("rwlock/read_release", concat!(covers!(), part!("read_release")), &MANY, 2)
    .working(WORK)
    .reaching_beyond();
static WRITE: Script =
    Script::step("rwlock/write", concat!(covers!(), part!("write")), &MANY, 3).gaining(is_held).reaching_beyond();
static WRITE_RELEASE: Script =
    Script::step("rwlock/write_release", concat!(covers!(), part!("write_release")), &MANY, 4).reaching_beyond();
static LEAVE: Script =
    Script::new("rwlock/leave", concat!(covers!(), part!("leave"), part!("write_release"))).reaching_beyond();
static FORCE: Script = Script::new("rwlock/force", concat!(covers!(), part!("force"))).reaching_beyond();
static STATE: Script = Script::new("rwlock/state", concat!(covers!(), part!("state"))).reaching_beyond().reading();
static RENEW: Script =
    Script::new("rwlock/renew", concat!(covers!(), include_str!("../../lua/common/renew/begin.lua"), part!("renew")))
        .gaining(is_renewed)
        .telling(gone_alone)
        .reaching_beyond();

/// The renewal of both halves. Redisson's renewal sets the expiry of the whole lock to Redisson's own lease, so this
/// renewal must restore a longer lease of a reader.
static RENEWAL: Renewal = Renewal {
    script: &RENEW,
    notes_cuts: true,
    about: |hold, mut about| {
        about.by_owner(hold);
        let About { exactly, keys, words } = about;
        let half = match (hold.name.half, hold.extend) {
            (Half::Read, true) => "read",
            (Half::Read, false) => "keep",
            (Half::Write | Half::Whole | Half::Plain | Half::Permits | Half::Latch | Half::Leader, _) => "write",
        };
        // A writer's lease is only the expiry of the hash. If the command may make that expiry shorter (`exactly`), it
        // needs a cover, because the hash must not end before the owner's own read holds.
        let known = match half {
            "write" => usize::from(exactly),
            _ => numbered(&hold.holds).clamp(1, DECLARED),
        };
        keys.extend(covers(hold.name, hold.owner, known));
        let half = Bytes::from_static(half.as_bytes());
        words.extend([half, hold.name.tag()].map(Arg::Text));
        words.push(Arg::Int(known as i64));
    },
};

static READS: Nature = Nature { sharing: Sharing::Shared, leases_apart: true, ..Nature::simple("read", &RENEWAL) };
static WRITES: Nature = Nature::simple("write", &RENEWAL);
static WRITES_AND_MARKS: Nature = Nature { marks: true, ..Nature::simple("write", &RENEWAL) };

/// Maximum number of an owner's covers that a call declares as keys. An owner may have thousands of covers; scripts
/// look up the rest before they write.
const DECLARED: usize = 16;

/// Number of holds in a list.
fn numbered(holds: &[u8]) -> usize {
    holds.split(|byte| *byte == b',').filter(|id| !id.is_empty()).count()
}

/// The keys of an owner's first covers.
fn covers(name: &LockName, owner: &Owner, count: usize) -> impl Iterator<Item = Arg> {
    (1..=count).map(move |n| Arg::Text(name.cover(owner.text(), n)))
}

/// Number of holds that a release knows of. The owner has this many covers, unless another client acts as the same
/// owner.
fn known(giving: &Giving<'_>) -> usize {
    let given = match giving.hold {
        HoldId::Listed(ids) => numbered(ids),
        HoldId::Only | HoldId::Unlisted | HoldId::Any => 1,
    };
    (given + numbered(&giving.mine)).clamp(1, DECLARED)
}

/// A call about one half: its hash, other keys, then arguments.
fn call<const N: usize, const M: usize>(
    script: &'static Script,
    name: &LockName,
    others: impl IntoIterator<Item = Arg>,
    args: [Arg; N],
    own: [Arg; M],
) -> Call {
    let mut words = Vec::with_capacity(N + M + 3);
    words.push(Arg::Text(name.key.clone()));
    words.extend(others);
    let keys = words.len();
    words.extend(args);
    words.extend(own);
    Call { script, keys, words }
}

fn state(name: &LockName, mode: &'static str) -> Call {
    call(&STATE, name, [], [Arg::Text(Bytes::from_static(mode.as_bytes())), Arg::Text(name.tag())], [])
}

fn force(name: &LockName, mode: &'static str, message: &'static str, last_ms: i64, publish: Bytes) -> Call {
    let args = [mode, message].map(|text| Arg::Text(Bytes::from_static(text.as_bytes())));
    call(&FORCE, name, [], args, [Arg::Int(last_ms), Arg::Text(publish), Arg::Text(name.channel.clone())])
}

#[derive(Debug)]
pub(super) struct Reading {
    name: Arc<LockName>,
    other: Arc<LockName>,
    waiting: Bytes,
}

impl Reading {
    pub(super) fn new(name: &Arc<LockName>, other: &Arc<LockName>) -> Self {
        Self { name: Arc::clone(name), other: Arc::clone(other), waiting: name.waiting_writers() }
    }
}

impl Protocol for Reading {
    fn name(&self) -> &Arc<LockName> {
        &self.name
    }

    fn nature(&self) -> &'static Nature {
        &READS
    }

    fn halves(&self) -> Option<&dyn Halves> {
        Some(self)
    }

    fn acquire(&self, ask: &Ask<'_>) -> Call {
        let own = [Arg::Text(self.name.tag()), Arg::Int(i64::from(ask.gives_way))];
        let waiting = Arg::Text(self.waiting.clone());
        call(&READ, &self.name, covers(&self.name, ask.owner, 1).chain([waiting]), ask.words(), own)
    }

    fn release(&self, giving: &Giving<'_>) -> Call {
        let channel = Arg::Text(self.name.channel.clone());
        let own =
            [Arg::Text(self.name.tag()), Arg::Int(giving.lease_left.least), Arg::Text(giving.publish.clone()), channel];
        let covers = covers(&self.name, giving.owner, known(giving));
        call(&READ_RELEASE, &self.name, covers, giving.words(), own)
    }

    fn force(&self, last_ms: i64, publish: Bytes) -> Call {
        force(&self.name, "read", "0", last_ms, publish)
    }

    fn state(&self) -> Call {
        state(&self.name, "read")
    }
}

impl Halves for Reading {
    fn other(&self) -> &Arc<LockName> {
        &self.other
    }

    fn weaker(&self) -> Option<Arc<dyn Protocol>> {
        None
    }

    fn field(&self, owner: &Owner) -> Bytes {
        owner.bytes()
    }
}

#[derive(Debug)]
pub(super) struct Writing {
    name: Arc<LockName>,
    other: Arc<LockName>,
    waiting: Bytes,
    /// Lifetime of a waiting writer's mark, in ms. 0: no mark.
    mark: i64,
}

impl Writing {
    pub(super) fn new(name: &Arc<LockName>, other: &Arc<LockName>, mark: i64) -> Self {
        Self { name: Arc::clone(name), other: Arc::clone(other), waiting: name.waiting_writers(), mark }
    }
}

impl Protocol for Writing {
    fn name(&self) -> &Arc<LockName> {
        &self.name
    }

    fn nature(&self) -> &'static Nature {
        if self.mark > 0 { &WRITES_AND_MARKS } else { &WRITES }
    }

    fn halves(&self) -> Option<&dyn Halves> {
        Some(self)
    }

    fn acquire(&self, ask: &Ask<'_>) -> Call {
        let mark = if ask.queueing == Queueing::Ask { 0 } else { self.mark };
        let waiting = (self.mark > 0).then(|| Arg::Text(self.waiting.clone()));
        let others = covers(&self.name, ask.owner, 1).chain(waiting);
        call(&WRITE, &self.name, others, ask.words(), [Arg::Text(self.name.tag()), Arg::Int(mark)])
    }

    fn release(&self, giving: &Giving<'_>) -> Call {
        let own = [self.name.tag(), giving.publish.clone(), self.name.channel.clone()].map(Arg::Text);
        let covers = covers(&self.name, giving.owner, 1);
        if giving.waiter.is_some() && self.mark > 0 {
            let waiting = Arg::Text(self.waiting.clone());
            return call(&LEAVE, &self.name, covers.chain([waiting]), giving.words(), own);
        }
        call(&WRITE_RELEASE, &self.name, covers, giving.words(), own)
    }

    fn force(&self, last_ms: i64, publish: Bytes) -> Call {
        force(&self.name, "write", "1", last_ms, publish)
    }

    fn state(&self) -> Call {
        state(&self.name, "write")
    }
}

impl Halves for Writing {
    fn other(&self) -> &Arc<LockName> {
        &self.other
    }

    fn weaker(&self) -> Option<Arc<dyn Protocol>> {
        Some(Arc::new(Reading::new(&self.other, &self.name)))
    }

    fn field(&self, owner: &Owner) -> Bytes {
        Bytes::from([owner.text().as_bytes(), b":write"].concat())
    }
}
