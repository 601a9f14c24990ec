//! Calls about all permits of a name: their number, their holders, and permits that other processes hold.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;

use super::protocol::{self, COUNT, DELETE, HOLDERS, RELEASE, SET};
use super::{HeldPermit, MOST, PermitCounts, PermitId, Permits, id};
use crate::config::{check_lease, millis};
use crate::engine::change::Change;
use crate::error::{Error, Result};
use crate::transport::{Arg, Call, Reply};

/// Number of permits that [`Permits::holders`] reads in one command.
const PAGE: usize = 500;

/// # The number of permits, and their holders
impl Permits {
    /// Sets the number of permits if none is set. Otherwise changes nothing and returns false.
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
        self.set("new", n.into()).await
    }

    /// Sets the total: free plus held permits. While more than `n` permits are held, [`PermitCounts::available`] is
    /// negative.
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
    /// ([`Error::outcome_unknown`]), the call may be repeated.
    pub async fn set_permits(&self, n: u32) -> Result<()> {
        self.set("total", n.into()).await.map(drop)
    }

    /// Adds permits, or removes them if `n` is negative.
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
    /// unknown outcome ([`Error::outcome_unknown`]), read [`counts`](Self::counts) before a repeat.
    pub async fn add_permits(&self, n: i32) -> Result<()> {
        self.set("add", n.into()).await.map(drop)
    }

    async fn set(&self, what: &'static str, n: i64) -> Result<bool> {
        let args = vec![Arg::Text(Bytes::from_static(what.as_bytes())), Arg::Int(n)];
        let change = Change { script: &SET, keys: self.keys(), args, publishes: true };
        self.client.engine().change_if(&self.name, change).await
    }

    /// Returns how many permits are free and how many are held. Expired permits count as free.
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
    pub async fn counts(&self) -> Result<PermitCounts> {
        let words = self.keys().into_iter().map(Arg::Text).collect();
        let reply = self.client.engine().ask(&self.name, Call { script: &COUNT, keys: 2, words }).await?;
        match &reply {
            Reply::List(parts) => match parts.as_slice() {
                [Reply::Int(available), Reply::Int(acquired @ 0..)] => {
                    Ok(PermitCounts { available: *available, acquired: acquired.unsigned_abs() })
                }
                _ => Err(self.odd(COUNT.name, &reply)),
            },
            _ => Err(self.odd(COUNT.name, &reply)),
        }
    }

    fn odd(&self, script: &str, reply: &Reply) -> Error {
        Error::odd_reply(script, reply).about(&self.name.as_written)
    }

    /// Lists the held permits by the end of their lease, earliest first.
    ///
    /// # Cost
    ///
    /// One round trip and one command for each 500 permits.
    ///
    /// # Cancel safety
    ///
    /// Only reads.
    ///
    /// # Errors
    ///
    /// As for [`DistLock::acquire`](crate::DistLock::acquire).
    pub async fn holders(&self) -> Result<Vec<HeldPermit>> {
        let mut all: Vec<HeldPermit> = Vec::new();
        // `from`: end of the last listed lease. `skip`: number of listed permits with this end. The next page begins
        // after them.
        let (mut from, mut skip) = (0.0, 0);
        loop {
            let page = [Arg::Int(from as i64), Arg::Int(skip), Arg::Int(PAGE as i64)];
            let words = std::iter::once(Arg::Text(self.leases.clone())).chain(page).collect();
            let reply = self.client.engine().ask(&self.name, Call { script: &HOLDERS, keys: 1, words }).await?;
            let held = protocol::held(&reply).ok_or_else(|| self.odd(HOLDERS.name, &reply))?;
            for (permit, end) in &held {
                skip = if *end == from { skip + 1 } else { 1 };
                from = *end;
                all.push(permit.clone());
            }
            if held.len() < PAGE {
                break;
            }
        }
        // A permit that was renewed between two pages is listed twice. Its last entry is the current one.
        let mut seen = HashSet::new();
        all.reverse();
        all.retain(|permit| seen.insert(permit.id));
        all.reverse();
        Ok(all)
    }

    /// Releases the permits with these ids, all or none. Any process may hold them. If one of them is not held, changes
    /// nothing and returns false.
    ///
    /// A renewed guard detects this at its next renewal. It is then lost, and its remaining permits are released. A
    /// guard with an explicit lease is not renewed, so it usually does not notice.
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
    /// [`Error::Config`] for more than 1000 ids; the errors of [`DistLock::acquire`](crate::DistLock::acquire). After
    /// an unknown outcome ([`Error::outcome_unknown`]), the call may be repeated: no permit is released twice. If the
    /// first copy took effect, the repeat returns false.
    pub async fn release_ids(&self, ids: &[PermitId]) -> Result<bool> {
        if ids.is_empty() {
            return Ok(true);
        }
        self.check_ids(ids)?;
        let change = protocol::release(self.keys(), id::joined(ids));
        match self.client.engine().change(&self.name, change).await? {
            Reply::Nil => Ok(false),
            Reply::Int(..=0) => Ok(true),
            Reply::List(parts) if matches!(parts.as_slice(), [Reply::Int(0), Reply::Text(_)]) => Ok(true),
            odd => Err(self.odd(RELEASE.name, &odd)),
        }
    }

    /// Sets the lease of the permits with these ids to `lease` from now. Any process may hold them. If one of them is
    /// not held, changes nothing and returns false. This is Redisson's `updateLeaseTime`.
    ///
    /// Do not shorten the lease of a permit whose guard is alive. The guard reports the permit as held until its next
    /// renewal, although another process may have acquired it. A guard with an explicit lease is not renewed, so it
    /// usually does not notice.
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
    /// [`Error::Config`] if the lease is shorter than 3 ms or longer than ten years, or for more than 1000 ids; the
    /// errors of [`DistLock::acquire`](crate::DistLock::acquire). After an unknown outcome
    /// ([`Error::outcome_unknown`]), the call may be repeated. The repeat sets the lease again, and returns true if the
    /// permits are held.
    pub async fn extend_ids(&self, ids: &[PermitId], lease: Duration) -> Result<bool> {
        check_lease(lease)?;
        self.check_ids(ids)?;
        if ids.is_empty() {
            return Ok(true);
        }
        let change = protocol::extend(self.keys(), id::joined(ids), millis(lease));
        self.client.engine().change_if(&self.name, change).await
    }

    fn check_ids(&self, ids: &[PermitId]) -> Result<()> {
        if ids.len() > MOST as usize {
            let what = format!("{} permit ids for {:?}: at most {MOST} per call", ids.len(), self.name());
            return Err(Error::Config { what });
        }
        Ok(())
    }

    /// Deletes the permits and their number. Returns false if no key existed. Waiters wait until a number is set again.
    ///
    /// A renewed guard detects this at its next renewal, and is then lost. A guard with an explicit lease usually does
    /// not notice.
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
        let change = Change { script: &DELETE, keys: self.keys(), args: Vec::new(), publishes: false };
        self.client.engine().change_if(&self.name, change).await
    }
}
