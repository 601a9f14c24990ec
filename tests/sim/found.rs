//! What random sequences found once, each by itself.

use std::time::Duration;

use distlock::{Acquire, Client, DistLock, Flavour, Owner, Released};
use distlock_sim::{LinkOptions, Mishap, SimReply, SimServer};
use tokio::time::sleep;

use crate::rig::{Party, count, lock, ms, virtually};

const ALL: [Flavour; 6] =
    [Flavour::Reentrant, Flavour::Fair, Flavour::Read, Flavour::Write, Flavour::Fenced, Flavour::Spin];

fn party(server: &SimServer, ordered: bool) -> Party {
    let latency = LinkOptions { latency_min: ms(1), latency_max: ms(1), ordered, ..LinkOptions::default() };
    Party::new(server, latency, |options| options.command_timeout = ms(500))
}

/// A server, its only client, and the lock as that has it.
fn alone(flavour: Flavour, ordered: bool) -> (SimServer, Party, Box<dyn DistLock>) {
    let server = SimServer::new(1);
    let party = party(&server, ordered);
    let lock = lock(&party.client, flavour, "x");
    (server, party, lock)
}

async fn quiet(client: &Client) {
    while client.stats().under_way > 0 {
        sleep(ms(1)).await;
    }
}

/// A renewal asks for the only hold of an owner, which is given back before it comes in; and the owner has another one by
/// then, which it does not ask for.
#[test]
fn a_renewal_under_way_ends_nothing_that_came_since() {
    for flavour in ALL {
        virtually(move || async move {
            let (_server, party, lock) = alone(flavour, false);
            let first = lock.lock().await.unwrap();
            let me = first.owner().clone();
            party.link.plan_next(Mishap::DelayBy(ms(100)));
            let renewing = party.client.clone();
            let renewal = tokio::spawn(async move { renewing.renew_now().await });
            sleep(ms(1)).await;
            let second = lock.acquire(Acquire::new().owner(&me)).await.unwrap().unwrap();
            assert_eq!(first.unlock().await.unwrap(), Released::StillHeld(1), "{flavour}");
            assert_eq!(renewal.await.unwrap().lost, 0, "{flavour}");
            assert!(second.is_held(), "{flavour}");
            assert_eq!(second.unlock().await.unwrap(), Released::Free, "{flavour}");
        });
    }
}

/// The reply to a first acquire comes when its lease is over; the same owner asks again. Its hold is no listed one: nobody
/// would find it by its place in the list.
#[test]
fn a_first_hold_that_was_asked_for_again_can_be_entered() {
    for flavour in ALL {
        virtually(move || async move {
            let (server, party, lock) = alone(flavour, true);
            server.freeze(true);
            let thaw = {
                let server = server.clone();
                tokio::spawn(async move {
                    sleep(ms(150)).await;
                    server.freeze(false);
                })
            };
            let leased = Acquire::new().lease(ms(100)).wait(Duration::from_secs(5));
            let first = lock.acquire(leased).await.unwrap().unwrap();
            thaw.await.unwrap();
            let me = first.owner().clone();
            let second = lock.acquire(Acquire::new().owner(&me)).await.unwrap().unwrap();
            assert!(first.is_held(), "{flavour}");
            drop(first);
            quiet(&party.client).await;
            assert_eq!(count(&server, flavour, "x", &me.to_string()), 1, "{flavour}");
            assert_eq!(second.unlock().await.unwrap(), Released::Free, "{flavour}");
        });
    }
}

const QUEUE: &[u8] = b"redisson_lock_queue:{x}";
const DEADLINES: &[u8] = b"redisson_lock_timeout:{x}";

/// An owner waits for `{x}` in the queue that it shares with `x`, and is let into `x` elsewhere: it keeps its place.
#[test]
fn an_owner_that_gets_another_lock_with_the_same_queue_keeps_its_place() {
    virtually(|| async {
        let server = SimServer::new(1);
        let (first, second, third) = (party(&server, true), party(&server, true), party(&server, true));
        let me = first.client.owner();
        let held = lock(&third.client, Flavour::Fair, "{x}").lock().await.unwrap();
        let waiting = lock(&first.client, Flavour::Fair, "{x}");
        let waits = {
            let me = me.clone();
            tokio::spawn(async move { waiting.acquire(Acquire::new().owner(&me)).await.unwrap().unwrap() })
        };
        sleep(ms(20)).await;
        let they = me.to_string().parse().unwrap();
        let theirs = lock(&second.client, Flavour::Fair, "x");
        let other = theirs.acquire(Acquire::new().owner(&they).wait(ms(0))).await.unwrap().expect("free");
        let queue = server.command(&[b"lrange", QUEUE, b"0", b"-1"]);
        assert_eq!(queue, SimReply::List(vec![SimReply::Text(me.to_string().into_bytes().into())]));
        held.unlock().await.unwrap();
        assert_eq!(waits.await.unwrap().unlock().await.unwrap(), Released::Free);
        assert_eq!(other.unlock().await.unwrap(), Released::Free);
    });
}

/// A waiter hears that its place is lost when its wait is over: nothing is granted to it when its owner waits elsewhere.
#[test]
fn what_a_displaced_waiter_was_registered_by_is_not_granted() {
    virtually(|| async {
        let server = SimServer::new(1);
        let far = LinkOptions { latency_min: ms(20), latency_max: ms(20), ..LinkOptions::default() };
        let first = Party::new(&server, far, |_| ());
        let (second, third) = (party(&server, true), party(&server, true));
        let me = first.client.owner();
        let held = lock(&third.client, Flavour::Fair, "x").lock().await.unwrap();
        // So that the server's clock is known.
        let known = lock(&first.client, Flavour::Fair, "y").acquire(Acquire::new().owner(&me)).await.unwrap().unwrap();
        known.unlock().await.unwrap();
        let waiting = lock(&first.client, Flavour::Fair, "x");
        let how = Acquire::new().owner(&me).wait(ms(115));
        let waits = tokio::spawn(async move { waiting.acquire(how).await });
        // Asked, queued and subscribed; the second look is under way when the place goes.
        while server.channels().is_empty() {
            sleep(ms(1)).await;
        }
        server.command(&[b"del", QUEUE, DEADLINES]);
        assert!(waits.await.unwrap().unwrap().is_none());
        let they = me.to_string().parse().unwrap();
        let theirs = lock(&second.client, Flavour::Fair, "x");
        let granted = tokio::spawn(async move { theirs.acquire(Acquire::new().owner(&they)).await.unwrap().unwrap() });
        sleep(ms(20)).await;
        held.unlock().await.unwrap();
        let granted = granted.await.unwrap();
        assert_eq!(count(&server, Flavour::Fair, "x", &me.to_string()), 1);
        assert_eq!(granted.unlock().await.unwrap(), Released::Free);
    });
}

/// Two guards of an owner are over, and a new one is taken between their releases: neither counts down what came since.
#[test]
fn a_release_of_one_that_is_over_counts_nothing_that_came_since() {
    for flavour in ALL {
        virtually(move || async move {
            let (_server, party, lock) = alone(flavour, true);
            let me = party.client.owner();
            let leased = || Acquire::new().owner(&me).lease(ms(300));
            let first = lock.acquire(leased()).await.unwrap().unwrap();
            let second = lock.acquire(leased()).await.unwrap().unwrap();
            sleep(ms(400)).await;
            let again = lock.acquire(Acquire::new().owner(&me));
            let (released, held, ()) = tokio::join!(biased; first.unlock(), again, async { drop(second) });
            assert!(released.is_err(), "{flavour}: {released:?}");
            let held = held.unwrap().unwrap();
            quiet(&party.client).await;
            assert!(held.is_held(), "{flavour}");
            assert_eq!(party.client.renew_now().await.lost, 0, "{flavour}");
            assert_eq!(held.unlock().await.unwrap(), Released::Free, "{flavour}");
        });
    }
}

/// Two tasks wait as one owner at a fair lock. The second is to come in beside the first, and the reply to its first attempt
/// comes when the lease is over: that hold is given back, and the acquire, which asks again at once, goes on with another one.
#[test]
fn an_attempt_that_came_too_late_goes_on_with_a_hold_of_its_own() {
    virtually(|| async {
        let (server, party, lock) = alone(Flavour::Fair, true);
        let me = party.client.owner();
        // So that the server's clock is known.
        lock.acquire(Acquire::new().owner(&me)).await.unwrap().unwrap().unlock().await.unwrap();
        party.link.plan_next(Mishap::DelayBy(ms(20)));
        let leased = Acquire::new().owner(&me).lease(ms(150));
        let (first, second) = tokio::join!(lock.acquire(Acquire::new().owner(&me)), async {
            // The first one's command is under way.
            sleep(ms(5)).await;
            party.link.plan_next(Mishap::DelayBy(ms(200)));
            lock.acquire(leased).await
        });
        let (first, second) = (first.unwrap().unwrap(), second.unwrap().unwrap());
        quiet(&party.client).await;
        assert!(first.is_held() && second.is_held());
        assert_eq!(count(&server, Flavour::Fair, "x", &me.to_string()), 2);
        assert_eq!(second.unlock().await.unwrap(), Released::StillHeld(1));
        assert_eq!(first.unlock().await.unwrap(), Released::Free);
    });
}

/// A waiter at a fair lock is asked about while somebody who read its owner in Redis is in as it: the lock was not passed to the
/// waiter. Found by a cold reading.
#[test]
fn a_waiter_is_not_passed_what_another_holds_as_its_owner() {
    for used_before in [false, true] {
        virtually(move || async move {
            let server = SimServer::new(1);
            let far = LinkOptions { latency_min: ms(20), latency_max: ms(20), ..LinkOptions::default() };
            let first = Party::new(&server, far, |_| ());
            let (second, third) = (party(&server, true), party(&server, true));
            let fair = |party: &Party| lock(&party.client, Flavour::Fair, "x");
            let (mine, theirs) = (fair(&first), fair(&third));
            if used_before {
                let held = fair(&second).lock().await.unwrap();
                let waits = tokio::spawn(async move { mine.lock().await.unwrap() });
                sleep(ms(1000)).await;
                held.unlock().await.unwrap();
                waits.await.unwrap().unlock().await.unwrap();
            }
            let over = fair(&second).lock_leased(ms(2500)).await.unwrap();
            let mine = fair(&first);
            let waits = tokio::spawn(async move { mine.lock().await.unwrap() });
            sleep(ms(1000)).await;
            let SimReply::List(queue) = server.command(&[b"lrange", QUEUE, b"0", b"-1"]) else { panic!("no queue") };
            let [SimReply::Text(owner)] = queue.as_slice() else { panic!("{queue:?}") };
            let they: Owner = std::str::from_utf8(owner).unwrap().parse().unwrap();
            let held = loop {
                let how = Acquire::new().owner(&they).wait(ms(0));
                if let Some(held) = theirs.acquire(how).await.unwrap() {
                    break held;
                }
                sleep(ms(1)).await;
            };
            let early = tokio::time::timeout(ms(4000), waits).await;
            assert!(held.is_held() && early.is_err(), "two holders, used before {used_before}: {early:?}");
            drop(over);
        });
    }
}

/// A renewal that only keeps a long explicit lease of a reader's up is no renewal of what the watchdog keeps since. Found by a
/// cold reading.
#[test]
fn a_lease_that_is_kept_up_is_not_renewed() {
    virtually(|| async {
        let server = SimServer::new(1);
        let far = LinkOptions { latency_min: ms(1000), latency_max: ms(1000), ..LinkOptions::default() };
        let party = Party::new(&server, far, |options| options.coalesce = false);
        let (me, lock) = (party.client.owner(), lock(&party.client, Flavour::Read, "x"));
        let long = lock.acquire(Acquire::new().owner(&me).lease(ms(300_000))).await.unwrap().unwrap();
        // So that the server knows the script.
        party.client.renew_now().await;
        let (watched, _) = tokio::join!(lock.acquire(Acquire::new().owner(&me)), async {
            sleep(ms(1990)).await;
            party.client.renew_now().await
        });
        let watched = watched.unwrap().unwrap();
        let cover = server.pttl(format!("{{x}}:{me}:rwlock_timeout:2").as_bytes());
        let promised = i64::try_from(watched.remaining().as_millis()).unwrap();
        assert!(promised <= cover, "{promised} ms of {cover}");
        drop(long);
    });
}
