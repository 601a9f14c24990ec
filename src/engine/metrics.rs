//! Metrics through the `metrics` facade. Without the feature, these functions do nothing. Names:
//! `docs/observability.md`.

use std::time::Duration;

#[cfg(feature = "metrics")]
mod facade {
    use super::Duration;
    use metrics::{counter, histogram};

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
        metrics::gauge!("distlock_waiters").increment(change);
    }
}

#[cfg(not(feature = "metrics"))]
mod facade {
    use super::Duration;

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
