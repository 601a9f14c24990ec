//! Watches a guard's hold: futures that end when the lock is lost, when its lease is about to end, or when a client has
//! asked the holder to finish.

use std::future::Future;
use std::time::Duration;

use futures::future::Either;

use super::{Guard, Inner};
use crate::engine::suspend::LOOK;
use crate::error::{Error, Result};
use crate::runtime::home::Home;

impl Guard {
    /// Completes when the lock is lost, with the reason: [`Error::Lost`], or [`Error::Closed`] after a shutdown. A
    /// release does not complete this future.
    ///
    /// On an executor other than tokio's, the future completes with [`Error::RuntimeGone`] as soon as the client's
    /// runtime has ended. The future does not borrow the guard, so it may outlive the guard and move to another task.
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

    /// Completes when only a third of the lease is left, or when the lock is lost. A lease that the watchdog renews
    /// gets that short only if no renewal was confirmed in time. The rest of the lease is the time to finish the work.
    /// A release does not complete this future.
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

    /// Completes when a client has asked the holder to finish, by [`DistLock::revoke`](crate::DistLock::revoke). The
    /// lock stays held, and nothing else happens: save the work, then release the guard. Neither a loss nor a release
    /// completes this future; [`run`](Self::run) adds the loss.
    ///
    /// A guard hears requests of its own client at once. It hears requests of other clients at its next renewal, after
    /// at most a third of the [watchdog](crate::Builder::watchdog)'s lease: 10 s by default. A guard with an explicit
    /// lease is not renewed, so it hears them only when it is extended, or after a reconnect. The guard of a multi lock
    /// or RedLock hears requests to its members.
    ///
    /// The future does not borrow the guard.
    ///
    /// # Cost
    ///
    /// None: a renewal asks for the request too.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn next_batch() {}
    /// # async fn example(guard: distlock::Guard) -> distlock::Result<()> {
    /// let mut revoked = std::pin::pin!(guard.revoked());
    /// loop {
    ///     guard.run(next_batch()).await?; // an error if the lock is lost
    ///     tokio::select! {
    ///         biased;
    ///         () = &mut revoked => break, // after a whole batch: another process wants the lock
    ///         () = std::future::ready(()) => {}
    ///     }
    /// }
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "futures do nothing unless awaited"]
    pub fn revoked(&self) -> impl Future<Output = ()> + Send + 'static {
        match self.inner() {
            Inner::One(one) => Either::Left(one.revoked()),
            Inner::Many(many) => Either::Right(many.revoked()),
        }
    }

    /// Completes when the hold is lost, or when only `early(lease)` of its lease is left. A release does not complete
    /// it.
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
                        // runtime has timers to watch it.
                        Error::RuntimeGone if Home::here().is_ok() => here.await,
                        error => error,
                    }
                })
            }
            Inner::Many(many) => Either::Right(many.watch(early)),
        }
    }

    /// Runs `work` under the lock. If the lock is lost, drops `work` at its next await point. When `work` is complete,
    /// the lock stays held until the guard releases it.
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
    ///
    /// # Examples
    ///
    /// If the work may fail, the first `?` is for the lock and the second for the work, as with `tokio::time::timeout`:
    ///
    /// ```no_run
    /// # async fn save() -> std::io::Result<()> { Ok(()) }
    /// # async fn example(guard: distlock::Guard) -> Result<(), Box<dyn std::error::Error>> {
    /// guard.run(save()).await??;
    /// # Ok(())
    /// # }
    /// ```
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
