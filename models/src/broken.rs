//! Tables with one flaw each. The models must detect every flaw.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::client::{Hold, Holds, KEY, Key, Real};
use crate::ledger::{Book, Entry as _};
use crate::sync::Mutex;

pub(crate) trait Flaw {
    /// True: a guard is opened and its hold is registered in two steps.
    const TWO_STEPS: bool = false;
    /// True: the end of a reservation first checks that the hold is unused, and then removes the hold in a second step.
    /// Redisson had this bug: an unlock removed a hold that another thread's acquire had just filled (Redisson #6651).
    const TWO_LOOKS: bool = false;
    /// True: a release removes the hold even if an acquire that uses the hold is in flight.
    const NO_RESERVE: bool = false;
}

pub(crate) struct Sound;
pub(crate) struct TwoSteps;
pub(crate) struct TwoLooks;
pub(crate) struct NoReserve;

impl Flaw for Sound {}
impl Flaw for TwoSteps {
    const TWO_STEPS: bool = true;
}
impl Flaw for TwoLooks {
    const TWO_LOOKS: bool = true;
}
impl Flaw for NoReserve {
    const NO_RESERVE: bool = true;
}

/// A second implementation of the table, with a flaw.
pub(crate) struct Broken<F> {
    map: Mutex<BTreeMap<Key, Slot>>,
    flaw: std::marker::PhantomData<fn() -> F>,
}

struct Slot {
    hold: Arc<Hold>,
    reserved: u32,
}

impl Slot {
    fn is_useless(&self) -> bool {
        let book = self.hold.book();
        book.is_idle() && book.count() == 0 && self.reserved == 0
    }
}

impl<F: Flaw> Holds for Broken<F> {
    fn new() -> Self {
        Self { map: Mutex::new(BTreeMap::new()), flaw: std::marker::PhantomData }
    }

    fn reserve(&self, fresh: Arc<Hold>) -> Arc<Hold> {
        let mut map = self.map.lock();
        let slot = map.entry(KEY).or_insert(Slot { hold: fresh, reserved: 0 });
        slot.reserved += 1;
        Arc::clone(&slot.hold)
    }

    fn unreserve(&self, hold: &Arc<Hold>) {
        let mut map = self.map.lock();
        let Some(slot) = map.get_mut(&KEY).filter(|slot| Arc::ptr_eq(&slot.hold, hold)) else { return };
        slot.reserved = slot.reserved.saturating_sub(1);
        if slot.is_useless() {
            if F::TWO_LOOKS {
                drop(map);
                map = self.map.lock();
            } else {
                *hold.closed.lock() = true;
            }
            map.remove(&KEY);
        }
    }

    fn open(&self, hold: &Arc<Hold>, open: impl FnOnce(&mut Book) -> u32) -> u32 {
        let mut map = self.map.lock();
        map.entry(KEY).or_insert(Slot { hold: Arc::clone(hold), reserved: 0 });
        if F::TWO_STEPS {
            drop(map);
            return open(&mut hold.book());
        }
        open(&mut hold.book())
    }

    fn released(&self, hold: &Arc<Hold>) {
        let mut map = self.map.lock();
        let ended = {
            let mut book = hold.book();
            let tenure = book.tenure();
            while !book.counted_down(tenure) {}
            book.end().is_some()
        };
        let Some(slot) = map.get(&KEY).filter(|slot| Arc::ptr_eq(&slot.hold, hold)) else { return };
        if F::NO_RESERVE {
            map.remove(&KEY);
        } else if ended || slot.is_useless() {
            *hold.closed.lock() = true;
            map.remove(&KEY);
        }
    }

    fn watched(&self) -> Vec<Arc<Hold>> {
        let map = self.map.lock();
        map.values().map(|slot| &slot.hold).filter(|hold| hold.book().is_watched()).cloned().collect()
    }

    fn len(&self) -> usize {
        self.map.lock().len()
    }
}

/// The real table, but a renewal applies every answer to the present hold, even an answer about an earlier hold.
pub(crate) struct Stale(Real);

/// The real table, but an attempt's reservation of its hold ends when the caller gives up, before the attempt is done.
pub(crate) struct LetGo(Real);

macro_rules! as_the_real_one {
    ($name:ident { $($change:item)* }) => {
        impl Holds for $name {
            fn new() -> Self {
                Self(<Real as Holds>::new())
            }

            fn reserve(&self, fresh: Arc<Hold>) -> Arc<Hold> {
                Holds::reserve(&self.0, fresh)
            }

            fn unreserve(&self, hold: &Arc<Hold>) {
                Holds::unreserve(&self.0, hold);
            }

            fn open(&self, hold: &Arc<Hold>, open: impl FnOnce(&mut Book) -> u32) -> u32 {
                Holds::open(&self.0, hold, open)
            }

            fn released(&self, hold: &Arc<Hold>) {
                Holds::released(&self.0, hold);
            }

            fn watched(&self) -> Vec<Arc<Hold>> {
                self.0.watched()
            }

            fn len(&self) -> usize {
                Holds::len(&self.0)
            }

            $($change)*
        }
    };
}

as_the_real_one!(Stale {
    fn refuted(book: &mut Book, _tenure: u32) {
        book.finish(crate::ledger::End::Gone);
    }
});

as_the_real_one!(LetGo {
    const RESERVES: bool = false;
});
