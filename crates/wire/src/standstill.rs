//! Standstills: this process or its machine did not run for a while. Its timers then fire late, and replies that have
//! arrived are not read yet.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// A timeout that fires this late passed during a standstill, so it says nothing about the server.
pub const OVERDUE: Duration = Duration::from_millis(25);

/// Extra time for a reply after a standstill, because the server may have stood still as well.
pub const RECOVERY: Duration = Duration::from_millis(50);

/// Time to read unread replies. Longer than `RECOVERY`, so that a command whose own timeout passed in the same
/// standstill ends first.
pub const READING: Duration = RECOVERY.saturating_add(Duration::from_millis(10));

/// Completes after `limit`, or `READING` later if the limit passed during a standstill.
pub fn limit_over(limit: Duration) -> impl Future<Output = ()> {
    limit_over_of(limit, OVERDUE)
}

fn limit_over_of(limit: Duration, overdue: Duration) -> impl Future<Output = ()> {
    let due = Instant::now().checked_add(limit);
    async move {
        let Some(due) = due else { return std::future::pending().await };
        tokio::time::sleep_until(due).await;
        if due.elapsed() >= overdue {
            tokio::time::sleep(READING).await;
        }
    }
}

/// Returns the output of `work`, or `None` if it is not done within `limit`. After a standstill, `work` gets `READING`
/// more.
pub async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    within_of(limit, OVERDUE, work).await
}

/// [`within`] that assumes a standstill if the timeout fires `overdue` too late.
pub async fn within_of<T>(limit: Duration, overdue: Duration, work: impl Future<Output = T>) -> Option<T> {
    let limit_over = limit_over_of(limit, overdue);
    tokio::select! {
        biased;
        output = work => Some(output),
        () = limit_over => None,
    }
}

/// Runs `work`, which has a timeout of its own. If `work` is still pending after `overdue`, there was a standstill.
/// `work` is then not polled for `RECOVERY`, because a poll would find its timer expired before the reply is read.
pub async fn without_standstill<T>(work: impl Future<Output = T>, overdue: Duration) -> T {
    let (mut work, due) = (std::pin::pin!(work), Instant::now() + overdue);
    let mut recovery: Option<Pin<Box<Sleep>>> = None;
    std::future::poll_fn(|cx| {
        if recovery.is_none() && Instant::now() < due {
            return work.as_mut().poll(cx);
        }
        let pause = recovery.get_or_insert_with(|| Box::pin(tokio::time::sleep(RECOVERY)));
        std::task::ready!(pause.as_mut().poll(cx));
        work.as_mut().poll(cx)
    })
    .await
}
