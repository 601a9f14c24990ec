//! Mutexes and timers for the table of holds and the registry. `models/` replaces them with loom's. Other modules
//! import `parking_lot` and tokio directly.

pub(crate) use parking_lot::{Mutex, MutexGuard};
pub(crate) use tokio::sync::Notify;
pub(crate) use tokio::time::{sleep, timeout};
