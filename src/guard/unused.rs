//! Warns about guards that are dropped right after their acquire, which is almost always a mistake:
//! `lock.lock().await?;`, `let _ = ..`, `.is_some()`. The compiler cannot warn, because `must_use` does not see inside
//! a `Result<Option<..>>`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// A guard that is dropped unused within this time has protected no work.
const INSTANT: Duration = Duration::from_millis(1);

/// Maximum number of names with a warning. Later names get none, because a program may use any number of names.
const MOST: usize = 256;

static WARNED: Mutex<BTreeSet<Arc<str>>> = Mutex::new(BTreeSet::new());

/// Notes whether any method of a guard was called, and warns on drop if none was.
pub(super) struct Unused {
    /// The lock's name, and when the guard was created. None for a guard that never reaches the user.
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
        "a guard was dropped unused right after its acquire, and the lock released with it: bind it to a variable that \
         lives as long as the work (`let guard = ..`, not `let _ = ..`; `if let Some(guard) = ..`, not `.is_some()`)"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_remembered_unused_names_is_bounded() {
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
