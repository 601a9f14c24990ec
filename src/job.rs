//! Jobs that are due on every replica of a service, and must run on one of them.
//!
//! 1. Each replica tries the lock once, with the lease `at_most` and without renewal. Busy: another replica has the job.
//! 2. The work runs. When the lease ends, the work is stopped.
//! 3. After the work, the lease is set to the rest of `at_least`, and the guard ends without a release. If no rest is
//!    left, the lock is released.

use std::time::Duration;

use crate::acquire::Acquire;
use crate::client::Client;
use crate::config::SHORTEST_LEASE;
use crate::error::{Error, Lost, Result};
use crate::guard::Guard;

/// # Jobs
impl Client {
    /// Runs `work` on one of the replicas that make this call at about the same time. Returns the output if it ran
    /// here, and `None` if another replica has the job.
    ///
    /// - `at_least`: the name stays closed for this long from the start of the work, also if the work ends early. Choose
    ///   more than the clocks and timers of the replicas may differ, so that a late replica does not run the job again.
    ///   Choose less than the time to the next tick.
    /// - `at_most`: if the process dies, the name is open again after this time. If the work takes longer, it is
    ///   dropped at its next await point. The lease is not renewed.
    ///
    /// Nothing but the closed name shows that a job ran. Work that fails closes the name too, so no other replica
    /// repeats it before the next tick. For ShedLock's users: `lockAtLeastFor` and `lockAtMostFor`. The name is that of
    /// a [reentrant lock](mod@crate::reentrant).
    ///
    /// # Cost
    ///
    /// One command if another replica has the job. Two if the work ran here.
    ///
    /// # Cancel safety
    ///
    /// Before the work has begun, nothing is left behind. If the future is dropped while the work runs, or if the work
    /// panics, the work is dropped and the name stays closed until `at_most` has passed, as after the death of the
    /// process.
    ///
    /// # Errors
    ///
    /// - [`Error::Config`]: `at_most` is shorter than `at_least` or 3 ms, or longer than ten years; or the name is
    ///   impossible.
    /// - [`Error::Lost`]: the work took longer than `at_most` and was stopped, or the lock was freed by force. Another
    ///   replica may run the job now.
    /// - [`Error::NotHeld`]: the work was completed, but the lock was freed by force before. Another replica may have
    ///   run the job, too.
    /// - [`Error::Closed`]: the client was shut down. Work that had begun was stopped when the shutdown's time was up.
    /// - The errors of [`DistLock::acquire`](crate::DistLock::acquire): the work did not run here.
    ///
    /// If the work was completed and the server cannot be reached afterwards, the output is returned, a warning is
    /// logged, and the name may stay closed until `at_most` has passed.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn send_report() {}
    /// # async fn example(client: distlock::Client) -> distlock::Result<()> {
    /// // Called by a timer, once a minute, on every replica.
    /// let (at_least, at_most) = (Duration::from_secs(10), Duration::from_secs(50));
    /// match client.once("report", at_least, at_most, send_report()).await? {
    ///     Some(()) => println!("sent"),
    ///     None => println!("another replica sends it"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn once<F: Future>(
        &self,
        name: &str,
        at_least: Duration,
        at_most: Duration,
        work: F,
    ) -> Result<Option<F::Output>> {
        if at_most < at_least {
            return Err(Error::config(format!(
                "the job {name:?} closes its name for at least {at_least:?} and at most {at_most:?}: at_most must be \
                 the longer time"
            )));
        }
        // An inner lock ignores the owner of an `Owner::scope`, which may still hold this name since the last tick.
        let how = Acquire { is_inner: true, ..Acquire::new().wait(Duration::ZERO).lease(at_most) };
        let Some(guard) = self.reentrant(name).acquire(how).await? else { return Ok(None) };
        let began = self.engine().now();
        let mut closing = Closing(Some(guard));
        let Some(guard) = &closing.0 else { return Err(Error::Closed) };
        let output = guard.run(work).await?;
        let rest = at_least.saturating_sub(self.engine().now().since(began));
        match closing.close(rest).await {
            Err(error @ (Error::Lost { why: Lost::Gone, .. } | Error::NotHeld { .. })) => return Err(error),
            // The work was completed in time. Only the lease has ended since.
            Ok(()) | Err(Error::Lost { .. }) => {}
            Err(error) => {
                tracing::warn!(lock.name = name, %error, "a job is done, but its name may stay closed until at_most");
            }
        }
        Ok(Some(output))
    }
}

/// The guard of a job. If the job is dropped half-way, the name stays closed until the lease ends.
struct Closing(Option<Guard>);

impl Closing {
    /// Keeps the name closed for `rest`, and ends the guard.
    async fn close(&mut self, rest: Duration) -> Result<()> {
        if rest.is_zero() {
            return match self.0.take() {
                Some(guard) => guard.unlock().await.map(drop),
                None => Ok(()),
            };
        }
        match &self.0 {
            Some(guard) => guard.extend(rest.max(SHORTEST_LEASE)).await,
            None => Ok(()),
        }
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        if let Some(guard) = self.0.take() {
            drop(guard.into_owner());
        }
    }
}
