//! Watches a guard's hold: futures that end when the lock is lost, or when its lease is about to end.

use std::future::Future;
use std::time::Duration;

use futures::future::Either;

use super::{Guard, Inner};
use crate::engine::suspend::LOOK;
use crate::error::{Error, Result};
use crate::runtime::home::Home;

impl Guard {
    /// Completes when the lock is lost, with the reason: [`Error::Lost`], or [`Error::Closed`] after a shutdown.
    /// Never completes because of a release.
    ///
    /// On an executor without timers it completes with [`Error::RuntimeGone`] as soon as the client's runtime has
    /// ended. The future does not borrow the guard: it may outlive the guard and move to another task.
    ///
    /// # Cost
    ///
    /// None.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(guard: distlock::Guard) -> distlock::Result<()> {
    /// tokio::select! {
    ///     error = guard.lost() => println!("stop writing: {error}"),
    ///     () = write_files() => println!("done"),
    /// }
    /// async fn write_files() { /* .. */ }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "futures do nothing unless awaited"]
    pub fn lost(&self) -> impl Future<Output = Error> + Send + 'static {
        self.watch(|_| Duration::ZERO)
    }

    /// Completes when a third of the lease is left without a confirmed renewal, or at once when the lock is lost:
    /// time to finish the work. Never completes because of a release.
    ///
    /// # Cost
    ///
    /// None.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    #[must_use = "futures do nothing unless awaited"]
    pub fn expiring(&self) -> impl Future<Output = ()> + Send + 'static {
        let watch = self.watch(|lease| lease / 3);
        async move { drop(watch.await) }
    }

    /// Completes when the hold has ended, or when only `early` of its lease is left.
    pub(crate) fn watch(
        &self,
        early: impl Fn(Duration) -> Duration + Copy + Send + Sync + 'static,
    ) -> impl Future<Output = Error> + Send + 'static {
        match self.inner() {
            Inner::One(one) => {
                let watching = one.home().run(one.watch(early, Duration::MAX));
                let here = one.watch(early, LOOK);
                Either::Left(async move {
                    match watching.await {
                        // The client's runtime has ended, so nothing is renewed. The lease may still run, and this
                        // executor has timers.
                        Error::RuntimeGone if Home::here().is_ok() => here.await,
                        error => error,
                    }
                })
            }
            Inner::Many(many) => Either::Right(many.watch(early)),
        }
    }

    /// Runs `work` under the lock, and drops it at its next await point when the lock is lost. Afterwards the lock
    /// stays held until the guard releases it.
    ///
    /// # Cost
    ///
    /// None.
    ///
    /// # Cancel safety
    ///
    /// Depends on `work`.
    ///
    /// # Errors
    ///
    /// The error of [`lost`](Self::lost), also if `work` completed after the lease had ended.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output> {
        tokio::select! {
            biased;
            lost = self.lost() => Err(lost),
            output = work => {
                // The work is complete, but the lease may have ended before.
                if self.is_held() { Ok(output) } else { Err(self.why_lost()) }
            }
        }
    }
}
