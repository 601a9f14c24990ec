//! The lock that the shared tables use. `models/` builds the same tables over loom's.

pub(crate) use parking_lot::{Mutex, MutexGuard};
