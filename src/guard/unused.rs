//! Notices guards that are dropped in the instant they were taken, which is almost always a mistake: `lock.lock().await?;`,
//! `let _ = ..`, `.is_some()`. The compiler cannot: what is inside of a `Result<Option<..>>` is nothing that must be used.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Within this time nobody can have done any work under a lock without asking anything of its guard.
const INSTANT: Duration = Duration::from_millis(1);

/// The most names that are warned about: there is no limit to the names that a program makes up.
const MOST: usize = 256;

static WARNED: Mutex<BTreeSet<Arc<str>>> = Mutex::new(BTreeSet::new());

/// Whether anything was ever asked of a guard.
pub(super) struct Unused {
    /// The lock's name, and when the guard was given out. None for a guard that the user does not have.
    taken: Option<(Arc<str>, Instant)>,
    touched: AtomicBool,
}

impl Unused {
    pub(super) fn new(name: &Arc<str>) -> Self {
        Self { taken: Some((Arc::clone(name), Instant::now())), touched: AtomicBool::new(false) }
    }

    pub(super) const fn ignored() -> Self {
        Self { taken: None, touched: AtomicBool::new(true) }
    }

    pub(super) fn touch(&self) {
        self.touched.store(true, Ordering::Relaxed);
    }
}

impl Drop for Unused {
    fn drop(&mut self) {
        if !*self.touched.get_mut()
            && let Some((name, taken)) = self.taken.take()
            && taken.elapsed() < INSTANT
            && !std::thread::panicking()
        {
            warn(name);
        }
    }
}

#[cold]
fn warn(name: Arc<str>) {
    {
        let mut warned = WARNED.lock();
        if warned.len() >= MOST || !warned.insert(Arc::clone(&name)) {
            return;
        }
    }
    tracing::warn!(
        lock.name = %name,
        "a guard was dropped unused in the instant it was taken, and the lock released with it: bind it to a variable that \
         lives as long as the work (`let guard = ..`, not `let _ = ..`; `if let Some(guard) = ..`, not `.is_some()`)"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_number_are_not_remembered_without_bound() {
        for n in 0..2 * MOST {
            let name: Arc<str> = Arc::from(format!("unused-{n}"));
            drop(Unused::new(&name));
            Unused::new(&name).touch();
            drop(Unused::ignored());
        }
        let warned = WARNED.lock().len();
        assert!((1..=MOST).contains(&warned), "{warned}");
    }
}
