//! The lock or permit that `run` holds.

use distlock::{Acquire, Client, Error, Guard, PermitGuard};

use super::Args;
use crate::exit::Failure;

/// A held lock, or one held permit.
pub enum Hold {
    /// `--flavour`.
    Lock(Guard),
    /// `--permits`.
    Permit(PermitGuard),
}

impl Hold {
    /// Acquires the lock or the permit that the arguments name. Returns `None` if the wait ran out.
    ///
    /// # Errors
    ///
    /// As [`acquire`](distlock::DistLock::acquire) fails, and [`Failure::Usage`] if another number of permits is set.
    pub async fn acquire(args: &Args, client: &Client) -> Result<Option<Self>, Failure> {
        let mut how = Acquire::new();
        if let Some(wait) = args.wait {
            how = how.wait(wait);
        }
        if let Some(lease) = args.lease {
            how = how.lease(lease);
        }
        let name = &args.name;
        let Some(n) = args.permits else {
            return Ok(client.lock(args.flavour, name).acquire(how).await?.map(Self::Lock));
        };
        let permits = client.permits(name);
        if !permits.try_set_permits(n).await? {
            let total = permits.counts().await?.total();
            if total != i64::from(n) {
                let text = format!(
                    "{name:?} has {total} permits, and --permits says {n}: use the same number everywhere, or wait \
                     until nobody holds a permit and delete the permits: `distlock unlock --force --flavour permits \
                     {name:?}`"
                );
                return Err(Failure::Usage(text));
            }
        }
        Ok(permits.acquire_with(1, how).await?.map(Self::Permit))
    }

    /// Completes when the lock is lost, with the reason.
    pub async fn lost(&self) -> Error {
        match self {
            Self::Lock(guard) => guard.lost().await,
            Self::Permit(guard) => guard.lost().await,
        }
    }

    /// True while the lock is held by the local clock.
    pub fn is_held(&self) -> bool {
        match self {
            Self::Lock(guard) => guard.is_held(),
            Self::Permit(guard) => guard.is_held(),
        }
    }

    /// Returns the environment variables of CMD. A variable without a value is removed, because it may come from an
    /// outer `distlock run`. The names do not begin with `DISTLOCK_`: `Settings::from_env("DISTLOCK")` refuses unknown
    /// variables.
    pub fn env(&self) -> [(&'static str, Option<String>); 3] {
        let (name, owner, token) = match self {
            Self::Lock(guard) => (guard.name(), Some(guard.owner().to_string()), guard.fencing_token().ok()),
            Self::Permit(guard) => (guard.name(), guard.ids().first().map(ToString::to_string), None),
        };
        [
            ("HELD_LOCK_NAME", Some(name.to_owned())),
            ("HELD_LOCK_OWNER", owner),
            ("HELD_LOCK_TOKEN", token.map(|token| token.to_string())),
        ]
    }

    /// Releases the lock.
    ///
    /// # Errors
    ///
    /// As [`Guard::unlock`] fails.
    pub async fn release(self) -> distlock::Result<()> {
        match self {
            Self::Lock(guard) => guard.unlock().await.map(drop),
            Self::Permit(guard) => guard.release().await,
        }
    }
}
