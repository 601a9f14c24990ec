//! An owner's entry in the table of holds, and a guard's share in that entry.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use super::Engine;
use super::ledger::{Book, End, Entry, Table};
use super::protocol::{HoldId, Protocol};
use super::sync::{Mutex, MutexGuard};
use crate::error::{Error, Lost};
use crate::hash::ReadyHash;
use crate::names::LockName;
use crate::owner::Owner;
use crate::world::{Moment, nanos};

pub(crate) type Key = (Arc<LockName>, Owner);

pub(crate) type Holds = Table<Key, Hold, ReadyHash>;

/// The table's entry for one owner and one lock: all holds of that owner, in one book (`ledger.rs`).
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) protocol: Arc<dyn Protocol>,
    pub(crate) owner: Owner,
    book: Mutex<Book>,
    /// Notified when the hold ends or its deadline moves.
    pub(crate) changed: Notify,
    /// Serializes the commands that change the owner's count on the server.
    order: Semaphore,
    /// Number of tasks that wait for `order`.
    waiting: AtomicUsize,
    /// The owner's message channel. Set if the owner may be reused for another acquire.
    pub(crate) inbox: OnceLock<Arc<LockName>>,
    /// The fencing token, which all holds in the book share; 0 if the lock is not fenced.
    token: AtomicU64,
}

/// The exclusive right to change an owner's count on the server, until dropped.
#[derive(Debug)]
pub(crate) struct Order {
    hold: Arc<Hold>,
    /// False only if the semaphore was closed, which never happens.
    taken: bool,
}

impl Drop for Order {
    fn drop(&mut self) {
        if self.taken {
            self.hold.order.add_permits(1);
        }
    }
}

/// Counts a task in [`Hold::waiting`] while the task waits.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Hold {
    pub(crate) fn new(protocol: Arc<dyn Protocol>, owner: Owner) -> Arc<Self> {
        Arc::new(Self {
            protocol,
            owner,
            book: Mutex::new(Book::default()),
            changed: Notify::new(),
            order: Semaphore::new(1),
            waiting: AtomicUsize::new(0),
            inbox: OnceLock::new(),
            token: AtomicU64::new(0),
        })
    }

    pub(crate) fn name(&self) -> &Arc<LockName> {
        self.protocol.name()
    }

    pub(crate) fn key(&self) -> Key {
        (Arc::clone(self.name()), self.owner.clone())
    }

    pub(crate) fn set_token(&self, token: u64) {
        self.token.store(token, Ordering::Relaxed);
    }

    /// Waits until no other command changes the count on the server. Tasks take the order in turn, and
    /// [`Self::in_order_now`] does not overtake them.
    pub(crate) async fn in_order(self: &Arc<Self>) -> Order {
        if let Some(order) = self.in_order_now() {
            return order;
        }
        let _waiting = Waiting::new(&self.waiting);
        let taken = self.order.acquire().await.map(SemaphorePermit::forget);
        Order { hold: Arc::clone(self), taken: taken.is_ok() }
    }

    /// Takes the order if the order is free and no task waits for it.
    pub(crate) fn in_order_now(self: &Arc<Self>) -> Option<Order> {
        self.order.try_acquire().ok()?.forget();
        Some(Order { hold: Arc::clone(self), taken: true })
    }

    pub(crate) fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Time until the latest deadline of this client's guards. None if no guard relies on the hold.
    pub(crate) fn left(&self, now: Moment) -> Option<Duration> {
        let book = self.book();
        let left = Moment::from_nanos(book.until_all()).since(now);
        (book.end().is_none() && !left.is_zero()).then_some(left)
    }

    /// Numbers of the holds that guards of this client rely on.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.book().holds().collect()
    }

    pub(crate) fn lost(&self, end: End) -> Error {
        let name = Arc::clone(&self.name().as_written);
        match end {
            End::Expired => Error::Lost { name, why: Lost::Expired },
            End::Gone => Error::Lost { name, why: Lost::Gone },
            End::Closed => Error::Closed,
        }
    }

    /// Calls [`Book::refuted`]. True if a guard lost the hold.
    pub(crate) fn refuted(&self, tenure: u32) -> bool {
        self.book().refuted(tenure)
    }

    /// Ends the hold. If a guard lost it, notifies the guards' watchers and returns true.
    pub(crate) fn finish(&self, end: End) -> bool {
        let news = self.book().finish(end);
        if news {
            self.changed.notify_waiters();
        }
        news
    }
}

impl Entry for Hold {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock()
    }
}

/// A hold that is about to be acquired or cleaned up. If its owner may be used again, the entry stays in the table
/// while the target lives. So all tasks share one order for the owner's commands.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) engine: Arc<Engine>,
    pub(crate) hold: Arc<Hold>,
    /// Number of the hold; 0 if it is not listed in Redis.
    pub(crate) number: u64,
    /// The waiter's registration in a queue in Redis (`lua/fair/queue.lua`), or empty.
    pub(crate) nonce: Bytes,
    reserved: bool,
}

impl Target {
    /// Creates a target for an owner that no one else knows.
    pub(crate) fn fresh(engine: &Arc<Engine>, hold: Arc<Hold>) -> Arc<Self> {
        Self::fresh_by(engine, hold, 0, Bytes::new())
    }

    /// Like `fresh`, for a waiter with this nonce in a queue in Redis.
    pub(crate) fn fresh_by(engine: &Arc<Engine>, hold: Arc<Hold>, number: u64, nonce: Bytes) -> Arc<Self> {
        Arc::new(Self { engine: Arc::clone(engine), hold, number, nonce, reserved: false })
    }

    /// Creates a target for an owner that may be used again. Uses the entry in the table, which may differ from
    /// `hold`.
    pub(crate) fn reserve(engine: &Arc<Engine>, hold: Arc<Hold>, number: u64, nonce: Bytes) -> Arc<Self> {
        let hold = engine.holds.reserve(hold.key(), hold);
        // From here on, other clients may learn the owner from Redis.
        hold.owner.reveal();
        Arc::new(Self { engine: Arc::clone(engine), hold, number, nonce, reserved: true })
    }

    /// Enters into the book a hold granted by a command sent at `sent`. `until`: the guard's deadline. `doubted`: a
    /// late copy of the acquire may still arrive.
    pub(crate) fn granted(&self, lease: Option<Duration>, sent: Moment, until: Moment, doubted: bool) -> Grant {
        let Self { engine, hold, number, .. } = self;
        let level = engine.holds.open(hold.key(), hold, |book| {
            if doubted {
                book.doubt(*number);
            }
            // Guards of this owner that the watchdog renews share this lease, so for them the acquire is a renewal.
            let renewed = book.is_watched() && lease.is_none();
            let until =
                if renewed { until.min(valid_until(engine.counted(sent), engine.options.watchdog)) } else { until };
            book.open(engine.now().as_nanos(), *number, lease.map(nanos), sent.as_nanos(), until.as_nanos())
        });
        Grant::new(Arc::clone(engine), Arc::clone(hold), level)
    }

    /// True if no one else can act as this owner.
    pub(crate) fn has_its_own_owner(&self) -> bool {
        !self.reserved && matches!(self.id(), HoldId::Only)
    }

    /// The id that Redis lists the hold by.
    pub(crate) fn id(&self) -> HoldId {
        self.engine.hold_id(&self.hold.owner, self.number)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if self.reserved {
            self.engine.holds.unreserve(&self.hold.key(), &self.hold);
        }
    }
}

/// A guard's share in a hold. Dropping the grant without [`Grant::take`] releases the share in the background.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) engine: Arc<Engine>,
    pub(crate) hold: Arc<Hold>,
    /// The guard's line (`Level`) in the book.
    pub(crate) level: u32,
    pub(crate) since: Moment,
    pub(crate) token: Option<u64>,
    armed: bool,
}

impl Grant {
    pub(crate) fn new(engine: Arc<Engine>, hold: Arc<Hold>, level: u32) -> Self {
        let since = engine.now();
        let token = Some(hold.token.load(Ordering::Relaxed)).filter(|token| *token > 0);
        Self { engine, hold, level, since, token, armed: true }
    }

    /// The deadline of the guard; None once it has passed. Reads only the local clock.
    pub(crate) fn until(&self) -> Option<Moment> {
        let book = self.hold.book();
        // The clock is read under the book's lock. So a renewal that is recorded later also finds that this guard has
        // expired.
        let now = self.engine.now();
        Some(Moment::from_nanos(book.until(self.level)?)).filter(|until| now < *until)
    }

    /// The id that Redis lists the hold by.
    pub(crate) fn id(&self) -> HoldId {
        let number = self.hold.book().number(self.level).unwrap_or_default();
        self.engine.hold_id(&self.hold.owner, number)
    }

    /// Leaves the release to the caller. False if an earlier call did so.
    pub(crate) fn take(&mut self) -> bool {
        std::mem::take(&mut self.armed)
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if self.take() {
            super::release::in_background(&self.engine, &self.hold, self.level, self.since);
        }
    }
}

/// End, by the local clock, of a lease whose command was sent at `sent`. Subtracts the drift margin of 1 % and 2 ms, so
/// that the lease ends here before it ends on the server.
pub(crate) fn valid_until(sent: Moment, lease: Duration) -> Moment {
    (sent + lease.saturating_sub(lease / 100)) - Duration::from_millis(2)
}

/// Upper bound on how much longer a lease lasts on the server than by the local clock.
pub(crate) fn drift_margin(lease: Duration) -> Duration {
    lease / 99 + Duration::from_millis(3)
}

/// The lease that a command sent at `sent` must set so that [`valid_until`] is `until` or later.
pub(crate) fn lease_until(sent: Moment, until: Moment) -> Duration {
    let span = until.since(sent);
    if span.is_zero() {
        return span;
    }
    let span = span + Duration::from_millis(2);
    span + span / 99 + Duration::from_nanos(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hold_ends_in_client_before_it_ends_in_server() {
        let sent = Moment::from_nanos(1_000_000_000);
        for lease in [Duration::from_millis(100), Duration::from_secs(30), Duration::from_secs(86400)] {
            let until = valid_until(sent, lease);
            assert!(until < sent + lease - Duration::from_millis(2));
            assert!(until >= sent + lease.mul_f64(0.98) - Duration::from_millis(2));
        }
        for span in [1, 99, 100, 101, 10_000_000, 59_398_000_017, 315_360_000_000_000_000].map(Duration::from_nanos) {
            let lease = lease_until(sent, sent + span);
            assert!(valid_until(sent, lease) >= sent + span, "{span:?}");
            assert!(valid_until(sent, lease) <= sent + span + Duration::from_nanos(2), "{span:?}");
        }
        assert_eq!(lease_until(sent, sent), Duration::ZERO);
        // A lease shorter than the margin is never held.
        assert!(valid_until(sent, Duration::from_millis(2)) < sent);
    }
}
