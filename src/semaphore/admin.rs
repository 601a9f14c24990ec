//! Calls that read or change the free count: the number of free permits.

use std::time::Duration;

use bytes::Bytes;

use super::Semaphore;
use crate::config::{check_lease, millis};
use crate::engine::change::Change;
use crate::error::{Error, Result};
use crate::transport::script::Script;
use crate::transport::{Arg, Call, Reply};

static SET: Script = Script::new("semaphore/set", include_str!("../../lua/semaphore/set.lua")).announcing();
static NUMBER: Script = Script::new("common/number", include_str!("../../lua/common/number.lua")).reading();

/// # The free count: the number of free permits
impl Semaphore {
    /// Sets the free count if none is set. Otherwise changes nothing and returns false.
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
    /// The errors of [`DistLock::acquire`](crate::DistLock::acquire). After an unknown outcome
    /// ([`Error::outcome_unknown`]), the call may be repeated. If the first copy took effect, the repeat returns false.
    pub async fn try_set_permits(&self, n: u32) -> Result<bool> {
        self.set_if("new", n.into(), 0).await
    }

    /// Sets the free count if none is set, with an expiry: Redis deletes it after `ttl`. Otherwise changes nothing and
    /// returns false.
    ///
    /// # Cost
    ///
    /// As [`try_set_permits`](Self::try_set_permits).
    ///
    /// # Cancel safety
    ///
    /// Once begun, it is completed.
    ///
    /// # Errors
    ///
    /// As for [`try_set_permits`](Self::try_set_permits), and [`Error::Config`] if `ttl` is shorter than 3 ms or longer
    /// than ten years.
    pub async fn try_set_permits_for(&self, n: u32, ttl: Duration) -> Result<bool> {
        check_lease(ttl)?;
        self.set_if("new", n.into(), millis(ttl)).await
    }

    /// Overwrites the free count. Taken permits are not subtracted.
    ///
    /// # Cost
    ///
    /// As [`try_set_permits`](Self::try_set_permits).
    ///
    /// # Cancel safety
    ///
    /// Once begun, it is completed.
    ///
    /// # Errors
    ///
    /// The errors of [`DistLock::acquire`](crate::DistLock::acquire). After an unknown outcome
    /// ([`Error::outcome_unknown`]), the call may be repeated. The repeat overwrites the free count again.
    pub async fn set_permits(&self, n: u32) -> Result<()> {
        self.set_if("value", n.into(), 0).await.map(drop)
    }

    /// Adds permits, or removes them if `n` is negative. The free count may become negative.
    ///
    /// # Cost
    ///
    /// As [`try_set_permits`](Self::try_set_permits).
    ///
    /// # Cancel safety
    ///
    /// Once begun, it is completed.
    ///
    /// # Errors
    ///
    /// The errors of [`DistLock::acquire`](crate::DistLock::acquire). The command takes effect at most once. After an
    /// unknown outcome ([`Error::outcome_unknown`]), read [`available`](Self::available) before a repeat.
    pub async fn add_permits(&self, n: i32) -> Result<()> {
        self.set_if("add", n.into(), 0).await.map(drop)
    }

    /// Takes all free permits. Returns the free count before, which may be negative. The free count is 0 afterwards.
    ///
    /// # Cost
    ///
    /// As [`try_set_permits`](Self::try_set_permits).
    ///
    /// # Cancel safety
    ///
    /// If dropped, the drain still runs. The drained permits stay taken.
    ///
    /// # Errors
    ///
    /// As for [`add_permits`](Self::add_permits).
    pub async fn drain(&self) -> Result<i64> {
        let reply = self.client.engine().change(&self.name, self.change("drain", 0, 0)).await?;
        match &reply {
            Reply::List(parts) => match parts.as_slice() {
                [Reply::Int(n)] => Ok(*n),
                _ => Err(self.odd(&SET, &reply)),
            },
            _ => Err(self.odd(&SET, &reply)),
        }
    }

    /// Returns the free count; 0 if none is set.
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
    pub async fn available(&self) -> Result<i64> {
        let call = Call { script: &NUMBER, keys: 1, words: vec![Arg::Text(self.name.key.clone())] };
        let reply = self.client.engine().ask(&self.name, call).await?;
        number_of(&reply).ok_or_else(|| self.odd(&NUMBER, &reply))
    }

    /// Deletes the free count. Returns false if none was set. Waiters wait until permits are set or added.
    ///
    /// # Cost
    ///
    /// As [`try_set_permits`](Self::try_set_permits).
    ///
    /// # Cancel safety
    ///
    /// Once begun, it is completed.
    ///
    /// # Errors
    ///
    /// As for [`try_set_permits`](Self::try_set_permits).
    pub async fn delete(&self) -> Result<bool> {
        self.set_if("delete", 0, 0).await
    }

    async fn set_if(&self, what: &'static str, n: i64, ttl_ms: i64) -> Result<bool> {
        self.client.engine().change_if(&self.name, self.change(what, n, ttl_ms)).await
    }

    fn change(&self, what: &'static str, n: i64, ttl_ms: i64) -> Change {
        let args = vec![Arg::Text(Bytes::from_static(what.as_bytes())), Arg::Int(n), Arg::Int(ttl_ms)];
        Change { script: &SET, keys: vec![self.name.key.clone()], args, publishes: true }
    }

    fn odd(&self, script: &Script, reply: &Reply) -> Error {
        Error::odd_reply(script.name, reply).about(&self.name.as_written)
    }
}

/// Reads a number that Redis stores as text. No key counts as 0.
fn number_of(reply: &Reply) -> Option<i64> {
    match reply {
        Reply::Nil => Some(0),
        Reply::Text(text) => std::str::from_utf8(text).ok()?.parse().ok(),
        Reply::Int(_) | Reply::List(_) => None,
    }
}
