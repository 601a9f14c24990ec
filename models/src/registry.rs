//! The registry, from its own source, in every order of events. One waiter has the turn, and the turn is never lost.
//! Each event reaches the waiter that must look at the lock next. A hold that is handed over is used or released. In
//! the end nothing is left.

use std::sync::Arc;

use loom::future::block_on;
use loom::thread;

use crate::engine::registry::Waiter;
use crate::server::{Client, FOREVER, dropped_after, name};
use crate::tests::explore;

/// Two tasks of a client acquire the lock one after the other.
fn two_tasks(handoffs: u32) {
    let client = Client::new(handoffs);
    let name = name("a");
    let other = {
        let (client, name) = (Arc::clone(&client), Arc::clone(&name));
        thread::spawn(move || drop(block_on(client.lock(&name))))
    };
    drop(block_on(client.lock(&name)));
    other.join().unwrap();
    client.assert_clean();
}

#[test]
fn two_tasks_acquire_lock_in_sequence() {
    explore(2, || two_tasks(0));
}

#[test]
fn two_tasks_acquire_lock_with_hand_over() {
    explore(2, || two_tasks(1));
}

/// The lock is released while two tasks wait. One task gives up.
fn one_goes_away(handoffs: u32, polls: usize) {
    let client = Client::new(handoffs);
    let name = name("a");
    let grant = block_on(client.lock(&name));
    let waiters = [Some(polls), None].map(|polls| {
        let (client, name) = (Arc::clone(&client), Arc::clone(&name));
        thread::spawn(move || match polls {
            Some(polls) => drop(block_on(dropped_after(polls, client.lock(&name)))),
            None => drop(block_on(client.lock(&name))),
        })
    });
    drop(grant);
    for waiter in waiters {
        waiter.join().unwrap();
    }
    client.assert_clean();
}

#[test]
fn news_for_cancelled_waiter_reaches_next_waiter() {
    explore(2, || one_goes_away(0, 2));
}

#[test]
fn hold_handed_to_cancelled_waiter_reaches_next_waiter() {
    explore(2, || one_goes_away(2, 1));
    explore(2, || one_goes_away(2, 2));
}

/// An idle subscription ends just when a waiter of another task begins to listen.
fn ended_while_needed(names: [&str; 2]) {
    let client = Client::new(0);
    let [first, second] = names.map(name);
    assert!(client.server.try_acquire());
    let come_and_gone = block_on(dropped_after(2, client.lock(&first)));
    assert!(come_and_gone.is_none());
    client.reaper.join();
    let waiter = {
        let (client, second) = (Arc::clone(&client), Arc::clone(&second));
        thread::spawn(move || {
            let mut waiter = client.registry.enter(&second, None);
            waiter.sit();
            block_on(waiter.listen(FOREVER));
            waiter
        })
    };
    client.reaper.run_sleepers();
    let waiter = waiter.join().unwrap();
    client.reaper.join();
    assert!(!waiter.is_listening() || client.server.is_subscribed(), "it listens to nothing");
    assert!(!client.server.has_cut_off(), "it may have missed something");
    drop(waiter);
    client.freed_elsewhere();
    client.assert_clean();
}

#[test]
fn ended_subscription_is_restarted_for_new_waiter() {
    explore(3, || ended_while_needed(["a", "a"]));
}

#[test]
fn ended_subscription_is_restarted_for_other_name_of_channel() {
    explore(2, || ended_while_needed(["a", "{a}"]));
}

fn listener(client: &Client, plain: &str) -> Waiter {
    let mut waiter = client.registry.enter(&name(plain), None);
    waiter.sit();
    block_on(waiter.listen(FOREVER));
    client.reaper.join();
    waiter
}

#[test]
fn message_reaches_every_name_of_its_channel() {
    explore(2, || {
        let client = Client::new(0);
        assert!(client.server.try_acquire());
        drop(listener(&client, "a"));
        let waiters = ["{a}", "x"].map(|plain| listener(&client, plain));
        let sleepers = {
            let client = Arc::clone(&client);
            thread::spawn(move || client.reaper.run_sleepers())
        };
        client.freed_elsewhere();
        assert!(waiters.iter().all(Waiter::is_woken), "a message was missed");
        drop(waiters);
        sleepers.join().unwrap();
        client.assert_clean();
    });
}

/// Other clients get the message of the release. The next acquire of this client yields to them. It stops yielding if
/// no other client acquires.
#[test]
fn acquire_completes_after_yielding_to_other_clients() {
    explore(2, || {
        let client = Client::new(0);
        client.server.tells(1);
        let name = name("a");
        drop(block_on(client.lock(&name)));
        let sleepers = {
            let client = Arc::clone(&client);
            thread::spawn(move || client.reaper.run_sleepers())
        };
        drop(block_on(client.lock(&name)));
        sleepers.join().unwrap();
        client.reaper.join();
        client.reaper.run_sleepers();
        client.assert_clean();
    });
}

#[test]
fn failed_subscription_leaves_no_registry_entries() {
    explore(2, || {
        let client = Client::new(0);
        client.server.refuse();
        two_with(&client);
    });
}

#[test]
fn closed_client_keeps_no_names() {
    explore(2, || {
        let client = Client::new(0);
        let name = name("a");
        assert!(client.server.try_acquire());
        let gone = block_on(dropped_after(2, client.lock(&name)));
        assert!(gone.is_none());
        let closer = {
            let client = Arc::clone(&client);
            thread::spawn(move || client.close())
        };
        client.reaper.join();
        client.reaper.run_sleepers();
        closer.join().unwrap();
        assert_eq!((client.registry.names(), client.registry.waiting()), (0, 0));
    });
}

fn two_with(client: &Arc<Client>) {
    let name = name("a");
    let other = {
        let (client, name) = (Arc::clone(client), Arc::clone(&name));
        thread::spawn(move || drop(block_on(client.lock(&name))))
    };
    drop(block_on(client.lock(&name)));
    other.join().unwrap();
    client.assert_clean();
}
