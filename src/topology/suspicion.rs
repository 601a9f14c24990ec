//! Wakes the task that queries servers when there is a reason to doubt what is known about them, and commands that
//! wait for a change.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(super) struct Suspicion {
    is_raised: AtomicBool,
    raised: Notify,
    /// For commands that wait for a server that accepts them.
    changed: Notify,
}

impl Suspicion {
    /// Wakes the task that queries the servers. The task limits how often it queries.
    pub(super) fn raise(&self) {
        if !self.is_raised.swap(true, Ordering::AcqRel) {
            self.raised.notify_one();
        }
    }

    pub(super) fn raised(&self) -> impl Future<Output = ()> {
        self.raised.notified()
    }

    /// Returns whether a suspicion has been raised since the last call.
    pub(super) fn take(&self) -> bool {
        self.is_raised.swap(false, Ordering::AcqRel)
    }

    /// Has waiting commands check whether there is a server for them now.
    pub(super) fn changed(&self) {
        self.changed.notify_waiters();
    }

    /// Waits until `is_news` is true, for at most `most`. It is checked after each change.
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
