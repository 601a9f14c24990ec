//! Checks of options and leases. Each value that cannot work is refused with the reason.

use std::time::Duration;

use super::{Acks, Options};
use crate::error::{Error, Result};

#[cfg(test)]
mod tests;

/// The longest lease that is sent: ten years.
pub(crate) const LONGEST_LEASE: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// The shortest lease. A guard counts 1 % and 2 ms less than the lease, for clock drift, so a shorter lease would leave
/// no time to hold the lock.
pub(crate) const SHORTEST_LEASE: Duration = Duration::from_millis(3);

/// Upper bound of a lock delay.
const LONGEST_LOCK_DELAY: Duration = Duration::from_secs(24 * 3600);

/// Upper bound of `fair_wait` and `fair_grace`: the default of Redisson's `fairLockWaitTimeout`.
const LONGEST_FAIR_WAIT: Duration = Duration::from_secs(300);

pub(crate) const SHORTEST_WATCHDOG: Duration = Duration::from_millis(100);

/// The longest label, in bytes.
pub(crate) const LONGEST_LABEL: usize = 128;

impl Options {
    /// Checks the options. Cuts times without an upper bound to ten years, so that sums and products of times do not
    /// overflow.
    pub(crate) fn checked(mut self) -> Result<Self> {
        self.validate()?;
        for span in [
            &mut self.connect_timeout,
            &mut self.retry_delay.0,
            &mut self.retry_delay.1,
            &mut self.subscribe_timeout,
            &mut self.subscription_linger,
            &mut self.poll_cap,
            &mut self.ping_interval,
            &mut self.local_handoff_time,
            &mut self.max_reader_delay,
            &mut self.ack_timeout,
        ]
        .into_iter()
        .chain(&mut self.scan_interval)
        {
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
            local_handoff_limit: _,
            local_handoff_time: _,
            yield_after_release: _,
            fair_wait,
            java_fair_wait,
            fair_grace,
            prefer: _,
            max_reader_delay: _,
            pool_size,
            name_prefix,
            client_name,
            label,
            script_cache: _,
            batching: _,
            use_fred: _,
            scan_interval,
            sharded: _,
            confirm_primary: _,
            acks,
            ack_timeout,
            preflight: _,
        } = self;
        let ms = Duration::from_millis(1);
        for (what, value, bound) in [
            ("the watchdog", *watchdog, SHORTEST_WATCHDOG),
            ("the command timeout", *command_timeout, ms),
            ("the connect timeout", *connect_timeout, ms),
            ("the subscribe timeout", *subscribe_timeout, ms),
            ("the poll cap", *poll_cap, 10 * ms),
            ("the scan interval", scan_interval.unwrap_or(Duration::MAX), 10 * ms),
            ("the ping interval", *ping_interval, 10 * ms),
            ("the shortest retry delay", retry_delay.0, ms),
            ("the longest retry delay", retry_delay.1, retry_delay.0),
        ] {
            at_least(what, value, bound)?;
        }
        check_fair(*fair_wait, *java_fair_wait, *fair_grace)?;
        check_watchdog(*watchdog, *command_timeout)?;
        at_least("the ack timeout", *ack_timeout, ms)?;
        if *acks == Acks::AtLeast(0) {
            return Err(Error::config("acknowledgement by at least 0 replicas is none: use Acks::Off for that"));
        }
        one_to(5_000, "the watchdog batch", *watchdog_batch)?;
        one_to(256, "the pool size", *pool_size)?;
        check_names(name_prefix, client_name, label)
    }
}

fn at_least(what: &str, value: Duration, bound: Duration) -> Result<()> {
    if value >= bound {
        return Ok(());
    }
    Err(Error::config(format!("{what} is {}: at least {} is needed", shown(value), shown(bound))))
}

/// `why`: the reason for the bound, with a semicolon and a space after it, or empty.
fn at_most(what: &str, value: Duration, why: &str, bound: Duration) -> Result<()> {
    if value <= bound {
        return Ok(());
    }
    Err(Error::config(format!("{what} is {}: {why}at most {} is allowed", shown(value), shown(bound))))
}

fn one_to(most: usize, what: &str, value: usize) -> Result<()> {
    if (1..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::config(format!("{what} is {value}: 1 to {most} are allowed")))
}

fn check_fair(wait: Duration, java_wait: Duration, grace: Duration) -> Result<()> {
    at_least("the wait of fair locks", wait, SHORTEST_WATCHDOG)?;
    let why = "for so long a dead waiter holds up all others; ";
    at_most("the wait of fair locks", wait, why, LONGEST_FAIR_WAIT)?;
    at_least("Java's wait of fair locks", java_wait, Duration::from_millis(1))?;
    at_most("Java's wait of fair locks", java_wait, "", LONGEST_LEASE)?;
    at_least("the grace time of fair locks", grace, Duration::from_millis(10))?;
    at_most("the grace time of fair locks", grace, "", LONGEST_FAIR_WAIT)
}

fn check_watchdog(watchdog: Duration, command_timeout: Duration) -> Result<()> {
    at_most("the watchdog", watchdog, "", LONGEST_LEASE)?;
    if command_timeout <= watchdog / 3 {
        return Ok(());
    }
    Err(Error::config(format!(
        "the watchdog of {} is too short for the command timeout of {}: a renewal goes out after a third of the \
         watchdog, and must have time to fail and be repeated once before the lease ends; use a watchdog of at \
         least {} or a command timeout of at most {}",
        shown(watchdog),
        shown(command_timeout),
        shown(command_timeout.saturating_mul(3)),
        shown(watchdog / 3)
    )))
}

fn check_names(prefix: &str, client: &str, label: &str) -> Result<()> {
    if prefix.len() > crate::names::LONGEST / 2 {
        return Err(Error::config("the name prefix is longer than half the longest name"));
    }
    if !client.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Error::config(
            "the client's name has a space in it, or what is no printable ASCII: servers refuse that",
        ));
    }
    if label.len() > LONGEST_LABEL {
        return Err(Error::config(format!("the label has {} bytes: at most {LONGEST_LABEL} are allowed", label.len())));
    }
    Ok(())
}

/// Refuses leases that can never be held, and leases that Redis misinterprets. With less than a millisecond, Redis
/// deletes the key at once. With a very long lease, a script fails after it has written the hold count.
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

pub(crate) fn check_lock_delay(delay: Duration) -> Result<()> {
    at_most("the lock delay", delay, "the name of a dead holder stays closed for that long; ", LONGEST_LOCK_DELAY)
}

/// A duration as error messages show it, in whole milliseconds. Rounded down, so that a shown upper bound is
/// accepted.
fn shown(span: Duration) -> String {
    const YEAR: u64 = 365 * 24 * 3600;
    match span.as_secs() {
        seconds if seconds >= YEAR && seconds.is_multiple_of(YEAR) => format!("{} years", seconds / YEAR),
        0 if span.subsec_millis() == 0 => format!("{span:?}"),
        seconds => format!("{:?}", Duration::from_secs(seconds) + Duration::from_millis(span.subsec_millis().into())),
    }
}
