//! The lock of the table of holds, which `models/` builds over loom's. All else takes `parking_lot`'s by its name.

pub(crate) use parking_lot::{Mutex, MutexGuard};
