//! The queue of a fair lock, as users see it.

use std::time::Duration;

use bytes::Bytes;

use super::FairLock;
use crate::engine::change::Change;
use crate::error::{Error, Result};
use crate::names::LockName;
use crate::owner::Owner;
use crate::transport::script::Script;
use crate::transport::{Arg, Call, Reply};

static WAITERS: Script = Script::new("fair/waiters", include_str!("../../lua/fair/waiters.lua")).reading();
static DEQUEUE: Script = Script::new("fair/dequeue", script!("remove", "dequeue"));

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

    /// Removes a waiter of any client from the queue. Returns the number of waiters that were ahead of it; `None` if
    /// `owner` does not wait. `owner` is the text of [`Waiter::owner`].
    ///
    /// Use it for dead waiters of Java, which keep their places for minutes. A live waiter queues again, at the end.
    /// The owner's holds stay. If the lock is free, the next waiter is served.
    ///
    /// # Cost
    ///
    /// One round trip, one command.
    ///
    /// # Cancel safety
    ///
    /// Once begun, it may take effect.
    ///
    /// # Errors
    ///
    /// As for [`force_unlock`](crate::DistLock::force_unlock).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(lock: distlock::FairLock) -> distlock::Result<()> {
    /// // The next waiter died with its process.
    /// if let Some(dead) = lock.queue().await?.waiters.first() {
    ///     lock.dequeue(&dead.owner).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn dequeue(&self, owner: &str) -> Result<Option<usize>> {
        let (engine, name) = (self.client().engine(), self.protocol().name());
        // Always there: a fair lock has a queue.
        let Some(queue) = self.protocol().queue() else { return Ok(None) };
        let mut args = vec![Arg::Text(Bytes::copy_from_slice(owner.as_bytes()))];
        args.extend(queue.args(engine.topology.publish()));
        args.push(Arg::Text(queue.channels.clone()));
        let change = Change { script: &DEQUEUE, keys: queue.keys.to_vec(), args, publishes: false };
        match engine.change(name, change).await? {
            Reply::Int(position @ 0..) => Ok(usize::try_from(position).unwrap_or(usize::MAX).checked_sub(1)),
            odd => Err(Error::odd_reply(DEQUEUE.name, &odd).about(&name.as_written)),
        }
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
