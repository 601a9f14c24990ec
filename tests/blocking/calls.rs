//! Locks: exclusion, waits, owners, and guards that move between threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use bed::{FLAVOURS, PATIENCE, ms, secs};
use distlock::blocking::{Barrier, Client, Guard, Latch, Lock, PermitGuard, Permits, RwLock, Semaphore};
use distlock::{Acquire, Error, Flavour, Released};

use crate::rig::{Rig, waits_in_vain};

const fn is_shared<T: Send + Sync + 'static>() {}

const _: () = {
    is_shared::<Client>();
    is_shared::<Lock>();
    is_shared::<RwLock>();
    is_shared::<Guard>();
    is_shared::<Permits>();
    is_shared::<PermitGuard>();
    is_shared::<Semaphore>();
    is_shared::<Latch>();
    is_shared::<Barrier>();
};

#[test]
fn eight_threads_of_two_clients_exclude_each_other() {
    let rig = Rig::start();
    let clients = [rig.client(), rig.client()];
    for flavour in FLAVOURS.into_iter().filter(|flavour| *flavour != Flavour::Read) {
        let inside = AtomicU32::new(0);
        thread::scope(|scope| {
            for n in 0..8 {
                let (lock, inside) = (clients[n % 2].lock(flavour, &format!("orders-{flavour}")), &inside);
                scope.spawn(move || {
                    for _ in 0..5 {
                        let guard = lock.lock().unwrap();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "{flavour}: another thread is inside");
                        thread::sleep(ms(1));
                        inside.fetch_sub(1, Ordering::SeqCst);
                        guard.unlock().unwrap();
                    }
                });
            }
        });
    }
    drop(clients);
    rig.end();
}

#[test]
fn wait_for_a_held_lock_ends_with_none_and_for_a_free_lock_with_a_guard() {
    let rig = Rig::start();
    let (holder, client) = (rig.client(), rig.client());
    let (held, lock) = (holder.reentrant("x"), client.reentrant("x"));
    let guard = held.lock().unwrap();
    assert!(lock.try_lock().unwrap().is_none());
    waits_in_vain(|wait| lock.lock_for(wait));
    assert_eq!((lock.is_locked().unwrap(), lock.state().unwrap().is_locked()), (true, true));
    assert_eq!(guard.unlock().unwrap(), Released::Free);
    // Each acquire waits for the release before it, which runs in the background.
    drop(lock.lock_for(PATIENCE).unwrap().unwrap());
    drop(lock.lock_leased(secs(60)).unwrap());
    drop(lock.acquire(Acquire::new().lease(secs(60))).unwrap().unwrap());
    assert!(matches!(client.reentrant("").lock(), Err(Error::Config { .. })));
    drop((held, lock, holder, client));
    rig.end();
}

#[test]
fn guard_acquired_by_one_thread_is_released_by_another() {
    let rig = Rig::start();
    let client = rig.client();
    let guard = client.fenced("x").lock().unwrap();
    assert!(guard.fencing_token().unwrap() > 0);
    guard.extend(secs(60)).unwrap();
    assert!(guard.remaining() <= secs(60) && guard.name() == "x");
    let released = thread::spawn(move || guard.unlock()).join().unwrap();
    assert_eq!(released.unwrap(), Released::Free);
    assert!(!client.fenced("x").is_locked().unwrap());
    drop(client);
    rig.end();
}

/// In Java, the second acquire of a thread re-enters.
#[test]
fn thread_that_holds_a_lock_enters_again_only_as_the_same_owner() {
    let rig = Rig::start();
    let client = rig.client();
    let (lock, owner) = (client.reentrant("x"), client.owner());
    let outer = lock.acquire(Acquire::new().owner(&owner)).unwrap().unwrap();
    assert!(lock.try_lock().unwrap().is_none());
    let inner = lock.acquire(Acquire::new().owner(&owner)).unwrap().unwrap();
    assert_eq!(inner.unlock().unwrap(), Released::StillHeld(1));
    assert_eq!(outer.unlock().unwrap(), Released::Free);
    // A hold without a guard.
    let owner = lock.lock().unwrap().into_async().into_owner();
    assert_eq!(lock.release(&owner).unwrap(), Released::Free);
    drop((lock, client));
    rig.end();
}

#[test]
fn readers_share_and_members_of_a_multi_lock_exclude() {
    let rig = Rig::start();
    let (client, other) = (rig.client(), rig.client());
    let readers = [client.rw("prices").read().lock().unwrap(), other.rw("prices").read().lock().unwrap()];
    assert!(client.rw("prices").write().try_lock().unwrap().is_none());
    drop(readers);
    client.rw("prices").write().lock().unwrap().unlock().unwrap();
    let both = client.wrap(Arc::new(client.as_async().multi(["from", "to"])));
    let guard = both.lock().unwrap();
    assert!(other.reentrant("to").try_lock().unwrap().is_none());
    assert!(other.reentrant("from").force_unlock().unwrap());
    drop((guard, both, client, other));
    rig.end();
}

#[test]
fn thousand_waiting_threads_share_the_connections_of_one_client() {
    let rig = Rig::start();
    let (holder, client) = (rig.client(), rig.client());
    let guard = holder.reentrant("x").lock().unwrap();
    let (lock, served) = (client.reentrant("x"), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..1_000 {
            let work = || {
                lock.lock().unwrap().unlock().unwrap();
                served.fetch_add(1, Ordering::Relaxed);
            };
            thread::Builder::new().stack_size(512 << 10).spawn_scoped(scope, work).unwrap();
        }
        rig.wait_for_waiters(&client, 1_000);
        // Two of each client.
        assert_eq!(rig.runtime.block_on(rig.admin.others()).len(), 4);
        guard.unlock().unwrap();
    });
    assert_eq!(served.into_inner(), 1_000);
    drop((lock, holder, client));
    rig.end();
}
