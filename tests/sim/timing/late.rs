//! Replies and copies that come late, guards that are lost by an extend in doubt, and who is told when.

use std::sync::Arc;
use std::time::Duration;

use distlock::{Acquire, Client, DistLock, Error, Flavour, Owner, RedLock, Released};
use distlock_sim::{LinkOptions, Mishap, SimReply, SimServer};
use tokio::time::{sleep, timeout};

use crate::rig::{Party, count, lasts, lock, ms, settled, virtually};

const FLAVOURS: [Flavour; 6] =
    [Flavour::Reentrant, Flavour::Fair, Flavour::Read, Flavour::Write, Flavour::Fenced, Flavour::Spin];
const SECOND: Duration = ms(1_000);

/// A client whose commands take 2 ms.
fn party(server: &SimServer) -> Party {
    far(server, ms(1))
}

fn far(server: &SimServer, latency: Duration) -> Party {
    let way = LinkOptions { latency_min: latency, latency_max: latency, ..LinkOptions::default() };
    Party::new(server, way, |options| (options.retry_attempts, options.retry_delay) = (1, (ms(10), ms(30))))
}

/// The server knows the scripts afterwards, and the client the server's clock.
async fn warm(lock: &dyn DistLock, owner: &Owner) {
    lock.acquire(Acquire::new().owner(owner)).await.unwrap().unwrap().unlock().await.unwrap();
}

/// What keeps everybody else out of a lock that is held.
const fn rival(flavour: Flavour) -> Flavour {
    if matches!(flavour, Flavour::Read) { Flavour::Write } else { flavour }
}

/// The grant comes when its lease is over, so it is given back; the next attempt acquires the lock, and the release arrives again.
#[test]
fn a_copy_of_the_release_of_a_late_grant_frees_no_later_hold() {
    for (flavour, given) in FLAVOURS.into_iter().flat_map(|flavour| [(flavour, false), (flavour, true)]) {
        virtually(async move || {
            let what = format!("{flavour}, given {given}");
            let server = SimServer::new(1);
            let (ours, theirs) = (party(&server), party(&server));
            let (lock, me) = (lock(&ours.client, flavour, "x"), ours.client.owner());
            warm(&*lock, &me).await;
            let next = ours.link.sent();
            ours.link.plan(next, Mishap::DelayBy(ms(1_500)));
            for later in [next + 1, next + 2] {
                ours.link.plan(later, Mishap::LateCopy(ms(500)));
            }
            let how = Acquire::new().lease(ms(1_200));
            let how = if given { how.owner(&me) } else { how };
            let guard = lock.acquire(how).await.unwrap().unwrap();
            assert!(ours.link.sent() >= next + 3, "{what}: a grant, its release and another attempt");
            guard.extend(60 * SECOND).await.unwrap();
            sleep(SECOND).await;
            let owner = crate::stage::text(guard.owner());
            assert!(guard.is_held() && count(&server, flavour, "x", &owner) == 1, "{what}: freed by a copy");
            let rival = crate::rig::lock(&theirs.client, rival(flavour), "x");
            assert!(rival.try_lock().await.unwrap().is_none(), "{what}: two holders");
            assert_eq!(guard.unlock().await.unwrap(), Released::Free, "{what}");
            settled(&server, &[&ours, &theirs], 20 * SECOND).await.unwrap();
        });
    }
}

/// A server that answers after each lease: the acquire ends with an error, also where others hold the lock in between.
#[test]
fn grants_that_always_come_too_late_end_in_an_error() {
    for kind in ["reentrant", "fair", "multi", "RedLock"] {
        virtually(async move || {
            let server = SimServer::new(1);
            let (ours, theirs) = (far(&server, ms(400)), party(&server));
            let of = |client: &Client| -> Arc<dyn DistLock> {
                match kind {
                    "reentrant" => Arc::new(client.reentrant("x")),
                    "fair" => Arc::new(client.fair("x")),
                    "multi" => Arc::new(client.multi(["x", "y"])),
                    _ => Arc::new(RedLock::new([client.clone()], "x").node_timeout(2 * SECOND)),
                }
            };
            let (lock, rival) = (of(&ours.client), of(&theirs.client));
            lock.lock().await.unwrap().unlock().await.unwrap();
            let mut turns = 0;
            let others = async {
                loop {
                    let held = rival.lock().await.unwrap();
                    turns += 1;
                    sleep(ms(50)).await;
                    // Lost, where the other one was granted it in between.
                    drop(held);
                    sleep(ms(100)).await;
                }
            };
            let late = tokio::select! {
                late = timeout(60 * SECOND, lock.acquire(Acquire::new().lease(ms(200)))) => late.expect("it ends"),
                () = others => unreachable!("others go on for ever"),
            };
            let too_late = late.as_ref().is_err_and(|error| error.is_retryable() && !error.outcome_unknown());
            assert!(too_late && turns > 2, "{kind}: {late:?} after {turns} turns of others");
            settled(&server, &[&ours, &theirs], 60 * SECOND).await.unwrap();
        });
    }
}

/// The server never heard of the extend, so the lease goes on there; the guard, which is still there, keeps it from nobody.
#[test]
fn a_guard_that_an_extend_in_doubt_has_lost_is_not_renewed() {
    for flavour in FLAVOURS {
        virtually(async move || {
            let server = SimServer::new(1);
            let ours = party(&server);
            let lock = lock(&ours.client, flavour, "x");
            let guard = lock.lock().await.unwrap();
            let owner = crate::stage::text(guard.owner());
            ours.link.plan_next(Mishap::SwallowRequest);
            guard.extend(ms(500)).await.unwrap_err();
            let lost = timeout(10 * SECOND, guard.lost()).await.expect("the loss is signalled");
            assert!(matches!(lost, Error::Lost { .. }), "{flavour}: {lost:?}");
            ours.client.renew_now().await;
            sleep(SECOND).await;
            assert_eq!(count(&server, flavour, "x", &owner), 0, "{flavour}: not given back");
            drop(guard);
            settled(&server, &[&ours], 60 * SECOND).await.unwrap();
        });
    }
}

/// The warning comes when a third of the new lease is left, and not at the extend.
#[test]
fn an_extend_to_a_shorter_lease_warns_nobody_early() {
    for watched in [false, true] {
        virtually(async move || {
            let server = SimServer::new(1);
            let ours = party(&server);
            let how = if watched { Acquire::new() } else { Acquire::new().lease(60 * SECOND) };
            let guard = ours.client.reentrant("x").acquire(how).await.unwrap().unwrap();
            let (expiring, lost) = (tokio::spawn(guard.expiring()), tokio::spawn(guard.lost()));
            tokio::task::yield_now().await;
            guard.extend(9 * SECOND).await.unwrap();
            sleep(ms(5_900)).await;
            assert!(
                !expiring.is_finished() && !lost.is_finished(),
                "watched {watched}: told with more than a third left"
            );
            sleep(ms(200)).await;
            assert!(expiring.is_finished() && !lost.is_finished(), "watched {watched}: with less than a third left");
            lost.abort();
            guard.unlock().await.unwrap();
        });
    }
}

/// Another client has given the hold back; the release is repeated, and must not set the lease of the owner's other hold.
#[test]
fn a_repeated_release_that_finds_nothing_sets_no_lease() {
    for flavour in FLAVOURS {
        virtually(async move || {
            let server = SimServer::new(1);
            let (ours, theirs) = (party(&server), party(&server));
            let (lock, me) = (lock(&ours.client, flavour, "x"), ours.client.owner());
            let how = || Acquire::new().owner(&me).lease(12 * SECOND);
            let stays = lock.acquire(how()).await.unwrap().unwrap();
            let goes = lock.acquire(how()).await.unwrap().unwrap();
            let they: Owner = me.to_string().parse().unwrap();
            let released = crate::rig::lock(&theirs.client, flavour, "x").release(&they).await.unwrap();
            assert_eq!(released, Released::StillHeld(1), "{flavour}");
            sleep(SECOND).await;
            ours.link.plan_next(Mishap::LoseReply);
            let _ = goes.unlock().await;
            let (promised, left) = (stays.remaining(), lasts(&server, flavour, "x", &me.to_string()));
            assert!(stays.is_held() && promised.as_millis() as i64 <= left, "{flavour}: {promised:?} of {left} ms");
            assert_eq!(stays.unlock().await.unwrap(), Released::Free, "{flavour}");
        });
    }
}

/// Its renewals fail, and it ends with its lease. The owner has another hold with a longer one.
#[test]
fn an_expired_watched_guard_ends_no_longer_lease_of_its_owner() {
    for flavour in FLAVOURS {
        virtually(async move || {
            let server = SimServer::new(1);
            let ours = party(&server);
            let (lock, me) = (lock(&ours.client, flavour, "x"), ours.client.owner());
            let watched = lock.acquire(Acquire::new().owner(&me)).await.unwrap().unwrap();
            let leased = lock.acquire(Acquire::new().owner(&me).lease(600 * SECOND)).await.unwrap().unwrap();
            ours.link.partition(true);
            let lost = timeout(31 * SECOND, watched.lost()).await.expect("not renewed, and not told");
            assert!(matches!(lost, Error::Lost { .. }), "{flavour}: {lost:?}");
            ours.client.renew_now().await;
            assert!(leased.is_held(), "{flavour}");
            ours.link.partition(false);
            drop(watched);
            sleep(10 * SECOND).await;
            assert_eq!(count(&server, flavour, "x", &me.to_string()), 1, "{flavour}");
            let left = lasts(&server, flavour, "x", &me.to_string());
            assert!(leased.is_held() && left > 500_000, "{flavour}: {left} ms left");
            leased.unlock().await.unwrap();
        });
    }
}

/// The waiter has given up, and its commands were undone. The copy takes no place in the queue.
#[test]
fn a_late_copy_of_a_fair_waiters_acquire_leaves_no_queue() {
    virtually(async || {
        let server = SimServer::new(1);
        let (ours, theirs) = (party(&server), party(&server));
        let (mine, rival) = (ours.client.fair("x"), theirs.client.fair("x"));
        warm(&mine, &ours.client.owner()).await;
        let held = rival.lock().await.unwrap();
        ours.link.plan_next(Mishap::LateCopy(10 * SECOND));
        assert!(mine.lock_for(ms(200)).await.unwrap().is_none());
        held.unlock().await.unwrap();
        sleep(2 * SECOND).await;
        let held = rival.lock_leased(60 * SECOND).await.unwrap();
        sleep(10 * SECOND).await;
        assert_eq!(server.command(&[b"exists", b"redisson_lock_queue:{x}"]), SimReply::Int(0));
        held.unlock().await.unwrap();
        settled(&server, &[&ours, &theirs], SECOND).await.unwrap();
    });
}

/// Its place is kept up for as long as its client lives, as that of our own owners is.
#[test]
fn a_waiter_with_an_owner_of_javas_keeps_its_place() {
    virtually(async || {
        let server = SimServer::new(1);
        let (holder, ours, other) = (party(&server), party(&server), party(&server));
        let guard = holder.client.fair("a").lock().await.unwrap();
        let owner: Owner = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa:7".parse().unwrap();
        let (lock, java) = (ours.client.fair("a"), owner.clone());
        let first = tokio::spawn(async move { lock.acquire(Acquire::new().owner(&java)).await.unwrap().unwrap() });
        sleep(SECOND).await;
        let lock = other.client.fair("a");
        let second = tokio::spawn(async move { lock.lock().await.unwrap() });
        sleep(SECOND).await;
        let queue = || server.command(&[b"lrange", b"redisson_lock_queue:{a}", b"0", b"-1"]);
        let order = queue();
        let SimReply::List(places) = &order else { panic!("{order:?}") };
        assert!(places.len() == 2 && places[0] == SimReply::Text(owner.to_string().into_bytes().into()), "{order:?}");
        for second in 0..60 {
            assert_eq!(queue(), order, "after {second} s");
            sleep(SECOND).await;
        }
        guard.unlock().await.unwrap();
        let first = first.await.unwrap();
        assert_eq!(first.owner(), &owner);
        assert!(!second.is_finished());
        first.unlock().await.unwrap();
        second.await.unwrap().unlock().await.unwrap();
    });
}
