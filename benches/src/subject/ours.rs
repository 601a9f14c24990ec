//! Our own locks as subjects.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use distlock::DistLock;
use distlock_support::Numbers;

use super::{Lock, Subject};

macro_rules! locks {
    ($($lock:ident, $name:literal);+) => {
        $(impl Lock for distlock::$lock {
            type Guard = distlock::Guard;

            async fn acquire(&mut self) -> Self::Guard {
                Self::lock(self).await.unwrap_or_else(|error| panic!("distlock: {}: {error}", $name))
            }

            async fn release(&mut self, guard: Self::Guard) {
                unlock(guard, $name).await;
            }
        })+
    };
}

locks!(ReentrantLock, "lock"; PlainLock, "plain lock"; FairLock, "fair lock");

/// `of`: the kind of lock, for the message of a failure.
async fn unlock(guard: distlock::Guard, of: &str) {
    guard.unlock().await.map_or_else(|error| panic!("distlock: unlock of a {of}: {error}"), drop);
}

impl Subject for distlock::Client {
    type Lock = distlock::ReentrantLock;

    fn lock(&self, name: String) -> Self::Lock {
        self.reentrant(&name)
    }
}

pub(super) struct Plain(pub(super) distlock::Client);

impl Subject for Plain {
    type Lock = distlock::PlainLock;

    fn lock(&self, name: String) -> Self::Lock {
        self.0.plain(&name)
    }
}

pub(super) struct Fair(pub(super) distlock::Client);

impl Subject for Fair {
    type Lock = distlock::FairLock;

    fn lock(&self, name: String) -> Self::Lock {
        self.0.fair(&name)
    }
}

/// Makes read-write locks; the number is the percentage of acquires that read.
pub(super) struct Mixed(pub(super) distlock::Client, pub(super) u8);

/// Both halves of one lock.
pub(super) struct Halves {
    read: distlock::ReadLock,
    write: distlock::WriteLock,
    reads: u8,
    numbers: Numbers,
}

impl Subject for Mixed {
    type Lock = Halves;

    fn lock(&self, name: String) -> Self::Lock {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let lock = self.0.rw(&name);
        let seed = u64::from(std::process::id()) << 32 | NEXT.fetch_add(1, Ordering::Relaxed);
        Halves { read: lock.read(), write: lock.write(), reads: self.1, numbers: Numbers::new(seed) }
    }
}

impl Lock for Halves {
    type Guard = distlock::Guard;

    async fn acquire(&mut self) -> Self::Guard {
        let reads = self.numbers.below(100) < u64::from(self.reads);
        let taken = if reads { self.read.lock().await } else { self.write.lock().await };
        taken.unwrap_or_else(|error| panic!("distlock: read-write lock: {error}"))
    }

    async fn release(&mut self, guard: Self::Guard) {
        unlock(guard, "read-write lock").await;
    }
}

/// Makes our locks of any other kind.
pub(super) struct Made<F>(pub(super) F);

impl<F: Fn(&str, bool) -> Arc<dyn DistLock> + Send + Sync + 'static> Subject for Made<F> {
    type Lock = Arc<dyn DistLock>;

    fn lock(&self, name: String) -> Self::Lock {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        (self.0)(&name, NEXT.fetch_add(1, Ordering::Relaxed) % 2 == 1)
    }
}

impl Lock for Arc<dyn DistLock> {
    type Guard = distlock::Guard;

    async fn acquire(&mut self) -> Self::Guard {
        DistLock::lock(&**self).await.unwrap_or_else(|error| panic!("distlock: {}: {error}", self.name()))
    }

    async fn release(&mut self, guard: Self::Guard) {
        unlock(guard, "lock").await;
    }
}
