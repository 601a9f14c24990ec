//! A small client that uses the table of holds as the engine does, and a server with one lock of one owner.

use std::sync::Arc;

use crate::ledger::{Book, End, Entry, Table};
use crate::sync::{Mutex, MutexGuard};

pub(crate) type Key = u8;
type Hash = std::hash::BuildHasherDefault<std::collections::hash_map::DefaultHasher>;

pub(crate) const KEY: Key = 7;

/// Time of all commands and answers, long before their leases end at `UNTIL`.
const NOW: u64 = 1;
const UNTIL: u64 = 100;

pub(crate) struct Hold {
    book: Mutex<Book>,
    /// As in the engine: held during a command that changes the count, so that these commands run one after the other.
    order: Mutex<()>,
    /// Set by a broken table, which cannot close the book (the hold's record of its guards) itself.
    pub(crate) closed: Mutex<bool>,
}

impl Hold {
    fn new() -> Arc<Self> {
        Arc::new(Self { book: Mutex::new(Book::default()), order: Mutex::new(()), closed: Mutex::new(false) })
    }
}

impl Entry for Hold {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock()
    }
}

/// The real table or a broken one.
pub(crate) trait Holds {
    fn new() -> Self;
    fn reserve(&self, fresh: Arc<Hold>) -> Arc<Hold>;
    fn unreserve(&self, hold: &Arc<Hold>);
    fn open(&self, hold: &Arc<Hold>, open: impl FnOnce(&mut Book) -> u32) -> u32;
    fn released(&self, hold: &Arc<Hold>);
    fn watched(&self) -> Vec<Arc<Hold>>;
    fn len(&self) -> usize;
    /// Applies the answer "not held" to a hold. The answer is about tenure number `tenure` (`ledger.rs`).
    fn refuted(book: &mut Book, tenure: u32) {
        book.refuted(tenure);
    }
    /// True if an attempt keeps its hold in the table while it is in flight.
    const RESERVES: bool = true;
}

pub(crate) type Real = Table<Key, Hold, Hash>;

impl Holds for Real {
    fn new() -> Self {
        Self::new(1)
    }

    fn reserve(&self, fresh: Arc<Hold>) -> Arc<Hold> {
        self.reserve(KEY, fresh)
    }

    fn unreserve(&self, hold: &Arc<Hold>) {
        self.unreserve(&KEY, hold);
    }

    fn open(&self, hold: &Arc<Hold>, open: impl FnOnce(&mut Book) -> u32) -> u32 {
        self.open(KEY, hold, open)
    }

    fn released(&self, hold: &Arc<Hold>) {
        self.released(&KEY, hold);
    }

    fn watched(&self) -> Vec<Arc<Hold>> {
        self.collect(Book::is_watched)
    }

    fn len(&self) -> usize {
        self.len()
    }
}

pub(crate) struct World<T> {
    table: T,
    /// The owner's count at the server.
    server: Mutex<u32>,
}

pub(crate) struct Guard {
    pub(crate) hold: Arc<Hold>,
    level: u32,
}

impl<T: Holds> World<T> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { table: T::new(), server: Mutex::new(0) })
    }

    /// Runs `acquire::attempt` under this client's owner until it succeeds.
    pub(crate) fn acquire(&self) -> Guard {
        loop {
            let hold = self.table.reserve(Hold::new());
            let level = self.attempt(&hold, !T::RESERVES);
            if T::RESERVES || level.is_none() {
                self.table.unreserve(&hold);
            }
            if let Some(level) = level {
                return Guard { hold, level };
            }
            drop(hold);
            loom::thread::yield_now();
        }
    }

    /// Acquires with this hold, whose first attempt was late and was undone.
    pub(crate) fn acquire_with(&self, hold: &Arc<Hold>) -> Guard {
        match self.attempt(hold, false) {
            Some(level) => Guard { hold: Arc::clone(hold), level },
            None => self.acquire(),
        }
    }

    /// Runs `acquire::attempt` under an owner that no other task knows. The table has no entry before the attempt
    /// succeeds.
    pub(crate) fn acquire_fresh(&self) -> Guard {
        let hold = Hold::new();
        let level = self.attempt(&hold, false).unwrap();
        Guard { hold, level }
    }

    /// `let_go`: the caller has given up, so its reservation ends before the attempt is done.
    fn attempt(&self, hold: &Arc<Hold>, let_go: bool) -> Option<u32> {
        let _order = hold.order.lock();
        let before = {
            let book = hold.book();
            if book.is_closed() || book.end().is_some() || (book.is_idle() && book.count() > 0) || *hold.closed.lock() {
                return None;
            }
            book.count()
        };
        if let_go {
            self.table.unreserve(hold);
        }
        // Plays the script, which returns the new count. After [`Self::steal`] the owner cannot re-enter, and its hold
        // is lost.
        {
            let mut server = self.server.lock();
            if before > 0 && *server == 0 {
                drop(server);
                self.lose(hold);
                return None;
            }
            *server = before + 1;
        }
        Some(self.table.open(hold, |book| book.open(NOW, 0, None, NOW, UNTIL)))
    }

    /// Starts another acquire of the same owner: only its first step, which reserves the hold.
    pub(crate) fn come(&self) -> Arc<Hold> {
        self.table.reserve(Hold::new())
    }

    /// Cancels the acquire that `come` started.
    pub(crate) fn go(&self, hold: &Arc<Hold>) {
        self.table.unreserve(hold);
    }

    /// Releases a guard, as `GuardRelease::run` does.
    pub(crate) fn release(&self, guard: Guard) {
        let Guard { hold, level } = guard;
        let (end, tenure) = {
            let mut book = hold.book();
            book.close(level);
            (book.end(), book.tenure())
        };
        if end.is_some() {
            return;
        }
        let _order = hold.order.lock();
        let count = hold.book().count();
        if count == 0 {
            return;
        }
        let left = {
            let mut server = self.server.lock();
            *server = if *server == 0 { 0 } else { count - 1 };
            *server
        };
        if left > 0 {
            hold.book().counted_down(tenure);
        } else {
            self.freed(&hold);
        }
    }

    fn freed(&self, hold: &Arc<Hold>) {
        if !hold.book().is_idle() {
            // The server has freed the lock, so the other guards of this hold are lost. This release also cleans up for
            // them.
            hold.book().finish(End::Gone);
        }
        self.table.released(hold);
    }

    /// Hands a guard over within the process, as `GuardRelease::leave_book` does.
    pub(crate) fn hand_over(guard: Guard) -> Guard {
        let Guard { hold, level } = guard;
        hold.book().close(level);
        let level = hold.book().reopen(0);
        Guard { hold, level }
    }

    /// Runs one round of renewal, as `renewal::round` does.
    pub(crate) fn renew(&self) {
        self.renew_these(self.table.watched());
    }

    pub(crate) fn watched(&self) -> Vec<Arc<Hold>> {
        self.table.watched()
    }

    /// Renews these holds, as `renewal/batch.rs` does.
    pub(crate) fn renew_these(&self, holds: Vec<Arc<Hold>>) {
        for hold in holds {
            let tenure = hold.book().tenure();
            let held = *self.server.lock() > 0;
            let mut book = hold.book();
            let before = book.end();
            if held {
                book.renewed(NOW, NOW, UNTIL);
            } else {
                T::refuted(&mut book, tenure);
            }
            let lost = before.is_none() && book.end().is_some();
            drop(book);
            if lost {
                self.release_ended(&hold);
            }
        }
    }

    /// Deletes the key, as a third party might.
    pub(crate) fn steal(&self) {
        *self.server.lock() = 0;
    }

    /// Ends a hold whose lease has ended by the local clock.
    pub(crate) fn expire(&self, hold: &Arc<Hold>) {
        if hold.book().finish(End::Expired) {
            self.release_ended(hold);
        }
    }

    fn lose(&self, hold: &Arc<Hold>) {
        if hold.book().finish(End::Gone) {
            // In the engine, a job locks `order` and then calls this. Here the caller has locked it already.
            self.table.released(hold);
        }
    }

    /// Cleans up after an ended hold, as `release::release_ended` does.
    fn release_ended(&self, hold: &Arc<Hold>) {
        let _order = hold.order.lock();
        let end = hold.book().end();
        if end != Some(End::Gone) && hold.book().count() > 0 {
            *self.server.lock() = 0;
        }
        self.table.released(hold);
    }

    /// Asserts that the guard counts as held, that the watchdog finds its hold, and that the server has the lock.
    pub(crate) fn assert_held(&self, guard: &Guard) {
        assert!(self.is_held(guard), "lost, although nobody took it");
        let found = self.table.watched().iter().any(|hold| Arc::ptr_eq(hold, &guard.hold));
        assert!(found, "held, but not registered");
        assert!(*self.server.lock() > 0, "held, but the server gave it back");
    }

    pub(crate) fn is_held(&self, guard: &Guard) -> bool {
        guard.hold.book().until(guard.level).is_some()
    }

    /// Asserts that nothing is left after the last release.
    pub(crate) fn assert_empty(&self) {
        assert_eq!(self.table.len(), 0, "released, but registered");
        assert_eq!(*self.server.lock(), 0, "released, but the server has it");
    }
}
