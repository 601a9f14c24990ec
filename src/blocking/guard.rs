//! The guards of held locks and permits.

use std::future::Future;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{AbortHandle, Abortable};
use parking_lot::Mutex;

use super::Client;
use crate::error::{Error, Result};
use crate::state::Released;

/// Declares a guard, with the methods that both guards have.
macro_rules! guards {
    ($($(#[$meta:meta])* $name:ident;)*) => {$(
        $(#[$meta])*
        #[clippy::has_significant_drop]
        #[derive(Debug)]
        pub struct $name {
            // Fields are dropped in this order: the release must begin before the client's thread may end.
            inner: crate::$name,
            watches: Watches,
            client: Client,
        }

        impl $name {
            pub(super) fn new(inner: crate::$name, client: &Client) -> Self {
                Self { inner, watches: Watches::default(), client: client.clone() }
            }

            /// Returns the name, without the client's prefix.
            #[must_use]
            pub fn name(&self) -> &str {
                self.inner.name()
            }

            /// True until the lease ends by the local clock, or until a loss is known. Uses no I/O, so it also works
            /// inside a runtime.
            #[must_use]
            pub fn is_held(&self) -> bool {
                self.inner.is_held()
            }

            /// Returns the time until the lease ends without a further renewal; zero after a loss.
            #[must_use]
            pub fn remaining(&self) -> Duration {
                self.inner.remaining()
            }

            /// Returns an error if [`is_held`](Self::is_held) is false. For loops: check before each step, and stop at
            /// the error. Uses no I/O.
            ///
            /// # Errors
            ///
            /// [`Error::Lost`], or [`Error::Closed`] after a shutdown.
            pub fn check(&self) -> Result<()> {
                if self.is_held() { Ok(()) } else { Err(self.inner.why_lost()) }
            }

            /// Calls `callback` once with the reason when the hold is lost: [`Error::Lost`], or [`Error::Closed`] after
            /// a shutdown.
            ///
            /// If the guard ends first, by a release or a drop, the callback is dropped without a call. The callback
            /// may take long, because it has a thread of its own. The thread belongs to the client's runtime, so
            /// blocking calls return [`Error::Config`] there.
            ///
            /// # Examples
            ///
            /// ```no_run
            /// # use std::sync::Arc;
            /// # use std::sync::atomic::{AtomicBool, Ordering};
            /// # fn example(guard: distlock::blocking::Guard) {
            /// let stop = Arc::new(AtomicBool::new(false));
            /// let asked = Arc::clone(&stop);
            /// guard.on_lost(move |error| {
            ///     eprintln!("{error}");
            ///     asked.store(true, Ordering::Relaxed); // the worker reads it between two steps
            /// });
            /// # }
            /// ```
            pub fn on_lost(&self, callback: impl FnOnce(Error) + Send + 'static) {
                self.watches.add(&self.client, self.inner.lost(), callback);
            }

            calls! {
                /// Sets the lease to `lease` from now, and ends renewal. See [`Guard::extend`](crate::Guard::extend).
                extend(lease: Duration) -> ();
            }

            /// Returns the async guard, for methods that this type does not have.
            pub const fn as_async(&self) -> &crate::$name {
                &self.inner
            }

            /// Turns this guard into the async guard, for methods that end it, such as `into_owner`. The async guard
            /// does not keep the client's thread running, so keep a client.
            pub fn into_async(self) -> crate::$name {
                self.inner
            }
        }
    )*};
}

guards! {
    /// A held lock. Dropping the guard releases the lock in the background. [`crate::Guard`] describes what a guard
    /// promises.
    ///
    /// The drop returns at once. Only the drop of the client's last object waits for the release ([`Client`]).
    #[must_use = "dropping the guard releases the lock at once"]
    Guard;

    /// Held permits. Dropping the guard releases them in the background. See [`crate::PermitGuard`].
    #[must_use = "dropping the guard releases the permits at once"]
    PermitGuard;
}

impl Guard {
    /// Returns the fencing token, or an error if the lock has none. See
    /// [`Guard::fencing_token`](crate::Guard::fencing_token).
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for every flavour except [fenced](mod@crate::fenced).
    pub fn fencing_token(&self) -> Result<u64> {
        self.inner.fencing_token()
    }

    /// Releases the lock and returns whether the owner still has other holds. See
    /// [`Guard::unlock`](crate::Guard::unlock).
    ///
    /// # Errors
    ///
    /// - As for [`Guard::unlock`](crate::Guard::unlock).
    /// - [`Error::Config`] [inside a runtime](crate::blocking#not-inside-a-runtime). The lock is then released in the
    ///   background.
    pub fn unlock(self) -> Result<Released> {
        self.client.block_on(self.inner.unlock())
    }
}

impl PermitGuard {
    /// Returns the number of permits of the acquire, also after a loss.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.inner.count()
    }

    /// Releases the permits.
    ///
    /// # Errors
    ///
    /// As for [`Guard::unlock`].
    pub fn release(self) -> Result<()> {
        self.client.block_on(self.inner.release())
    }
}

/// The tasks that wait for a loss. The drop ends them.
#[derive(Debug, Default)]
struct Watches(Mutex<Vec<AbortHandle>>);

impl Watches {
    fn add(
        &self,
        client: &Client,
        lost: impl Future<Output = Error> + Send + 'static,
        callback: impl FnOnce(Error) + Send + 'static,
    ) {
        let (watch, end) = AbortHandle::new_pair();
        let job = async move {
            let error = lost.await;
            // A slow callback would delay renewals on the runtime's thread.
            drop(tokio::task::spawn_blocking(move || callback(error)));
        };
        drop(client.home().spawn(Abortable::new(job, end).map(drop)));
        self.0.lock().push(watch);
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        for watch in self.0.get_mut() {
            watch.abort();
        }
    }
}
