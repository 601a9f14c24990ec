//! Who waits for a fair lock.

use std::time::Duration;

use super::FairLock;
use crate::error::{Error, Result};
use crate::names::LockName;
use crate::owner::Owner;
use crate::transport::script::Script;
use crate::transport::{Arg, Call, Reply};

static WAITERS: Script = Script::new("fair/waiters", include_str!("../../lua/fair/waiters.lua")).reading();

/// Who waits for a fair lock, in order, read from the primary in one step.
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
    /// Its owner, as it stands in Redis.
    pub owner: String,
    /// For how long its place lasts if nobody refreshes it; zero when that is over, `None` when nothing says so.
    pub remaining: Option<Duration>,
}

impl Queue {
    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiters.len()
    }

    /// True when nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// How many are ahead of `owner`; `None` when it does not wait.
    #[must_use]
    pub fn position(&self, owner: &Owner) -> Option<usize> {
        self.waiters.iter().position(|waiter| waiter.owner == owner.text())
    }
}

/// # The queue
impl FairLock {
    /// Who waits, in order.
    ///
    /// *Cost*: one round trip, one command. *Cancel safety*: reads only. *Errors*: as
    /// [`acquire`](crate::DistLock::acquire).
    pub async fn queue(&self) -> Result<Queue> {
        let reply = self.ask(call(self.protocol().name())).await?;
        read(&reply).ok_or_else(|| Error::odd_reply(WAITERS.name, &reply))
    }

    /// How many wait. Cost, cancel safety and errors as [`queue`](Self::queue).
    pub async fn queue_len(&self) -> Result<usize> {
        Ok(self.queue().await?.len())
    }

    /// How many are ahead of `owner`; `None` when it does not wait. Cost, cancel safety and errors as
    /// [`queue`](Self::queue).
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
