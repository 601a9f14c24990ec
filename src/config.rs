//! Options and their defaults.

use std::time::Duration;

mod backoff;
mod check;
mod tls;
pub(crate) mod url;

pub use backoff::Backoff;
#[cfg(all(test, feature = "redisson-yaml"))]
pub(crate) use check::SHORTEST_WATCHDOG;
pub(crate) use check::{LONGEST_LABEL, LONGEST_LEASE, SHORTEST_LEASE, check_lease, check_lock_delay};
pub use distlock_wire::Credentials;
pub(crate) use distlock_wire::{Provider, Secret};
pub use tls::Tls;
pub(crate) use tls::{BUILT_IN, check as check_tls, not_built_in};

/// Default of [`Options::scan_interval`] in clusters. As in Redisson.
pub(crate) const CLUSTER_SCAN_INTERVAL: Duration = Duration::from_secs(5);

/// The longest time that sent data may stay unacknowledged: a day, well below the kernel's limit for `TCP_USER_TIMEOUT`
/// (2^31 ms, about 24.8 days).
const LONGEST_SILENCE: Duration = Duration::from_secs(24 * 3600);

/// All options of a [`Client`](crate::Client). [`Builder::configure`](crate::Builder::configure) sets any of them. For
/// the most used, the builder has methods.
///
/// If Redisson has the same option, the default is the same. If a value is out of the bounds given here, connecting
/// fails with [`Error::Config`](crate::Error::Config). Times without an upper bound are cut to ten years. With the
/// feature `serde`, options are read and written by the names of these fields: see `Settings`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Lease of locks that were acquired without an explicit lease. It is renewed each time a third of it has passed.
    /// Default 30 s; 100 ms to ten years, and at least three times the [`command_timeout`](Self::command_timeout).
    /// (Redisson: `lockWatchdogTimeout`)
    pub watchdog: Duration,
    /// Number of locks renewed per command. Default 100; 1 to 5000. (Redisson: `lockWatchdogBatchSize`)
    pub watchdog_batch: usize,
    /// Time limit of a command. Default 3 s; 1 ms to a third of the watchdog. (Redisson: `timeout`)
    pub command_timeout: Duration,
    /// Time limit for connecting. Default 10 s; at least 1 ms. (Redisson: `connectTimeout`)
    pub connect_timeout: Duration,
    /// Sets for how long, not how often, an operation is retried after temporary errors
    /// ([`is_retryable`](crate::Error::is_retryable)): for `retry_attempts` times the sum of `command_timeout` and the
    /// longest `retry_delay`. Default 4, which is 20 s with the other defaults. (Redisson: `retryAttempts`)
    pub retry_attempts: u32,
    /// First and longest pause between such retries. The pause before the first retry is a tenth of the first pause.
    /// Later pauses double up to the longest. Half of each pause is random. Default 1 s and 2 s. The first is at least
    /// 1 ms, and the longest at least the first. (Redisson: `retryDelay`)
    pub retry_delay: (Duration, Duration),
    /// Time limit for subscribing. Waiters that are not subscribed by then poll instead. Default 7.5 s; at least 1 ms.
    /// (Redisson: `subscriptionTimeout`)
    pub subscribe_timeout: Duration,
    /// Time that an unused subscription is kept for the next waiter. Default 5 s.
    pub subscription_linger: Duration,
    /// The longest time that a waiter sleeps before it checks the lock by itself, even without any message. Default
    /// 5 s; at least 10 ms.
    pub poll_cap: Duration,
    /// Interval between PINGs on the connection that receives messages. Default 30 s; at least 10 ms. (Redisson:
    /// `pingConnectionInterval`)
    pub ping_interval: Duration,
    /// Number of hand-offs in a row inside this process, before other processes get a turn. Default 16; 0 turns
    /// hand-offs off.
    pub local_handoff_limit: u32,
    /// For how long the tasks of this process may hand a lock to each other before other processes get a turn. Default
    /// 50 ms.
    pub local_handoff_time: Duration,
    /// After its own release, this process lets the other processes that received the release message acquire first. It
    /// waits for their releases: for at most 10 ms each (20 ms while a known competitor has not had a turn), and for at
    /// most 200 ms in all. Read-write locks do not wait for releases. Instead, if a Java client held the lock in the
    /// last 5 s, a task pauses for up to 1 ms before it tries. Default true.
    pub yield_after_release: bool,
    /// Fair locks: the time within which a waiter of this crate loses its place if its process dies or freezes. Default
    /// 6 s; 100 ms to 5 min. All clients of a lock need the same value, because each client applies its own value to
    /// the waiters of other clients.
    pub fair_wait: Duration,
    /// Fair locks: how long a Java waiter that called `lock()` keeps its place in the queue. Default 5 min; 1 ms to ten
    /// years. Set the value that Java uses. (Redisson: `fairLockWaitTimeout`)
    pub java_fair_wait: Duration,
    /// Fair locks: the time within which the head of the queue must take a free lock, or lose its place. Applies only
    /// if a Java client waits in the queue, or if the head's client is not subscribed. Default 500 ms; 10 ms to 5 min.
    /// A longer time tolerates longer pauses of a process, but each dead waiter then delays the others for longer.
    pub fair_grace: Duration,
    /// Read-write locks: who is preferred. Default: readers, as in Redisson.
    pub prefer: Prefer,
    /// Read-write locks that prefer writers: how long waiting writers hold back a reader. Default 1 s.
    pub max_reader_delay: Duration,
    /// Number of connections for commands, in addition to one for messages. Default 1; up to 256.
    pub pool_size: usize,
    /// Prefix of every name. Default empty; at most 2048 bytes, half of the longest name that is allowed. (Redisson: a
    /// `NameMapper` that does the same)
    pub name_prefix: String,
    /// Name by which servers list the connections (`CLIENT LIST`). Default: `distlock-` and the client's id.
    /// Printable ASCII without spaces. (Redisson: `clientName`)
    pub client_name: String,
    /// Text that tells people which process this client is, such as the name of its pod.
    /// [`Client::label_of`](crate::Client::label_of) reads it. Default empty, which writes none; at most 128 bytes.
    pub label: String,
    /// Sends scripts by their hash. Default true. (Redisson: `useScriptCache`)
    pub script_cache: bool,
    /// Sends several acquires and releases in one command under load. Default true.
    pub batching: bool,
    /// Commands go over the library `fred`. If false, they go over the connections of `distlock-wire`, which do less
    /// work per command, and whose buffers grow only with the data sent. These connections also know which commands
    /// were never sent, and so have not run. Default true; no effect without the feature `fred`. With the feature
    /// `native-tls`, connections over TLS use `fred` in any case.
    pub use_fred: bool,
    /// Several servers: how often the client asks which server has which slot (clusters), or which server is the
    /// primary (Sentinel, replicated servers). While the client is in doubt, for example after a redirect or a broken
    /// connection, it asks more often. Default `None`, which means 5 s in clusters, and 1 s with sentinels and
    /// replicated servers; at least 10 ms. (Redisson: `scanInterval`)
    pub scan_interval: Option<Duration>,
    /// Clusters: whether sharded channels are used. Default: if the servers know them, as in Redisson.
    pub sharded: Sharded,
    /// Which replicas must acknowledge an acquire or renewal before it counts. Default: Redisson's rule, which is one
    /// replica if any is connected. With a single server (`redis://`), this rule requires no acknowledgement.
    /// (Redisson: `checkLockSyncedSlaves`)
    pub acks: Acks,
    /// Time limit for acknowledgements. Default 1 s; at least 1 ms. A renewal must have time to fail and be repeated.
    /// So a longer limit is reduced to a third of the watchdog minus `command_timeout`, or to a sixth of the watchdog
    /// if that is more. (Redisson: `slavesSyncTimeout`)
    pub ack_timeout: Duration,
    /// Sentinel: a renewed lease counts from the moment when the renewal was sent, or from the moment when most
    /// sentinels last confirmed the primary, whichever is earlier. So at a primary that is cut off from the sentinels,
    /// no lock stays held for longer than one lease. The client asks the sentinels every
    /// [`scan_interval`](Self::scan_interval), or six times a lease if that is more often. Without Sentinel, connecting
    /// fails with [`Error::Config`](crate::Error::Config). Default false.
    pub confirm_primary: bool,
    /// Checks at connect whether this login has all rights that locks need, and warns if not. Default true.
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
    /// A waiting writer of this crate holds back new readers of this crate, for at most [`Options::max_reader_delay`].
    /// Java clients do not take part.
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

/// Number of replicas that must acknowledge an acquire, renewal or extension before it counts.
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
    /// No replica. If the primary is lost, so are its writes that no replica has received.
    Off,
    /// Redisson's rule, best effort: an operation fails if replicas are connected and none acknowledges in time. It
    /// acts like [`Off`](Self::Off) in three cases: no replica is connected, the client uses a single server
    /// (`redis://`), or the server has no `WAIT`.
    #[default]
    Redisson,
    /// At least this many replicas, 1 or more. The operation also fails if fewer are connected.
    ///
    /// `AtLeast(1)` survives the loss of one server at a time, if the replica with the most data is promoted. It does
    /// not survive `SENTINEL FAILOVER`, which promotes a replica while the primary lives on; [`All`](Self::All) does.
    AtLeast(usize),
    /// Every known replica, even a disconnected one, because any of them may be promoted. With a single server
    /// (`redis://`): as many replicas as were ever connected at once, and at least one.
    All,
}

impl Acks {
    /// True if an operation counts only once enough replicas have acknowledged it.
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
            local_handoff_limit: 16,
            local_handoff_time: Duration::from_millis(50),
            yield_after_release: true,
            fair_wait: Duration::from_secs(6),
            java_fair_wait: Duration::from_secs(300),
            fair_grace: Duration::from_millis(500),
            prefer: Prefer::Readers,
            max_reader_delay: Duration::from_secs(1),
            pool_size: 1,
            name_prefix: String::new(),
            client_name: String::new(),
            label: String::new(),
            script_cache: true,
            batching: true,
            use_fred: true,
            confirm_primary: false,
            scan_interval: None,
            sharded: Sharded::Auto,
            acks: Acks::Redisson,
            ack_timeout: Duration::from_secs(1),
            preflight: true,
        }
    }
}

impl Options {
    /// Returns [`ack_timeout`](Self::ack_timeout), reduced so that a renewal can be repeated. A renewal starts after a
    /// third of the watchdog. Each of its two attempts waits for the server's answer, and then for the acknowledgement
    /// of its replicas.
    pub(crate) fn acknowledged_within(&self) -> Duration {
        let third = self.watchdog / 3;
        self.ack_timeout.min(third.saturating_sub(self.command_timeout).max(third / 2))
    }

    /// Time for which sent data may stay unacknowledged by the peer's kernel (`TCP_USER_TIMEOUT`).
    pub(crate) fn user_timeout(&self) -> Duration {
        (self.command_timeout.max(Duration::from_secs(1)) * 2).min(LONGEST_SILENCE)
    }

    /// Interval at which waiters refresh their places in the queue (see `fair/mod.rs`).
    pub(crate) fn beat(&self) -> Duration {
        (self.fair_wait / 5).min(self.watchdog / 6).min(Duration::from_secs(1))
    }

    /// The longest time between two refreshes, if no waiter's deadline is near. A place lasts more than twice as long,
    /// so just before its refresh it still lasts for more than one `longest_beat`. If the lock is passed on at that
    /// moment, the first lease is this remaining time, which is long enough to renew the lease.
    pub(crate) fn longest_beat(&self) -> Duration {
        (self.entry_life() / 2 - self.beat() / 20).min(self.beat() * 27 / 10)
    }

    /// Time for which a waiter's place lasts without a refresh. It is half a beat less than `fair_wait`, because
    /// another client may look at the queue up to half a beat after the place has run out.
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
