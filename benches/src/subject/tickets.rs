//! The semaphore of the crate `distributed-lock-redis`. Its permits, called tickets, have leases that are extended in
//! the background. Its waiters poll, with pauses of 10 to 200 ms.

use std::sync::Arc;

use distributed_lock_core::traits::{DistributedSemaphore, LockHandle, SemaphoreProvider};
use distributed_lock_redis::{RedisDistributedSemaphore, RedisLockProvider, RedisSemaphoreHandle};

use super::{LEASE, Lock, Subject};

/// Connects a client of that crate.
pub(super) async fn connect(url: &str) -> Arc<RedisLockProvider> {
    let provider = RedisLockProvider::builder().url(url).expiry(LEASE).build().await;
    Arc::new(provider.unwrap_or_else(|error| panic!("distributed-lock: {error}")))
}

/// Makes semaphores with this many tickets.
pub(super) struct Tickets(pub(super) Arc<RedisLockProvider>, pub(super) u32);

impl Subject for Tickets {
    type Lock = RedisDistributedSemaphore;

    fn lock(&self, name: String) -> Self::Lock {
        self.0.create_semaphore(&name, self.1)
    }
}

impl Lock for RedisDistributedSemaphore {
    type Guard = RedisSemaphoreHandle;

    async fn acquire(&mut self) -> Self::Guard {
        let taken = <Self as DistributedSemaphore>::acquire(self, None).await;
        taken.unwrap_or_else(|error| panic!("distributed-lock: acquire: {error}"))
    }

    async fn release(&mut self, guard: Self::Guard) {
        LockHandle::release(guard).await.unwrap_or_else(|error| panic!("distributed-lock: release: {error}"));
    }
}
