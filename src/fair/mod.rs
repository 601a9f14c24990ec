//! The fair lock: Redisson's `getFairLock`. All tasks of all processes, Java's included, are served first come,
//! first served.
//!
//! Every waiter takes a place in a queue in Redis. When the lock is free, only the head of the queue, its first waiter,
//! is notified. If a release by this crate finds a waiter of this crate at the head, the release *passes the lock on*:
//! its message grants the lock, so the hand-over takes one round trip instead of two. If a waiter of Java is at the
//! head, the message only notifies that waiter, which then acquires the lock, as in Redisson.
//!
//! # How long does a place last?
//!
//! - **Waiter of this crate**: while its client lives. The client refreshes the places of its waiters every second, or
//!   every 2.7 s while no waiter's deadline is near. One command refreshes up to 500 places. If the client dies,
//!   freezes or is cut off, its waiters lose their places within [`Options::fair_wait`](crate::Options::fair_wait) (6
//!   s), and the next waiter is served. A waiter that was only frozen takes a new place at the end.
//! - **Waiter of Java**: as in Redisson, until 5 minutes (`fairLockWaitTimeout`, here
//!   [`Options::java_fair_wait`](crate::Options::java_fair_wait)) after the deadline of the waiter ahead, even if the
//!   waiter is dead. If this crate has notified a Java waiter at the head, that waiter must acquire the lock within
//!   [`Options::fair_grace`](crate::Options::fair_grace) (500 ms). Otherwise it loses its place.
//! - If a waiter of this crate gives up (timeout, dropped future, error, shutdown), a background command removes it
//!   from the queue at once. If the lock is free then, the next waiter is served.
//!
//! # What is not in order?
//!
//! - `try_lock` acquires a free lock only if nobody waits, and does not queue.
//! - An owner that holds the lock re-enters without queueing.
//! - Calls that overlap in time have no order.
//!
//! # Wire format
//!
//! As Redisson's, without its unlock latch:
//!
//! | key or channel | content |
//! |---|---|
//! | `<name>` | hash `{<owner>: count}`, with a lease, as for the reentrant lock |
//! | `redisson_lock_queue:{<name>}` | list of the waiting owners, the head first |
//! | `redisson_lock_timeout:{<name>}` | sorted set of their deadlines, in ms of the server's time |
//! | `redisson_lock_waiters:{<name>}:<name>` | hash of this crate's waiters: owner and secret nonce. Not in Redisson |
//! | `redisson_lock__channel:{<name>}:<owner>` | `0` = try again; `n nonce` (this crate's waiters) = held for `n` ms |
//!
//! After a grant by message, the new holder renews the lock within these `n` ms. If Java waits in the queue, or the
//! waiter's client is not subscribed, `n` is at most `fair_grace`, and the waiter confirms the grant by an attempt.
//!
//! The deadline of a Java waiter is the deadline of the waiter ahead plus the Java waiter's own wait. When a waiter
//! acquires the lock or gives up, its own wait is subtracted from deadlines behind it. A Java waiter subtracts its wait
//! from all of them, a waiter of this crate only from the deadlines of the Java waiters right behind it.
//!
//! The deadline of a waiter of this crate is *now* + 5.5 s (`fair_wait` less half a beat), plus the waits of the Java
//! waiters ahead. Each refresh sets the deadline again, and encodes the time of the refresh in the fractional part. The
//! deadlines of the Java waiters right behind this waiter move by the same amount, so that a Java waiter's distance to
//! the deadline ahead stays its own wait. `docs/wire-format.md` has the details.

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

/// The text of a script of this flavour: the parts that all its scripts share, then these files.
macro_rules! script {
    ($($file:literal),+) => {
        concat!(
            include_str!("../../lua/common/holds.lua"),
            include_str!("../../lua/fair/queue.lua"),
            $(include_str!(concat!("../../lua/fair/", $file, ".lua"))),+
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
        include_str!("../../lua/fair/remove.lua"),
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
static LEAVE: Script = Script::step("fair/leave", script!("remove", "leave"), &MANY, 3);
static FORCE: Script = Script::new("fair/force", script!("force"));
static NATURE: Nature = Nature::simple("fair", &HASH_RENEWAL);
static REFRESH: Script = Script::new("fair/refresh", script!("mend", "refresh"));

/// # Fair locks
impl Client {
    /// Returns the fair lock of this name: Redisson's `getFairLock(name)`.
    ///
    /// # Cost
    ///
    /// None: nothing is sent until an acquire. An impossible name is refused then.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: distlock::Client) -> distlock::Result<()> {
    /// let printer = client.fair("printer");
    /// println!("{} wait before me", printer.queue_len().await?);
    /// let guard = printer.lock().await?; // in the order of arrival
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn fair(&self, name: &str) -> FairLock {
        of_name(self, LockName::new(&self.options().name_prefix, name))
    }
}

/// Returns the fair lock of this name.
pub(crate) fn of_name(client: &Client, name: Arc<LockName>) -> FairLock {
    Lock::new(client, Queued::new(name, client.options()))
}

/// An exclusive lock with a queue: Redisson's fair `RLock`. Its owner may re-enter the lock. The [module](self)
/// describes its order and wire format, [`DistLock`](crate::DistLock) its methods.
///
/// # Cost
///
/// - Lock and unlock of a free lock: one command each.
/// - Waiting: one command takes the place. The first wait needs one more command, after the waiter has subscribed to
///   its own channel, which is kept for later waiters of this lock. Being served costs no command if a client of this
///   crate released the lock and Java does not wait, otherwise one command. One command every 1 to 2.7 s refreshes all
///   places of a client.
pub type FairLock = Lock<Fair>;

/// The flavour of [`FairLock`].
#[derive(Debug)]
pub enum Fair {}

/// The calls of a fair lock.
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
            grace_ms: millis(options.fair_grace),
        };
        Self { name, queue }
    }

    /// Creates a call. Its words are the keys, `args`, `own`, and the arguments with which every call of this flavour
    /// ends.
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
