//! Options, their defaults, and what makes no sense together.

use std::fmt;
use std::time::Duration;

use crate::error::{Error, Result};

mod backoff;
mod credentials;
mod tls;
pub(crate) mod url;

pub use backoff::Backoff;
pub use credentials::Credentials;
pub(crate) use credentials::Provider;
pub use tls::Tls;
pub(crate) use tls::{BUILT_IN, not_built_in};

/// The longest lease that is sent: ten years. Redis itself overflows at some 292 million.
pub(crate) const LONGEST_LEASE: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// The longest that a socket may wait for the other side: the kernel counts milliseconds in 31 bits, and refuses more.
const LONGEST_SILENCE: Duration = Duration::from_secs(24 * 3600);

/// The shortest lease of which anything is left to hold: 1 % and 2 ms of it are taken off for drift.
const SHORTEST_LEASE: Duration = Duration::from_millis(3);

/// The longest time that a waiter of a fair lock may be silent: Redisson's `fairLockWaitTimeout`.
const LONGEST_FAIR_WAIT: Duration = Duration::from_secs(300);

/// The shortest watchdog that is accepted.
pub(crate) const SHORTEST_WATCHDOG: Duration = Duration::from_millis(100);

/// Every option of a [`Client`](crate::Client), as it is in force. Set them on the [`Builder`](crate::Builder).
///
/// Where Redisson has the same option, the default is the same. Values out of the bounds told here are
/// [`Error::Config`](crate::Error::Config) when a client connects; of times without an upper bound, what is longer than ten years is ten
/// years. With the feature `serde` they are read and written by the names of these fields, as `Settings` tells.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Lease of locks without an explicit lease; renewed at a third of it. 30 s; 100 ms to ten years, and at least three times
    /// the [`command_timeout`](Self::command_timeout). (Redisson: `lockWatchdogTimeout`)
    pub watchdog: Duration,
    /// Locks renewed by one command. 100; 1 to 5000. (Redisson: `lockWatchdogBatchSize`)
    pub watchdog_batch: usize,
    /// How long a command may take. 3 s; 1 ms to a third of the watchdog. (Redisson: `timeout`)
    pub command_timeout: Duration,
    /// How long connecting may take. 10 s; at least 1 ms. (Redisson: `connectTimeout`)
    pub connect_timeout: Duration,
    /// How often an operation is tried again after errors that pass. 4. (Redisson: `retryAttempts`)
    pub retry_attempts: u32,
    /// Shortest and longest pause before such a retry, half of it random. 1 s and 2 s; at least 1 ms, and in this order. (Redisson: `retryDelay`)
    pub retry_delay: (Duration, Duration),
    /// How long a subscription may take before waiters poll instead. 7.5 s; at least 1 ms. (Redisson: `subscriptionTimeout`)
    pub subscribe_timeout: Duration,
    /// How long an unused subscription is kept for the next waiter. 5 s.
    pub subscription_linger: Duration,
    /// The longest a waiter sleeps without looking for itself, whatever it was told. 5 s; at least 10 ms.
    pub poll_cap: Duration,
    /// How often the connection for messages is checked. 30 s; at least 10 ms. (Redisson: `pingConnectionInterval`)
    pub ping_interval: Duration,
    /// How many times in a row a lock is handed over inside this process before other processes get a turn. 16; 0 = never.
    pub handoff_limit: u32,
    /// How long a lock is handed over inside this process before other processes get a turn. 50 ms.
    pub handoff_time: Duration,
    /// Let the processes that a release told have the lock before this one has it again, for 10 ms each at the most. true.
    pub take_turns: bool,
    /// Fair locks: a waiter of ours that has stopped loses its place within this time. 5 s; 100 ms to 5 min. All clients of a lock need
    /// the same value: each judges the waiters of the others by its own.
    pub fair_wait: Duration,
    /// Fair locks: for how long a waiter of Java that came by `lock()` keeps its place. 5 min; 1 ms to ten years. Where Java has
    /// another value, this is to be the same. (Redisson: `fairLockWaitTimeout`)
    pub java_fair_wait: Duration,
    /// Read-write locks: whom they prefer. Readers, as in Redisson.
    pub prefer: Prefer,
    /// Read-write locks that prefer writers: for how long a reader is held back by writers that wait. 1 s.
    pub hold_back: Duration,
    /// Connections for commands. 1, beside one for messages; up to 256.
    pub pool_size: usize,
    /// Put before every name. Empty; at most half the longest name. (Redisson: a `NameMapper` that does the same)
    pub name_prefix: String,
    /// The name by which servers list the connections (`CLIENT LIST`): printable ASCII without spaces. `distlock-` and the client's
    /// id. (Redisson: `clientName`)
    pub client_name: String,
    /// Send scripts by their hash. true. (Redisson: `useScriptCache`)
    pub script_cache: bool,
    /// Under load, send several acquires and releases in one command. true.
    pub coalesce: bool,
    /// Several servers: how often they are asked which of them has which slot, or is the primary, beside when there is a reason. 5 s in
    /// clusters, 1 s with sentinels and replicated servers. (Redisson: `scanInterval`)
    pub scan_interval: Duration,
    /// Clusters: whether channels are a slot's own. Where the server knows such, as in Redisson.
    pub sharded: Sharded,
    /// Which replicas have to have an acquire and a renewal before it counts. As Redisson: one, where there are replicas; a single
    /// server's are not asked. (Redisson: `checkLockSyncedSlaves`)
    pub acks: Acks,
    /// How long replicas have for that. 1 s; never longer than a third of the watchdog, so that a renewal can be repeated. (Redisson:
    /// `slavesSyncTimeout`)
    pub ack_timeout: Duration,
    /// Sentinel: count a renewal only if most sentinels confirmed the primary within the last lease of the watchdog. A primary that is cut
    /// off from them then keeps no lock for longer than that. Sentinels are asked every [`scan_interval`](Self::scan_interval), or six
    /// times a lease if that is more often. Without Sentinel, connecting is [`Error::Config`]. false.
    pub confirm_primary: bool,
    /// Probe at connect whether this login may do all that locks need, and warn if not. true.
    pub preflight: bool,
}

/// Whom a read-write lock prefers when both wait. See the [module](mod@crate::rwlock).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Prefer {
    /// Whoever comes for reading joins those who read: Redisson's rule. A stream of readers can keep writers out.
    #[default]
    Readers,
    /// A writer of ours that waits holds back readers of ours that come, for [`Options::hold_back`] at the most.
    Writers,
}

/// Whether the messages of a cluster go by channels that are a slot's own (`SSUBSCRIBE`), which only its primary carries, or by such
/// that every server passes on to all others. All clients of a lock have to do the same, Java's too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Sharded {
    /// Where the server knows them, which is Redisson's rule.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// How many replicas have to have what makes somebody a holder, or a holder for longer, before that counts: see
/// [`guide::acknowledgement`](crate::guide::acknowledgement), with what each promises when a primary is lost.
///
/// Acquires, renewals and extensions are acknowledged; releases and queries never wait for replicas.
///
/// *Cost*: acknowledged, an operation takes one round trip from the server to its replicas more, and shares one `WAIT` with those that
/// are sent along with it, over three connections to each server made for that at the first use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Acks {
    /// None. What a primary has not passed on when it is lost is lost with it.
    Off,
    /// Redisson's rule, at best effort: an operation fails where replicas are connected and not one has it in time; without replicas,
    /// over a single server (`redis://`), and where the server has no `WAIT`, it is as [`Off`](Self::Off).
    #[default]
    Redisson,
    /// At least so many, 1 or more. Fewer that are connected are too few as well. One survives the loss of one server at a time, where
    /// the replica that has the most is promoted; but not `SENTINEL FAILOVER`, which promotes one while the primary lives on: that is what
    /// [`All`](Self::All) survives.
    AtLeast(usize),
    /// Every replica that is known of, those included that are away just now: any of them may be promoted. Over a single server as many
    /// as were ever connected at once, and at least one.
    All,
}

impl Acks {
    /// True where nobody is a holder without replicas.
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
    /// How long replicas have to acknowledge something. A renewal goes out after a third of the watchdog, and is to have time to fail and
    /// be repeated once before the lease ends: for both, the answer of the server and that of its replicas.
    pub(crate) fn acknowledged_within(&self) -> Duration {
        let third = self.watchdog / 3;
        self.ack_timeout.min(third.saturating_sub(self.command_timeout).max(third / 2))
    }

    /// For how long what was sent may go without the kernel's acknowledgement.
    pub(crate) fn user_timeout(&self) -> Duration {
        (self.command_timeout.max(Duration::from_secs(1)) * 2).min(LONGEST_SILENCE)
    }

    /// How often the places of waiters are refreshed.
    pub(crate) fn beat(&self) -> Duration {
        (self.fair_wait / 5).min(self.watchdog / 6).min(Duration::from_secs(1))
    }

    /// The longest time between two refreshes, where no waiter's deadline is near. No longer, so that a place outlives two, and
    /// what is left of it when the lock is passed on to it is enough of a lease.
    pub(crate) fn longest_beat(&self) -> Duration {
        self.beat() * 11 / 5
    }

    /// How long a waiter's place lasts without a refresh. A waiter that stops right after one is out within `fair_wait`,
    /// the time included until somebody else looks, who knows when.
    pub(crate) fn entry_life(&self) -> Duration {
        self.fair_wait - self.beat() / 2
    }

    /// For how long a lock is passed on to a waiter, until that renews it.
    pub(crate) fn first_lease(&self) -> Duration {
        self.entry_life().min(self.watchdog)
    }

    /// Refuses what cannot work, with the reason; of what has no end, it is ten years.
    pub(crate) fn checked(mut self) -> Result<Self> {
        self.validate()?;
        // Times are reckoned with these.
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

    /// Refuses options for Sentinel where there are no sentinels.
    pub(crate) fn check_no_sentinels(&self) -> Result<()> {
        if self.confirm_primary {
            return Err(Error::config("confirm_primary is of use with redis-sentinel:// and rediss-sentinel:// only"));
        }
        Ok(())
    }

    /// Refuses what cannot work, with the reason.
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

/// Text that never shows in `Debug`, errors or logs.
#[derive(Clone, Default)]
pub(crate) struct Secret(pub(crate) String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A duration as error messages show it, in whole milliseconds. Rounded down, so that an upper bound is allowed as it is shown.
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

/// Refuses leases that can never be held, and those that Redis would take for something else: below a millisecond it deletes
/// the key at once, and an absurd one makes it fail after the count was written.
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
