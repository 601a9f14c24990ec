//! The methods of [`DistLock`] as methods of each type of lock, so that callers need not import the trait. The methods
//! of [`Lock`] that acquire are in `object.rs`.

use std::time::Duration;

use futures::future::BoxFuture;

use crate::acquire::Acquire;
use crate::error::Result;
use crate::guard::Guard;
use crate::lock::DistLock;
use crate::multi::MultiLock;
use crate::object::Lock;
use crate::owner::Owner;
use crate::redlock::RedLock;
use crate::state::{Released, State};
use crate::striped::Striped;

macro_rules! queries_and_releases {
    () => {
        /// Returns who holds the lock, and for how long. See [`DistLock::state`].
        pub fn state(&self) -> BoxFuture<'_, Result<State>> {
            DistLock::state(self)
        }

        /// True if anybody holds the lock. See [`DistLock::is_locked`].
        pub fn is_locked(&self) -> BoxFuture<'_, Result<bool>> {
            DistLock::is_locked(self)
        }

        /// Returns how long the lock stays held without renewal. See [`DistLock::remaining_ttl`].
        pub fn remaining_ttl(&self) -> BoxFuture<'_, Result<Option<Duration>>> {
            DistLock::remaining_ttl(self)
        }

        /// Returns how many times `owner` holds the lock. See [`DistLock::hold_count`].
        pub fn hold_count<'a>(&'a self, owner: &'a Owner) -> BoxFuture<'a, Result<u64>> {
            DistLock::hold_count(self, owner)
        }

        /// True if `owner` holds the lock. See [`DistLock::is_held_by`].
        pub fn is_held_by<'a>(&'a self, owner: &'a Owner) -> BoxFuture<'a, Result<bool>> {
            DistLock::is_held_by(self, owner)
        }

        /// Asks the holder to finish. See [`DistLock::revoke`].
        pub fn revoke(&self) -> BoxFuture<'_, Result<bool>> {
            DistLock::revoke(self)
        }

        /// Frees the lock, whoever holds it. Returns `false` if the lock was free. See [`DistLock::force_unlock`].
        pub fn force_unlock(&self) -> BoxFuture<'_, Result<bool>> {
            DistLock::force_unlock(self)
        }

        /// Releases one hold of `owner` that has no guard in this process. See [`DistLock::release`].
        pub fn release<'a>(&'a self, owner: &'a Owner) -> BoxFuture<'a, Result<Released>> {
            DistLock::release(self, owner)
        }
    };
}

impl<F: 'static> Lock<F> {
    queries_and_releases!();
}

macro_rules! groups {
    ($($lock:ty),+) => {
        $(impl $lock {
            /// Returns the name, without the client's prefix. See [`DistLock::name`].
            #[must_use]
            pub fn name(&self) -> &str {
                DistLock::name(self)
            }

            /// Acquires the lock as described by `how`. Bind the [guard](Guard#bind-it). See [`DistLock::acquire`].
            pub fn acquire(&self, how: Acquire) -> BoxFuture<'_, Result<Option<Guard>>> {
                DistLock::acquire(self, how)
            }

            /// Waits until the lock is free, and acquires it. Bind the [guard](Guard#bind-it). See [`DistLock::lock`].
            pub fn lock(&self) -> BoxFuture<'_, Result<Guard>> {
                DistLock::lock(self)
            }

            /// Acquires the lock if it is free now. Bind the [guard](Guard#bind-it). See [`DistLock::try_lock`].
            pub fn try_lock(&self) -> BoxFuture<'_, Result<Option<Guard>>> {
                DistLock::try_lock(self)
            }

            /// Waits for the lock for at most `wait`. Bind the [guard](Guard#bind-it). See [`DistLock::lock_for`].
            pub fn lock_for(&self, wait: Duration) -> BoxFuture<'_, Result<Option<Guard>>> {
                DistLock::lock_for(self, wait)
            }

            /// Waits for the lock, and holds it for at most `lease`. Bind the [guard](Guard#bind-it). See
            /// [`DistLock::lock_leased`].
            pub fn lock_leased(&self, lease: Duration) -> BoxFuture<'_, Result<Guard>> {
                DistLock::lock_leased(self, lease)
            }

            queries_and_releases!();
        })+
    };
}

groups!(MultiLock, RedLock, Striped);
