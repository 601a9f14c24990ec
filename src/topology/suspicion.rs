//! Wakes the task that queries the servers when the client's knowledge about them is in doubt. Wakes waiting commands
//! when that knowledge has changed.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(super) struct Suspicion {
    is_raised: AtomicBool,
    raised: Notify,
    /// Wakes commands that wait for a server that accepts them.
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

    /// Clears the suspicion. Returns whether it was raised since the last call.
    pub(super) fn take(&self) -> bool {
        self.is_raised.swap(false, Ordering::AcqRel)
    }

    /// Wakes waiting commands. Each command checks whether a server can accept it now.
    pub(super) fn changed(&self) {
        self.changed.notify_waiters();
    }

    /// Waits until `is_news` is true, for at most `most`. `is_news` is called at first and after each change.
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
