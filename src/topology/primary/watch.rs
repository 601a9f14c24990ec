//! Keeping track of who the primary is: from time to time, and often while there is a reason to doubt it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::Instant;

use super::Primary;

/// How often it is asked while there is doubt, and for how long there has to be none for it to be believed again.
const OFTEN: Duration = Duration::from_millis(100);
const QUIET: Duration = Duration::from_secs(1);

/// After so long in doubt it is asked that seldom: a primary may be away for good, and nobody be there to take its place.
const ACUTE: Duration = Duration::from_secs(60);
const CHRONIC: Duration = Duration::from_secs(1);

/// How often it is looked whether the primary has fallen silent.
const LISTENS: Duration = Duration::from_millis(50);

/// How long whoever is asked may take to answer.
pub(super) const ANSWERS_WITHIN: Duration = Duration::from_millis(300);

/// Who finds out which server is the primary.
pub(super) trait Finder: Send + 'static {
    /// Asks once, and has another server take the place where that is due. False where there is a reason to ask again soon.
    fn look<'a>(&'a mut self, primary: &'a Arc<Primary>, is_doubted: bool) -> BoxFuture<'a, bool>;
}

/// Looks until the topology is closed or forgotten.
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
        // It is not held while nothing is to be done.
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
        // Of many reasons that come one after the other one is enough.
        tokio::time::sleep_until(looked + often).await;
        if suspicion.take() {
            doubted_until = Instant::now() + QUIET;
        }
        let Some(this) = primary.upgrade() else { return };
        // In this order: closing raises a suspicion, so that it is not overlooked.
        if this.closed.load(Ordering::Acquire) {
            return;
        }
        looked = Instant::now();
        if !finder.look(&this, looked < doubted_until).await || this.is_doubtful() {
            doubted_until = Instant::now() + QUIET;
        }
    }
}
