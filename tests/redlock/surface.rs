//! What every lock can do, as a RedLock does it: re-entry, queries, owners that travel, inner flavours, bad input.

use std::sync::Arc;
use std::time::Duration;

use distlock::{Acquire, Client, Deadlock, DistLock, Error, Flavour, NotHeld, Owner, RedLock, Released};

use crate::rig::{Away, Five, Path, SOON, User, by_all, five, long, patient};
use bed::{eventually, ms, secs};

async fn everywhere(five: &Five, name: &str) {
    eventually("it is on all servers", async || five.having(name).await.len() == 5).await;
}

/// Coming in again as the same owner counts on every server; each release takes one off; and each server knows the owner by
/// another name, so that none is counted twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_comes_in_again() {
    five(async |five| {
        let user = five.warm(Path::Direct, patient).await;
        let (lock, me) = (user.red("x"), user.clients[0].owner());
        let first = by_all(&lock, long().owner(&me)).await;
        everywhere(five, "x").await;

        let second = by_all(&lock, long().owner(&me)).await;

        let mut names = Vec::new();
        for at in 0..5 {
            let fields = five.admin(at).await.hgetall("x").await;
            assert_eq!(fields.values().collect::<Vec<_>>(), ["2"], "server {at}");
            names.extend(fields.into_keys());
        }
        assert!(names.contains(&me.to_string()));
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 5, "{names:?}");
        assert_eq!((lock.hold_count(&me).await.unwrap(), lock.is_held_by(&me).await.unwrap()), (2, true));
        let alone = lock.acquire(long().owner(&me).not_reentrant()).await;
        assert!(matches!(alone, Err(Error::WouldDeadlock { why: Deadlock::NotReentrant, .. })), "{alone:?}");
        assert_eq!(lock.hold_count(&me).await.unwrap(), 2, "it keeps what it has");
        assert_eq!(second.unlock().await.unwrap(), Released::StillHeld(1));
        assert!(first.is_held() && lock.try_lock().await.unwrap().is_none());
        assert_eq!(first.unlock().await.unwrap(), Released::Free);
        assert_eq!(lock.hold_count(&me).await.unwrap(), 0);
        // The owner of the enclosing scope is meant too.
        me.scope(async {
            let a = lock.lock().await.unwrap();
            let b = lock.try_lock().await.unwrap().expect("it is ours");
            assert_eq!((a.owner(), b.owner()), (&me, &me));
            drop(b);
            a.unlock().await.unwrap();
        })
        .await;
    })
    .await;
}

/// Queries ask all servers and tell what most of them say; a forced release frees all, and the holder is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_say_what_most_servers_say() {
    five(async |five| {
        let (user, other) = (five.warm(Path::Proxied, patient).await, five.warm(Path::Direct, patient).await);
        let (lock, seen) = (user.red("x").node_timeout(ms(300)), other.red("x").node_timeout(ms(300)));
        assert!(!seen.is_locked().await.unwrap() && seen.remaining_ttl().await.unwrap().is_none());
        assert!(!seen.force_unlock().await.unwrap());
        let guard = lock.acquire(long()).await.unwrap().expect("nobody has it");
        everywhere(five, "x").await;
        let owner = guard.owner().clone();
        let state = seen.state().await.unwrap();
        assert_eq!(state.holders, [(owner.to_string(), 1)]);
        let left = seen.remaining_ttl().await.unwrap().expect("it is held");
        assert!(left > secs(50) && left <= secs(60), "{left:?}");
        assert!(seen.is_held_by(&owner).await.unwrap() && !seen.is_held_by(&other.clients[0].owner()).await.unwrap());
        assert_eq!(seen.hold_count(&owner).await.unwrap(), 1);
        // With two away as ever; with three there is no saying.
        for at in [0, 1, 2] {
            five.take(at, Away::Stopped);
            let state = seen.state().await;
            if at < 2 {
                assert_eq!(state.unwrap().holders, [(owner.to_string(), 1)]);
            } else {
                assert!(matches!(state, Err(Error::NoQuorum { needed: 3, .. })), "{state:?}");
            }
        }
        for at in [0, 1, 2] {
            five.back(at, Away::Stopped);
        }
        other.reaches(&[0, 1, 2]).await;
        assert!(seen.force_unlock().await.unwrap());
        eventually("all are free", async || five.having("x").await.is_empty()).await;
        assert!(matches!(guard.unlock().await, Err(Error::Lost { .. } | Error::NotHeld { .. })));
        // On a minority it is not held by anybody: a vote that somebody lost.
        let one = other.clients[3].reentrant("x").acquire(long()).await.unwrap().expect("free there");
        assert!(!seen.is_locked().await.unwrap());
        one.unlock().await.unwrap();
    })
    .await;
}

/// An owner goes to another client as text, which releases what it holds, on every server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_travels_as_text() {
    five(async |five| {
        let (user, other) = (five.warm(Path::Direct, patient).await, five.warm(Path::Direct, patient).await);
        let guard = by_all(&user.red("x"), long()).await;
        let text = guard.into_owner().to_string();
        everywhere(five, "x").await;
        let lock = other.red("x");
        let owner: Owner = text.parse().unwrap();
        assert!(lock.is_held_by(&owner).await.unwrap() && lock.try_lock().await.unwrap().is_none());
        let again = by_all(&lock, long().owner(&owner)).await;
        assert_eq!(again.unlock().await.unwrap(), Released::StillHeld(1));
        assert_eq!(lock.release(&owner).await.unwrap(), Released::Free);
        assert_eq!(five.having("x").await, [0; 0]);
        let never = lock.release(&owner).await;
        assert!(matches!(never, Err(Error::NotHeld { why: NotHeld::Never | NotHeld::LeaseOver, .. })), "{never:?}");
    })
    .await;
}

/// Over every flavour: one holder, or for reading several; no token of its own, but those of its members; nothing left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_every_flavour() {
    five(async |five| {
        let (user, other) = (five.warm(Path::Direct, patient).await, five.warm(Path::Direct, patient).await);
        for flavour in Flavour::ALL {
            let (lock, rival) = (user.over(*flavour, "x"), other.over(*flavour, "x"));
            let guard = by_all(&lock, long()).await;
            assert!(lock.is_locked().await.unwrap(), "{flavour}");
            assert_eq!(guard.token(), None, "{flavour}");
            let tokens = guard.members().iter().filter(|member| member.token.is_some()).count();
            assert_eq!(tokens, if *flavour == Flavour::Fenced { 5 } else { 0 }, "{flavour}");
            match rival.try_lock().await.unwrap() {
                Some(reader) => {
                    assert_eq!(*flavour, Flavour::Read);
                    reader.unlock().await.unwrap();
                }
                None => assert_ne!(*flavour, Flavour::Read),
            }
            let waiting = tokio::spawn(async move { rival.lock_for(secs(20)).await });
            tokio::time::sleep(ms(20)).await;
            guard.unlock().await.unwrap();
            waiting.await.unwrap().unwrap().expect("it was given back").unlock().await.unwrap();
            other.idle_at(&[0, 1, 2, 3, 4]).await;
            for at in 0..5 {
                let admin = five.admin(at).await;
                // The counter of the tokens stays, and has to.
                let left = async || admin.keys().await.into_iter().filter(|key| !key.contains("token")).count();
                eventually("nothing is left", async || left().await == 0).await;
                admin.cmd::<String>(&["FLUSHALL"]).await;
            }
        }
    })
    .await;
}

fn config(outcome: Result<Option<distlock::Guard>, Error>) {
    assert!(matches!(outcome, Err(Error::Config { .. })), "{outcome:?}");
}

/// What cannot be a majority of independent servers is refused unsent, and so are names and leases that no lock takes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_work_is_refused() {
    five(async |five| {
        let User { clients } = five.warm(Path::Direct, patient).await;
        config(RedLock::new([], "x").try_lock().await);
        assert!(matches!(RedLock::new([], "x").state().await, Err(Error::Config { .. })));
        let twice = [clients[0].clone(), clients[1].clone(), clients[0].clone()];
        config(RedLock::new(twice, "x").try_lock().await);
        let again = Client::builder(&five.servers[1].url()).connect_lazily().await.unwrap();
        five.keep(&again);
        config(RedLock::new([clients[1].clone(), again], "x").lock_for(secs(1)).await);
        let many = (0..256).map(|at| clients[at % 5].lock(Flavour::Reentrant, &format!("x{at}")));
        config(RedLock::of("x", many.collect::<Vec<Arc<dyn DistLock>>>()).try_lock().await);
        config(RedLock::new(clients.clone(), "").try_lock().await);
        config(RedLock::new(clients.clone(), "").lock_for(secs(2)).await);
        let lock = RedLock::new(clients.clone(), "x");
        for lease in [Duration::ZERO, Duration::from_micros(999), Duration::MAX] {
            config(lock.acquire(Acquire::new().lease(lease)).await);
        }
        let guard = lock.lock().await.unwrap();
        assert!(matches!(guard.extend(Duration::ZERO).await, Err(Error::Config { .. })));
        assert!(matches!(guard.downgrade().await, Err(Error::Unsupported { .. })));
        five.clean(SOON).await;
        // One is a majority of one, two of two.
        for some in [&clients[..1], &clients[..2]] {
            let lock = RedLock::new(some.to_vec(), "x");
            assert_eq!(lock.quorum(), some.len());
            lock.lock().await.unwrap().unlock().await.unwrap();
        }
    })
    .await;
}

/// A key that is no lock: on two servers it is no obstacle, on three an error that says so. A client that was shut down is a
/// server that is away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_refuse_are_like_servers_that_are_away() {
    five(async |five| {
        let user = five.warm(Path::Direct, patient).await;
        let lock = user.red("x");
        for at in [0, 3, 4] {
            five.admin(at).await.cmd::<String>(&["SET", "x", "no lock"]).await;
            for wait in [Duration::ZERO, secs(3)] {
                match lock.lock_for(wait).await {
                    Ok(Some(guard)) if at < 4 => assert!(guard.is_held()),
                    Err(Error::NoQuorum { needed: 3, why, .. }) if at == 4 => {
                        assert!(matches!(*why, Error::WrongType { .. }), "{why:?}");
                    }
                    other => panic!("{at}: {other:?}"),
                }
                user.idle_at(&[0, 1, 2, 3, 4]).await;
            }
        }
        for at in [0, 3, 4] {
            five.admin(at).await.cmd::<u64>(&["DEL", "x"]).await;
        }
        for at in [0, 1, 2] {
            user.clients[at].shutdown(secs(5)).await.unwrap();
            let outcome = lock.lock_for(secs(3)).await;
            match outcome {
                Ok(Some(guard)) if at < 2 => drop(guard.unlock().await.unwrap()),
                Err(Error::NoQuorum { needed: 3, .. } | Error::Closed) if at == 2 => {}
                other => panic!("{at}: {other:?}"),
            }
        }
    })
    .await;
}

/// A wait that is broken off, because the lock is free at the other servers, may be granted at that moment. It is given back, and
/// the same acquire does not find its own hold in its way where nobody comes in twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_in_its_own_way() {
    const TURNS: usize = 150;
    five(async |five| {
        let (first, second, third) = (
            five.warm(Path::Direct, patient).await,
            five.warm(Path::Direct, patient).await,
            five.warm(Path::Direct, patient).await,
        );
        let turns = |user: &User, owner: Option<Owner>| {
            let lock = user.over(Flavour::Plain, "x");
            async move {
                for turn in 0..TURNS {
                    let how = long().wait(secs(30));
                    let how = if let Some(owner) = &owner { how.owner(owner) } else { how };
                    let guard =
                        lock.acquire(how).await.unwrap_or_else(|error| panic!("turn {turn}, {owner:?}: {error}"));
                    guard.expect("its turn comes").unlock().await.unwrap();
                }
            }
        };
        let given = third.clients[0].owner();
        tokio::join!(turns(&first, None), turns(&second, None), turns(&third, Some(given)));
    })
    .await;
}
