//! The client's own runtime ends: whoever uses the client is told `RuntimeGone`, and nothing panics or hangs.

use std::sync::mpsc;
use std::task::Context;

use distlock::{DistLock, Error, Result};
use distlock_support::RedisServer;
use futures::executor::block_on;
use futures::future::BoxFuture;

use super::runtimes::runtime;
use bed::{PATIENCE, eventually, ms, secs};

#[test]
fn waiters_and_guards_are_told_that_the_runtime_is_gone() {
    let server = RedisServer::start();
    let home = runtime();
    let client = home.block_on(bed::builder(&server.url()).connect()).unwrap();
    let (held, busy) = (client.reentrant("held"), client.reentrant("busy"));
    let guard = home.block_on(held.lock()).unwrap();
    let taken = home.block_on(busy.lock()).unwrap();
    let (tell, told) = mpsc::channel();
    type Wait = Box<dyn FnOnce() -> Result<()> + Send>;
    let waits: [(&str, Wait); 3] = [
        ("block_on", {
            let busy = busy.clone();
            Box::new(move || block_on(busy.lock()).map(drop))
        }),
        ("a runtime", {
            let busy = busy.clone();
            Box::new(move || runtime().block_on(busy.lock()).map(drop))
        }),
        ("lost", {
            let lost = guard.lost();
            Box::new(move || Err(block_on(lost)))
        }),
    ];
    for (what, wait) in waits {
        let tell = tell.clone();
        std::thread::spawn(move || tell.send((what, wait())).unwrap());
    }
    runtime().block_on(eventually("two wait", async || client.stats().waiting >= 2));
    home.shutdown_timeout(PATIENCE);
    for _ in 0..3 {
        let (what, outcome) = told.recv_timeout(PATIENCE).expect("one of them hangs, or panicked");
        assert!(matches!(outcome, Err(Error::RuntimeGone)), "{what}: {outcome:?}");
    }
    let refused = block_on(guard.extend(secs(10)));
    assert!(matches!(refused, Err(Error::RuntimeGone)), "{refused:?}");
    let refused = block_on(guard.unlock());
    assert!(matches!(refused, Err(Error::RuntimeGone)), "{refused:?}");
    let refused = block_on(held.state());
    assert!(matches!(refused, Err(Error::RuntimeGone)), "{refused:?}");
    let refused = block_on(held.try_lock());
    assert!(matches!(refused, Err(Error::RuntimeGone)), "{refused:?}");
    // No panic, and nothing to be told to.
    drop(taken);
    drop(client);
}

/// They were begun on the client's own runtime and go on elsewhere.
#[test]
fn calls_that_moved_to_another_executor_are_told_that_the_runtime_is_gone() {
    let server = RedisServer::start();
    let theirs = runtime();
    let other = theirs.block_on(bed::builder(&server.url()).connect()).unwrap();
    let taken = theirs.block_on(other.reentrant("x").lock()).unwrap();
    for round in 0..24 {
        let home = runtime();
        let connecting = bed::builder(&server.url()).poll_cap(ms(10));
        let client = home.block_on(connecting.connect()).unwrap();
        // One asks, two stand behind it: for the turn, with an end of the wait and without.
        let calls: Vec<BoxFuture<'static, Result<()>>> = match round % 3 {
            0 => vec![{
                let lock = client.reentrant("x");
                Box::pin(async move { lock.lock().await.map(drop) })
            }],
            1 => (0..3)
                .map(|n| -> BoxFuture<'static, Result<()>> {
                    let lock = client.reentrant("x");
                    Box::pin(async move {
                        match n {
                            2 => lock.lock_for(secs(600)).await.map(drop),
                            _ => lock.lock().await.map(drop),
                        }
                    })
                })
                .collect(),
            _ => vec![{
                // Always about to look once more.
                let lock = client.spin("x");
                Box::pin(async move { lock.lock().await.map(drop) })
            }],
        };
        let (tell, told) = mpsc::channel();
        let n = calls.len();
        for mut call in calls {
            home.block_on(async { assert!(futures::poll!(&mut call).is_pending()) });
            let (tell, there) = (tell.clone(), runtime());
            std::thread::spawn(move || {
                let outcome = if round % 2 == 0 { block_on(call) } else { there.block_on(call) };
                tell.send(outcome).unwrap();
            });
        }
        std::thread::sleep(ms(round));
        home.shutdown_timeout(PATIENCE);
        for _ in 0..n {
            let outcome = told.recv_timeout(PATIENCE).expect("one of them hangs, or panicked");
            assert!(matches!(outcome, Err(Error::RuntimeGone)), "round {round}: {outcome:?}");
        }
    }
    theirs.block_on(taken.unlock()).unwrap();
}

/// It can release nothing any more.
#[test]
fn a_shutdown_after_the_runtime_says_so() {
    let server = RedisServer::start();
    let home = runtime();
    let client = home.block_on(bed::builder(&server.url()).connect()).unwrap();
    let guard = home.block_on(client.reentrant("x").lock()).unwrap();
    home.shutdown_timeout(PATIENCE);
    let other = runtime();
    let said = other.block_on(client.shutdown(PATIENCE));
    let left = other.block_on(async { distlock_support::Admin::connect(&server).await.exists("x").await });
    assert!(left, "who released it?");
    assert!(matches!(said, Err(Error::RuntimeGone)), "{said:?}, and the key is there");
    drop(guard);
}

/// A call may hear that its batch was dropped before it hears of the runtime.
#[test]
fn calls_of_one_batch_are_told_that_the_runtime_is_gone() {
    let server = RedisServer::start();
    for _ in 0..10 {
        let home = runtime();
        let client = home.block_on(bed::builder(&server.url()).connect()).unwrap();
        server.stop();
        let calls = (0..12).map(|n| {
            let lock = client.reentrant(&format!("n{n}"));
            let mut call: BoxFuture<'_, _> = Box::pin(async move { lock.lock_for(secs(600)).await });
            let here = home.enter();
            let begun = call.as_mut().poll(&mut Context::from_waker(futures::task::noop_waker_ref()));
            assert!(begun.is_pending());
            drop(here);
            std::thread::spawn(move || block_on(call).map(|guard| guard.is_some()))
        });
        let calls: Vec<_> = calls.collect();
        runtime().block_on(eventually("all are in flight", async || client.stats().under_way >= calls.len()));
        home.shutdown_timeout(PATIENCE);
        for call in calls {
            let outcome = call.join().expect("no panic");
            assert!(matches!(outcome, Err(Error::RuntimeGone)), "{outcome:?}");
        }
        server.cont();
    }
}
