//! The client's own runtime ends (findings 11, 14).

use std::sync::mpsc;
use std::task::Context;

use distlock::{Client, DistLock, Error, Result};
use distlock_support::RedisServer;
use futures::executor::block_on;
use futures::future::BoxFuture;

use super::runtime;
use bed::{ms, secs};

/// 11: a client's own runtime ends while others of the process use it: they are told, and nothing panics.
#[test]
fn n11_the_clients_own_runtime_ends_under_those_who_use_it() {
    let server = RedisServer::start();
    let home = runtime();
    let client = home.block_on(Client::connect(&server.url())).unwrap();
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
    let waiting = std::time::Instant::now();
    while client.stats().waiting < 2 {
        assert!(waiting.elapsed() < secs(20), "they do not wait");
        std::thread::sleep(ms(5));
    }
    home.shutdown_timeout(secs(5));
    for _ in 0..3 {
        let (what, outcome) = told.recv_timeout(secs(5)).expect("one of them hangs, or panicked");
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

/// 11: as before, for calls that were begun on the client's own runtime and went on elsewhere.
#[test]
fn n11_the_clients_own_runtime_ends_under_a_call_that_left_it() {
    let server = RedisServer::start();
    let theirs = runtime();
    let other = theirs.block_on(Client::connect(&server.url())).unwrap();
    let taken = theirs.block_on(other.reentrant("x").lock()).unwrap();
    for round in 0..24 {
        let home = runtime();
        let connecting = Client::builder(&server.url()).poll_cap(ms(10));
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
                            2 => lock.lock_for(secs(60)).await.map(drop),
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
        home.shutdown_timeout(secs(5));
        for _ in 0..n {
            let outcome = told.recv_timeout(secs(5)).expect("one of them hangs, or panicked");
            assert!(matches!(outcome, Err(Error::RuntimeGone)), "round {round}: {outcome:?}");
        }
    }
    theirs.block_on(taken.unlock()).unwrap();
}

/// 14: a shutdown that can release nothing any more does not say that it has.
#[test]
fn n14_a_shutdown_after_the_runtime_tells_the_truth() {
    let server = RedisServer::start();
    let home = runtime();
    let client = home.block_on(Client::connect(&server.url())).unwrap();
    let guard = home.block_on(client.reentrant("x").lock()).unwrap();
    home.shutdown_timeout(secs(5));
    let other = runtime();
    let said = other.block_on(client.shutdown(secs(2)));
    let left = other.block_on(async { distlock_support::Admin::connect(&server).await.exists("x").await });
    assert!(left, "who released it?");
    assert!(matches!(said, Err(Error::RuntimeGone)), "{said:?}, and the key is there");
    drop(guard);
}

/// 11: what waits for a shared command is told why that was dropped, also where it hears of it before it hears of the runtime.
#[test]
fn n11_the_clients_own_runtime_ends_under_a_shared_command() {
    let server = RedisServer::start();
    for _ in 0..10 {
        let home = runtime();
        let client = home.block_on(Client::connect(&server.url())).unwrap();
        server.stop();
        let calls = (0..12).map(|n| {
            let lock = client.reentrant(&format!("n{n}"));
            let mut call: BoxFuture<'_, _> = Box::pin(async move { lock.lock_for(secs(20)).await });
            let here = home.enter();
            let begun = call.as_mut().poll(&mut Context::from_waker(futures::task::noop_waker_ref()));
            assert!(begun.is_pending());
            drop(here);
            std::thread::spawn(move || block_on(call).map(|guard| guard.is_some()))
        });
        let calls: Vec<_> = calls.collect();
        let waiting = std::time::Instant::now();
        while client.stats().under_way < calls.len() {
            assert!(waiting.elapsed() < secs(20), "they are not under way: {:?}", client.stats());
            std::thread::sleep(ms(5));
        }
        home.shutdown_timeout(secs(5));
        for call in calls {
            let outcome = call.join().expect("no panic");
            assert!(matches!(outcome, Err(Error::RuntimeGone)), "{outcome:?}");
        }
        server.cont();
    }
}
