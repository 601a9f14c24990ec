//! The fair lock: Redisson's `getFairLock`. First come, first served among all tasks of all processes, Java's included.
//!
//! Every waiter takes a place in a queue that stands in Redis, and the head of the queue alone is told when the lock is
//! free. A release of ours *passes the lock on* to a head of ours: the message it gets is the lock, one round trip instead
//! of two. A head of Java's is told to take it, as Redisson does it.
//!
//! # Who waits, and for how long
//!
//! A waiter of ours keeps its place for as long as its client lives: once a second, or up to 2.2 s where all that wait live, the
//! client refreshes all places of its waiters, with one command for up to 500 of them. When the client dies, is cut off or
//! freezes, its places are lost within
//! [`Options::fair_wait`](crate::Options::fair_wait), 5 s, and the next is served. A waiter that was only frozen takes a
//! new place at the end. Waiters of Java keep Redisson's rules: a place lasts for 5 minutes beyond what those ahead may
//! take (`fairLockWaitTimeout`, here [`Options::java_fair_wait`](crate::Options::java_fair_wait)), alive or dead.
//!
//! A waiter that gives up (its wait is over, its future is dropped, an error, a shutdown) leaves the queue by a command that is sent in the
//! background, without delay. If the lock is free then, the next waiter is served.
//!
//! What is *not* in order: `try_lock` takes a lock that is free if nobody waits, and does not queue; an owner that holds the
//! lock comes in again past the queue; calls that overlap in time have no order.
//!
//! # Wire format
//!
//! As Redisson's, without its unlock latch:
//!
//! | | |
//! |---|---|
//! | `<name>` | hash `{<owner>: count}`, with a lease, as of the reentrant lock |
//! | `redisson_lock_queue:{<name>}` | list of the owners that wait, the head first |
//! | `redisson_lock_timeout:{<name>}` | sorted set of their deadlines, in ms of the server's time |
//! | `redisson_lock_waiters:{<name>}:<name>` | hash of the waiters of ours: owner and nonce, which nobody else knows. Redisson has none |
//! | `redisson_lock__channel:{<name>}:<owner>` | the channel of one waiter: `0` = take the lock; `n nonce` (to ours alone): it is yours, for `n` ms until you renew it |
//!
//! Deadlines as Redisson's: that of the one ahead plus the own wait; who gets the lock or gives up takes its own wait off
//! those of Java behind it. Where they differ: a deadline of ours is *now* + 4.5 s (`fair_wait` less half a beat), plus the
//! waits of the waiters of Java ahead, set anew at every refresh (its fraction says when); the waiters of Java right behind
//! it are moved along, so that the difference between two deadlines stays the wait of the second. `docs/wire-format.md` has
//! it in full.

use std::sync::Arc;

use bytes::Bytes;

use crate::client::Client;
use crate::config::{Options, millis};
use crate::engine::protocol::{self, Ask, Giving, Nature, Protocol, Queueing};
use crate::engine::replies::is_held;
use crate::engine::simple::{HASH_RENEWAL, hash_state};
use crate::names::LockName;
use crate::object::Lock;
use crate::transport::script::Script;
use crate::transport::{Arg, Call};

/// A script behind what all scripts of this flavour share.
macro_rules! script {
    ($file:literal) => {
        concat!(
            include_str!("../../lua/common/holds.lua"),
            include_str!("../../lua/fair/queue.lua"),
            include_str!(concat!("../../lua/fair/", $file, ".lua"))
        )
    };
}

mod waiters;

pub use waiters::{Queue, Waiter};

static MANY: Script = Script::new(
    "fair/many",
    concat!(
        include_str!("../../lua/common/holds.lua"),
        include_str!("../../lua/fair/queue.lua"),
        include_str!("../../lua/fair/many/begin.lua"),
        include_str!("../../lua/common/many/begin.lua"),
        include_str!("../../lua/fair/acquire.lua"),
        include_str!("../../lua/common/many/next.lua"),
        include_str!("../../lua/fair/release.lua"),
        include_str!("../../lua/common/many/next.lua"),
        include_str!("../../lua/fair/leave.lua"),
        include_str!("../../lua/common/many/run.lua"),
        include_str!("../../lua/fair/many/end.lua"),
    ),
);
static ACQUIRE: Script = Script::step("fair/acquire", script!("acquire"), &MANY, 1).gaining(is_held);
static RELEASE: Script = Script::step("fair/release", script!("release"), &MANY, 2);
static LEAVE: Script = Script::step("fair/leave", script!("leave"), &MANY, 3);
static FORCE: Script = Script::new("fair/force", script!("force"));
static NATURE: Nature = Nature::simple("fair", &HASH_RENEWAL);
static REFRESH: Script = Script::new(
    "fair/refresh",
    concat!(
        include_str!("../../lua/common/holds.lua"),
        include_str!("../../lua/fair/queue.lua"),
        include_str!("../../lua/fair/mend.lua"),
        include_str!("../../lua/fair/refresh.lua"),
    ),
);

/// # Fair locks
impl Client {
    /// The fair lock of this name: Redisson's `getFairLock(name)`.
    ///
    /// *Cost*: none; nothing is sent until it is acquired. An impossible name is refused then.
    #[must_use]
    pub fn fair(&self, name: &str) -> FairLock {
        let name = LockName::new(&self.options().name_prefix, name);
        Lock::new(self, Queued::new(name, self.options()))
    }
}

/// One owner at a time, who may come in again, and a queue: Redisson's fair `RLock`. See the [module](self) for its order
/// and its wire format, and [`DistLock`](crate::DistLock) for what it can do.
///
/// *Cost*: lock and unlock of a free lock are one command each. Waiting: one command takes the place (and the first time
/// one more, after the subscription to a channel of one's own, which is kept for later waiters of this lock); being served
/// costs none if a client of ours released the lock, else one; and one command every 1 to 2.2 s keeps all places of a client.
pub type FairLock = Lock<Fair>;

/// The flavour of [`FairLock`].
#[derive(Debug)]
pub enum Fair {}

/// How a fair lock speaks to Redis.
#[derive(Debug)]
struct Queued {
    name: Arc<LockName>,
    queue: protocol::Queue,
}

impl Queued {
    fn new(name: Arc<LockName>, options: &Options) -> Self {
        let queue = protocol::Queue {
            refresh: &REFRESH,
            keys: [name.key.clone(), name.queue(), name.deadlines(), name.waiters()],
            channels: name.channel.clone(),
            entry_life_ms: millis(options.entry_life()),
            first_lease_ms: millis(options.first_lease()),
            java_wait_ms: millis(options.java_fair_wait),
            watchdog_ms: millis(options.watchdog),
        };
        Self { name, queue }
    }

    /// A call with what every script of this flavour is told at its end.
    fn call<const N: usize, const M: usize>(
        &self,
        script: &'static Script,
        publish: &Bytes,
        args: [Arg; N],
        own: [Arg; M],
    ) -> Call {
        let (keys, told) = (&self.queue.keys, self.queue.args(publish.clone()));
        let mut words = Vec::with_capacity(keys.len() + N + M + told.len() + 1);
        words.extend(keys.iter().cloned().map(Arg::Text));
        words.extend(args);
        words.extend(own);
        words.extend(told);
        words.push(Arg::Text(self.queue.channels.clone()));
        Call { script, keys: keys.len(), words }
    }
}

impl Protocol for Queued {
    fn name(&self) -> &Arc<LockName> {
        &self.name
    }

    fn nature(&self) -> &'static Nature {
        &NATURE
    }

    fn acquire(&self, ask: &Ask<'_>) -> Call {
        let queueing = match ask.queueing {
            Queueing::Ask => 0,
            Queueing::Join => 1,
            Queueing::Stay => 2,
        };
        self.call(&ACQUIRE, &ask.publish, ask.words(), [Arg::Int(queueing), Arg::Text(ask.nonce.clone())])
    }

    fn release(&self, giving: &Giving<'_>) -> Call {
        let Some(waiter) = giving.waiter else { return self.call(&RELEASE, &giving.publish, giving.words(), []) };
        let [owner, hold, lease, mine, _] = giving.words();
        self.call(&LEAVE, &giving.publish, [owner, hold, lease, mine], [Arg::Text(waiter.clone())])
    }

    fn queue(&self) -> Option<&protocol::Queue> {
        Some(&self.queue)
    }

    fn force(&self, last_ms: i64, publish: Bytes) -> Call {
        self.call(&FORCE, &publish, [Arg::Int(last_ms)], [])
    }

    fn state(&self) -> Call {
        hash_state(&self.name)
    }
}
