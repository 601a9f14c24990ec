//! Calls and drops on a thread of a runtime.

use std::fmt::Debug;

use bed::secs;
use distlock::blocking::Client;
use distlock::{Error, Result};

use crate::rig::Rig;

fn is_refused<T: Debug>(outcome: Result<T>) {
    let Err(Error::Config { what }) = &outcome else { panic!("{outcome:?}") };
    assert!(what.contains("async"), "{what}");
}

#[test]
fn calls_inside_a_runtime_are_refused_and_guards_still_report_their_state() {
    let rig = Rig::start();
    let client = rig.client();
    let (url, lock, gate) = (rig.server.url(), client.reentrant("x"), client.permits("gate"));
    let guard = lock.lock().unwrap();
    let try_all = || {
        is_refused(Client::connect(&url));
        is_refused(lock.lock());
        is_refused(lock.try_lock());
        is_refused(lock.is_locked());
        is_refused(gate.acquire(1));
        is_refused(client.latch("parts").wait());
        is_refused(guard.extend(secs(60)));
        is_refused(client.ping());
        is_refused(client.shutdown(secs(60)));
        assert!(guard.is_held());
        guard.check().unwrap();
    };
    rig.runtime.block_on(async { try_all() });
    futures::executor::block_on(async { try_all() });
    // The refused call drops its guard, which releases the lock.
    rig.runtime.block_on(async { is_refused(guard.unlock()) });
    lock.lock().unwrap().unlock().unwrap();
    drop((lock, gate, client));
    rig.end();
}

#[test]
fn last_handle_dropped_inside_a_runtime_releases_locks_and_closes_connections() {
    let rig = Rig::start();
    let client = rig.client();
    let guard = client.reentrant("x").lock().unwrap();
    rig.runtime.block_on(async move { drop((client, guard)) });
    rig.end();
}
