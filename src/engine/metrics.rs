//! Metrics through the `metrics` facade. Without the feature, these functions do nothing. Names:
//! `docs/observability.md`.

use std::time::Duration;

#[cfg(feature = "metrics")]
mod facade {
    use super::Duration;
    use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

    /// All values of the label `flavour`.
    const FLAVOURS: [&str; 8] = ["reentrant", "fair", "read", "write", "fenced", "spin", "plain", "permits"];

    const ACQUIRED: (&str, &str) = ("distlock_acquired_total", "Successful acquires.");
    const BUSY: (&str, &str) = ("distlock_busy_total", "Acquires without a wait that found the lock taken.");

    /// Counters of trouble by flavour.
    const TROUBLE: [(&str, &str); 4] = [
        ("distlock_timed_out_total", "Acquires whose wait ran out."),
        ("distlock_acquire_failed_total", "Acquires that ended with an error."),
        ("distlock_lost_total", "Guards whose lock was lost before its release."),
        ("distlock_release_failed_total", "Releases that failed or found no hold."),
    ];

    /// Counters of renewals, without a label.
    const RENEWALS: [(&str, &str); 2] = [
        ("distlock_renewals_total", "Renewed leases."),
        ("distlock_renewals_failed_total", "Renewals that failed. They are retried until the lease ends."),
    ];

    const TIMES: [(&str, &str); 2] = [
        ("distlock_wait_seconds", "Time that an acquire took, until it was granted or its wait ran out."),
        ("distlock_hold_seconds", "Time from an acquire to the start of its release."),
    ];

    const WAITERS: (&str, &str) = ("distlock_waiters", "Acquires that wait now.");

    /// Describes every metric. Registers the gauge and the counters that alerts read with 0, because a rate needs a
    /// value before the first event. Called once per client, so that no acquire pays for it.
    pub(crate) fn announce() {
        for (name, text) in TROUBLE.into_iter().chain(RENEWALS).chain([ACQUIRED, BUSY]) {
            describe_counter!(name, Unit::Count, text);
        }
        for (name, text) in TIMES {
            describe_histogram!(name, Unit::Seconds, text);
        }
        describe_gauge!(WAITERS.0, Unit::Count, WAITERS.1);
        for (name, _) in TROUBLE {
            for flavour in FLAVOURS {
                counter!(name, "flavour" => flavour).increment(0);
            }
        }
        for (name, _) in RENEWALS {
            counter!(name).increment(0);
        }
        waiters(0.0);
    }

    pub(crate) fn acquired(flavour: &'static str, waited: impl FnOnce() -> Duration) {
        counter!("distlock_acquired_total", "flavour" => flavour).increment(1);
        histogram!("distlock_wait_seconds", "flavour" => flavour, "outcome" => "acquired").record(waited());
    }

    pub(crate) fn busy(flavour: &'static str) {
        counter!("distlock_busy_total", "flavour" => flavour).increment(1);
    }

    pub(crate) fn timed_out(flavour: &'static str, waited: impl FnOnce() -> Duration) {
        counter!("distlock_timed_out_total", "flavour" => flavour).increment(1);
        histogram!("distlock_wait_seconds", "flavour" => flavour, "outcome" => "timed_out").record(waited());
    }

    pub(crate) fn failed(flavour: &'static str) {
        counter!("distlock_acquire_failed_total", "flavour" => flavour).increment(1);
    }

    pub(crate) fn held(flavour: &'static str, span: Duration) {
        histogram!("distlock_hold_seconds", "flavour" => flavour).record(span);
    }

    pub(crate) fn renewed(renewed: usize, failed: usize) {
        counter!("distlock_renewals_total").increment(renewed as u64);
        counter!("distlock_renewals_failed_total").increment(failed as u64);
    }

    pub(crate) fn lost(flavour: &'static str, guards: usize) {
        counter!("distlock_lost_total", "flavour" => flavour).increment(guards as u64);
    }

    pub(crate) fn release_failed(flavour: &'static str) {
        counter!("distlock_release_failed_total", "flavour" => flavour).increment(1);
    }

    pub(crate) fn waiters(change: f64) {
        gauge!("distlock_waiters").increment(change);
    }
}

#[cfg(not(feature = "metrics"))]
mod facade {
    use super::Duration;

    pub(crate) const fn announce() {}
    pub(crate) fn acquired(_: &'static str, _: impl FnOnce() -> Duration) {}
    pub(crate) const fn busy(_: &'static str) {}
    pub(crate) fn timed_out(_: &'static str, _: impl FnOnce() -> Duration) {}
    pub(crate) const fn failed(_: &'static str) {}
    pub(crate) const fn held(_: &'static str, _: Duration) {}
    pub(crate) const fn renewed(_: usize, _: usize) {}
    pub(crate) const fn lost(_: &'static str, _: usize) {}
    pub(crate) const fn release_failed(_: &'static str) {}
    pub(crate) const fn waiters(_: f64) {}
}

pub(crate) use facade::*;
