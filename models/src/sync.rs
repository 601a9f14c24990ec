//! The locks and waits that the crate's shared tables use, on loom and with the same signatures.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

pub(crate) use loom::sync::MutexGuard;

pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        // Poisoned only if the model has failed already.
        self.0.lock().unwrap()
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> std::fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Mutex")
    }
}

/// Like tokio's `Notify`, for one waiter. A notification is kept until a task waits for it.
#[derive(Debug, Default)]
pub(crate) struct Notify(Mutex<Notice>);

#[derive(Debug, Default)]
struct Notice {
    kept: bool,
    waker: Option<Waker>,
}

impl Notify {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn notify_one(&self) {
        let waker = {
            let mut notice = self.0.lock();
            notice.kept = true;
            notice.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(crate) fn notified(&self) -> Notified<'_> {
        Notified(self)
    }
}

pub(crate) struct Notified<'a>(&'a Notify);

impl Future for Notified<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut notice = self.0.0.lock();
        if std::mem::take(&mut notice.kept) {
            return Poll::Ready(());
        }
        notice.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// Does not sleep, because loom decides when other threads run.
pub(crate) async fn sleep(_: Duration) {}

/// Returns the output of `work`. A finite limit is over when other threads had a chance to run and `work` is still
/// pending.
pub(crate) async fn timeout<F: Future>(limit: Duration, work: F) -> Result<F::Output, ()> {
    if limit == Duration::MAX {
        return Ok(work.await);
    }
    let mut work = pin!(work);
    let mut polled = false;
    std::future::poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Ok(output)),
        Poll::Pending if polled => Poll::Ready(Err(())),
        Poll::Pending => {
            polled = true;
            loom::thread::yield_now();
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await
}
