//! Options, their defaults, and the checks of their values.

use std::time::Duration;

use crate::error::{Error, Result};

mod backoff;
mod tls;
pub(crate) mod url;

pub use backoff::Backoff;
pub use distlock_wire::Credentials;
pub(crate) use distlock_wire::{Provider, Secret};
pub use tls::Tls;
pub(crate) use tls::{BUILT_IN, check as check_tls, not_built_in};

/// The longest lease that is sent: ten years. Redis itself overflows at about 292 million years.
pub(crate) const LONGEST_LEASE: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// The longest time that sent data may stay unacknowledged. The kernel counts milliseconds in 31 bits, and refuses
/// more.
const LONGEST_SILENCE: Duration = Duration::from_secs(24 * 3600);

/// The shortest lease that leaves any time to hold: 1 % and 2 ms are taken off for drift.
const SHORTEST_LEASE: Duration = Duration::from_millis(3);

/// The longest time that a waiter of a fair lock may be silent: Redisson's `fairLockWaitTimeout`.
const LONGEST_FAIR_WAIT: Duration = Duration::from_secs(300);

pub(crate) const SHORTEST_WATCHDOG: Duration = Duration::from_millis(100);

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
    /// connecting fails with [`Error::Config`]. Default false.
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

    /// Checks the options, and cuts times without an upper bound to ten years.
    pub(crate) fn checked(mut self) -> Result<Self> {
        self.validate()?;
        // Calculations add and multiply these times.
        for span in [
            &mut self.connect_timeout,
            &mut self.retry_delay.0,
            &mut self.retry_delay.1,
            &mut self.subscribe_timeout,
            &mut self.subscription_linger,
            &mut self.poll_cap,
            &mut self.ping_interval,
            &mut self.handoff_time,
            &mut self.hold_back,
            &mut self.scan_interval,
            &mut self.ack_timeout,
        ] {
            *span = LONGEST_LEASE.min(*span);
        }
        Ok(self)
    }

    /// Refuses options for Sentinel if there are no sentinels.
    pub(crate) fn check_no_sentinels(&self) -> Result<()> {
        if self.confirm_primary {
            return Err(Error::config("confirm_primary is of use with redis-sentinel:// and rediss-sentinel:// only"));
        }
        Ok(())
    }

    /// Refuses options that cannot work, with the reason.
    pub(crate) fn validate(&self) -> Result<()> {
        // Exhaustive, so that a new option cannot be forgotten here.
        let Self {
            watchdog,
            watchdog_batch,
            command_timeout,
            connect_timeout,
            retry_attempts: _,
            retry_delay,
            subscribe_timeout,
            subscription_linger: _,
            poll_cap,
            ping_interval,
            handoff_limit: _,
            handoff_time: _,
            take_turns: _,
            fair_wait,
            java_fair_wait,
            fair_grace,
            prefer: _,
            hold_back: _,
            pool_size,
            name_prefix,
            client_name,
            script_cache: _,
            coalesce: _,
            scan_interval,
            sharded: _,
            confirm_primary: _,
            acks,
            ack_timeout,
            preflight: _,
        } = self;
        let ms = Duration::from_millis(1);
        let least = |what: &str, value: Duration, bound: Duration| {
            if value < bound {
                Err(Error::config(format!("{what} is {}: at least {} is needed", shown(value), shown(bound))))
            } else {
                Ok(())
            }
        };
        least("the watchdog", *watchdog, SHORTEST_WATCHDOG)?;
        least("the command timeout", *command_timeout, ms)?;
        least("the connect timeout", *connect_timeout, ms)?;
        least("the subscribe timeout", *subscribe_timeout, ms)?;
        least("the poll cap", *poll_cap, 10 * ms)?;
        least("the scan interval", *scan_interval, 10 * ms)?;
        least("the ping interval", *ping_interval, 10 * ms)?;
        least("the shortest retry delay", retry_delay.0, ms)?;
        least("the longest retry delay", retry_delay.1, retry_delay.0)?;
        least("the wait of fair locks", *fair_wait, SHORTEST_WATCHDOG)?;
        if *fair_wait > LONGEST_FAIR_WAIT {
            return Err(Error::config(format!(
                "the wait of fair locks is {}: for so long a dead waiter holds up all others; at most {} is allowed",
                shown(*fair_wait),
                shown(LONGEST_FAIR_WAIT)
            )));
        }
        least("Java's wait of fair locks", *java_fair_wait, ms)?;
        if *java_fair_wait > LONGEST_LEASE {
            return Err(Error::config(format!(
                "Java's wait of fair locks is {}: at most {} is allowed",
                shown(*java_fair_wait),
                shown(LONGEST_LEASE)
            )));
        }
        least("the grace time of fair locks", *fair_grace, 10 * ms)?;
        if *fair_grace > LONGEST_FAIR_WAIT {
            return Err(Error::config(format!(
                "the grace time of fair locks is {}: at most {} is allowed",
                shown(*fair_grace),
                shown(LONGEST_FAIR_WAIT)
            )));
        }
        if *watchdog > LONGEST_LEASE {
            let (watchdog, most) = (shown(*watchdog), shown(LONGEST_LEASE));
            return Err(Error::config(format!("the watchdog is {watchdog}: at most {most} is allowed")));
        }
        if *command_timeout > *watchdog / 3 {
            return Err(Error::config(format!(
                "the watchdog of {} is too short for the command timeout of {}: a renewal goes out after a third of the \
                 watchdog, and must have time to fail and be repeated once before the lease ends; use a watchdog of at \
                 least {} or a command timeout of at most {}",
                shown(*watchdog),
                shown(*command_timeout),
                shown(command_timeout.saturating_mul(3)),
                shown(*watchdog / 3)
            )));
        }
        least("the ack timeout", *ack_timeout, ms)?;
        if *acks == Acks::AtLeast(0) {
            return Err(Error::config("acknowledgement by at least 0 replicas is none: use Acks::Off for that"));
        }
        if *watchdog_batch == 0 || *watchdog_batch > 5_000 {
            return Err(Error::config(format!("the watchdog batch is {watchdog_batch}: 1 to 5000 are allowed")));
        }
        if *pool_size == 0 || *pool_size > 256 {
            return Err(Error::config(format!("the pool size is {pool_size}: 1 to 256 are allowed")));
        }
        if name_prefix.len() > crate::names::LONGEST / 2 {
            return Err(Error::config("the name prefix is longer than half the longest name"));
        }
        if !client_name.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Error::config(
                "the client's name has a space in it, or what is no printable ASCII: servers refuse that",
            ));
        }
        Ok(())
    }
}

/// A duration as error messages show it, in whole milliseconds. Rounded down, so that a shown upper bound is
/// accepted.
pub(crate) fn shown(span: Duration) -> String {
    const YEAR: u64 = 365 * 24 * 3600;
    match span.as_secs() {
        seconds if seconds >= YEAR && seconds.is_multiple_of(YEAR) => format!("{} years", seconds / YEAR),
        0 if span.subsec_millis() == 0 => format!("{span:?}"),
        seconds => format!("{:?}", Duration::from_secs(seconds) + Duration::from_millis(span.subsec_millis().into())),
    }
}

/// A duration in whole milliseconds for the server, rounded up.
pub(crate) fn millis(span: Duration) -> i64 {
    let nanos = span.as_nanos();
    i64::try_from(nanos.div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

/// Refuses leases that can never be held, and leases that Redis misinterprets: for less than a millisecond it deletes
/// the key at once, and for a very long one it fails after the count was written.
pub(crate) fn check_lease(lease: Duration) -> Result<()> {
    if lease < SHORTEST_LEASE {
        return Err(Error::config(format!(
            "a lease of {} can never be held: 1 % and 2 ms of a lease are taken off for drift, and the answer of the \
             server takes its time; use at least {}, and better many times the round trip",
            shown(lease),
            shown(SHORTEST_LEASE)
        )));
    }
    if lease > LONGEST_LEASE {
        return Err(Error::config(format!(
            "a lease of {} is longer than the longest of {}: leave the lease out to hold the lock for as long as the \
             process lives",
            shown(lease),
            shown(LONGEST_LEASE)
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
