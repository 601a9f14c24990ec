//! loom's mutex with the signature of the one that the crate uses.

pub(crate) use loom::sync::MutexGuard;

pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        // Poisoned only when the model has failed already.
        self.0.lock().unwrap()
    }
}
