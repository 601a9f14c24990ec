//! Work that is completed even if its caller drops it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::future::BoxFuture;

use super::{Busy, Reaper};
use crate::runtime::home::{Away, EndsWithRuntime};

/// A future that is completed once it has begun. If the future is dropped half-way, the reaper completes it and drops
/// its output. If the future is dropped before its first poll, it never begins. If it is polled on another runtime than
/// the client's, it becomes a task on the client's runtime, because timers of the other runtime would end with that
/// runtime.
pub(crate) struct Finished<T: EndsWithRuntime + Send + 'static> {
    future: Option<BoxFuture<'static, T>>,
    away: Option<Away<T>>,
    /// True if the caller polls this future only with the client's runtime entered.
    at_home: bool,
    begun: bool,
    counted: bool,
    busy: Option<Busy>,
    reaper: Reaper,
}

impl<T: EndsWithRuntime + Send + 'static> Finished<T> {
    pub(crate) fn new(reaper: &Reaper, future: impl Future<Output = T> + Send + 'static) -> Self {
        let (future, reaper): (BoxFuture<'static, T>, _) = (Box::pin(future), reaper.clone());
        Self { future: Some(future), away: None, at_home: false, begun: false, counted: true, busy: None, reaper }
    }

    /// `new` for a caller that polls only with the client's runtime entered: on that runtime, or through
    /// [`Roaming::poll`](crate::runtime::home::Roaming::poll). The future then does not check where it is polled.
    pub(crate) fn at_home(reaper: &Reaper, future: impl Future<Output = T> + Send + 'static) -> Self {
        let mut work = Self::new(reaper, future);
        work.at_home = true;
        work
    }

    /// `new` for work that must run even if this is dropped before its first poll.
    pub(crate) fn begun(reaper: &Reaper, future: impl Future<Output = T> + Send + 'static) -> Self {
        let mut work = Self::new(reaper, future);
        work.begun = true;
        work.busy = Some(reaper.busy());
        work
    }

    /// `new` for the closing of the client, which must not wait for itself.
    pub(crate) fn uncounted(reaper: &Reaper, future: impl Future<Output = T> + Send + 'static) -> Self {
        let mut work = Self::new(reaper, future);
        work.counted = false;
        work
    }

    /// Passes the future to the reaper at once.
    pub(crate) fn detach(mut self) {
        self.begun = true;
    }
}

impl<T: EndsWithRuntime + Send + 'static> Future for Finished<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        if !std::mem::replace(&mut self.begun, true) && self.counted {
            self.busy = Some(self.reaper.busy());
        }
        debug_assert!(!self.at_home || self.reaper.home().is_here());
        // Taken out, so that a future that panics is not polled again.
        if let Some(mut future) = self.future.take() {
            if self.at_home || self.reaper.home().is_here() {
                let polled = future.as_mut().poll(context);
                match &polled {
                    Poll::Pending => self.future = Some(future),
                    Poll::Ready(_) => self.busy = None,
                }
                return polled;
            }
            let busy = self.busy.take();
            self.away = Some(self.reaper.home().spawn(async move {
                let output = future.await;
                drop(busy);
                output
            }));
        }
        let Some(away) = self.away.as_mut() else {
            // Polled after completion, which no caller in this crate does.
            return Poll::Pending;
        };
        let output = std::task::ready!(Pin::new(away).poll(context));
        self.away = None;
        Poll::Ready(output)
    }
}

impl<T: EndsWithRuntime + Send + 'static> Drop for Finished<T> {
    fn drop(&mut self) {
        if let (true, Some(future)) = (self.begun, self.future.take()) {
            let busy = self.busy.take();
            self.reaper.finish_uncounted(Box::pin(async move {
                drop(future.await);
                drop(busy);
            }));
        }
    }
}
