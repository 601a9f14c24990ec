//! Reasons to doubt what is known of the servers, and news of what has changed there.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// A reason to doubt what is known of the servers, and news of changes.
#[derive(Debug, Default)]
pub(super) struct Suspicion {
    is_raised: AtomicBool,
    raised: Notify,
    /// For commands that wait for a place to run at.
    changed: Notify,
}

impl Suspicion {
    /// Has the servers asked at once, unless that was done a moment ago.
    pub(super) fn raise(&self) {
        if !self.is_raised.swap(true, Ordering::AcqRel) {
            self.raised.notify_one();
        }
    }

    /// Done once it has been raised.
    pub(super) fn raised(&self) -> impl Future<Output = ()> {
        self.raised.notified()
    }

    /// True where it was raised since this was asked last.
    pub(super) fn take(&self) -> bool {
        self.is_raised.swap(false, Ordering::AcqRel)
    }

    /// Has the commands that pause look whether there is a place for them now.
    pub(super) fn changed(&self) {
        self.changed.notify_waiters();
    }

    /// Done when something has changed for whoever pauses, or after so long.
    pub(super) async fn pause(&self, most: Duration, is_news: impl Fn() -> bool) {
        let changed = async {
            loop {
                let changed = self.changed.notified();
                if is_news() {
                    return;
                }
                changed.await;
            }
        };
        let _ = tokio::time::timeout(most, changed).await;
    }
}
