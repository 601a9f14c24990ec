//! The striped lock: one hot resource cut into segments, each with a lock of its own.
//!
//! What is sold, counted or queued under one lock is worked on by one holder at a time. Cut into *n* parts, each of them
//! behind a segment, *n* holders work side by side: take [any](Striped) free segment and work on its part; the one
//! [of a key](Striped::of), as a sharded map does; or [all](Striped::all) of them, for what concerns the whole.
//!
//! A segment that cannot be had (its key is something else) fails nobody whom another one can serve. *Busy* is told only where
//! all that can be had are known to be held by others; where that is not known, the error that kept it from being known.
//!
//! # Wire format
//!
//! Segment *i* of `name` is the lock `name:i`, of whatever flavour. In a cluster they lie in different slots, unless the name
//! has a hash tag (`{..}`), which keeps them in one.

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
use crate::lock::DistLock;
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
    /// A resource of this name cut into so many segments, each with a reentrant lock; [`Striped::over`] has other flavours.
    ///
    /// *Cost*: none; nothing is sent until a segment is acquired. No segments, and impossible names, are refused then.
    #[must_use]
    pub fn striped(&self, name: &str, segments: usize) -> Striped {
        Striped::over(self, Flavour::Reentrant, name, segments)
    }
}

/// A lock in several segments. As a [`DistLock`] it stands for any of them: so many may hold it side by side, each a segment
/// of its own, which the guard's [name](Guard::name) tells. See the [module](self).
///
/// *Cost*: one command when the first segment that is tried is free; for each that is not, one more. Where all are busy it
/// waits for all, as one of each segment's waiters; tasks of one process that wait by the same object (or its clones) stand in
/// one queue, and have one attempt under way at each segment between them.
#[derive(Clone)]
pub struct Striped {
    name: Arc<str>,
    segments: Arc<[Arc<dyn DistLock>]>,
    /// Where the next acquire begins to look.
    next: Arc<AtomicUsize>,
    /// The tasks of this process that wait for any.
    queues: Arc<LocalQueues>,
}

impl Striped {
    /// A resource cut into so many segments, each with a lock of this flavour.
    #[must_use]
    pub fn over(client: &Client, flavour: Flavour, name: &str, segments: usize) -> Self {
        let segments = (0..segments).map(|i| client.lock(flavour, &format!("{name}:{i}"))).collect();
        // Callers in several processes that all begin at the first would stand in one another's way.
        let begin = client.engine().topology.world().random() as usize;
        Self { name: Arc::from(name), segments, next: Arc::new(AtomicUsize::new(begin)), queues: Arc::default() }
    }

    /// How many segments there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.segments.len()
    }

    /// True when there are none: then it cannot be acquired.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// The lock of one segment, counted from 0.
    #[must_use]
    pub fn segment(&self, at: usize) -> Option<&Arc<dyn DistLock>> {
        self.segments.get(at)
    }

    pub(crate) fn segments(&self) -> &[Arc<dyn DistLock>] {
        &self.segments
    }

    /// The segment that a key belongs to: in every process, version and language the same, as long as there are so many
    /// segments. It is the FNV-1a hash of the key's bytes (64 bits), its upper half XOR its lower half, modulo the number of
    /// segments: `"order:42"` is in segment 7 of 8, and in 807 of 1000. None when there are no segments.
    #[must_use]
    pub fn of(&self, key: impl AsRef<[u8]>) -> Option<usize> {
        let hash = fnv_1a(key.as_ref());
        (((hash >> 32) ^ (hash & 0xffff_ffff)) as usize).checked_rem(self.segments.len())
    }

    /// All segments as one lock.
    #[must_use]
    pub fn all(&self) -> MultiLock {
        MultiLock::of(self.segments.to_vec())
    }

    /// Acquires any segment that is free, or becomes so first, and tells which.
    ///
    /// Cost, cancel safety and errors as [`DistLock::acquire`].
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
        // The tasks of this process that wait already came first.
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
            // Those that wait ask all segments side by side, and again.
            if over || (tally.passing.is_some() && !deadline.is_once()) {
                break;
            }
        }
        if deadline.is_over() || (!behind && tally.is_hopeless()) {
            return tally.verdict();
        }
        // One who has met with errors that pass, and does not wait for ever, waits by itself: it has to know at the end what
        // became of its own attempts. Nor will another's attempts do for an owner of its own.
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
                // The other attempts, dropped, leave their queues; what one of them gets meanwhile is given back.
                return Ok(Some((at, guard)));
            }
        }
        let mut tally = Tally { not_reentrant, ..Tally::default() };
        for outcome in asked.outcomes() {
            tally.note(outcome)?;
        }
        tally.verdict()
    }

    /// How long a command may take.
    fn command_timeout(&self) -> Option<Duration> {
        self.segments.first().and_then(part).map(|part| part.client.engine().options.command_timeout)
    }

    /// What is left for answers. Asked once, all segments together take no longer than a command may.
    fn left(&self, deadline: &Deadline) -> Option<Duration> {
        deadline.left_to_answer_within(self.once())
    }

    /// How long one attempt may take. Nobody knows how long that of locks of somebody else's making takes.
    fn once(&self) -> Duration {
        self.command_timeout().unwrap_or(Duration::MAX)
    }

    /// What some work brings, if it is done within the wait.
    async fn within<T>(&self, deadline: &Deadline, work: impl Future<Output = T>) -> Option<T> {
        deadline.answered(self.once(), work).await
    }

    /// True when this owner holds any segment; keys that are no locks are passed over.
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

/// True for an error that every other segment would give too. That its owner holds one is said of all of them only where it
/// is `not_reentrant`: the plain flavour refuses a segment of the owner's own always, and another one may be free.
const fn is_everybodys(error: &Error, not_reentrant: bool) -> bool {
    match error {
        Error::Config { .. } | Error::Closed => true,
        Error::WouldDeadlock { why: Deadlock::NotReentrant, .. } => not_reentrant,
        _ => false,
    }
}

/// What became of segments that were asked in vain.
#[derive(Default)]
struct Tally {
    /// True when somebody else holds a segment.
    busy: bool,
    /// Why a segment could not be asked.
    passing: Option<Error>,
    /// Why a segment cannot be had, as long as nobody mends it, or its owner, who asks, does not give it back.
    bad: Option<Error>,
    /// True when the owner is not to come in again.
    not_reentrant: bool,
}

impl Tally {
    /// Adds the outcome of one more segment. *Errors*: the one that every other segment would give too.
    fn note(&mut self, outcome: Result<()>) -> Result<()> {
        match outcome {
            Ok(()) => self.busy = true,
            Err(error) if is_everybodys(&error, self.not_reentrant) => return Err(error),
            Err(error) if error.is_retryable() => self.passing = Some(error),
            Err(error @ Error::WouldDeadlock { .. }) => self.bad = Some(error),
            Err(error) => {
                tracing::warn!(%error, "a segment cannot be had, and is passed over");
                self.bad = Some(error);
            }
        }
        Ok(())
    }

    /// True when no segment is worth waiting for.
    const fn is_hopeless(&self) -> bool {
        !self.busy && self.passing.is_none() && self.bad.is_some()
    }

    /// Busy only where that is known of all that can be had.
    fn verdict<T>(self) -> Result<Option<T>> {
        match self {
            Self { passing: Some(error), .. } | Self { busy: false, bad: Some(error), .. } => Err(error),
            _ => Ok(None),
        }
    }
}

impl DistLock for Striped {
    fn name(&self) -> &str {
        &self.name
    }

    fn acquire(&self, how: Acquire) -> BoxFuture<'_, Result<Option<Guard>>> {
        Box::pin(async move { Ok(self.any(how).await?.map(|(_, guard)| guard)) })
    }

    /// Who holds any of the segments, and how often; and the time until the last of them ends.
    ///
    /// *Cost*: one command for each segment, all at once. *Cancel safety*: reads only. *Errors*: those of the segments, as
    /// [`acquire`](DistLock::acquire): each of them has to answer.
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

    /// Frees every segment; `false` when all were free.
    ///
    /// *Cost*: one command for each segment, all at once. *Cancel safety*: once begun it may take effect, on some of them too.
    /// *Errors*: those of the segments, as [`acquire`](DistLock::acquire); the others are freed all the same.
    fn force_unlock(&self) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async {
            let freed = self.each(|lock| async move { lock.force_unlock().await }.boxed()).await?;
            Ok(freed.contains(&true))
        })
    }

    /// Gives back one hold of `owner`, of the first segment that it holds.
    ///
    /// *Cost*: what the release of a segment costs, for each segment up to that one, one after the other. *Cancel safety*: the
    /// release that is under way is carried out; no further segment is asked. *Errors*: [`Error::NotHeld`] where it holds none,
    /// and those of [`acquire`](DistLock::acquire).
    fn release<'a>(&'a self, owner: &'a Owner) -> BoxFuture<'a, Result<Released>> {
        Box::pin(async move {
            self.check()?;
            let mut bad = None;
            for segment in self.segments.iter() {
                match segment.release(owner).await {
                    Err(Error::NotHeld { .. }) => {}
                    // Not one that may have happened: another one would be a second release.
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

/// The hash function FNV-1a, of 64 bits. Not for tables: whoever chooses the keys can have them collide.
fn fnv_1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::fnv_1a;

    /// Values that others have published.
    #[test]
    fn fnv_1a_is_what_others_call_it() {
        let of = ["", "a", "foobar"].map(|text| fnv_1a(text.as_bytes()));
        assert_eq!(of, [0xcbf2_9ce4_8422_2325, 0xaf63_dc4c_8601_ec8c, 0x8594_4171_f739_67e8]);
    }
}
