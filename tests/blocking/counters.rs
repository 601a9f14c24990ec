//! Permits, semaphores, latches and barriers.

use std::thread;

use distlock::BarrierWait;

use crate::rig::{Rig, waits_in_vain};

#[test]
fn permits_limit_threads_of_two_clients() {
    let rig = Rig::start();
    let (client, other) = (rig.client(), rig.client());
    let (gate, there) = (client.permits("gate"), other.permits("gate"));
    assert!(gate.try_set_permits(2).unwrap() && !there.try_set_permits(9).unwrap());
    let held = [gate.acquire(1).unwrap(), there.acquire(1).unwrap()];
    assert!(gate.try_acquire(1).unwrap().is_none());
    waits_in_vain(|wait| there.acquire_for(1, wait));
    assert_eq!(gate.counts().unwrap().acquired, 2);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| there.clone().fair().acquire(2).unwrap());
        for guard in held {
            guard.check().unwrap();
            assert_eq!((guard.count(), guard.name()), (1, "gate"));
            guard.release().unwrap();
        }
        let both = waiting.join().unwrap();
        assert_eq!((both.count(), there.counts().unwrap().available), (2, 0));
        both.release().unwrap();
    });
    client.block_on(gate.as_async().delete()).unwrap();
    drop((gate, there, client, other));
    rig.end();
}

#[test]
fn semaphore_permit_taken_by_one_client_is_returned_by_another() {
    let rig = Rig::start();
    let (client, other) = (rig.client(), rig.client());
    let (seats, there) = (client.semaphore("seats"), other.semaphore("seats"));
    assert!(seats.try_set_permits(1).unwrap());
    seats.acquire(1).unwrap();
    assert!(!there.try_acquire(1).unwrap());
    waits_in_vain(|wait| there.acquire_for(1, wait).map(|taken| taken.then_some(())));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| seats.acquire(1).unwrap());
        there.release(1).unwrap();
        waiting.join().unwrap();
    });
    assert_eq!(there.available().unwrap(), 0);
    client.block_on(seats.as_async().delete()).unwrap();
    drop((seats, there, client, other));
    rig.end();
}

#[test]
fn latch_waiters_of_two_clients_return_at_zero() {
    let rig = Rig::start();
    let (client, other) = (rig.client(), rig.client());
    let (latch, there) = (client.latch("parts"), other.latch("parts"));
    assert!(latch.try_set(2).unwrap());
    waits_in_vain(|wait| there.wait_for(wait).map(|is_open| is_open.then_some(())));
    thread::scope(|scope| {
        let waiting = [scope.spawn(|| latch.wait()), scope.spawn(|| there.wait())];
        assert_eq!((there.count_down(1).unwrap(), latch.count().unwrap()), (1, 1));
        rig.wait_for_waiters(&client, 1);
        rig.wait_for_waiters(&other, 1);
        latch.count_down(1).unwrap();
        for waiter in waiting {
            waiter.join().unwrap().unwrap();
        }
    });
    drop((latch, there, client, other));
    rig.end();
}

#[test]
fn barrier_parties_return_together_with_one_leader() {
    let rig = Rig::start();
    let clients = [rig.client(), rig.client()];
    let waits: Vec<BarrierWait> = thread::scope(|scope| {
        let party = |n: usize| {
            let barrier = clients[n % 2].barrier("start", 3);
            scope.spawn(move || barrier.wait().unwrap())
        };
        let parties: Vec<_> = (0..3).map(party).collect();
        parties.into_iter().map(|party| party.join().unwrap()).collect()
    });
    assert_eq!(waits.iter().filter(|wait| wait.is_leader()).count(), 1, "{waits:?}");
    assert!(waits.iter().all(|wait| wait.round() == waits[0].round()), "{waits:?}");
    waits_in_vain(|wait| clients[0].barrier("start", 3).wait_for(wait));
    drop(clients);
    rig.end();
}
