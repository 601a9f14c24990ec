//! The striped lock: one contended resource, cut into segments that each have a lock.
//!
//! Under one lock, a resource (tickets, counters, a queue) has one holder at a time. If the resource is cut into *n*
//! parts, each guarded by a segment, *n* holders can work in parallel:
//!
//! - [acquire_any](Striped::acquire_any) acquires any free segment, for work on its part;
//! - [segment_of](Striped::segment_of) returns the segment of a key, as a sharded map does;
//! - [all](Striped::all) is a lock over all segments, for work on the whole.
//!
//! A segment whose key has another type cannot be acquired. It is skipped while another segment can still be acquired.
//! An acquire that gets no segment returns `Ok(None)` only if every usable segment is known to be held by others.
//! Otherwise it returns the error of a segment.
//!
//! # Wire format
//!
//! Segment *i* of `name` is the lock `name:i`, of any flavour. In a cluster the segments are in different slots, unless
//! a hash tag (`{..}`) in the name keeps them in one slot.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use futures::FutureExt as _;
use futures::future::BoxFuture;

use crate::acquire::Acquire;
use crate::client::Client;
use crate::error::{Error, NotHeld, Result};
use crate::flavour::Flavour;
use crate::group::{self, each};
use crate::guard::Guard;
use crate::lock::{DistLock, Inside, Sealed};
use crate::multi::MultiLock;
use crate::owner::Owner;
use crate::runtime::home;
use crate::state::{Released, State};

mod acquire;
mod asked;
mod local;
mod tally;

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
    /// # use distlock::Acquire;
    /// # async fn example(client: distlock::Client) -> distlock::Result<()> {
    /// let stock = client.striped("stock:42", 8); // up to eight holders
    /// if let Some((segment, guard)) = stock.acquire_any(Acquire::new()).await? {
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
/// - Waiting: at all segments at once, like one waiter of each segment. Tasks of one process that wait on the same
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
        // Random, because processes that all begin at the first segment would compete for that segment.
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
    /// For the same number of segments, the result is the same in every process, version and language: the FNV-1a hash
    /// of the key's bytes (64 bits), its upper half XOR its lower half, modulo the number of segments. `"order:42"` is
    /// in segment 7 of 8, and in segment 807 of 1000.
    #[must_use]
    pub fn segment_of(&self, key: impl AsRef<[u8]>) -> Option<usize> {
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
    pub async fn acquire_any(&self, how: Acquire) -> Result<Option<(usize, Guard)>> {
        let lock = self.clone();
        home::run_on(group::home(&self.segments), async move { lock.carry_out(how).await }).await
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

impl Sealed for Striped {
    fn inside(&self) -> Inside<'_> {
        Inside::Many(&self.segments)
    }
}

impl DistLock for Striped {
    fn name(&self) -> &str {
        &self.name
    }

    fn acquire(&self, how: Acquire) -> BoxFuture<'_, Result<Option<Guard>>> {
        Box::pin(async move { Ok(self.acquire_any(how).await?.map(|(_, guard)| guard)) })
    }

    /// Returns all holders of segments, how many times each holder holds segments, and the time until the last of their
    /// leases ends.
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
                    // Any other error ends the loop, because this segment may have been released, and a further release
                    // would be a second one.
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
    fn fnv_1a_matches_published_values() {
        let of = ["", "a", "foobar"].map(|text| fnv_1a(text.as_bytes()));
        assert_eq!(of, [0xcbf2_9ce4_8422_2325, 0xaf63_dc4c_8601_ec8c, 0x8594_4171_f739_67e8]);
    }
}
