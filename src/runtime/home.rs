//! The client's runtime, and calls from another runtime or from an executor that is not tokio's.
//!
//! A timer belongs to the runtime that created the timer. Polling a timer after its runtime has ended panics. So all
//! work that must finish or that sleeps is polled with the client's runtime entered:
//!
//! - if the caller runs on that runtime already, in place, which costs one read of a thread-local;
//! - else as a task on the client's runtime;
//! - work that was begun in place and has moved to another executor stays there, but is never polled after the
//!   client's runtime has ended ([`Roaming`]).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::{AbortHandle, JoinHandle};
use tracing::Instrument as _;

use crate::error::{Error, Result};
use crate::owner::Owner;

#[derive(Clone, Debug)]
pub(crate) struct Home(Handle);

/// Output of work that a runtime drops when the runtime ends.
pub(crate) trait EndsWithRuntime {
    /// The caller's output if the runtime has ended.
    fn runtime_gone() -> Self;
}

impl EndsWithRuntime for () {
    fn runtime_gone() {}
}

impl EndsWithRuntime for Error {
    fn runtime_gone() -> Self {
        Self::RuntimeGone
    }
}

impl<T, E: From<Error>> EndsWithRuntime for Result<T, E> {
    fn runtime_gone() -> Self {
        Err(Error::RuntimeGone.into())
    }
}

impl Home {
    /// The current runtime. An error if there is none.
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

    /// True if the caller runs on this runtime.
    pub(crate) fn is_here(&self) -> bool {
        Handle::try_current().is_ok_and(|here| here.id() == self.0.id())
    }

    /// Spawns work on this runtime with the caller's current owner and span.
    pub(crate) fn spawn<T: EndsWithRuntime + Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Away<T> {
        let work = work.in_current_span();
        Away(match Owner::current() {
            Some(owner) => self.0.spawn(async move { owner.scope(work).await }),
            None => self.0.spawn(work),
        })
    }

    /// For work that is begun on this runtime and polled in place, even after the work has moved to another executor.
    pub(crate) const fn roaming(&self) -> Roaming<'_> {
        Roaming { home: self, end: None }
    }

    /// Runs work on this runtime, even if the returned future is polled elsewhere. Dropping the future drops the work.
    pub(crate) fn run<T: EndsWithRuntime + Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> OnHome<T> {
        OnHome { home: self.clone(), work: Some(work.boxed()), away: None }
    }
}

/// A task on another runtime than the caller's. Dropping this does not stop the task.
pub(crate) struct Away<T>(JoinHandle<T>);

impl<T: EndsWithRuntime> Future for Away<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        Poll::Ready(match ready!(Pin::new(&mut self.0).poll(context)) {
            Ok(output) => output,
            Err(ended) => match ended.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => T::runtime_gone(),
            },
        })
    }
}

/// See [`Home::run`].
pub(crate) struct OnHome<T> {
    home: Home,
    work: Option<BoxFuture<'static, T>>,
    away: Option<Away<T>>,
}

impl<T: EndsWithRuntime + Send + 'static> Future for OnHome<T> {
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

impl<T> Drop for OnHome<T> {
    fn drop(&mut self) {
        if let Some(away) = &self.away {
            away.0.abort();
        }
    }
}

/// See [`Home::roaming`].
pub(crate) struct Roaming<'a> {
    home: &'a Home,
    /// Detects the end of the runtime. Created once the work is polled elsewhere.
    end: Option<RuntimeEnd>,
}

impl Roaming<'_> {
    /// Polls the work with its runtime entered, so that it creates its timers there.
    pub(crate) fn poll<F>(&mut self, work: Pin<&mut F>, context: &mut Context<'_>) -> Poll<F::Output>
    where
        F: Future<Output: EndsWithRuntime>,
    {
        if self.home.is_here() {
            return work.poll(context);
        }
        let _entered = self.home.0.enter();
        self.end.get_or_insert_with(|| RuntimeEnd::of(self.home)).poll_before(work, context)
    }
}

/// Detects the end of a runtime by an idle task there. A runtime drops its tasks before it stops its timers.
struct RuntimeEnd {
    state: Arc<Mutex<EndState>>,
    task: AbortHandle,
}

#[derive(Default)]
struct EndState {
    has_ended: bool,
    waker: Option<Waker>,
}

/// Dropped with its task. While a poll elsewhere holds the mutex, this drop waits for that poll, and so does the end of
/// the runtime.
struct EndOnDrop(Arc<Mutex<EndState>>);

impl RuntimeEnd {
    fn of(home: &Home) -> Self {
        let state = Arc::default();
        let end = EndOnDrop(Arc::clone(&state));
        let task = home.0.spawn(async move {
            std::future::pending::<()>().await;
            drop(end);
        });
        Self { state, task: task.abort_handle() }
    }

    /// Polls work of the runtime, unless the runtime has ended. The runtime cannot end during the poll.
    fn poll_before<F>(&self, work: Pin<&mut F>, context: &mut Context<'_>) -> Poll<F::Output>
    where
        F: Future<Output: EndsWithRuntime>,
    {
        // Wakers run foreign code, so they are cloned and dropped while the mutex is not held.
        let mut waker = Some(context.waker().clone());
        let mut state = self.state.lock();
        if state.has_ended {
            return Poll::Ready(EndsWithRuntime::runtime_gone());
        }
        std::mem::swap(&mut state.waker, &mut waker);
        let polled = work.poll(context);
        drop(state);
        drop(waker);
        polled
    }
}

impl Drop for RuntimeEnd {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        let waker = {
            let mut state = self.0.lock();
            state.has_ended = true;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Runs work for a group lock on the runtime of its first single lock. `home` is None for an empty group. All calls of
/// an empty group fail at once, so they run in place.
pub(crate) fn run_on<T: EndsWithRuntime + Send + 'static>(
    home: Option<&Home>,
    work: impl Future<Output = T> + Send + 'static,
) -> BoxFuture<'static, T> {
    match home {
        Some(home) => Box::pin(home.run(work)),
        None => Box::pin(work),
    }
}
