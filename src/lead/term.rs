//! The time for which a candidate leads.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use super::check_length;
use crate::client::Client;
use crate::engine::Engine;
use crate::engine::change::Change;
use crate::error::{Error, Lost, Result};
use crate::guard::Guard;
use crate::names::LockName;
use crate::transport::Arg;
use crate::transport::script::Script;

static ANNOUNCE: Script = Script::new("lead/announce", include_str!("../../lua/lead/announce.lua"));

/// The leadership of one candidate, from [`Candidate::next`](super::Candidate::next) to its end. The watchdog renews it
/// while this value lives. Dropping it resigns in the background.
///
/// *A term is no proof that this process leads now.* See [Two leaders](super#two-leaders).
#[must_use = "dropping the term resigns"]
pub struct Term {
    guard: Guard,
    epoch: u64,
    engine: Arc<Engine>,
    name: Arc<LockName>,
    owner: Bytes,
    /// Number of announcements. The script ignores a late copy of an announcement, because its number is not the
    /// largest.
    writes: AtomicU64,
}

impl Term {
    pub(super) fn begin(client: &Client, name: &Arc<LockName>, guard: Guard) -> Result<Self> {
        let epoch = guard.fencing_token()?;
        // A fenced lock is a single lock, so the guard has a grant.
        let owner = guard.grant().map(|grant| grant.hold.owner.bytes()).unwrap_or_default();
        let (engine, name, writes) = (Arc::clone(client.engine()), Arc::clone(name), AtomicU64::new(0));
        Ok(Self { guard, epoch, engine, name, owner, writes })
    }

    /// Returns the name of the election, without the client's prefix.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name.as_written
    }

    /// Returns the term's number, which is larger than the number of any earlier term: the
    /// [fencing token](mod@crate::fenced), for the storage to check.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the guard of the fenced lock behind this term, for [`remaining`](Guard::remaining),
    /// [`expiring`](Guard::expiring) and the like.
    pub const fn guard(&self) -> &Guard {
        &self.guard
    }

    /// True until the lease ends by the local clock, or until a loss is known. The call uses no I/O and no timer, so
    /// the answer is right even after a long pause of the process.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.guard.is_held()
    }

    /// Completes with the reason when the leadership is lost: [`Error::Lost`], or [`Error::Closed`] after a shutdown.
    /// The future does not borrow the term.
    ///
    /// # Cost
    ///
    /// None.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    #[must_use = "futures do nothing unless awaited"]
    pub fn lost(&self) -> impl Future<Output = Error> + Send + 'static {
        self.guard.lost()
    }

    /// Runs `work` while this process leads. If the leadership is lost, drops `work` at its next await point. When
    /// `work` is complete, the term lasts until it is resigned or dropped.
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
        self.guard.run(work).await
    }

    /// Replaces the payload of this term. Observers get the new payload with the same epoch. Later terms of the
    /// candidate begin with the candidate's payload.
    ///
    /// # Cost
    ///
    /// One round trip, one command. One more of each if the client has not learned the server's time for a minute.
    ///
    /// # Cancel safety
    ///
    /// Once begun, it is completed.
    ///
    /// # Errors
    ///
    /// - [`Error::Config`]: the payload is longer than 4096 bytes.
    /// - [`Error::Lost`]: this process no longer leads. Nothing was written.
    /// - The errors of [`DistLock::acquire`](crate::DistLock::acquire). After an unknown outcome
    ///   ([`Error::outcome_unknown`]), the call may be repeated.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(term: distlock::Term) -> distlock::Result<()> {
    /// term.set_payload("http://10.0.0.5:8080, ready").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn set_payload(&self, payload: impl Into<Vec<u8>>) -> Result<()> {
        let payload = Bytes::from(payload.into());
        check_length(&payload)?;
        self.announce(payload).await
    }

    /// Writes epoch and payload, and wakes observers.
    pub(super) async fn announce(&self, payload: Bytes) -> Result<()> {
        if !self.is_leader() {
            // The server may keep the hold for longer.
            return Err(self.guard.why_lost());
        }
        let Self { engine, name, owner, .. } = self;
        let write = self.writes.fetch_add(1, Ordering::Relaxed) + 1;
        let [epoch, write] = [self.epoch, write].map(|number| Arg::Int(i64::try_from(number).unwrap_or(i64::MAX)));
        let args = vec![Arg::Text(owner.clone()), epoch, write, Arg::Text(payload)];
        let change = Change { script: &ANNOUNCE, keys: vec![name.key.clone()], args, publishes: true };
        if engine.change_if(name, change).await? {
            return Ok(());
        }
        if self.is_leader() {
            // The server has lost the hold, and the guard does not know it yet.
            return Err(Error::Lost { name: Arc::clone(&name.as_written), why: Lost::Gone });
        }
        Err(self.guard.why_lost())
    }

    /// Resigns. A waiting candidate leads at once.
    ///
    /// # Cost
    ///
    /// One round trip, one command.
    ///
    /// # Cancel safety
    ///
    /// Once begun, it is completed in the background. Dropping the future before its first poll drops the term, which
    /// resigns too.
    ///
    /// # Errors
    ///
    /// As for [`Guard::unlock`].
    pub async fn resign(self) -> Result<()> {
        self.guard.unlock().await.map(drop)
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Term").field("epoch", &self.epoch).field("guard", &self.guard).finish_non_exhaustive()
    }
}
