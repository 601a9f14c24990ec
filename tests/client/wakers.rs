//! An executor may poll a task inside `wake`, and the task uses the waiters' tables. So the crate must not call `wake`
//! while it has locked one of these tables.

use std::sync::{Arc, mpsc};
use std::task::{Context, Wake};

use distlock::{Client, Flavour};
use distlock_support::{Admin, RedisServer};
use futures::executor::block_on;
use futures::future::BoxFuture;
use futures::task::noop_waker_ref;
use parking_lot::Mutex;
use tokio::runtime::Runtime;

use super::rig::runtime;
use bed::{PATIENCE, becomes};

/// A task that is polled inside its waker.
struct Inline(Mutex<Task>);

struct Task {
    /// `None` while the task is polled.
    work: Option<BoxFuture<'static, ()>>,
    woken: bool,
}

impl Inline {
    fn start(work: BoxFuture<'static, ()>) {
        Arc::new(Self(Mutex::new(Task { work: Some(work), woken: false }))).wake();
    }
}

impl Wake for Inline {
    fn wake(self: Arc<Self>) {
        let mut work = {
            let mut task = self.0.lock();
            task.woken = true;
            // If the task is being polled, that poll repeats because of `woken`.
            let Some(work) = task.work.take() else { return };
            work
        };
        let waker = Arc::clone(&self).into();
        loop {
            self.0.lock().woken = false;
            if work.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                return;
            }
            let mut task = self.0.lock();
            if !task.woken {
                task.work = Some(work);
                return;
            }
        }
    }
}

/// Four tasks wait, and each is polled inside its waker. The client's runtime calls their wakers directly, without a
/// tokio task in between.
fn in_their_wakers(home: &Runtime, client: &Client, flavour: Flavour) {
    let name = format!("x-{flavour}");
    let lock = client.lock(flavour, &name);
    let first = if flavour == Flavour::Read { client.lock(Flavour::Write, &name) } else { Arc::clone(&lock) };
    let guard = block_on(first.lock()).unwrap();
    let (tell, told) = mpsc::channel();
    for _ in 0..4 {
        let (lock, tell) = (Arc::clone(&lock), tell.clone());
        let mut work: BoxFuture<'_, _> = Box::pin(async move {
            lock.lock().await.unwrap().unlock().await.unwrap();
            tell.send(()).unwrap();
        });
        let here = home.enter();
        assert!(work.as_mut().poll(&mut Context::from_waker(noop_waker_ref())).is_pending());
        drop(here);
        Inline::start(work);
    }
    runtime().block_on(becomes("waiters", 4, async || client.stats().waiting));
    std::thread::spawn(move || block_on(guard.unlock()).unwrap());
    for _ in 0..4 {
        told.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{flavour}: a waiter is not served: a deadlock"));
    }
    assert!(block_on(lock.try_lock()).unwrap().is_some(), "{flavour}");
}

#[test]
fn waker_that_polls_its_waiter_causes_no_deadlock_on_message() {
    let server = RedisServer::start();
    let home = runtime();
    let client = home.block_on(bed::builder(&server.url()).connect()).unwrap();
    for flavour in [Flavour::Reentrant, Flavour::Fair, Flavour::Read, Flavour::Write, Flavour::Fenced, Flavour::Spin] {
        in_their_wakers(&home, &client, flavour);
    }
}

/// Without messages, a fair lock's waiters learn of a grant from the reply to the refresh of their queue entries.
#[test]
fn waker_that_polls_its_waiter_causes_no_deadlock_on_reply() {
    let server = RedisServer::start();
    let home = runtime();
    let client = home.block_on(async {
        let admin = Admin::connect(&server).await;
        let () = admin.cmd(&["ACL", "SETUSER", "deaf", "on", ">secret", "~*", "+@all", "resetchannels"]).await;
        bed::builder(&server.url().replace("redis://", "redis://deaf:secret@")).connect().await.unwrap()
    });
    in_their_wakers(&home, &client, Flavour::Fair);
}
