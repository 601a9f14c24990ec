//! Options and their defaults.

use std::time::Duration;

mod backoff;
mod check;
mod tls;
pub(crate) mod url;

pub use backoff::Backoff;
#[cfg(all(test, feature = "config"))]
pub(crate) use check::SHORTEST_WATCHDOG;
pub(crate) use check::{LONGEST_LEASE, check_lease};
pub use distlock_wire::Credentials;
pub(crate) use distlock_wire::{Provider, Secret};
pub use tls::Tls;
pub(crate) use tls::{BUILT_IN, check as check_tls, not_built_in};

/// The longest time that sent data may stay unacknowledged. The kernel counts milliseconds in 31 bits, and refuses
/// more.
const LONGEST_SILENCE: Duration = Duration::from_secs(24 * 3600);

/// All options of a [`Client`](crate::Client). Set them on the [`Builder`](crate::Builder).
///
/// If Redisson has the same option, the default is the same. A value out of the bounds given here is
/// [`Error::Config`](crate::Error::Config) at connect. Times without an upper bound are cut to ten years. With the
/// feature `serde`, options are read and written by the names of these fields: see `Settings`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Lease of locks without an explicit lease, renewed every third of it. Default 30 s; 100 ms to ten years, and at
    /// least three times the [`command_timeout`](Self::command_timeout). (Redisson: `lockWatchdogTimeout`)
    pub watchdog: Duration,
    /// Number of locks renewed per command. Default 100; 1 to 5000. (Redisson: `lockWatchdogBatchSize`)
    pub watchdog_batch: usize,
    /// Time limit of a command. Default 3 s; 1 ms to a third of the watchdog. (Redisson: `timeout`)
    pub command_timeout: Duration,
    /// Time limit for connecting. Default 10 s; at least 1 ms. (Redisson: `connectTimeout`)
    pub connect_timeout: Duration,
    /// Number of retries of an operation after errors that pass. Default 4. (Redisson: `retryAttempts`)
    pub retry_attempts: u32,
    /// Shortest and longest pause before such a retry; half of each pause is random. Default 1 s and 2 s; at least
    /// 1 ms, the shortest first. (Redisson: `retryDelay`)
    pub retry_delay: (Duration, Duration),
    /// Time limit for subscribing; after it waiters poll instead. Default 7.5 s; at least 1 ms. (Redisson:
    /// `subscriptionTimeout`)
    pub subscribe_timeout: Duration,
    /// Time that an unused subscription is kept for the next waiter. Default 5 s.
    pub subscription_linger: Duration,
    /// The longest time that a waiter sleeps before it checks the lock by itself, even without any message. Default
    /// 5 s; at least 10 ms.
    pub poll_cap: Duration,
    /// Interval between checks of the connection for messages. Default 30 s; at least 10 ms. (Redisson:
    /// `pingConnectionInterval`)
    pub ping_interval: Duration,
    /// Number of hand-offs in a row inside this process, before other processes get a turn. Default 16; 0 turns
    /// hand-offs off.
    pub handoff_limit: u32,
    /// Time for which a lock is handed over inside this process, before other processes get a turn. Default 50 ms.
    pub handoff_time: Duration,
    /// After a release, lets other processes that received its message try before this one does, for at most 10 ms
    /// each. Read-write locks: pauses for up to 1 ms while Java competes. Default true.
    pub take_turns: bool,
    /// Fair locks: the time within which a stopped waiter of ours loses its place. Default 5 s; 100 ms to 5 min. All
    /// clients of a lock need the same value, because each judges the waiters of the others by its own.
    pub fair_wait: Duration,
    /// Fair locks: how long a waiter of Java that called `lock()` keeps its place. Default 5 min; 1 ms to ten years.
    /// Set the value that Java uses. (Redisson: `fairLockWaitTimeout`)
    pub java_fair_wait: Duration,
    /// Fair locks: the time within which the head of the queue must come for a free lock, if Java waits in the queue or
    /// the head's client is not subscribed. Otherwise it loses its place. Default 500 ms; 10 ms to 5 min. A longer
    /// time forgives longer pauses of a process, but each dead waiter then holds up the others for longer.
    pub fair_grace: Duration,
    /// Read-write locks: who is preferred. Default: readers, as in Redisson.
    pub prefer: Prefer,
    /// Read-write locks that prefer writers: how long waiting writers hold back a reader. Default 1 s.
    pub hold_back: Duration,
    /// Number of connections for commands, in addition to one for messages. Default 1; up to 256.
    pub pool_size: usize,
    /// Prefix of every name. Default empty; at most half the longest name. (Redisson: a `NameMapper` that does the
    /// same)
    pub name_prefix: String,
    /// Name by which servers list the connections (`CLIENT LIST`). Default: `distlock-` and the client's id.
    /// Printable ASCII without spaces. (Redisson: `clientName`)
    pub client_name: String,
    /// Sends scripts by their hash. Default true. (Redisson: `useScriptCache`)
    pub script_cache: bool,
    /// Sends several acquires and releases in one command under load. Default true.
    pub coalesce: bool,
    /// Several servers: how often the client refreshes which server has which slot, or is the primary. It also does
    /// so whenever there is a reason. Default 5 s in clusters, 1 s with sentinels and replicated servers; at least
    /// 10 ms. (Redisson: `scanInterval`)
    pub scan_interval: Duration,
    /// Clusters: whether sharded channels are used. Default: if the servers know them, as in Redisson.
    pub sharded: Sharded,
    /// Which replicas must acknowledge an acquire or renewal before it counts. Default: Redisson's rule, which is one
    /// replica if any is connected; a single server's replicas are not asked. (Redisson: `checkLockSyncedSlaves`)
    pub acks: Acks,
    /// Time limit for acknowledgements. Default 1 s; at least 1 ms. Capped so that a renewal can fail and be
    /// repeated: together with the `command_timeout` at a third of the watchdog, but never below a sixth of the
    /// watchdog. (Redisson: `slavesSyncTimeout`)
    pub ack_timeout: Duration,
    /// Sentinel: counts a renewal only if most sentinels confirmed the primary within the last lease of the watchdog.
    /// So a primary that is cut off from them keeps no lock for longer than that. The client asks the sentinels every
    /// [`scan_interval`](Self::scan_interval), or six times a lease if that is more often. Without Sentinel,
    /// connecting fails with [`Error::Config`](crate::Error::Config). Default false.
    pub confirm_primary: bool,
    /// Probes at connect whether this login may do all that locks need, and warns if not. Default true.
    pub preflight: bool,
}

/// Preference of a read-write lock when readers and writers wait. See the [module](mod@crate::rwlock).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Prefer {
    /// A new reader joins the current readers: Redisson's rule. A stream of readers can keep writers out.
    #[default]
    Readers,
    /// A waiting writer of ours holds back new readers of ours, for at most [`Options::hold_back`].
    Writers,
}

/// Whether the messages of a cluster use sharded channels (`SSUBSCRIBE`), which only the primary of the slot carries,
/// or channels that every server forwards to all others. All clients of a lock, Java's too, must use the same kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Sharded {
    /// Sharded channels if the server knows them: Redisson's rule.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// Number of replicas that must have an acquire, renewal or extension before it counts.
/// [`guide::acknowledgement`](crate::guide::acknowledgement) compares the modes, and says what each promises when a
/// primary is lost.
///
/// Releases and queries never wait for replicas.
///
/// # Cost
///
/// One more round trip, from the server to its replicas. Operations sent together share one `WAIT`. Each server gets
/// up to three more connections, opened on demand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Acks {
    /// No replica. Writes that a primary has not replicated are lost with it.
    Off,
    /// Redisson's rule, best effort: an operation fails if replicas are connected and none acknowledges in time. Like
    /// [`Off`](Self::Off) without replicas, over a single server (`redis://`), and if the server has no `WAIT`.
    #[default]
    Redisson,
    /// At least this many replicas, 1 or more. The operation also fails if fewer are connected.
    ///
    /// `AtLeast(1)` survives the loss of one server at a time, if the replica with the most data is promoted. It does
    /// not survive `SENTINEL FAILOVER`, which promotes a replica while the primary lives on; [`All`](Self::All) does.
    AtLeast(usize),
    /// Every known replica, even one that is away, because any of them may be promoted. Over a single server: the
    /// largest number that was ever connected at once, and at least one.
    All,
}

impl Acks {
    /// True if an operation without acknowledgement never counts.
    pub(crate) const fn is_strict(self) -> bool {
        matches!(self, Self::AtLeast(_) | Self::All)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            watchdog: Duration::from_secs(30),
            watchdog_batch: 100,
            command_timeout: Duration::from_secs(3),
            connect_timeout: Duration::from_secs(10),
            retry_attempts: 4,
            retry_delay: (Duration::from_secs(1), Duration::from_secs(2)),
            subscribe_timeout: Duration::from_millis(7500),
            subscription_linger: Duration::from_secs(5),
            poll_cap: Duration::from_secs(5),
            ping_interval: Duration::from_secs(30),
            handoff_limit: 16,
            handoff_time: Duration::from_millis(50),
            take_turns: true,
            fair_wait: Duration::from_secs(5),
            java_fair_wait: Duration::from_secs(300),
            fair_grace: Duration::from_millis(500),
            prefer: Prefer::Readers,
            hold_back: Duration::from_secs(1),
            pool_size: 1,
            name_prefix: String::new(),
            client_name: String::new(),
            script_cache: true,
            coalesce: true,
            confirm_primary: false,
            scan_interval: Duration::from_secs(5),
            sharded: Sharded::Auto,
            acks: Acks::Redisson,
            ack_timeout: Duration::from_secs(1),
            preflight: true,
        }
    }
}

impl Options {
    /// Time limit for acknowledgements. A renewal starts after a third of the watchdog, and must have time to fail
    /// and be repeated before the lease ends. Each of both attempts waits for the server's answer and for its
    /// replicas.
    pub(crate) fn acknowledged_within(&self) -> Duration {
        let third = self.watchdog / 3;
        self.ack_timeout.min(third.saturating_sub(self.command_timeout).max(third / 2))
    }

    /// Time for which sent data may stay unacknowledged by the peer's kernel (`TCP_USER_TIMEOUT`).
    pub(crate) fn user_timeout(&self) -> Duration {
        (self.command_timeout.max(Duration::from_secs(1)) * 2).min(LONGEST_SILENCE)
    }

    /// Interval at which waiters refresh their places in the queue.
    pub(crate) fn beat(&self) -> Duration {
        (self.fair_wait / 5).min(self.watchdog / 6).min(Duration::from_secs(1))
    }

    /// The longest time between two refreshes, if no waiter's deadline is near. A place outlives two refreshes, and
    /// the rest of it is lease enough when the lock is passed on to the waiter.
    pub(crate) fn longest_beat(&self) -> Duration {
        self.beat() * 11 / 5
    }

    /// Time for which a waiter's place lasts without a refresh. A waiter that stops right after a refresh is out
    /// within `fair_wait`, including the time until another client looks at the queue.
    pub(crate) fn entry_life(&self) -> Duration {
        self.fair_wait - self.beat() / 2
    }

    /// The lease of a lock that is passed on to a waiter, until the waiter renews it.
    pub(crate) fn first_lease(&self) -> Duration {
        self.entry_life().min(self.watchdog)
    }
}

/// A duration in whole milliseconds for the server, rounded up.
pub(crate) fn millis(span: Duration) -> i64 {
    let nanos = span.as_nanos();
    i64::try_from(nanos.div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
