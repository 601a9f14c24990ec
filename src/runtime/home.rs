//! The runtime that a client lives on, and work that is asked for elsewhere: on another runtime, or on an executor that is
//! not tokio's.
//!
//! A timer belongs to the runtime on which it was made, and ends with it: whoever looks at it afterwards panics. So whatever
//! has to be finished, and whatever sleeps, is polled on the client's own runtime: in place where the caller is there already,
//! which costs a look at a thread-local; as a task of its own where not.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tracing::Instrument as _;

use crate::error::{Error, Result};
use crate::owner::Owner;

/// The runtime of a client.
#[derive(Clone, Debug)]
pub(crate) struct Home(Handle);

/// What is told to whoever waits for work that ended with its runtime.
pub(crate) trait Gone {
    fn gone() -> Self;
}

impl Gone for () {
    fn gone() {}
}

impl Gone for Error {
    fn gone() -> Self {
        Self::RuntimeGone
    }
}

impl<T, E: From<Error>> Gone for Result<T, E> {
    fn gone() -> Self {
        Err(Error::RuntimeGone.into())
    }
}

impl Home {
    /// The current runtime; an error where there is none.
    pub(crate) fn here() -> Result<Self> {
        Handle::try_current().map(Self).map_err(|_| {
            Error::config(
                "a client lives on a tokio runtime, and there is none here: connect inside of one (its locks then work on any \
                 executor)",
            )
        })
    }

    pub(crate) const fn of(runtime: Handle) -> Self {
        Self(runtime)
    }

    /// True when the caller runs on this runtime.
    pub(crate) fn is_here(&self) -> bool {
        Handle::try_current().is_ok_and(|here| here.id() == self.0.id())
    }

    /// Has work done on this runtime, as its caller would do it: as the current owner, in the current span.
    pub(crate) fn spawn<T: Gone + Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Away<T> {
        let work = work.in_current_span();
        Away(match Owner::current() {
            Some(owner) => self.0.spawn(async move { owner.scope(work).await }),
            None => self.0.spawn(work),
        })
    }

    /// Polls work that was begun on this runtime, wherever it has come to since: timers that it makes are this runtime's.
    pub(crate) fn poll<F: Future>(&self, work: Pin<&mut F>, context: &mut Context<'_>) -> Poll<F::Output> {
        if self.is_here() {
            return work.poll(context);
        }
        let _entered = self.0.enter();
        work.poll(context)
    }

    /// Work that is polled on this runtime, wherever this is polled. Dropped, it is dropped.
    pub(crate) fn bring<T: Gone + Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Brought<T> {
        Brought { home: self.clone(), work: Some(work.boxed()), away: None }
    }
}

/// A task on another runtime than its caller's. Dropped, it goes on.
pub(crate) struct Away<T>(JoinHandle<T>);

impl<T: Gone> Future for Away<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        Poll::Ready(match ready!(Pin::new(&mut self.0).poll(context)) {
            Ok(output) => output,
            Err(ended) => match ended.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => T::gone(),
            },
        })
    }
}

/// See [`Home::bring`].
pub(crate) struct Brought<T> {
    home: Home,
    work: Option<BoxFuture<'static, T>>,
    away: Option<Away<T>>,
}

impl<T: Gone + Send + 'static> Future for Brought<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        if let Some(mut work) = self.work.take() {
            if self.home.is_here() {
                let polled = work.as_mut().poll(context);
                self.work = Some(work).filter(|_| polled.is_pending());
                return polled;
            }
            self.away = Some(self.home.spawn(work));
        }
        match self.away.as_mut() {
            Some(away) => Pin::new(away).poll(context),
            None => Poll::Pending,
        }
    }
}

impl<T> Drop for Brought<T> {
    fn drop(&mut self) {
        if let Some(away) = &self.away {
            away.0.abort();
        }
    }
}

/// Brings work on behalf of a lock home. Of a lock of somebody else's making nobody knows where that is: its work stays where
/// its caller is.
pub(crate) fn bring<T: Gone + Send + 'static>(
    home: Option<&Home>,
    work: impl Future<Output = T> + Send + 'static,
) -> BoxFuture<'static, T> {
    match home {
        Some(home) => Box::pin(home.bring(work)),
        None => Box::pin(work),
    }
}
