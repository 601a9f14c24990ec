//! A lost lock is reported to a callback, and by the next check.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use bed::PATIENCE;
use distlock::{Error, Lost};

use crate::rig::{Rig, renew};

#[test]
fn lock_deleted_by_another_is_reported_by_callback_check_and_unlock() {
    let rig = Rig::start();
    let client = rig.client();
    let guard = client.reentrant("x").lock().unwrap();
    let (send, reported) = mpsc::channel();
    for n in 0..2 {
        let send = send.clone();
        guard.on_lost(move |error| drop(send.send((n, error))));
    }
    drop(send);
    guard.check().unwrap();
    rig.delete("x");
    assert_eq!(renew(&client), 1);
    let mut called = Vec::new();
    for _ in 0..2 {
        let (n, error) = reported.recv_timeout(PATIENCE).unwrap();
        assert!(matches!(error, Error::Lost { why: Lost::Gone, .. }), "{error:?}");
        called.push(n);
    }
    called.sort_unstable();
    assert_eq!(called, [0, 1]);
    assert_eq!((guard.is_held(), guard.remaining()), (false, Duration::ZERO));
    assert!(matches!(guard.check(), Err(Error::Lost { why: Lost::Gone, .. })));
    assert!(matches!(guard.unlock(), Err(Error::Lost { why: Lost::Gone, .. })));
    assert!(matches!(reported.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected)));
    drop(client);
    rig.end();
}

#[test]
fn deleted_permits_are_reported_by_callback_and_check() {
    let rig = Rig::start();
    let client = rig.client();
    let gate = client.permits("gate");
    gate.try_set_permits(2).unwrap();
    let guard = gate.acquire(2).unwrap();
    let (send, reported) = mpsc::channel();
    guard.on_lost(move |error| drop(send.send(error)));
    assert!(client.block_on(gate.as_async().delete()).unwrap());
    assert_eq!(renew(&client), 1);
    let error = reported.recv_timeout(PATIENCE).unwrap();
    assert!(matches!(error, Error::Lost { why: Lost::Gone, .. }), "{error:?}");
    assert!(matches!(guard.check(), Err(Error::Lost { .. })));
    assert!(!guard.is_held());
    assert!(matches!(guard.release(), Err(Error::Lost { .. })));
    drop((gate, client));
    rig.end();
}

#[test]
fn callback_of_a_released_guard_is_dropped_without_a_call() {
    let rig = Rig::start();
    let client = rig.client();
    for drops in [false, true] {
        let guard = client.reentrant("x").lock().unwrap();
        let (send, reported) = mpsc::channel();
        guard.on_lost(move |error| drop(send.send(error)));
        if drops {
            drop(guard);
        } else {
            guard.unlock().unwrap();
        }
        assert!(matches!(reported.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected)), "drops: {drops}");
    }
    drop(client);
    rig.end();
}

#[test]
fn slow_callback_delays_no_other_call_and_must_not_block_on_the_client() {
    let rig = Rig::start();
    let client = rig.client();
    let guard = client.reentrant("x").lock().unwrap();
    let (send, refused) = mpsc::channel();
    let (finish, finished) = mpsc::channel::<()>();
    let other = client.reentrant("y");
    guard.on_lost(move |_| {
        send.send(other.lock().map(drop)).unwrap();
        // Slow: until the test ends.
        let _ = finished.recv();
    });
    rig.delete("x");
    assert_eq!(renew(&client), 1);
    let refused = refused.recv_timeout(PATIENCE).unwrap();
    assert!(matches!(refused, Err(Error::Config { .. })), "{refused:?}");
    client.reentrant("y").lock().unwrap().unlock().unwrap();
    drop((finish, guard, client));
    rig.end();
}
