//! The table of holds: its entries, and how long they stay.

use std::collections::hash_map::RandomState;
use std::sync::Arc;

use crate::engine::ledger::{Book, End, Entry, Table};
use crate::engine::sync::{Mutex, MutexGuard};

#[derive(Default)]
struct Held(Mutex<Book>);

impl Entry for Held {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock()
    }
}

impl Held {
    fn open(self: &Arc<Self>, table: &Table<u32, Self, RandomState>) -> u32 {
        table.open(7, self, |book| book.open(0, 1, None, 0, 100))
    }
}

/// Tasks share the entry of an owner, so all commands of the owner are in one order.
#[test]
fn hold_stays_in_the_table_while_an_acquire_reserves_it() {
    let table: Table<u32, Held, RandomState> = Table::new(4);
    let held = table.reserve(7, Arc::default());
    assert!(Arc::ptr_eq(&held, &table.reserve(7, Arc::default())));
    table.unreserve(&7, &held);
    assert_eq!((table.len(), table.count(&7), table.is_relied_on(&7)), (1, 0, false));
    let guards = [held.open(&table), held.open(&table)];
    assert_eq!((table.len(), table.count(&7), table.count(&8), table.is_relied_on(&7)), (1, 2, 0, true));
    for guard in guards {
        held.book().close(guard);
    }
    assert!(!table.is_relied_on(&7), "being released");
    table.released(&7, &held);
    assert!(table.get(&7).is_some_and(|found| Arc::ptr_eq(&found, &held)) && !held.book().is_closed());
    assert_eq!(table.count(&7), 0);
    table.unreserve(&7, &held);
    assert!(table.get(&7).is_none() && held.book().is_closed());
    assert_eq!(table.len(), 0);
    // An entry stays after its last reservation (use by an acquire) if guards rely on the hold, or the server still has
    // it.
    let held = table.reserve(7, Arc::default());
    let guard = held.open(&table);
    table.unreserve(&7, &held);
    assert!(table.is_relied_on(&7) && table.collect(Book::is_watched).len() == 1);
    held.book().close(guard);
    let again = table.reserve(7, Arc::default());
    table.unreserve(&7, &again);
    assert!(Arc::ptr_eq(&held, &again) && table.get(&7).is_some());
    table.released(&7, &held);
    assert_eq!(table.len(), 0);
}

/// Guards of the ended hold may not have noticed its end. The next acquire gets a new entry.
#[test]
fn ended_hold_leaves_the_table_and_does_not_affect_the_next() {
    let table: Table<u32, Held, RandomState> = Table::new(4);
    let ended = table.reserve(7, Arc::default());
    ended.open(&table);
    assert!(ended.book().finish(End::Gone));
    assert!(!table.is_relied_on(&7));
    table.released(&7, &ended);
    assert!(ended.book().is_closed() && table.get(&7).is_none());
    let next = table.reserve(7, Arc::default());
    table.unreserve(&7, &ended);
    table.released(&7, &ended);
    assert!(table.get(&7).is_some_and(|found| Arc::ptr_eq(&found, &next)) && !next.book().is_closed());
    table.unreserve(&7, &next);
    assert_eq!(table.len(), 0);
}
