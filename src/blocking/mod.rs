//! The API without async, for command line tools, thread pools and foreign function interfaces. (Feature `blocking`.)
//!
//! Each type has the name of its async counterpart. Each method does the same as the async method of that name, at the
//! same cost and with the same errors, and blocks the calling thread until the call ends. Only the differences are
//! documented here. [`guide::blocking`](crate::guide::blocking) is the guide.
//!
//! ```no_run
//! use distlock::blocking::Client;
//!
//! fn main() -> distlock::Result<()> {
//!     let client = Client::connect("redis://127.0.0.1:6379")?;
//!     let guard = client.reentrant("orders:42").lock()?; // waits; renewed in the background while the guard lives
//!     for part in 0..1_000 {
//!         guard.check()?; // an error once the lock is lost
//!         println!("part {part}");
//!     }
//!     guard.unlock()?; // or drop it: released in the background
//!     Ok(())
//! }
//! ```
//!
//! # Threads
//!
//! 1. [`Client::connect`] starts one thread, which runs the client's connections, renewals and clean-up.
//! 2. A call runs as a task on the client's thread. The calling thread is parked until the task has ended.
//! 3. Clients, locks, guards and all other objects are handles: each keeps the thread running. All are `Send` and
//!    `Sync`, so any thread may release a guard.
//! 4. Dropping the last handle ends the thread, as [`Client`](Client#drop) describes.
//!
//! Any number of threads may wait at once. They share the connections of one client.
//!
//! # Not inside a runtime
//!
//! On a thread of a tokio runtime, a call would stop other tasks. So the call sends nothing there and returns
//! [`Error::Config`](crate::Error::Config). This also applies to `spawn_blocking`, which tokio does not let us tell
//! from a worker thread. Use the async API there. Drops of guards and clients work everywhere.

/// Methods that call the async method of the same name, and wait for its result.
macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) -> $output:ty;)*) => {
        $($(#[$doc])* pub fn $name(&self, $($arg: $type),*) -> crate::error::Result<$output> {
            self.client.block_on(self.inner.$name($($arg),*))
        })*
    };
}

mod client;
mod counters;
mod guard;
mod lock;

pub use client::Client;
pub use counters::{Barrier, Latch, Permits, Semaphore};
pub use guard::{Guard, PermitGuard};
pub use lock::{Lock, RwLock};
