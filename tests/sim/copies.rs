//! Copies of commands that come in when what they were for is over, each by itself: sequences hardly ever come upon them.

use distlock::sim::{LinkOptions, Mishap, SimServer};
use distlock::{Acquire, DistLock, Flavour, Guard, Owner, Released};
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
