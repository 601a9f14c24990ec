//! Barriers: n parties, in any processes, wait for each other. The n-th arrival ends the round: all n parties return.
//! Then the next round begins.
//!
//! A waiting party has a lease, which its wait renews. If a party dies before all have arrived, its lease ends, and the
//! waiting parties of the round get [`Error::Broken`]. If a party stops waiting (its future is dropped, its wait runs
//! out, or it gets an error), it leaves the round. The round then needs another arrival.
//!
//! # Protocol
//!
//! 1. **Arrive.** A party sends its arrival. The last arrival ends the round and publishes a message.
//! 2. **Look.** Every other party asks whether its round has ended: at once, after each message, and at least every
//!    third of its lease or every [`poll_cap`](crate::Options::poll_cap), whichever is shorter. Each party looks for
//!    itself, because a look renews the lease of one party only.
//! 3. **Break.** An arrival or a look that finds a party whose lease has ended breaks the round. It publishes a
//!    message, so the other parties look and find the round broken. An arrival that broke a round is sent again.
//! 4. **Leave.** A party that stops waiting removes itself from the round. If the round has ended already, the result
//!    of the round counts.
//!
//! | lost | effect |
//! |---|---|
//! | reply of an arrival | the arrival is repeated, and counts once; without an answer in time, the party leaves |
//! | reply of a look | the look is repeated |
//! | reply of a leave | the leave is repeated |
//! | message | the next look finds the end of the round |
//!
//! # Wire format
//!
//! Redisson has no barrier, so the keys are this crate's own:
//!
//! - `distlock_barrier:{<name>}`: a hash with the numbers of the current and the first round, n, and the last broken rounds.
//! - `distlock_barrier:{<name>}:parties`: a sorted set of the waiting parties. Member = owner, score = end of the
//!   lease.
//! - `distlock_barrier__channel:{<name>}`: the channel.
//!
//! Both keys expire a day after their last use. An arrival carries a token, like the commands of
//! [semaphores](mod@crate::semaphore#lost-replies).

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
    /// None. An invalid name is refused by the first call that sends a command. `n` = 0 is refused by
    /// [`Barrier::wait`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: distlock::Client) -> distlock::Result<()> {
    /// let start = client.barrier("start", 5); // in each of five processes
    /// let wait = start.wait().await?; // all five continue together
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

/// Outcome of a wait at a barrier: all parties have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarrierWait {
    round: u64,
    is_leader: bool,
}

impl BarrierWait {
    /// True for the party that arrived last. At most one party of a round is the leader.
    #[must_use]
    pub const fn is_leader(&self) -> bool {
        self.is_leader
    }

    /// Returns the number of the round: 1 more than that of the last round, broken or not. The first round's number is the
    /// server's time in microseconds.
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
    /// One round trip, one command for the last party. Every other party usually needs four commands: its arrival, a
    /// look before and a look after it subscribes, and a look at the end. If another task of this process has
    /// subscribed, it needs three.
    ///
    /// While a party waits, it sends one command every third of the [watchdog](crate::Builder::watchdog)'s lease, or
    /// every [`poll_cap`](crate::Options::poll_cap) if that is shorter. All waiting tasks of this process share one
    /// subscription.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the party leaves the round in the background. If the last party arrives before that,
    /// the round counts this party.
    ///
    /// # Errors
    ///
    /// - [`Error::Broken`]: a party of the round died, or the keys were deleted. A death is detected at the first look
    ///   after the dead party's lease ends.
    /// - [`Error::Config`]: `n` is 0.
    /// - [`Error::Server`]: other parties wait with another `n`.
    /// - The errors of [`DistLock::acquire`](crate::DistLock::acquire). The party then leaves the round in the
    ///   background.
    pub async fn wait(&self) -> Result<BarrierWait> {
        self.wait_at_most(None).await?.ok_or(Error::Closed)
    }

    /// Arrives, and waits for at most `wait`. Returns `None` if the wait ran out: this party has left the round.
    ///
    /// `wait` does not limit the arrival and the leave themselves. If Redis does not answer, each may take as long as
    /// the retries of a command.
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
            None => engine.home().run(party.look()).await?,
        };
        party.mark_ended();
        match end {
            Some(End::Released) => Ok(Some(BarrierWait { round, is_leader: false })),
            Some(End::Broken) => Err(Error::Broken { name: Arc::clone(&self.name.as_written) }),
            None => Ok(None),
        }
    }

    /// Returns the number of parties that wait now. Dead parties count until a look or an arrival breaks their round.
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
