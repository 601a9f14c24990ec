//! Barriers: n parties, in any processes, wait for each other. The n-th arrival lets all go. Then the next round begins.
//!
//! A waiting party has a lease, which its wait renews. If a party dies before all have arrived, its lease ends, and all
//! waiting parties of the round get [`Error::Broken`]. A party that stops waiting (its future is dropped, or its wait
//! runs out) leaves the round. The round then needs another arrival.
//!
//! 1. A party arrives. The last arrival ends the round and sends a message.
//! 2. Every other party looks at once, after each message, and before a third of its lease has passed. Each look renews
//!    its lease.
//! 3. A look or an arrival that finds a party whose lease has ended breaks the round and sends a message.
//!
//! # Wire format
//!
//! Redisson has no barrier, so the keys are this crate's own: the hash `distlock_barrier:{<name>}` with the number of the
//! round, and the sorted set `distlock_barrier:{<name>}:parties` with the owner and the end of the lease of each waiting
//! party. Both expire a day after their last use. The channel is `distlock_barrier__channel:{<name>}`. An arrival carries
//! a token, as the commands of [semaphores](mod@crate::semaphore#lost-replies).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::client::Client;
use crate::engine::wait::Looking;
use crate::error::{Error, Result};
use crate::names::LockName;

mod party;

use party::{End, Party};

/// # Barriers
impl Client {
    /// Returns the barrier of this name for `n` parties. All parties must use the same `n`.
    ///
    /// # Cost
    ///
    /// None: nothing is sent until a call. An impossible name, and `n` = 0, are refused then.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: distlock::Client) -> distlock::Result<()> {
    /// let start = client.barrier("start", 5); // in each of five processes
    /// let wait = start.wait().await?; // all five go on together
    /// if wait.is_leader() {
    ///     println!("round {} has begun", wait.round());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn barrier(&self, name: &str, n: u32) -> Barrier {
        Barrier { client: self.clone(), name: LockName::of_barrier(&self.options().name_prefix, name), n }
    }
}

/// A meeting point of n parties. The [module](self) describes it. Cheap to clone.
#[derive(Clone)]
pub struct Barrier {
    client: Client,
    name: Arc<LockName>,
    n: u32,
}

/// The end of a wait at a barrier: all parties have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarrierWait {
    round: u64,
    is_leader: bool,
}

impl BarrierWait {
    /// True for the last party that arrived: one of the n.
    #[must_use]
    pub const fn is_leader(&self) -> bool {
        self.is_leader
    }

    /// Returns the number of the round. Broken rounds count too. If nobody uses the barrier for a day, rounds start at 0
    /// again.
    #[must_use]
    pub const fn round(&self) -> u64 {
        self.round
    }
}

impl Barrier {
    /// Returns the name, without the client's prefix.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name.as_written
    }

    /// Arrives, and waits until `n` parties have arrived.
    ///
    /// # Cost
    ///
    /// One round trip, one command for the last party. Another party needs four commands: its arrival, a look before and a
    /// look after it subscribes, and a look at the end. All waiting tasks of this process share one subscription. While a
    /// party waits, it sends one command each third of the [watchdog](crate::Builder::watchdog)'s lease, or each
    /// [`poll_cap`](crate::Builder::poll_cap) if that is shorter.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the round in the background. If the last party arrives at the same moment, the round
    /// may end with this party counted.
    ///
    /// # Errors
    ///
    /// - [`Error::Broken`]: a party of the round died, or the keys were deleted. This is detected at
    ///   the first look after the dead party's lease ends.
    /// - [`Error::Config`]: `n` is 0. [`Error::Server`]: others wait with another `n`.
    /// - The errors of [`DistLock::acquire`](crate::DistLock::acquire); then this party has left the round.
    pub async fn wait(&self) -> Result<BarrierWait> {
        self.wait_at_most(None).await?.ok_or(Error::Closed)
    }

    /// As [`wait`](Self::wait), for at most `wait`. `None`: the wait ran out, and this party has left the round. The arrival
    /// and the leave themselves are not limited by `wait`.
    ///
    /// # Cost
    ///
    /// As [`wait`](Self::wait). A wait that runs out costs two more commands.
    ///
    /// # Cancel safety
    ///
    /// As [`wait`](Self::wait).
    ///
    /// # Errors
    ///
    /// As for [`wait`](Self::wait).
    pub async fn wait_for(&self, wait: Duration) -> Result<Option<BarrierWait>> {
        self.wait_at_most(Some(wait)).await
    }

    async fn wait_at_most(&self, wait: Option<Duration>) -> Result<Option<BarrierWait>> {
        if self.n == 0 {
            return Err(Error::config(format!("the barrier {:?} needs at least one party", self.name())));
        }
        let engine = self.client.engine();
        let party = Party::arrive(engine, &self.name, self.n).await?;
        let round = party.round();
        if party.is_last() {
            return Ok(Some(BarrierWait { round, is_leader: true }));
        }
        let party = Arc::new(party);
        let looks = Arc::clone(&party);
        let look = Box::new(move || looks.look());
        let every = Some(engine.options.watchdog / 3);
        let end = match engine.look(&self.name, wait, Looking { look, for_all: None, every }).await? {
            Some(end) => Some(end),
            // `leave` returned false: the round ended first, so its result counts.
            None if party.leave().await? => None,
            None => party.look().await?,
        };
        party.mark_ended();
        match end {
            Some(End::Released) => Ok(Some(BarrierWait { round, is_leader: false })),
            Some(End::Broken) => Err(Error::Broken { name: Arc::clone(&self.name.as_written) }),
            None => Ok(None),
        }
    }

    /// Returns the number of parties that wait now, dead ones included.
    ///
    /// # Cost
    ///
    /// One round trip, one command.
    ///
    /// # Cancel safety
    ///
    /// Only reads.
    ///
    /// # Errors
    ///
    /// As for [`DistLock::acquire`](crate::DistLock::acquire).
    pub async fn waiting(&self) -> Result<u64> {
        party::waiting(self.client.engine(), &self.name).await
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Barrier").field("client", &self.client).field("name", &self.name).field("n", &self.n).finish()
    }
}
