//! Memory use of distlock itself, counted by the allocator, over a transport that answers at once: allocations of an
//! acquire with its release, and memory that is left after many names.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use distlock::transport::{Call, Fault, Listener, Moment, Reply, Transport, World};
use distlock::{Client, Options};
use futures::future::BoxFuture;

/// Counts per thread, so concurrent tests do not affect each other.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static HELD: Cell<i64> = const { Cell::new(0) };
}

fn count(allocations: u64, bytes: i64) {
    // The counters no longer exist while their thread ends.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + allocations));
    let _ = HELD.try_with(|held| held.set(held.get() + bytes));
}

// SAFETY: everything is forwarded to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as i64);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, -(layout.size() as i64));
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A server where every lock is free.
#[derive(Debug)]
struct Free;

#[derive(Debug)]
struct Machine(Instant);

impl World for Machine {
    fn now(&self) -> Moment {
        Moment::from_nanos(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn random(&self) -> u64 {
        7
    }
}

impl Transport for Free {
    fn run(&self, call: Call) -> BoxFuture<'static, Result<Reply, Fault>> {
        let reply = if call.script.name.contains("release") { Reply::Int(0) } else { Reply::Nil };
        Box::pin(std::future::ready(Ok(reply)))
    }

    fn subscribe(&self, _: Bytes) -> BoxFuture<'static, Result<(), Fault>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn unsubscribe(&self, _: Bytes) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    fn listen(&self, _: Weak<dyn Listener>) {}

    fn address(&self) -> &str {
        "nowhere"
    }

    fn world(&self) -> Arc<dyn World> {
        Arc::new(Machine(Instant::now()))
    }

    fn close(&self, _: Duration) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

fn client() -> Client {
    Client::over_transport(Arc::new(Free), Options::default()).expect("nothing is asked of it")
}

/// Limit for 100 pairs. A pair made 12.3 allocations when this was written. These include two boxes of the transport,
/// and 3 for metric labels (feature `metrics`). If you raise the limit, write the reason here.
const MOST: u64 = 1_550;

#[tokio::test]
async fn acquire_with_release_stays_within_allocation_limit() {
    let client = client();
    let lock = client.reentrant("pair");
    let pair = async || {
        lock.lock().await.expect("it is free").unlock().await.expect("it is held");
    };
    pair().await;
    let before = ALLOCATIONS.get();
    for _ in 0..100 {
        pair().await;
    }
    let took = ALLOCATIONS.get() - before;
    assert!(took <= MOST, "{took} allocations by 100 pairs");
}

/// Tables shrink after they were filled.
#[tokio::test]
async fn many_names_leave_little_memory_in_use() {
    const NAMES: usize = 100_000;
    // No lease expires before the last lock is released.
    let mut options = Options::default();
    options.watchdog = Duration::from_secs(3600);
    let client = Client::over_transport(Arc::new(Free), options).expect("nothing is asked of it");
    let round = async |names: usize| {
        let mut guards = Vec::with_capacity(names);
        for name in 0..names {
            guards.push(client.reentrant(&name.to_string()).lock().await.expect("it is free"));
        }
        let full = HELD.get();
        while let Some(guard) = guards.pop() {
            guard.unlock().await.expect("it is held");
        }
        full
    };
    round(100).await;
    let before = HELD.get();
    let full = round(NAMES).await - before;
    let left = HELD.get() - before;
    assert!(full > 20_000_000, "{full} bytes by {NAMES} locks");
    assert!(left < 200_000, "{left} bytes left of {full}");
}
