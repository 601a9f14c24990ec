//! Permits: at most n holders at a time, over all processes. Redisson's `RPermitExpirableSemaphore`.
//!
//! A permit has a lease. The watchdog renews it while the [guard](PermitGuard) lives. If a process dies, its permits
//! are free again when their leases end. Redisson has no watchdog for permits: they have an explicit lease or no end.
//!
//! Set the number of permits once, before the first acquire ([`Permits::try_set_permits`]). Until then there are no
//! permits, and acquires wait.
//!
//! Inside one process, waiters are served first come, first served. Processes have no order: a request for many permits
//! may wait long while other processes take single permits. [`Permits::fair`] orders the requests of all processes.
//!
//! # Fair order
//!
//! Fair permits put a [fair lock](crate::fair) in front of the permits. A request acquires the fair lock, waits for its
//! permits, and releases the fair lock. So only one request at a time waits for permits, and the others wait in the
//! fair lock's queue, in the order of arrival. If the fair lock or a place in its queue is lost, requests may be
//! served out of order. The limit still holds, because the permits have their own keys.
//!
//! # Wire format
//!
//! As Redisson's, with the server's time. The *free count* is the number of free permits:
//!
//! | step | `<name>`: free count | `{<name>}:timeout`: leases | message on `redisson_sc:{<name>}` |
//! |---|---|---|---|
//! | set to n for the first time | `n` | | `n` |
//! | change of the number | ± | | free count; sent only if permits were added |
//! | acquire k | − k | k members added | free count; sent only if expired permits were returned, also by a refused acquire |
//! | renew, extend | | new scores | |
//! | release k | + k | k members removed | free count |
//!
//! - A member of the leases is a permit's id (16 bytes). Its score is the end of the permit's lease in ms.
//! - An expired permit stays in the leases until an acquire, or the release of its guard, returns it to the free count.
//! - A waiter retries when enough leases for its request have ended.
//! - A free count below 1 is never sent, because Redisson's waiters fail on negative numbers. After a change of the
//!   number, Redisson sends the new total or the added number; we send the free count.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::acquire::Acquire;
use crate::client::Client;
use crate::engine::acquire;
use crate::engine::protocol::Protocol;
use crate::error::{Error, Result};
use crate::fair::{self, FairLock};
use crate::guard::Guard;
use crate::names::LockName;

mod admin;
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
use protocol::Taking;

/// Maximum permits per request. The server's work grows with the number of permits.
const MOST: u32 = 1000;

/// # Permits
impl Client {
    /// Returns the permits of this name: Redisson's `getPermitExpirableSemaphore(name)`.
    ///
    /// # Cost
    ///
    /// None. An invalid name is refused by the first call that sends a command.
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
        Permits { client: self.clone(), name, leases, line: None }
    }
}

/// A limited number of permits. The [module](self) describes them and their wire format. Cheap to clone.
#[derive(Clone)]
pub struct Permits {
    client: Client,
    name: Arc<LockName>,
    leases: Bytes,
    /// The fair lock in front of fair permits.
    line: Option<FairLock>,
}

/// A held permit, as [`Permits::holders`] lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldPermit {
    /// The permit's id.
    pub id: PermitId,
    /// The time until its lease ends by the server's clock. `None` if the lease has no end. Only Redisson's clients
    /// acquire such permits.
    pub remaining: Option<Duration>,
}

/// The numbers of free and held permits at one moment, as [`Permits::counts`] reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PermitCounts {
    /// Number of permits that can be acquired. Negative while more permits are held than there are in total.
    pub available: i64,
    /// Number of held permits.
    pub acquired: u64,
}

impl PermitCounts {
    /// Returns the total: free plus held permits.
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

    /// Returns the same permits with fair order: requests are served in the order of arrival, over all processes. A
    /// request for many permits is not overtaken by later requests for few.
    ///
    /// Only requests through fair permits are ordered. Other requests for the same name, Java's included, still take
    /// free permits at any time. [`try_acquire`](Self::try_acquire) returns `None` while another request waits
    /// or is being served.
    ///
    /// A request for more permits than the total blocks all later ones until the total is raised or its wait runs out.
    ///
    /// If the process of the first request dies, the next request continues when the lease of the dead process has
    /// ended (the watchdog's lease, 30 s by default). A dead process behind the first delays the others for at most
    /// [`Options::fair_wait`](crate::Options::fair_wait) (6 s).
    ///
    /// # Cost
    ///
    /// This call: none. If nobody waits, an acquire needs two round trips and three commands instead of one each: it
    /// acquires the fair lock, acquires the permits, and releases the fair lock in the background. A try needs one
    /// round trip and one command more. A waiting request costs what a waiter of a [fair lock](crate::FairLock) costs.
    /// Metrics count the fair lock as flavour `fair`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: distlock::Client) -> distlock::Result<()> {
    /// let seats = client.permits("seats").fair();
    /// let table = seats.acquire(6).await?; // later requests for one seat wait until these six are taken
    /// # table.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn fair(mut self) -> Self {
        let name = LockName::of_line(&self.client.options().name_prefix, self.name());
        self.line = Some(fair::of_name(&self.client, name));
        self
    }

    /// Acquires `n` permits, all or none. Waits until they are free. The watchdog renews them while the guard lives.
    ///
    /// If no number is set, or `n` is larger than the total, the call waits until the number is set or raised.
    ///
    /// # Cost
    ///
    /// One round trip, one command if the permits are free. All waiting tasks of this process share one subscription,
    /// and one of them at a time sends commands.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, an acquire in flight is undone in the background.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if `n` is 0 or above 1000; the errors of [`DistLock::acquire`](crate::DistLock::acquire).
    pub async fn acquire(&self, n: u32) -> Result<PermitGuard> {
        self.acquire_with(n, Acquire::new()).await?.ok_or(Error::Closed)
    }

    /// Acquires `n` permits if they are free now. Returns `None` if they are not.
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

    /// Acquires `n` permits, and waits for at most `wait`. Returns `None` if the wait ran out.
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

    /// Acquires `n` permits with a [wait](Acquire::wait) and a [lease](Acquire::lease) of the caller's choice. Returns
    /// `None` if the wait ran out.
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
                "cannot acquire {n} permits of {:?}: n must be 1 to {MOST}",
                self.name()
            )));
        }
        if how.owner.is_some() {
            let what = format!("permits of {:?} have no owner: leave Acquire::owner out", self.name());
            return Err(Error::config(what));
        }
        how.check()?;
        how.check_no_lock_delay("permits")?;
        let Some(line) = &self.line else { return self.take(n, how).await };
        if how.wait == Some(Duration::ZERO) {
            // A try does not take the fair lock, so concurrent tries do not refuse each other.
            return if line.is_locked().await? { Ok(None) } else { self.take(n, how).await };
        }
        let began = self.client.engine().now();
        let turn = Acquire { wait: how.wait, is_inner: true, ..Acquire::new() };
        let Some(_turn) = line.acquire(turn).await? else { return Ok(None) };
        let waited = self.client.engine().now().since(began);
        // The drop of `_turn` releases the fair lock in the background.
        self.take(n, Acquire { wait: how.wait.map(|wait| wait.saturating_sub(waited)), ..how }).await
    }

    /// Acquires `n` permits, without order among processes.
    async fn take(&self, n: u32, how: Acquire) -> Result<Option<PermitGuard>> {
        let taking = Taking { name: Arc::clone(&self.name), leases: self.leases.clone(), permits: n };
        let protocol: Arc<dyn Protocol> = Arc::new(taking);
        let grant = acquire::acquire(self.client.engine(), &protocol, how).await?;
        Ok(grant.map(|grant| PermitGuard::new(Guard::new(grant, self.client.handle()))))
    }

    fn keys(&self) -> Vec<Bytes> {
        vec![self.name.key.clone(), self.leases.clone()]
    }
}

impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permits").field("client", &self.client).field("name", &self.name).finish()
    }
}
