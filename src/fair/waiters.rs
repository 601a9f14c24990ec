//! The queue of a fair lock, as users see it.

use std::time::Duration;

use super::FairLock;
use crate::error::{Error, Result};
use crate::names::LockName;
use crate::owner::Owner;
use crate::transport::script::Script;
use crate::transport::{Arg, Call, Reply};

static WAITERS: Script = Script::new("fair/waiters", include_str!("../../lua/fair/waiters.lua")).reading();

/// The waiters of a fair lock, in order, read from the primary in one step.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Queue {
    /// The waiters, the next one first.
    pub waiters: Vec<Waiter>,
}

/// One waiter of a fair lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiter {
    /// The waiter's owner, as stored in Redis.
    pub owner: String,
    /// Time for which the waiter's place lasts without a refresh. Zero if the deadline has passed, `None` if Redis has
    /// no deadline for this waiter.
    pub remaining: Option<Duration>,
}

impl Queue {
    /// Returns the number of waiters.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Returns true if nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Returns the number of waiters ahead of `owner`; `None` if `owner` does not wait.
    #[must_use]
    pub fn position(&self, owner: &Owner) -> Option<usize> {
        self.waiters.iter().position(|waiter| waiter.owner == owner.text())
    }
}

/// # The queue
impl FairLock {
    /// Returns the waiters, in order.
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
    /// As [`acquire`](crate::DistLock::acquire).
    pub async fn queue(&self) -> Result<Queue> {
        let reply = self.ask(call(self.protocol().name())).await?;
        read(&reply).ok_or_else(|| Error::odd_reply(WAITERS.name, &reply))
    }

    /// Returns the number of waiters. Cost, cancel safety and errors as for [`queue`](Self::queue).
    pub async fn queue_len(&self) -> Result<usize> {
        Ok(self.queue().await?.len())
    }

    /// Returns the number of waiters ahead of `owner`; `None` if `owner` does not wait. Cost, cancel safety and
    /// errors as for [`queue`](Self::queue).
    pub async fn position(&self, owner: &Owner) -> Result<Option<usize>> {
        Ok(self.queue().await?.position(owner))
    }
}

fn call(name: &LockName) -> Call {
    Call { script: &WAITERS, keys: 2, words: vec![Arg::Text(name.queue()), Arg::Text(name.deadlines())] }
}

fn read(reply: &Reply) -> Option<Queue> {
    let Reply::List(parts) = reply else { return None };
    let (Reply::Int(at), pairs) = parts.split_first()? else { return None };
    let mut waiters = Vec::with_capacity(pairs.len() / 2);
    for pair in pairs.chunks(2) {
        let [Reply::Text(owner), Reply::Text(due)] = pair else { return None };
        let due: Option<f64> = std::str::from_utf8(due).ok().and_then(|due| due.parse().ok());
        let left = |due: f64| Duration::try_from_secs_f64((due - *at as f64) / 1000.0).unwrap_or_default();
        waiters.push(Waiter { owner: String::from_utf8_lossy(owner).into_owned(), remaining: due.map(left) });
    }
    Some(Queue { waiters })
}
