//! The striped lock: one hot resource, cut into segments that each have a lock.
//!
//! A resource under one lock (tickets, counters, a queue) is used by one holder at a time. Cut into *n* parts, each
//! guarded by a segment, *n* holders work in parallel:
//!
//! - [any](Striped::any) acquires any free segment, for work on its part;
//! - [of](Striped::of) returns the segment of a key, as a sharded map does;
//! - [all](Striped::all) is a lock over all segments, for work on the whole.
//!
//! A segment that cannot be acquired (its key has another type) is skipped while another segment can serve the
//! caller. An acquire returns `Ok(None)` only if every usable segment is known to be held by others. If that is not
//! known, it returns the error that prevented it.
//!
//! # Wire format
//!
//! Segment *i* of `name` is the lock `name:i`, of any flavour. In a cluster the segments are in different slots,
//! unless a hash tag (`{..}`) in the name keeps them in one.

use std::collections::BTreeMap;
use std::fmt;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};

use crate::acquire::Acquire;
use crate::client::Client;
use crate::engine::wait::Deadline;
use crate::error::{Deadlock, Error, NotHeld, Result};
use crate::flavour::Flavour;
use crate::group::{self, deadline, each, part};
use crate::guard::Guard;
use crate::lock::{DistLock, Inside};
use crate::multi::MultiLock;
use crate::owner::Owner;
use crate::runtime::home;
use crate::state::{Released, State};

mod asked;
mod local;

use asked::Asked;
use local::LocalQueues;

/// # Striped locks
impl Client {
    /// Returns a resource of this name, cut into this many segments with a reentrant lock each. [`Striped::over`]
    /// has other flavours.
    ///
    /// # Cost
    ///
    /// None: nothing is sent until an acquire. A count of zero and impossible names are refused then.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use distlock::{Acquire, DistLock};
    /// # async fn example(client: distlock::Client) -> distlock::Result<()> {
    /// let stock = client.striped("stock:42", 8); // up to eight holders
    /// if let Some((segment, guard)) = stock.any(Acquire::new()).await? {
    ///     println!("sell from segment {segment}");
    ///     guard.unlock().await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn striped(&self, name: &str, segments: usize) -> Striped {
        Striped::over(self, Flavour::Reentrant, name, segments)
    }
}

/// A lock in several segments. As a [`DistLock`] it stands for any segment: as many holders as there are segments
/// may hold it at once, and the guard's [name](Guard::name) says which segment is held. See the [module](self).
///
/// # Cost
///
/// - Acquire: one command if the first segment tried is free, and one more for each busy segment before a free one.
/// - Waiting: at all segments at once, as one of each segment's waiters. Tasks of one process that wait on the same
///   object or its clones form one queue, and share one attempt per segment.
#[derive(Clone)]
pub struct Striped {
    name: Arc<str>,
    segments: Arc<[Arc<dyn DistLock>]>,
    /// The segment that the next acquire tries first.
    next: Arc<AtomicUsize>,
    /// The tasks of this process that wait for any segment.
    queues: Arc<LocalQueues>,
}

impl Striped {
    /// Returns a resource cut into this many segments, each with a lock of this flavour.
    #[must_use]
    pub fn over(client: &Client, flavour: Flavour, name: &str, segments: usize) -> Self {
        let segments = (0..segments).map(|i| client.lock(flavour, &format!("{name}:{i}"))).collect();
        // Random, because processes that all begin at the first segment would compete for it.
        let begin = client.engine().topology.world().random() as usize;
        Self { name: Arc::from(name), segments, next: Arc::new(AtomicUsize::new(begin)), queues: Arc::default() }
    }

    /// Returns the number of segments.
    #[must_use]
    pub fn len(&self) -> usize {
        self.segments.len()
    }

    /// Returns true if there are no segments. Then the lock cannot be acquired.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Returns the lock of one segment, counted from 0.
    #[must_use]
    pub fn segment(&self, at: usize) -> Option<&Arc<dyn DistLock>> {
        self.segments.get(at)
    }

    /// Returns the segment of a key; `None` if there are no segments.
    ///
    /// It is the same in every process, version and language, for the same number of segments: the FNV-1a hash of
    /// the key's bytes (64 bits), its upper half XOR its lower half, modulo the number of segments. `"order:42"` is
    /// in segment 7 of 8, and in 807 of 1000.
    #[must_use]
    pub fn of(&self, key: impl AsRef<[u8]>) -> Option<usize> {
        let hash = fnv_1a(key.as_ref());
        (((hash >> 32) ^ (hash & 0xffff_ffff)) as usize).checked_rem(self.segments.len())
    }

    /// Returns all segments as one lock.
    #[must_use]
    pub fn all(&self) -> MultiLock {
        MultiLock::of(self.segments.to_vec())
    }

    /// Acquires any segment that is free or becomes free first. Returns its number with the guard.
    ///
    /// Cost, cancel safety and errors as for [`DistLock::acquire`].
    pub async fn any(&self, how: Acquire) -> Result<Option<(usize, Guard)>> {
        let lock = self.clone();
        home::run_on(group::home(&self.segments), async move { lock.carry_out(how).await }).await
    }

    async fn carry_out(&self, how: Acquire) -> Result<Option<(usize, Guard)>> {
        how.check()?;
        self.check()?;
        let deadline = &deadline(&self.segments, &how);
        let given = how.owner.clone().or_else(Owner::current);
        if let Some(owner) = given.as_ref().filter(|_| how.not_reentrant) {
            let Some(holds) = self.within(deadline, self.holds_any(owner)).await else {
                return Err(group::missing(&self.segments));
            };
            if holds? {
                return Err(Error::WouldDeadlock { name: Arc::clone(&self.name), why: Deadlock::NotReentrant });
            }
        }
        let begin = self.next.fetch_add(1, Ordering::Relaxed);
        let from = |n: usize| begin.wrapping_add(n) % self.segments.len();
        // Tasks of this process that wait already came first.
        let behind = given.is_none() && !deadline.is_once() && self.queues.is_waiting(how.lease);
        let not_reentrant = how.not_reentrant;
        let mut tally = Tally { not_reentrant, ..Tally::default() };
        for at in (0..if behind { 0 } else { self.segments.len() }).map(from) {
            let once = Acquire { waited_before: deadline.waited(), ..how.clone().wait(Duration::ZERO) };
            let segment = &self.segments[at];
            match self.within(deadline, segment.acquire(once)).await {
                Some(Ok(Some(guard))) => return Ok(Some((at, guard))),
                Some(outcome) => tally.note(outcome.map(drop))?,
                // No holder was seen.
                None => tally.note(Err(group::missing(slice::from_ref(segment))))?,
            }
            let over =
                if deadline.is_once() { self.left(deadline) == Some(Duration::ZERO) } else { deadline.is_over() };
            // The wait below asks all segments in parallel, and retries.
            if over || (tally.passing.is_some() && !deadline.is_once()) {
                break;
            }
        }
        if deadline.is_over() || (!behind && tally.is_hopeless()) {
            return tally.verdict();
        }
        // After passing errors, an acquire with a limit waits on its own: at its end it must know the outcomes of
        // its own attempts. An acquire with a given owner cannot use the attempts of others.
        if given.is_none() && (tally.passing.is_none() || how.wait.is_none()) {
            return self.queues.wait(&self.segments, begin, how.lease, deadline).await;
        }
        let (end, owner) = (deadline.clone(), given.clone());
        let how = Box::new(move || Acquire {
            wait: end.left(),
            owner: owner.clone(),
            waited_before: end.waited(),
            ..how.clone()
        });
        let mut asked = Asked::all(&self.segments, begin, deadline, how);
        while let Some((at, guard)) = asked.next().await {
            if let Some(guard) = guard {
                // The other attempts are dropped: they leave their queues, and late grants are released.
                return Ok(Some((at, guard)));
            }
        }
        let mut tally = Tally { not_reentrant, ..Tally::default() };
        for outcome in asked.outcomes() {
            tally.note(outcome)?;
        }
        tally.verdict()
    }

    fn command_timeout(&self) -> Option<Duration> {
        self.segments.first().and_then(part).map(|part| part.client.engine().options.command_timeout)
    }

    /// Time left for answers. In a single attempt, all segments together take no longer than one command may.
    fn left(&self, deadline: &Deadline) -> Option<Duration> {
        deadline.left_to_answer_within(self.once())
    }

    /// Time limit of one attempt; no limit is known for foreign locks.
    fn once(&self) -> Duration {
        self.command_timeout().unwrap_or(Duration::MAX)
    }

    /// Returns the output of `work`, or None if the time for answers ends first.
    async fn within<T>(&self, deadline: &Deadline, work: impl Future<Output = T>) -> Option<T> {
        deadline.answered(self.once(), work).await
    }

    /// Returns true if this owner holds any segment. Skips keys that are no locks.
    async fn holds_any(&self, owner: &Owner) -> Result<bool> {
        let mut asking: FuturesUnordered<_> = self.segments.iter().map(|segment| segment.is_held_by(owner)).collect();
        let mut tally = Tally::default();
        while let Some(held) = asking.next().await {
            match held {
                Ok(true) => return Ok(true),
                outcome => tally.note(outcome.map(drop))?,
            }
            if tally.passing.is_some() {
                break;
            }
        }
        tally.passing.map_or(Ok(false), Err)
    }

    fn check(&self) -> Result<()> {
        if self.is_empty() {
            return Err(Error::config("a striped lock needs at least one segment"));
        }
        if self.name.is_empty() {
            return Err(Error::config("a lock needs a name: the name is empty"));
        }
        Ok(())
    }

    async fn each<T>(&self, ask: impl Fn(Arc<dyn DistLock>) -> BoxFuture<'static, Result<T>>) -> Result<Vec<T>> {
        self.check()?;
        each(&self.segments, ask).await
    }
}

/// Returns true for an error that every other segment would return too. `NotReentrant` counts only if the acquire
/// asked for it: the plain flavour always refuses a segment that the owner holds, and another segment may be free.
const fn is_everybodys(error: &Error, not_reentrant: bool) -> bool {
    match error {
        Error::Config { .. } | Error::Closed => true,
        Error::WouldDeadlock { why: Deadlock::NotReentrant, .. } => not_reentrant,
        _ => false,
    }
}

/// Outcomes of the segments that were not acquired.
#[derive(Default)]
struct Tally {
    /// True if another owner holds a segment.
    busy: bool,
    /// A passing error of a segment.
    passing: Option<Error>,
    /// A lasting error of a segment: its key must be repaired, or the requesting owner must release it.
    bad: Option<Error>,
    /// True if re-entry is refused.
    not_reentrant: bool,
}

impl Tally {
    /// Adds the outcome of one segment. Returns an error that every other segment would return too.
    fn note(&mut self, outcome: Result<()>) -> Result<()> {
        match outcome {
            Ok(()) => self.busy = true,
            Err(error) if is_everybodys(&error, self.not_reentrant) => return Err(error),
            Err(error) if error.is_retryable() => self.passing = Some(error),
            Err(error @ Error::WouldDeadlock { .. }) => self.bad = Some(error),
            Err(error) => {
                tracing::warn!(%error, "a segment cannot be acquired, and is skipped");
                self.bad = Some(error);
            }
        }
        Ok(())
    }

    /// Returns true if no segment is worth waiting for.
    const fn is_hopeless(&self) -> bool {
        !self.busy && self.passing.is_none() && self.bad.is_some()
    }

    /// Busy only if every usable segment is known to be held.
    fn verdict<T>(self) -> Result<Option<T>> {
        match self {
            Self { passing: Some(error), .. } | Self { busy: false, bad: Some(error), .. } => Err(error),
            _ => Ok(None),
        }
    }
}

impl DistLock for Striped {
    fn inside(&self) -> Option<Inside<'_>> {
        Some(Inside::Many(&self.segments))
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn acquire(&self, how: Acquire) -> BoxFuture<'_, Result<Option<Guard>>> {
        Box::pin(async move { Ok(self.any(how).await?.map(|(_, guard)| guard)) })
    }

    /// Returns who holds any of the segments and how often, and the time until the last of their leases ends.
    ///
    /// # Cost
    ///
    /// One command per segment, all at once.
    ///
    /// # Cancel safety
    ///
    /// Only reads.
    ///
    /// # Errors
    ///
    /// As [`acquire`](DistLock::acquire). Every segment must answer.
    fn state(&self) -> BoxFuture<'_, Result<State>> {
        Box::pin(async {
            let states = self.each(|lock| async move { lock.state().await }.boxed()).await?;
            let mut holders: BTreeMap<String, u64> = BTreeMap::new();
            let remaining = states.iter().filter_map(|state| state.remaining).max();
            for (holder, count) in states.into_iter().flat_map(|state| state.holders) {
                *holders.entry(holder).or_default() += count;
            }
            Ok(State { holders: holders.into_iter().collect(), remaining })
        })
    }

    /// Frees every segment, whoever holds it. Returns `false` if all were free.
    ///
    /// # Cost
    ///
    /// One command per segment, all at once.
    ///
    /// # Cancel safety
    ///
    /// Once begun it may take effect, possibly on some of the segments only.
    ///
    /// # Errors
    ///
    /// As [`acquire`](DistLock::acquire). The other segments are freed nevertheless.
    fn force_unlock(&self) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async {
            let freed = self.each(|lock| async move { lock.force_unlock().await }.boxed()).await?;
            Ok(freed.contains(&true))
        })
    }

    /// Releases one hold of `owner` on the first segment that it holds.
    ///
    /// # Cost
    ///
    /// One release per segment up to that segment, one after another.
    ///
    /// # Cancel safety
    ///
    /// The release in flight is completed; no further segment is asked.
    ///
    /// # Errors
    ///
    /// [`Error::NotHeld`] if the owner holds no segment; otherwise as [`acquire`](DistLock::acquire).
    fn release<'a>(&'a self, owner: &'a Owner) -> BoxFuture<'a, Result<Released>> {
        Box::pin(async move {
            self.check()?;
            let mut bad = None;
            for segment in self.segments.iter() {
                match segment.release(owner).await {
                    Err(Error::NotHeld { .. }) => {}
                    // Errors in doubt end the loop: the release may have happened, and the next segment would be a
                    // second one.
                    Err(error @ (Error::WrongType { .. } | Error::Server { .. })) => bad = Some(error),
                    outcome => return outcome,
                }
            }
            Err(bad.unwrap_or(Error::NotHeld { name: Arc::clone(&self.name), why: NotHeld::Never }))
        })
    }
}

impl fmt::Debug for Striped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Striped")
            .field("name", &self.name)
            .field("segments", &self.segments.len())
            .finish_non_exhaustive()
    }
}

/// The hash function FNV-1a, 64 bits. Not for hash tables: keys can be chosen to collide.
fn fnv_1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::fnv_1a;

    /// Published test values.
    #[test]
    fn fnv_1a_is_what_others_call_it() {
        let of = ["", "a", "foobar"].map(|text| fnv_1a(text.as_bytes()));
        assert_eq!(of, [0xcbf2_9ce4_8422_2325, 0xaf63_dc4c_8601_ec8c, 0x8594_4171_f739_67e8]);
    }
}
