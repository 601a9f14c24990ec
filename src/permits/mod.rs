//! Permits: at most n holders at a time, over all processes. Redisson's `RPermitExpirableSemaphore`.
//!
//! A permit has a lease. The watchdog renews it while its [guard](PermitGuard) lives, so a permit of a dead process is
//! free again when its lease has ended. Redisson has no watchdog for permits; its permits have an explicit lease or none.
//!
//! Somebody sets the number of permits once, before the first acquire ([`Permits::try_set_permits`]). Without it there
//! are no permits, and acquires wait.
//!
//! Inside one process, waiters are served first come, first served. Processes have no order: a request for many permits
//! may wait long while other processes take single permits.
//!
//! # Wire format
//!
//! As Redisson's, with the server's time:
//!
//! | step | `<name>` | `{<name>}:timeout` | message on `redisson_sc:{<name>}` |
//! |---|---|---|---|
//! | first set to n | `n` | | `n` |
//! | change of the number | ± | | permits that are free, if some were added (Redisson: the new total or the added number) |
//! | acquire k | − k | k members (id, 16 bytes), score = end of the lease in ms | permits that are left, if expired ones were returned |
//! | renew, extend | | new scores | |
//! | release k | + k | k members removed | permits that are free |
//!
//! An expired permit stays in the set until the next acquire returns it. A waiter wakes when enough permits have
//! expired for its request. A number that is not positive is never sent, because Redisson's waiters fail on it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::acquire::Acquire;
use crate::client::Client;
use crate::config::{check_lease, millis};
use crate::engine::acquire;
use crate::engine::change::Change;
use crate::engine::protocol::Protocol;
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::names::LockName;
use crate::transport::{Arg, Call, Reply};

mod guard;
mod id;
#[cfg(feature = "tower")]
mod layer;
mod protocol;

pub use guard::PermitGuard;
pub use id::PermitId;
#[cfg(feature = "tower")]
#[cfg_attr(docsrs, doc(cfg(feature = "tower")))]
pub use layer::{Gated, Overloaded, PermitsLayer};
use protocol::{COUNT, DELETE, HOLDERS, RELEASE, SET, Taking};

/// The most permits of one request. Redis stores each permit, so a request's work for the server grows with it.
const MOST: u32 = 1000;

/// The number of permits that [`Permits::holders`] reads in one command.
const PAGE: usize = 500;

/// # Permits
impl Client {
    /// Returns the permits of this name: Redisson's `getPermitExpirableSemaphore(name)`.
    ///
    /// # Cost
    ///
    /// None: nothing is sent until a call. An impossible name is refused then.
    ///
    /// # Examples
    ///
    /// At most 4 conversions at a time, over all replicas of a service:
    ///
    /// ```no_run
    /// # async fn example(client: distlock::Client) -> distlock::Result<()> {
    /// let gate = client.permits("converter");
    /// gate.try_set_permits(4).await?; // no effect if the number is set
    ///
    /// let guard = gate.acquire(1).await?; // waits; renewed in the background while the guard lives
    /// // ... convert ...
    /// guard.release().await?; // or drop it: released in the background
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn permits(&self, name: &str) -> Permits {
        let name = LockName::of_permits(&self.options().name_prefix, name);
        let leases = name.leases();
        Permits { client: self.clone(), name, leases }
    }
}

/// A limited number of permits. The [module](self) describes them and their wire format. Cheap to clone.
#[derive(Clone)]
pub struct Permits {
    client: Client,
    name: Arc<LockName>,
    leases: Bytes,
}

/// A held permit, as [`Permits::holders`] lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldPermit {
    /// The permit's id.
    pub id: PermitId,
    /// The rest of its lease, by the server's clock. `None`: it has no end, which only Redisson grants.
    pub remaining: Option<Duration>,
}

/// The numbers of permits, as [`Permits::counts`] reads them at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PermitCounts {
    /// Permits that can be acquired. Negative while more permits are held than there are in total.
    pub available: i64,
    /// Permits that are held.
    pub acquired: u64,
}

impl PermitCounts {
    /// Returns the number of all permits.
    #[must_use]
    pub const fn total(&self) -> i64 {
        self.available.saturating_add_unsigned(self.acquired)
    }
}

impl Permits {
    /// Returns the name, without the client's prefix.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name.as_written
    }

    /// Acquires `n` permits, all or none. Waits until they are free. The watchdog renews them while the guard lives.
    ///
    /// # Cost
    ///
    /// One round trip, one command if the permits are free. All waiting tasks of this process share one subscription, and
    /// one of them at a time sends commands.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind: an acquire in flight is undone in the background.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if `n` is 0 or above 1000; the errors of [`DistLock::acquire`](crate::DistLock::acquire).
    pub async fn acquire(&self, n: u32) -> Result<PermitGuard> {
        self.acquire_with(n, Acquire::new()).await?.ok_or(Error::Closed)
    }

    /// Acquires `n` permits if they are free now. `None`: they are not.
    ///
    /// # Cost
    ///
    /// One round trip, one command.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Errors
    ///
    /// As for [`acquire`](Self::acquire).
    pub async fn try_acquire(&self, n: u32) -> Result<Option<PermitGuard>> {
        self.acquire_with(n, Acquire::new().wait(Duration::ZERO)).await
    }

    /// Acquires `n` permits, and waits for at most `wait`. `None`: the wait ran out.
    ///
    /// # Cost
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Errors
    ///
    /// As for [`acquire`](Self::acquire).
    pub async fn acquire_for(&self, n: u32, wait: Duration) -> Result<Option<PermitGuard>> {
        self.acquire_with(n, Acquire::new().wait(wait)).await
    }

    /// Acquires `n` permits with a [wait](Acquire::wait) and a [lease](Acquire::lease) of the caller's choice. `None`: the
    /// wait ran out.
    ///
    /// # Cost
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Errors
    ///
    /// As for [`acquire`](Self::acquire), and [`Error::Config`] if `how` names an owner: permits have none.
    pub async fn acquire_with(&self, n: u32, how: Acquire) -> Result<Option<PermitGuard>> {
        if n == 0 || n > MOST {
            return Err(Error::config(format!(
                "a request for {n} permits of {:?}: it must be for 1 to {MOST}",
                self.name()
            )));
        }
        if how.owner.is_some() {
            let what = format!("permits of {:?} have no owner: leave Acquire::owner out", self.name());
            return Err(Error::Config { what });
        }
        let taking = Taking { name: Arc::clone(&self.name), leases: self.leases.clone(), permits: n };
        let protocol: Arc<dyn Protocol> = Arc::new(taking);
        let grant = acquire::acquire(self.client.engine(), &protocol, how).await?;
        Ok(grant.map(|grant| PermitGuard::new(Guard::new(grant, self.client.handle()))))
    }

    /// Sets the number of permits, if no number is set. Returns false if one is set; then nothing is changed.
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
    /// The errors of [`DistLock::acquire`](crate::DistLock::acquire). If the outcome is unknown
    /// ([`Error::outcome_unknown`]), the call may be repeated.
    pub async fn try_set_permits(&self, n: u32) -> Result<bool> {
        self.set("new", n.into()).await
    }

    /// Sets the number of all permits, held ones included. If more are held than `n`, [`available`](PermitCounts) is
    /// negative until enough of them are released.
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
    /// The errors of [`DistLock::acquire`](crate::DistLock::acquire). The command counts once or not at all. If the outcome
    /// is unknown ([`Error::outcome_unknown`]), read [`counts`](Self::counts) before a repeat.
    pub async fn add_permits(&self, n: i32) -> Result<()> {
        self.set("add", n.into()).await.map(drop)
    }

    async fn set(&self, what: &'static str, n: i64) -> Result<bool> {
        let args = vec![Arg::Text(Bytes::from_static(what.as_bytes())), Arg::Int(n)];
        let change = Change { script: &SET, keys: self.keys(), args, publishes: true };
        self.client.engine().change_if(&self.name, change).await
    }

    fn keys(&self) -> Vec<Bytes> {
        vec![self.name.key.clone(), self.leases.clone()]
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

    /// Lists the held permits, those that end first in front.
    ///
    /// # Cost
    ///
    /// One round trip and one command for each 500 permits. A permit that is renewed between two of these commands may
    /// be missing from the list.
    ///
    /// # Cancel safety
    ///
    /// Only reads.
    ///
    /// # Errors
    ///
    /// As for [`DistLock::acquire`](crate::DistLock::acquire).
    pub async fn holders(&self) -> Result<Vec<HeldPermit>> {
        let mut all = Vec::new();
        let mut skipped = 0;
        loop {
            let words = vec![Arg::Text(self.leases.clone()), Arg::Int(skipped as i64), Arg::Int(PAGE as i64)];
            let reply = self.client.engine().ask(&self.name, Call { script: &HOLDERS, keys: 1, words }).await?;
            let (held, of) = protocol::held(&reply).ok_or_else(|| self.odd(HOLDERS.name, &reply))?;
            all.extend(held);
            skipped += PAGE;
            if skipped >= of {
                return Ok(all);
            }
        }
    }

    /// Releases the permits with these ids, all or none, whichever process holds them. Returns false if one of them is not
    /// held; then nothing is changed.
    ///
    /// A guard of such a permit learns of it at its next renewal, and is lost then. Its other permits are released.
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
    /// The errors of [`DistLock::acquire`](crate::DistLock::acquire). A repeat after an unknown outcome releases nothing
    /// twice.
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

    /// Sets the lease of the permits with these ids to `lease` from now, whichever process holds them. Returns false if
    /// one of them is not held; then nothing is changed. This is Redisson's `updateLeaseTime`.
    ///
    /// A guard that the watchdog renews keeps its permits for at least the watchdog's lease.
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
    /// [`Error::Config`] if the lease is shorter than 3 ms or longer than ten years; the errors of
    /// [`DistLock::acquire`](crate::DistLock::acquire).
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
            let what = format!("{} ids of permits of {:?}: a call takes {MOST} at most", ids.len(), self.name());
            return Err(Error::Config { what });
        }
        Ok(())
    }

    /// Deletes the permits and their number. Returns false if there was nothing. Guards lose their permits at their next
    /// renewal, and waiters wait for a new number.
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

impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permits").field("client", &self.client).field("name", &self.name).finish()
    }
}
