//! Latches: tasks wait until a count is zero. Redisson's `RCountDownLatch`.
//!
//! A latch has no holders and no lease. If a process dies before it counts down, the count stays above zero.
//!
//! At zero the latch is deleted. Its name can then be used for a new latch.
//!
//! A message wakes waiters. If the message is lost, they find out at their next query, at the latest after
//! [`poll_cap`](crate::Options::poll_cap).
//!
//! # Wire format
//!
//! As Redisson's: the count is a string under `<name>`; no key means zero. The channel is
//! `redisson_countdownlatch__channel__{<name>}`. The message is `0` when the count reaches zero, and `1` when it is
//! set. Difference: [`Latch::delete`] sends `0`, which wakes Redisson's waiters too. After Redisson's own delete they
//! never return.
//!
//! A count down carries a token, like the commands of [semaphores](mod@crate::semaphore#lost-replies).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::client::Client;
use crate::engine::change::Change;
use crate::engine::once::{Command, exactly_once};
use crate::engine::wait::Looking;
use crate::error::{Error, Result};
use crate::names::LockName;
use crate::runtime::reaper::Finished;
use crate::transport::script::Script;
use crate::transport::{Arg, Call, Reply};

static DOWN: Script = Script::new(
    "latch/down",
    concat!(include_str!("../../lua/common/once.lua"), include_str!("../../lua/latch/down.lua")),
)
.announcing();
static SET: Script = Script::new("latch/set", include_str!("../../lua/latch/set.lua")).announcing();
static COUNT: Script = Script::new("common/number", include_str!("../../lua/common/number.lua")).reading();

/// # Latches
impl Client {
    /// Returns the latch of this name: Redisson's `getCountDownLatch(name)`.
    ///
    /// # Cost
    ///
    /// None. An invalid name is refused by the first call that sends a command.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: distlock::Client) -> distlock::Result<()> {
    /// let imported = client.latch("import:2026-11-29");
    /// imported.try_set(3).await?; // three parts
    ///
    /// imported.count_down(1).await?; // by each part, in any process
    /// imported.wait().await?; // until all three parts are done
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn latch(&self, name: &str) -> Latch {
        Latch { client: self.clone(), name: LockName::of_latch(&self.options().name_prefix, name) }
    }
}

/// A count that tasks wait for. The [module](self) describes it. Cheap to clone.
#[derive(Clone)]
pub struct Latch {
    client: Client,
    name: Arc<LockName>,
}

impl Latch {
    /// Returns the name, without the client's prefix.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name.as_written
    }

    /// Sets the count if none is set. Otherwise changes nothing and returns false.
    ///
    /// # Cost
    ///
    /// One round trip, one command. One more of each if the client has not learned the server's time for a minute.
    ///
    /// # Cancel safety
    ///
    /// Once begun, it is completed.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if `n` is 0, because a key with the count 0 would make later calls return false; the errors of
    /// [`DistLock::acquire`](crate::DistLock::acquire). After an unknown outcome ([`Error::outcome_unknown`]), the call
    /// may be repeated. If the first copy took effect, the repeat returns false.
    pub async fn try_set(&self, n: u32) -> Result<bool> {
        if n == 0 {
            return Err(Error::config(format!("the latch {:?}: the count must be at least 1", self.name())));
        }
        self.set(Bytes::from(n.to_string())).await
    }

    /// Deletes the latch and wakes all waiters. Their waits end as if the count had reached zero. Returns false if no
    /// count was set.
    ///
    /// # Cost
    ///
    /// As [`try_set`](Self::try_set).
    ///
    /// # Cancel safety
    ///
    /// Once begun, it is completed.
    ///
    /// # Errors
    ///
    /// The errors of [`DistLock::acquire`](crate::DistLock::acquire). After an unknown outcome
    /// ([`Error::outcome_unknown`]), the call may be repeated. If the first copy took effect, the repeat returns false.
    pub async fn delete(&self) -> Result<bool> {
        self.set(Bytes::from_static(b"delete")).await
    }

    async fn set(&self, what: Bytes) -> Result<bool> {
        let (keys, args) = (vec![self.name.key.clone()], vec![Arg::Text(what)]);
        self.client.engine().change_if(&self.name, Change { script: &SET, keys, args, publishes: true }).await
    }

    /// Counts down by `k`, but not below zero. Returns the count that is left. At zero, the waiters of all processes
    /// return.
    ///
    /// # Cost
    ///
    /// As [`try_set`](Self::try_set).
    ///
    /// # Cancel safety
    ///
    /// Once begun, it is completed.
    ///
    /// # Errors
    ///
    /// The errors of [`DistLock::acquire`](crate::DistLock::acquire). If the outcome is unknown
    /// ([`Error::outcome_unknown`]), the count down continues in the background: do not repeat it. After any other
    /// error nothing was changed: repeat it.
    pub async fn count_down(&self, k: u32) -> Result<u64> {
        let engine = Arc::clone(self.client.engine());
        engine.check(&self.name)?;
        if k == 0 {
            return self.count().await;
        }
        let (name, reaper) = (Arc::clone(&self.name), engine.reaper.clone());
        let down = async move {
            let down = Command::new(&DOWN, [Arg::Int(k.into())]);
            let left = exactly_once(&engine, &name, down, None, engine.patience()).await?;
            Ok(u64::try_from(left).unwrap_or(0))
        };
        Finished::new(&reaper, down).await
    }

    /// Returns the count. 0 means that the latch is open: the count has reached zero, or none was set.
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
    pub async fn count(&self) -> Result<u64> {
        let reply = self.client.engine().ask(&self.name, number(&self.name)).await?;
        read(&reply, &self.name)
    }

    /// Waits until the count is zero. An unset latch is open, so a wait before [`try_set`](Self::try_set) returns at
    /// once.
    ///
    /// # Cost
    ///
    /// One round trip, one command if the count is zero. All waiting tasks of this process share one subscription, and
    /// one of them sends the queries for all.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    ///
    /// # Errors
    ///
    /// As for [`DistLock::acquire`](crate::DistLock::acquire).
    pub async fn wait(&self) -> Result<()> {
        if self.wait_at_most(None).await? { Ok(()) } else { Err(Error::Closed) }
    }

    /// Waits until the count is zero, for at most `wait`. Returns false if the wait ran out.
    ///
    /// # Cost
    ///
    /// As [`wait`](Self::wait).
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    ///
    /// # Errors
    ///
    /// As for [`wait`](Self::wait).
    pub async fn wait_for(&self, wait: Duration) -> Result<bool> {
        self.wait_at_most(Some(wait)).await
    }

    async fn wait_at_most(&self, wait: Option<Duration>) -> Result<bool> {
        let engine = self.client.engine();
        let (owned, name) = (Arc::clone(engine), Arc::clone(&self.name));
        let look = Box::new(move || {
            let (engine, name) = (Arc::clone(&owned), Arc::clone(&name));
            let look = async move {
                let reply = engine.run(&name, number(&name)).await?;
                Ok((read(&reply, &name)? == 0).then_some(()))
            };
            Box::pin(look) as _
        });
        let looking = Looking { look, for_all: Some(|| ()), every: None };
        Ok(engine.look(&self.name, wait, looking).await?.is_some())
    }
}

fn number(name: &LockName) -> Call {
    Call { script: &COUNT, keys: 1, words: vec![Arg::Text(name.key.clone())] }
}

/// Reads the count. A count below zero counts as zero. Only another program can write it.
fn read(reply: &Reply, name: &LockName) -> Result<u64> {
    let count = match reply {
        Reply::Nil => Some(0),
        Reply::Text(text) => std::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok()),
        Reply::Int(_) | Reply::List(_) => None,
    };
    let count = count.ok_or_else(|| Error::odd_reply(COUNT.name, reply).about(&name.as_written))?;
    Ok(u64::try_from(count).unwrap_or(0))
}

impl fmt::Debug for Latch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latch").field("client", &self.client).field("name", &self.name).finish()
    }
}
