//! After the client's own runtime ends, every call returns `RuntimeGone`. Nothing panics or hangs.

use std::sync::mpsc;
use std::task::Context;
use std::time::Duration;

use distlock::{Acquire, Client, DistLock, Error, Result};
use distlock_support::{Admin, RedisServer};
use futures::executor::block_on;
use futures::future::BoxFuture;
use tokio::runtime::Runtime;

use super::rig::runtime;
use bed::{PATIENCE, eventually, ms, secs};

type Call = BoxFuture<'static, Result<()>>;

#[track_caller]
fn is_gone<T: std::fmt::Debug>(what: &str, outcome: Result<T>) {
    assert!(matches!(outcome, Err(Error::RuntimeGone)), "{what}: {outcome:?}");
}

/// Pending calls, each on its own thread.
struct Calls {
    tell: mpsc::Sender<(&'static str, Result<()>)>,
    told: mpsc::Receiver<(&'static str, Result<()>)>,
    count: usize,
}

impl Calls {
    fn new() -> Self {
        let (tell, told) = mpsc::channel();
        Self { tell, told, count: 0 }
    }

    fn go_on(&mut self, what: &'static str, on_a_runtime: bool, call: Call) {
        let tell = self.tell.clone();
        self.count += 1;
        std::thread::spawn(move || {
            let outcome = if on_a_runtime { runtime().block_on(call) } else { block_on(call) };
            tell.send((what, outcome)).unwrap();
        });
    }

    fn are_told(self) {
        for _ in 0..self.count {
            let (what, outcome) = self.told.recv_timeout(PATIENCE).expect("a call hangs, or panicked");
            is_gone(what, outcome);
        }
    }
}

fn waits(lock: impl DistLock + 'static, wait: Option<Duration>) -> Call {
    let how = wait.map_or_else(Acquire::new, |wait| Acquire::new().wait(wait));
    Box::pin(async move { lock.acquire(how).await.map(drop) })
}

/// Polls the call once on this runtime. The call must stay pending.
fn begin(home: &Runtime, call: &mut Call) {
    let _here = home.enter();
    assert!(call.as_mut().poll(&mut Context::from_waker(futures::task::noop_waker_ref())).is_pending());
}

fn connect(home: &Runtime, server: &RedisServer) -> Client {
    home.block_on(bed::builder(&server.url()).configure(|options| options.poll_cap = ms(10)).connect()).unwrap()
}

#[test]
fn waiters_and_guards_get_runtime_gone_error() {
    let server = RedisServer::start();
    let home = runtime();
    let client = connect(&home, &server);
    let (held, busy) = (client.reentrant("held"), client.reentrant("busy"));
    let (guard, taken) = (home.block_on(held.lock()).unwrap(), home.block_on(busy.lock()).unwrap());
    let mut calls = Calls::new();
    calls.go_on("a waiter without a runtime", false, waits(busy.clone(), None));
    calls.go_on("a waiter on another runtime", true, waits(busy.clone(), None));
    let lost = guard.lost();
    calls.go_on("lost()", false, Box::pin(async move { Err(lost.await) }));
    runtime().block_on(eventually("two wait", async || client.stats().waiting >= 2));
    home.shutdown_timeout(PATIENCE);
    calls.are_told();
    is_gone("extend()", block_on(guard.extend(secs(10))));
    is_gone("unlock()", block_on(guard.unlock()));
    is_gone("state()", block_on(held.state()));
    is_gone("try_lock()", block_on(held.try_lock()));
    is_gone("shutdown()", runtime().block_on(client.shutdown(PATIENCE)));
    let key = async || Admin::connect(&server).await.exists("busy").await;
    assert!(runtime().block_on(key()), "released after the end of the runtime");
    // Dropping the guard must not panic, although nothing can be sent.
    drop(taken);
}

/// The calls begin on the client's own runtime and continue elsewhere.
#[test]
fn calls_moved_to_other_executor_get_runtime_gone_error() {
    let server = RedisServer::start();
    let theirs = runtime();
    let other = connect(&theirs, &server);
    let taken = theirs.block_on(other.reentrant("x").lock()).unwrap();
    for round in 0..24 {
        let home = runtime();
        let client = connect(&home, &server);
        let lock = || client.reentrant("x");
        let begun = match round % 3 {
            0 => vec![("a waiter", waits(lock(), None))],
            // One task sends commands. Two tasks wait behind it, and one of them has a time limit.
            1 => vec![
                ("the first", waits(lock(), None)),
                ("the second", waits(lock(), None)),
                ("the third", waits(lock(), Some(secs(600)))),
            ],
            // A spin lock's waiter always has another poll to make.
            _ => vec![("a spin lock's waiter", waits(client.spin("x"), None))],
        };
        let mut calls = Calls::new();
        for (what, mut call) in begun {
            begin(&home, &mut call);
            calls.go_on(what, round % 2 == 1, call);
        }
        std::thread::sleep(ms(round));
        home.shutdown_timeout(PATIENCE);
        calls.are_told();
    }
    theirs.block_on(taken.unlock()).unwrap();
}

/// A call may learn that its batch was dropped before it learns that the runtime has ended.
#[test]
fn calls_of_one_batch_get_runtime_gone_error() {
    let server = RedisServer::start();
    for _ in 0..10 {
        let home = runtime();
        let client = connect(&home, &server);
        server.stop();
        let mut calls = Calls::new();
        for n in 0..12 {
            let mut call = waits(client.reentrant(&format!("n{n}")), Some(secs(600)));
            begin(&home, &mut call);
            calls.go_on("a call of the batch", false, call);
        }
        runtime().block_on(eventually("all are in flight", async || client.stats().under_way >= 12));
        home.shutdown_timeout(PATIENCE);
        calls.are_told();
        server.cont();
    }
}
