//! Our own locks as subjects.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use distlock::DistLock;
use distlock_support::Numbers;

use super::{Lock, Subject};
use crate::drive::{self, Kind, Plan, Sample};

/// Measures the plan's kind of lock.
pub(super) async fn run(client: &distlock::Client, plan: &Plan) -> Sample {
    let client = client.clone();
    match plan.kind {
        Kind::Reentrant => drive::run(&client, plan).await,
        Kind::Fair => drive::run(&Fair(client), plan).await,
        Kind::Plain => drive::run(&Plain(client), plan).await,
        Kind::Read => drive::run(&Mixed(client, 100), plan).await,
        Kind::Write => drive::run(&Mixed(client, 0), plan).await,
        Kind::Mix(reads) => drive::run(&Mixed(client, reads), plan).await,
        Kind::Fenced => drive::run(&Made(move |name: &str, _| Arc::new(client.fenced(name)) as _), plan).await,
        Kind::Spin => drive::run(&Made(move |name: &str, _| Arc::new(client.spin(name)) as _), plan).await,
        Kind::Multi(count) => {
            let make = move |name: &str, turned: bool| {
                let mut names = drive::names(name, count);
                if turned {
                    names.reverse();
                }
                Arc::new(client.multi(names)) as _
            };
            drive::run(&Made(make), plan).await
        }
        Kind::Striped(segments) => {
            // All tasks of the process share one object.
            let striped: Arc<dyn DistLock> = Arc::new(client.striped(&plan.name, segments));
            drive::run(&Made(move |_: &str, _| Arc::clone(&striped)), plan).await
        }
        Kind::Permits(_) => drive::run(&Permits(client), plan).await,
        Kind::Semaphore(_) => drive::run(&Semaphores(client), plan).await,
        Kind::Red(_) => panic!("a RedLock has several clients"),
        Kind::Latch => panic!("nobody acquires a latch"),
    }
}

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

struct Plain(distlock::Client);

impl Subject for Plain {
    type Lock = distlock::PlainLock;

    fn lock(&self, name: String) -> Self::Lock {
        self.0.plain(&name)
    }
}

struct Fair(distlock::Client);

impl Subject for Fair {
    type Lock = distlock::FairLock;

    fn lock(&self, name: String) -> Self::Lock {
        self.0.fair(&name)
    }
}

/// Makes read-write locks; the number is the percentage of acquires that read.
struct Mixed(distlock::Client, u8);

/// Both halves of one lock.
struct Halves {
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

/// The number of permits is in Redis ([`crate::bed::Bed::prepare`]).
struct Permits(distlock::Client);

impl Subject for Permits {
    type Lock = distlock::Permits;

    fn lock(&self, name: String) -> Self::Lock {
        self.0.permits(&name)
    }
}

impl Lock for distlock::Permits {
    type Guard = distlock::PermitGuard;

    async fn acquire(&mut self) -> Self::Guard {
        distlock::Permits::acquire(self, 1).await.unwrap_or_else(|error| panic!("distlock: permits: {error}"))
    }

    async fn release(&mut self, guard: Self::Guard) {
        guard.release().await.unwrap_or_else(|error| panic!("distlock: release of a permit: {error}"));
    }
}

/// The number of permits is in Redis ([`crate::bed::Bed::prepare`]).
struct Semaphores(distlock::Client);

impl Subject for Semaphores {
    type Lock = distlock::Semaphore;

    fn lock(&self, name: String) -> Self::Lock {
        self.0.semaphore(&name)
    }
}

impl Lock for distlock::Semaphore {
    type Guard = ();

    async fn acquire(&mut self) {
        distlock::Semaphore::acquire(self, 1).await.unwrap_or_else(|error| panic!("distlock: semaphore: {error}"));
    }

    async fn release(&mut self, (): ()) {
        let released = distlock::Semaphore::release(self, 1).await;
        released.unwrap_or_else(|error| panic!("distlock: release of a semaphore: {error}"));
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
