//! What the table of holds and the registry wait and lock with: `models/` builds both over loom's. All else names `parking_lot`.

pub(crate) use parking_lot::{Mutex, MutexGuard};
pub(crate) use tokio::sync::Notify;
pub(crate) use tokio::time::{sleep, timeout};
