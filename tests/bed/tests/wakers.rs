//! An executor whose wakers never compare equal, which std allows. Code that polls until the registered waker equals
//! its own would loop forever. In an optimised build, the wakers of tokio's `block_on` also behave like this.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};
use std::time::Duration;

use distlock_support::RedisServer;
use parking_lot::Mutex;

/// Passes wake-ups on to the task's own waker.
struct Relay(Mutex<Waker>);

static ONE: RawWakerVTable = RawWakerVTable::new(clone_to_other, wake, wake_by_ref, release);
static OTHER: RawWakerVTable = RawWakerVTable::new(clone_to_one, wake, wake_by_ref, release);

// SAFETY: each of these functions gets a pointer from `Arc::into_raw` of an `Arc<Relay>`.
unsafe fn clone_to_other(data: *const ()) -> RawWaker {
    unsafe { Arc::increment_strong_count(data.cast::<Relay>()) };
    RawWaker::new(data, &OTHER)
}

unsafe fn clone_to_one(data: *const ()) -> RawWaker {
    unsafe { Arc::increment_strong_count(data.cast::<Relay>()) };
    RawWaker::new(data, &ONE)
}

unsafe fn wake(data: *const ()) {
    unsafe {
        wake_by_ref(data);
        release(data);
    }
}

unsafe fn wake_by_ref(data: *const ()) {
    let relay = unsafe { &*data.cast::<Relay>() };
    let waker = relay.0.lock().clone();
    waker.wake();
}

unsafe fn release(data: *const ()) {
    drop(unsafe { Arc::from_raw(data.cast::<Relay>()) });
}

/// Polls a future until it ends, more often than it is woken, as if other futures shared its task.
async fn finish<T>(work: impl Future<Output = T>) -> T {
    let relay = Arc::new(Relay(Mutex::new(Waker::noop().clone())));
    let data = Arc::into_raw(Arc::clone(&relay)).cast();
    // SAFETY: see above.
    let waker = unsafe { Waker::from_raw(RawWaker::new(data, &ONE)) };
    assert!(!waker.clone().will_wake(&waker), "no such waker");
    let mut work = std::pin::pin!(work);
    poll_fn(|context| {
        *relay.0.lock() = context.waker().clone();
        for _ in 0..3 {
            if let Poll::Ready(output) = work.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Poll::Ready(output);
            }
        }
        Poll::Pending
    })
    .await
}

/// Runs on one thread, so an endless loop blocks everything else.
#[tokio::test]
async fn locks_are_acquired_with_wakers_that_never_compare_equal() {
    let server = RedisServer::start();
    for direct in [false, true] {
        let client = distlock::Client::builder(&server.url())
            .configure(|options| options.use_fred = !direct)
            .connect()
            .await
            .unwrap();
        for flavour in [distlock::Flavour::Plain, distlock::Flavour::Reentrant, distlock::Flavour::Fair] {
            let lock = client.lock(flavour, "odd");
            for _ in 0..20 {
                let guard = finish(lock.lock()).await.unwrap();
                finish(guard.unlock()).await.unwrap();
            }
        }
        client.shutdown(Duration::from_secs(10)).await.unwrap();
    }
}
