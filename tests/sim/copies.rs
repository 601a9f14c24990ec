//! Copies of commands that come in when what they were for is over, each by itself: sequences hardly ever come upon them.

use distlock::{Acquire, DistLock, Flavour, Guard, Owner, Prefer, Released};
use distlock_sim::{LinkOptions, Mishap, SimReply, SimServer};
use tokio::time::sleep;

use crate::rig::{Party, count, lasts, lock, ms, virtually};

const ALL: [Flavour; 6] =
    [Flavour::Reentrant, Flavour::Fair, Flavour::Read, Flavour::Write, Flavour::Fenced, Flavour::Spin];

fn party(server: &SimServer) -> Party {
    let latency = LinkOptions { latency_min: ms(1), latency_max: ms(1), ..LinkOptions::default() };
    Party::new(server, latency, |options| options.command_timeout = ms(500))
}

/// An `extend` met a hold that another client had as this owner, and cut nothing. It comes in once more when that is gone, in
/// time still.
#[test]
fn one_of_an_extend_that_cut_nothing_cuts_nothing_later() {
    for flavour in ALL {
        virtually(move || async move {
            let server = SimServer::new(1);
            let (first, second) = (party(&server), party(&server));
            let me = first.client.owner();
            let they: Owner = me.to_string().parse().unwrap();
            let leased = Acquire::new().owner(&me).lease(ms(20_000));
            let guard = lock(&first.client, flavour, "x").acquire(leased).await.unwrap().unwrap();
            let theirs = lock(&second.client, flavour, "x");
            let beside = theirs.acquire(Acquire::new().owner(&they)).await.unwrap().unwrap();
            // So that the server's clock is known.
            guard.extend(ms(15_000)).await.unwrap();
            first.link.plan_next(Mishap::LateCopy(ms(200)));
            guard.extend(ms(5_000)).await.unwrap();
            guard.extend(ms(60_000)).await.unwrap();
            assert_eq!(beside.unlock().await.unwrap(), Released::StillHeld(1), "{flavour}");
            sleep(ms(250)).await;
            let (left, promised) = (lasts(&server, flavour, "x", &me.to_string()), guard.remaining());
            assert!(promised.as_millis() <= left.unsigned_abs().into(), "{flavour}: {promised:?} of {left} ms");
            assert_eq!(guard.unlock().await.unwrap(), Released::Free, "{flavour}");
        });
    }
}

/// Theirs is held, we wait in the queue, and theirs passes the lock on to us. With our owner, which is not asked for: that would
/// keep it from being used again.
async fn passed_on(server: &SimServer, theirs: &dyn DistLock, mine: &dyn DistLock) -> (Guard, String) {
    let held = theirs.lock().await.unwrap();
    let (guard, ()) = tokio::join!(mine.lock(), async {
        while server.channels().is_empty() || !server.keys().iter().any(|key| key.starts_with(b"redisson_lock_queue")) {
            sleep(ms(1)).await;
        }
        sleep(ms(20)).await;
        held.unlock().await.unwrap();
    });
    let holders = theirs.state().await.unwrap().holders;
    (guard.unwrap(), holders[0].0.clone())
}

/// A fair lock's waiters use an owner again. The release of the one before, which was answered, comes in once more.
#[test]
fn one_of_a_release_finds_no_later_waiter_of_an_owner_that_is_used_again() {
    virtually(|| async {
        let server = SimServer::new(1);
        let (first, second) = (party(&server), party(&server));
        let (mine, theirs) = (lock(&first.client, Flavour::Fair, "x"), lock(&second.client, Flavour::Fair, "x"));
        let mut before = String::new();
        // One that was granted the lock before it heard that it listens is not used again.
        for _ in 0..10 {
            let (guard, owner) = passed_on(&server, &*theirs, &*mine).await;
            if owner == before {
                sleep(ms(400)).await;
                assert!(guard.is_held());
                assert_eq!(count(&server, Flavour::Fair, "x", &owner), 1);
                assert_eq!(guard.unlock().await.unwrap(), Released::Free);
                return;
            }
            before = owner;
            first.link.plan_next(Mishap::LateCopy(ms(300)));
            assert_eq!(guard.unlock().await.unwrap(), Released::Free);
        }
        panic!("no owner was used again");
    });
}

/// A fair acquire that was given up was undone; a copy of it comes in after that, in time still, and takes a place. It goes when a
/// copy can come no more, and does not stand for as long as one that nobody refreshes.
#[test]
fn one_of_a_fair_acquire_leaves_no_place() {
    virtually(|| async {
        let server = SimServer::new(1);
        let (first, second) = (party(&server), party(&server));
        let me = first.client.owner();
        let (mine, theirs) = (lock(&first.client, Flavour::Fair, "x"), lock(&second.client, Flavour::Fair, "x"));
        // So that the server's clock is known.
        mine.acquire(Acquire::new().owner(&me)).await.unwrap().unwrap().unlock().await.unwrap();
        let held = theirs.lock().await.unwrap();
        first.link.plan_next(Mishap::LateOnly(ms(200)));
        let outcome = mine.acquire(Acquire::new().owner(&me).wait(ms(50))).await;
        assert!(!matches!(outcome, Ok(Some(_))), "{outcome:?}");
        let queue = first.client.fair("x");
        sleep(ms(200)).await;
        assert_eq!(queue.queue_len().await.unwrap(), 1, "the copy came in");
        sleep(ms(600)).await;
        assert_eq!(queue.queue_len().await.unwrap(), 0);
        held.unlock().await.unwrap();
    });
}

/// A writer's acquire was in doubt and was undone, and its owner waits again: neither the undoing nor the look for a late copy
/// takes its mark, whoever holds the lock and whoever else waits to write. Nobody would tell it.
#[test]
fn a_look_for_one_leaves_no_writer_without_a_mark() {
    for (is_read, another_waits) in [(true, false), (true, true), (false, false), (false, true)] {
        virtually(move || async move {
            let server = SimServer::new(1);
            let [first, second, third] = [(); 3].map(|()| {
                Party::new(&server, LinkOptions::instant(), |options| {
                    options.command_timeout = ms(500);
                    options.prefer = Prefer::Writers;
                })
            });
            let me = first.client.owner();
            let lock = |party: &Party| party.client.rw("x");
            let held = match is_read {
                true => lock(&second).read().lock_leased(ms(60_000)).await.unwrap(),
                false => lock(&second).write().lock_leased(ms(60_000)).await.unwrap(),
            };
            let wait = |party: &Party, owner: &Owner| {
                let (write, owner) = (lock(party).write(), owner.clone());
                tokio::spawn(async move {
                    let guard = write.acquire(Acquire::new().owner(&owner)).await.unwrap().unwrap();
                    guard.unlock().await.unwrap();
                })
            };
            let other = another_waits.then(|| wait(&third, &third.client.owner()));
            sleep(ms(10)).await;
            first.link.plan_next(Mishap::LoseReply);
            let outcome = lock(&first).write().acquire(Acquire::new().owner(&me).wait(ms(50))).await;
            assert!(!matches!(outcome, Ok(Some(_))), "{outcome:?}");
            let waits = wait(&first, &me);
            sleep(ms(10)).await;
            let key = server.keys().into_iter().find(|key| key.ends_with(b":rwlock_waiting")).expect("a mark");
            for n in 0..900 {
                sleep(ms(1)).await;
                let mark = server.command(&[b"zscore", &key, me.as_str().as_bytes()]);
                assert!(mark != SimReply::Nil, "read {is_read}, another {another_waits}: no mark after {n} ms");
            }
            held.unlock().await.unwrap();
            if let Some(other) = other {
                other.await.unwrap();
            }
            waits.await.unwrap();
        });
    }
}
