//! Limits how many first attempts of waiters are in flight, because a burst of acquires would take too much memory:
//! about 2 KB per attempt until its reply. A waiter that queues here takes a tenth of that.
//!
//! 1. Up to [`MOST`] attempts per connection are admitted directly, whatever their names.
//! 2. At that limit, the name of the next attempt gets a *crowd*: a semaphore with as many permits, which admits this
//!    and the name's later attempts in order.
//! 3. The crowd ends with its last attempt.
//!
//! Each crowd has its own limit, so a name with a silent server does not delay other names. Acquires without a wait,
//! and waiters that have a queue entry already, are not limited. A second [`Admission`] limits undos.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::hash::ReadyHash;
use crate::names::LockName;

/// Attempts admitted directly, for each connection. All commands in flight on a connection carry fewer attempts, so the
/// limit costs no throughput.
pub(crate) const MOST: usize = 512;

#[derive(Debug)]
pub(crate) struct Admission {
    most: usize,
    under_way: AtomicUsize,
    crowds: Mutex<HashMap<Arc<LockName>, Arc<Semaphore>, ReadyHash>>,
    /// Length of `crowds`, readable without its lock.
    crowded: AtomicUsize,
}

/// An admitted attempt. Its drop makes room for another direct attempt, or another of its crowd.
#[derive(Debug)]
pub(crate) enum Admitted {
    Past(Arc<Admission>),
    /// Boxed because a crowd is rare.
    FromCrowd(#[expect(dead_code, reason = "held for its drop")] Box<Crowder>),
}

#[derive(Debug)]
pub(crate) struct Crowder {
    admission: Arc<Admission>,
    name: Arc<LockName>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Admission {
    /// For a client with this many connections to each server.
    pub(crate) fn new(connections: usize) -> Arc<Self> {
        Self::of(MOST.saturating_mul(connections))
    }

    fn of(most: usize) -> Arc<Self> {
        Arc::new(Self { most, under_way: AtomicUsize::new(0), crowds: Mutex::default(), crowded: AtomicUsize::new(0) })
    }

    /// Admits an attempt. A crowd admits the attempts for its name in order of arrival.
    ///
    /// `within` returns how long to wait for admission. After each such wait it is called again, and the attempt keeps
    /// its place. If `within` returns None, the attempt is not admitted.
    ///
    /// # Cancel safety
    ///
    /// A dropped future leaves nothing behind.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        name: &Arc<LockName>,
        within: impl FnMut() -> Option<Duration>,
    ) -> Option<Admitted> {
        if self.crowded.load(Ordering::Relaxed) == 0
            && let Some(admitted) = self.admit_past()
        {
            return Some(admitted);
        }
        // Boxed because a crowd is rare, and this future would make every acquire larger.
        Box::pin(self.admit_from_crowd(name, within)).await
    }

    fn admit_past(self: &Arc<Self>) -> Option<Admitted> {
        let below = |count: usize| (count < self.most).then_some(count + 1);
        self.under_way.fetch_update(Ordering::Relaxed, Ordering::Relaxed, below).ok()?;
        Some(Admitted::Past(Arc::clone(self)))
    }

    async fn admit_from_crowd(
        self: &Arc<Self>,
        name: &Arc<LockName>,
        mut within: impl FnMut() -> Option<Duration>,
    ) -> Option<Admitted> {
        let (mut crowder, semaphore) = {
            let mut crowds = self.crowds.lock();
            // An attempt whose name has a crowd never overtakes that crowd.
            if !crowds.contains_key(name)
                && let Some(admitted) = self.admit_past()
            {
                return Some(admitted);
            }
            let semaphore = crowds.entry(Arc::clone(name)).or_insert_with(|| Arc::new(Semaphore::new(self.most)));
            let semaphore = Arc::clone(semaphore);
            self.crowded.store(crowds.len(), Ordering::Relaxed);
            (Crowder { admission: Arc::clone(self), name: Arc::clone(name), permit: None }, semaphore)
        };
        let mut acquiring = std::pin::pin!(semaphore.acquire_owned());
        let permit = loop {
            if let Ok(permit) = tokio::time::timeout(within()?, &mut acquiring).await {
                break permit;
            }
        };
        crowder.permit = Some(permit.ok()?);
        Some(Admitted::FromCrowd(Box::new(crowder)))
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        if let Self::Past(admission) = self {
            admission.under_way.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Crowder {
    fn drop(&mut self) {
        // The permit holds an `Arc` of the semaphore, so it is dropped before `strong_count`.
        self.permit = None;
        let mut crowds = self.admission.crowds.lock();
        if crowds.get(&self.name).is_some_and(|crowd| Arc::strong_count(crowd) == 1) {
            crowds.remove(&self.name);
            if crowds.is_empty() {
                crowds.shrink_to_fit();
            }
            self.admission.crowded.store(crowds.len(), Ordering::Relaxed);
        }
    }
}

/// For [`Admission::admit`]: waits once, for this long.
pub(crate) fn once(most: Duration) -> impl FnMut() -> Option<Duration> {
    let mut left = Some(most);
    move || left.take()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn name(text: &str) -> Arc<LockName> {
        LockName::new("", text)
    }

    fn is_clean(admission: &Admission) -> bool {
        let none = admission.crowds.lock().is_empty() && admission.crowded.load(Ordering::Relaxed) == 0;
        none && admission.under_way.load(Ordering::Relaxed) == 0
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_for_one_crowded_name_are_admitted_in_order() {
        let (admission, name) = (Admission::of(1), name("a"));
        let mut admitted = vec![admission.admit(&name, once(SECOND)).await, admission.admit(&name, once(SECOND)).await];
        assert!(admitted.iter().all(Option::is_some), "one past the crowd, and one of it");
        let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(admission.admit(&name, once(SECOND)))).collect();
        for waiter in &mut waiting {
            assert!(futures::poll!(waiter).is_pending());
        }
        // The attempt that was admitted directly frees no permit of the crowd, and new attempts for the name still
        // queue.
        admitted.remove(0);
        assert!(futures::poll!(&mut waiting[0]).is_pending());
        assert!(futures::poll!(Box::pin(admission.admit(&name, once(SECOND)))).is_pending());
        for waiter in waiting {
            admitted.clear();
            admitted.push(waiter.await);
            assert!(admitted[0].is_some());
        }
        drop(admitted);
        assert!(is_clean(&admission));
    }

    #[tokio::test(start_paused = true)]
    async fn crowded_name_does_not_delay_other_names() {
        let (admission, crowded, other) = (Admission::of(2), name("a"), name("b"));
        let mut all = Vec::new();
        for _ in 0..4 {
            all.push(admission.admit(&crowded, once(SECOND)).await);
        }
        assert!(admission.admit(&crowded, once(SECOND)).await.is_none(), "not in time");
        let (began, mut seconds) = (tokio::time::Instant::now(), 0);
        let within = || {
            seconds += 1;
            (seconds <= 3).then_some(SECOND)
        };
        assert!(admission.admit(&crowded, within).await.is_none(), "as long as it is told to");
        assert_eq!(began.elapsed().as_secs(), 3);
        for _ in 0..2 {
            all.push(admission.admit(&other, once(Duration::ZERO)).await);
        }
        assert!(all.iter().all(Option::is_some));
        drop(all);
        assert!(is_clean(&admission));
    }

    #[tokio::test(start_paused = true)]
    async fn dropped_attempt_frees_its_permit() {
        let (admission, name) = (Admission::of(1), name("a"));
        let first = (admission.admit(&name, once(SECOND)).await, admission.admit(&name, once(SECOND)).await);
        let mut waiting = [(); 3].map(|()| Box::pin(admission.admit(&name, once(SECOND))));
        for waiter in &mut waiting {
            assert!(futures::poll!(waiter).is_pending());
        }
        let [leaves, comes, late] = waiting;
        drop(leaves);
        // The drop of `first` admits `comes`, which is dropped before it is polled again.
        drop(first);
        drop(comes);
        assert!(late.await.is_some());
        assert!(is_clean(&admission));
    }
}
