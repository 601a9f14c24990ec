//! What the table has for one owner of one lock, and a guard's share in it.

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

/// The key of a hold.
pub(crate) type Key = (Arc<LockName>, Owner);

/// All holds of a client.
pub(crate) type Holds = Table<Key, Hold, ReadyHash>;

/// The entry of one owner and one lock in the table: all holds that the owner has of it, in one book.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) protocol: Arc<dyn Protocol>,
    pub(crate) owner: Owner,
    book: Mutex<Book>,
    /// Notified whenever the hold ends or its deadline moves.
    pub(crate) changed: Notify,
    /// Puts the commands that change the count in the server into one order.
    order: Semaphore,
    /// Number of tasks that wait for `order`.
    waiting: AtomicUsize,
    /// Set when the owner may be used for another acquire afterwards: where messages for it come in.
    pub(crate) inbox: OnceLock<Arc<LockName>>,
    /// The section's fencing token, where sections have one; else 0.
    token: AtomicU64,
}

/// The turn to change the count of one owner in the server, until it is dropped.
#[derive(Debug)]
pub(crate) struct Order {
    hold: Arc<Hold>,
    /// False if somebody had closed the semaphore, which nobody does.
    taken: bool,
}

impl Drop for Order {
    fn drop(&mut self) {
        if self.taken {
            self.hold.order.add_permits(1);
        }
    }
}

/// Counts a task for as long as it waits.
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

    /// A section has begun, and this is its fencing token.
    pub(crate) fn set_token(&self, token: u64) {
        self.token.store(token, Ordering::Relaxed);
    }

    /// Waits until nobody else changes the count in the server. Nobody goes past those who wait: a lock that is passed on to
    /// them is not free meanwhile.
    pub(crate) async fn in_order(self: &Arc<Self>) -> Order {
        // Mostly the owner has one command under way.
        if let Some(order) = self.in_order_now() {
            return order;
        }
        let _waiting = Waiting::new(&self.waiting);
        let taken = self.order.acquire().await.map(SemaphorePermit::forget);
        Order { hold: Arc::clone(self), taken: taken.is_ok() }
    }

    /// The same where nobody does now, and nobody waits to.
    pub(crate) fn in_order_now(self: &Arc<Self>) -> Option<Order> {
        self.order.try_acquire().ok()?.forget();
        Some(Order { hold: Arc::clone(self), taken: true })
    }

    /// True while somebody waits to change the count in the server.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// For how long it is held still, if somebody here relies on it.
    pub(crate) fn left(&self, now: Moment) -> Option<Duration> {
        let book = self.book();
        let left = Moment::from_nanos(book.until_all()).since(now);
        (book.end().is_none() && !left.is_zero()).then_some(left)
    }

    /// The numbers of the holds that guards here rely on.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.book().holds().collect()
    }

    /// The error that the end of the hold is to its guards.
    pub(crate) fn lost(&self, end: End) -> Error {
        let name = Arc::clone(&self.name().as_written);
        match end {
            End::Expired => Error::Lost { name, why: Lost::Expired },
            End::Gone => Error::Lost { name, why: Lost::Gone },
            End::Closed => Error::Closed,
        }
    }

    /// Ends the hold that the server gave in `tenure`, if it is still that.
    pub(crate) fn refuted(&self, tenure: u32) -> bool {
        self.book().refuted(tenure)
    }

    /// Ends the hold for whoever relies on it.
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

/// A hold that somebody is about to acquire, or to clean up after. One of an owner that may come again stands in the table
/// for as long as this lives, so that all that is sent for it keeps one order, whatever task it comes from.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) engine: Arc<Engine>,
    pub(crate) hold: Arc<Hold>,
    /// The number of the hold that is to be acquired; 0: it is not listed in Redis.
    pub(crate) number: u64,
    /// What a waiter in a queue is registered by.
    pub(crate) nonce: Bytes,
    reserved: bool,
}

impl Target {
    /// For an owner that nobody else knows.
    pub(crate) fn fresh(engine: &Arc<Engine>, hold: Arc<Hold>) -> Arc<Self> {
        Self::fresh_by(engine, hold, 0, Bytes::new())
    }

    /// As `fresh`, for a waiter in a queue who is registered by this.
    pub(crate) fn fresh_by(engine: &Arc<Engine>, hold: Arc<Hold>, number: u64, nonce: Bytes) -> Arc<Self> {
        Arc::new(Self { engine: Arc::clone(engine), hold, number, nonce, reserved: false })
    }

    /// For an owner that may come again: the hold in the table, which may be another one than `hold`.
    pub(crate) fn reserve(engine: &Arc<Engine>, hold: Arc<Hold>, number: u64, nonce: Bytes) -> Arc<Self> {
        let hold = engine.holds.reserve(hold.key(), hold);
        // The owner is known from here on, if only by what stands in Redis.
        hold.owner.reveal();
        Arc::new(Self { engine: Arc::clone(engine), hold, number, nonce, reserved: true })
    }

    /// Notes in the book that the hold was granted: by what was sent at `sent`, until `until`. `doubted`: a copy of that may come
    /// in later.
    pub(crate) fn granted(&self, lease: Option<Duration>, sent: Moment, until: Moment, doubted: bool) -> Grant {
        let Self { engine, hold, number, .. } = self;
        let level = engine.holds.open(hold.key(), hold, |book| {
            if doubted {
                book.doubt(*number);
            }
            // Earlier guards of this owner end with the watchdog's lease, too: for them this is a renewal.
            let renewed = book.is_watched() && lease.is_none();
            let until =
                if renewed { until.min(valid_until(engine.counted(sent), engine.options.watchdog)) } else { until };
            book.open(engine.now().as_nanos(), *number, lease.map(nanos), sent.as_nanos(), until.as_nanos())
        });
        Grant::new(Arc::clone(engine), Arc::clone(hold), level)
    }

    /// True where nobody else acts as the owner.
    pub(crate) fn has_its_own_owner(&self) -> bool {
        !self.reserved && matches!(self.id(), HoldId::Only)
    }

    /// How Redis knows the hold that is to be acquired.
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

/// A guard's share in a hold. Dropped without [`Grant::take`], it is released in the background.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) engine: Arc<Engine>,
    pub(crate) hold: Arc<Hold>,
    /// The guard's level in the book.
    pub(crate) level: u32,
    /// When this guard got it: its own time of holding runs from here.
    pub(crate) since: Moment,
    /// The fencing token of its section, where sections have one.
    pub(crate) token: Option<u64>,
    armed: bool,
}

impl Grant {
    pub(crate) fn new(engine: Arc<Engine>, hold: Arc<Hold>, level: u32) -> Self {
        let since = engine.now();
        let token = Some(hold.token.load(Ordering::Relaxed)).filter(|token| *token > 0);
        Self { engine, hold, level, since, token, armed: true }
    }

    /// Until when it is held, if it is: no I/O, no timer, just the clock.
    pub(crate) fn until(&self) -> Option<Moment> {
        let book = self.hold.book();
        // Read under the lock: a longer lease that is booked later finds this one over.
        let now = self.engine.now();
        Some(Moment::from_nanos(book.until(self.level)?)).filter(|until| now < *until)
    }

    /// Leaves the release to the caller. False when that was done before.
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

/// Until when a lease counts as held here when its command was sent at `sent`: the drift margin of 1 % and 2 ms taken
/// off, so that it ends here before it ends in the server.
pub(crate) fn valid_until(sent: Moment, lease: Duration) -> Moment {
    (sent + lease.saturating_sub(lease / 100)) - Duration::from_millis(2)
}

/// Upper bound on how much longer a lease lasts in the server than by the local clock.
pub(crate) fn drift_margin(lease: Duration) -> Duration {
    lease / 99 + Duration::from_millis(3)
}

/// The lease that a command sent at `sent` has to set for [`valid_until`] to be `until` at the earliest.
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
    fn a_hold_ends_here_before_it_ends_in_the_server() {
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
