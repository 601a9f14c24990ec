//! What the shared tables wait and lock with. `models/` builds the same tables over loom's.

pub(crate) use parking_lot::{Mutex, MutexGuard};
pub(crate) use tokio::sync::Notify;
pub(crate) use tokio::time::{sleep, timeout};
