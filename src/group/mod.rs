//! Helpers shared by the group locks (multi, RedLock, striped): requests to several locks at once, and their errors.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;

use crate::acquire::Acquire;
use crate::engine::wait::{Deadline, GRACE};
use crate::error::{Error, Result, Step};
use crate::guard::{Guard, enough};
use crate::lock::{DistLock, Part};
use crate::owner::{Owner, Owners, client_id};
use crate::state::State;
use crate::world::{Machine, World};

mod inside;

pub(crate) use inside::{first_part, home, part, parts};

/// Pending attempts, each with the index of its lock in the group. Dropped attempts are undone.
pub(crate) type Asking = FuturesUnordered<BoxFuture<'static, (usize, Result<Option<Guard>>)>>;

/// Starts an attempt at lock number `at`. Sends nothing before the first poll.
pub(crate) fn ask(
    lock: &Arc<dyn DistLock>,
    at: usize,
    how: Acquire,
) -> BoxFuture<'static, (usize, Result<Option<Guard>>)> {
    let lock = Arc::clone(lock);
    Box::pin(async move { (at, lock.acquire(how).await) })
}

/// Options for the acquire of one member. `asked`: the options of the whole group's acquire.
pub(crate) fn how(owner: &Owner, asked: &Acquire, deadline: &Deadline) -> Acquire {
    Acquire {
        wait: None,
        lease: asked.lease,
        lock_delay: Duration::ZERO,
        owner: Some(owner.clone()),
        not_reentrant: asked.not_reentrant,
        holds_nothing: asked.owner.is_none() && Owner::current().is_none(),
        is_inner: true,
        waited_before: deadline.waited(),
        ends_with_failure: false,
    }
}

/// Returns the clock and the random numbers for these locks, from the client of their first part (see `inside.rs`).
pub(crate) fn world(locks: &[Arc<dyn DistLock>]) -> Arc<dyn World> {
    first_part(locks).map_or_else(|| Arc::new(Machine) as _, |part| Arc::clone(part.client.engine().topology.world()))
}

pub(crate) fn deadline(locks: &[Arc<dyn DistLock>], asked: &Acquire) -> Deadline {
    Deadline::new(&world(locks), asked.wait, asked.waited_before)
}

/// Returns a new owner for the whole group.
pub(crate) fn owner(locks: &[Arc<dyn DistLock>]) -> Owner {
    match first_part(locks) {
        Some(part) => part.client.engine().group_owner(),
        // An empty group cannot be acquired, so this owner never holds anything.
        None => Owners::new(&client_id(&Machine)).fresh(),
    }
}

/// Returns how long operations on these locks are retried after temporary errors: the longest time of all their
/// clients.
pub(crate) fn patience(locks: &[Arc<dyn DistLock>]) -> Duration {
    let each = parts(locks).into_iter().map(|part| part.client.engine().patience());
    each.max().unwrap_or(Duration::from_secs(20))
}

/// Returns true if, at the end of the wait, more than `most` of these locks were at a *silent* server, whose reply was
/// overdue.
pub(crate) async fn are_silent(locks: &[Arc<dyn DistLock>], most: usize, deadline: &Deadline) -> bool {
    let is_silent = |lock: &Arc<dyn DistLock>, at| {
        let mut parts = parts(slice::from_ref(lock)).into_iter();
        parts.any(|part| part.client.engine().topology.is_silent(part.protocol.name(), at))
    };
    deadline.finds_silent(GRACE, |at| locks.iter().filter(|lock| is_silent(lock, at)).count() > most).await
}

/// The error that says why an answer about these locks did not arrive in time.
pub(crate) fn missing(locks: &[Arc<dyn DistLock>]) -> Error {
    let each = parts(locks).into_iter().map(|part| part.client.engine().topology.missing(part.protocol.name()));
    let mut known = each.filter(|error| !matches!(error, Error::Timeout { .. }));
    known.next().unwrap_or_else(|| unanswered(locks))
}

/// The timeout error for a reply about these locks. It names the lock and its server if there is only one lock,
/// otherwise a lock at a silent server, if any.
pub(crate) fn unanswered(locks: &[Arc<dyn DistLock>]) -> Error {
    let parts = parts(locks);
    let is_silent = |part: &&Part| {
        let topology = &part.client.engine().topology;
        topology.is_silent(part.protocol.name(), topology.now())
    };
    let error = Error::timeout(Step::Command);
    match if locks.len() == 1 { parts.first() } else { parts.iter().find(is_silent) } {
        Some(part) => part.client.engine().topology.named(error, part.protocol.name()),
        None => error,
    }
}

/// Outcome of an attempt at these locks that the end of the wait cut off. Usually `Ok`: the wait has run out. An error
/// if the acquire makes only one attempt, if a server was silent, or if something is known to be missing, such as a
/// connection.
pub(crate) async fn cut_off(locks: &[Arc<dyn DistLock>], deadline: &Deadline) -> Result<()> {
    let silent = deadline.is_once() || are_silent(locks, 0, deadline).await;
    match missing(locks) {
        Error::Timeout { .. } if !silent => Ok(()),
        missing => Err(missing),
    }
}

/// Back-off after failures of a group: the first and the longest pause.
pub(crate) const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// Sends a request to each lock, and waits for all answers.
pub(crate) async fn each<T>(
    locks: &[Arc<dyn DistLock>],
    ask: impl Fn(Arc<dyn DistLock>) -> BoxFuture<'static, Result<T>>,
) -> Result<Vec<T>> {
    enough(locks.iter().map(|lock| ask(Arc::clone(lock))).collect(), locks.len(), true).await
}

/// Returns the owners that hold at least `needed` members, and so the group. `states`: the states of the members that
/// answered.
pub(crate) fn common(states: Vec<State>, needed: usize) -> State {
    let mut holders: Vec<(String, u64, usize)> = Vec::new();
    let mut remaining: Vec<Duration> = Vec::new();
    for state in states {
        if state.is_locked() {
            remaining.push(state.remaining.unwrap_or(Duration::MAX));
        }
        for (holder, count) in state.holders {
            match holders.iter_mut().find(|(known, ..)| *known == holder) {
                Some((_, least, times)) => {
                    *least = count.min(*least);
                    *times += 1;
                }
                None => holders.push((holder, count, 1)),
            }
        }
    }
    holders.retain(|(.., times)| *times >= needed);
    remaining.sort_unstable_by(|a, b| b.cmp(a));
    let remaining = remaining.get(needed - 1).copied().filter(|left| !holders.is_empty() && *left != Duration::MAX);
    State { holders: holders.into_iter().map(|(holder, count, _)| (holder, count)).collect(), remaining }
}
