//! Standstills of this process or of its machine: timers fire late, and answers are here that nobody has read.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// A limit that is found overdue by so much was passed in a standstill, which says nothing about a server.
pub(crate) const OVERDUE: Duration = Duration::from_millis(25);

/// How long the reply to a command may take then: the server may have stood still as well.
pub(crate) const RECOVERY: Duration = Duration::from_millis(50);

/// The time to read what is here unread: a command whose own limit passed in the same standstill ends before that.
pub(crate) const READING: Duration = RECOVERY.saturating_add(Duration::from_millis(10));

/// Ends in so long from now; where that is passed in a standstill, a moment later.
pub(crate) fn limit_over(limit: Duration) -> impl Future<Output = ()> {
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

/// What some work brings if it is done in time; None if not. After a standstill it has a moment more.
pub(crate) async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    within_of(limit, OVERDUE, work).await
}

/// As [`within`], for a limit that was passed in a standstill where it is found overdue by so much.
pub(crate) async fn within_of<T>(limit: Duration, overdue: Duration, work: impl Future<Output = T>) -> Option<T> {
    let limit_over = limit_over_of(limit, overdue);
    tokio::select! {
        biased;
        output = work => Some(output),
        () = limit_over => None,
    }
}

/// Work with a timeout of its own. Where it is found to be past `overdue`, after a standstill, the reply has a moment more to come:
/// the work is not polled until then, for it would find its own timer first.
pub(crate) async fn unhurried<T>(work: impl Future<Output = T>, overdue: Duration) -> T {
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
