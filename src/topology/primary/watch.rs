//! Decides when the primary is checked: every `scan_interval`, and more often while there is doubt about it.
//!
//! Doubt begins with a lost connection, an overdue reply, a refusal by a replica, an announcement of a sentinel, or a
//! look (one round of queries) that finds a problem. The doubt ends after a second without any of these.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::Instant;

use super::Primary;

/// Interval between looks while there is doubt, for the first `ACUTE` of the doubt. Doubt ends when no new reason for
/// it has come for `QUIET`.
const OFTEN: Duration = Duration::from_millis(100);
const QUIET: Duration = Duration::from_secs(1);

/// After `ACUTE` in doubt, the interval is `CHRONIC`, because the primary may be down for good, without a replacement.
const ACUTE: Duration = Duration::from_secs(60);
const CHRONIC: Duration = Duration::from_secs(1);

/// Interval of checks whether the primary has fallen silent.
const LISTENS: Duration = Duration::from_millis(50);

/// Time that a server has for each answer.
pub(super) const ANSWERS_WITHIN: Duration = Duration::from_millis(300);

/// A way to find the primary: [`sentinel`](super::sentinel) or [`replicated`](super::replicated).
pub(super) trait Finder: Send + 'static {
    /// Queries the servers once, and makes another server the primary if needed. Returns false if there is a reason to
    /// look again soon.
    fn look<'a>(&'a mut self, primary: &'a Arc<Primary>, is_doubted: bool) -> BoxFuture<'a, bool>;
}

/// Lets `finder` look at these intervals, until the topology is closed or dropped.
pub(super) async fn run(primary: Weak<Primary>, mut finder: impl Finder) {
    let (mut doubted_until, mut doubted_since, mut looked) = (Instant::now(), Instant::now(), Instant::now());
    loop {
        let Some(this) = primary.upgrade() else { return };
        let now = Instant::now();
        let is_doubted = now < doubted_until;
        if !is_doubted {
            doubted_since = now;
        }
        let often = if now - doubted_since < ACUTE { OFTEN } else { CHRONIC };
        // The topology is not kept alive during the wait.
        let (suspicion, scan_interval) = (Arc::clone(&this.suspicion), this.settings.scan_interval);
        drop(this);
        let next = looked + if is_doubted { often } else { scan_interval };
        loop {
            let until = (Instant::now() + LISTENS).min(next);
            if tokio::time::timeout_at(until, suspicion.raised()).await.is_ok() {
                break;
            }
            let Some(this) = primary.upgrade() else { return };
            if !is_doubted && this.is_doubtful() {
                suspicion.raise();
            } else if Instant::now() >= next {
                break;
            }
        }
        // At least `often` passes between two looks, so several suspicions within that time cause one look.
        tokio::time::sleep_until(looked + often).await;
        if suspicion.take() {
            doubted_until = Instant::now() + QUIET;
        }
        let Some(this) = primary.upgrade() else { return };
        // `close` sets `closed`, and then raises a suspicion. `closed` is checked after `take`, so a close whose
        // suspicion `take` has just cleared is still seen.
        if this.closed.load(Ordering::Acquire) {
            return;
        }
        looked = Instant::now();
        if !finder.look(&this, looked < doubted_until).await || this.is_doubtful() {
            doubted_until = Instant::now() + QUIET;
        }
    }
}
