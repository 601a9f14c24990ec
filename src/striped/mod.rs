//! The striped lock: one hot resource cut into segments, each with a lock of its own.
//!
//! What is sold, counted or queued under one lock is worked on by one holder at a time. Cut into *n* parts, each of them
//! behind a segment, *n* holders work side by side: take [any](Striped) free segment and work on its part; the one
//! [of a key](Striped::of), as a sharded map does; or [all](Striped::all) of them, for what concerns the whole.
//!
//! # Wire format
//!
//! Segment *i* of `name` is the lock `name:i`, of whatever flavour. In a cluster they lie in different slots, unless the name
//! has a hash tag (`{..}`), which keeps them in one.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};

use crate::client::Client;
use crate::engine::home::{self, Home};
use crate::engine::names::fnv;
use crate::error::{Deadlock, Error, NotHeld, Result};
use crate::group::{Asking, Budget, ask, each};
use crate::guard::{Guard, Released};
use crate::lock::{Acquire, DistLock, Flavour, State};
use crate::multi::MultiLock;
use crate::owner::Owner;

mod line;

use line::Lines;

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
/// one line, and have one attempt under way at each segment between them.
#[derive(Clone)]
pub struct Striped {
    name: Arc<str>,
    segments: Arc<[Arc<dyn DistLock>]>,
    /// Where the next acquire begins to look.
    next: Arc<AtomicUsize>,
    /// Those of this process who wait for any.
    lines: Arc<Lines>,
}

impl Striped {
    /// A resource cut into so many segments, each with a lock of this flavour.
    #[must_use]
    pub fn over(client: &Client, flavour: Flavour, name: &str, segments: usize) -> Self {
        let segments = (0..segments).map(|i| client.lock(flavour, &format!("{name}:{i}"))).collect();
        // Callers in several processes that all begin at the first would stand in one another's way.
        let begin = uuid::Uuid::new_v4().as_u64_pair().1 as u32 as usize;
        Self { name: Arc::from(name), segments, next: Arc::new(AtomicUsize::new(begin)), lines: Arc::default() }
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

    /// The segment that a key belongs to: in every process and for ever the same, as long as there are so many segments
    /// (FNV-1a of the key's bytes). None when there are no segments.
    #[must_use]
    pub fn of(&self, key: impl AsRef<[u8]>) -> Option<usize> {
        ((fnv(key.as_ref()) >> 32) as usize).checked_rem(self.segments.len())
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
        home::bring(self.home(), async move { lock.seek(how).await }).await
    }

    async fn seek(&self, how: Acquire) -> Result<Option<(usize, Guard)>> {
        how.check()?;
        self.check()?;
        let budget = Budget::new(how.wait);
        let given = how.owner.clone().or_else(Owner::current);
        if let Some(owner) = given.as_ref().filter(|_| how.alone)
            && self.is_held_by(owner).await?
        {
            return Err(Error::WouldDeadlock { name: Arc::clone(&self.name), why: Deadlock::NotReentrant });
        }
        let begin = self.next.fetch_add(1, Ordering::Relaxed);
        // Whoever else of this process waits came first.
        let behind = given.is_none() && !budget.is_once() && self.lines.is_waiting(how.lease);
        for n in 0..if behind { 0 } else { self.segments.len() } {
            let at = begin.wrapping_add(n) % self.segments.len();
            let how = how.clone().wait(Duration::ZERO);
            match self.segments[at].acquire(how).await {
                Ok(Some(guard)) => return Ok(Some((at, guard))),
                Ok(None) => {}
                Err(error) if error.is_retryable() && !budget.is_once() => break,
                Err(error) => return Err(error),
            }
            if budget.is_over() && !budget.is_once() {
                return Ok(None);
            }
        }
        if budget.is_over() {
            return Ok(None);
        }
        let Some(given) = given else {
            return self.lines.wait(&self.segments, begin, how.lease, budget).await;
        };
        // An owner of its own: nobody else's attempts will do.
        let mut asking: Asking = (0..self.segments.len())
            .map(|n| {
                let at = begin.wrapping_add(n) % self.segments.len();
                let wish = Acquire { wait: budget.rest(), owner: Some(given.clone()), ..how.clone() };
                ask(&self.segments[at], at, wish)
            })
            .collect();
        let mut failed = None;
        while let Some((at, outcome)) = asking.next().await {
            match outcome {
                // Dropped, the others leave their queues; what one of them gets meanwhile is given back.
                Ok(Some(guard)) => return Ok(Some((at, guard))),
                Ok(None) => {}
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(None), Err)
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

impl DistLock for Striped {
    fn name(&self) -> &str {
        &self.name
    }

    fn acquire(&self, how: Acquire) -> BoxFuture<'_, Result<Option<Guard>>> {
        Box::pin(async move { Ok(self.any(how).await?.map(|(_, guard)| guard)) })
    }

    fn home(&self) -> Option<&Home> {
        self.segments.iter().find_map(|lock| lock.home())
    }

    /// Who holds any of the segments, and how often; and the time until the last of them ends.
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

    /// Frees every segment.
    fn force_unlock(&self) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async {
            let freed = self.each(|lock| async move { lock.force_unlock().await }.boxed()).await?;
            Ok(freed.contains(&true))
        })
    }

    /// Gives back one hold of `owner`, of the first segment that it holds.
    fn release<'a>(&'a self, owner: &'a Owner) -> BoxFuture<'a, Result<Released>> {
        Box::pin(async move {
            self.check()?;
            for segment in self.segments.iter() {
                match segment.release(owner).await {
                    Err(Error::NotHeld { .. }) => {}
                    outcome => return outcome,
                }
            }
            Err(Error::NotHeld { name: Arc::clone(&self.name), why: NotHeld::Never })
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
