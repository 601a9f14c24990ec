//! All operations of a RedLock: re-entry, queries, extends, inner flavours, bad input.

use std::sync::Arc;
use std::time::Duration;

use distlock::{Acquire, Deadlock, DistLock, Error, Flavour, RedLock, Released};
use distlock_support::proxy::Mode;

use crate::rig::{Away, Path, User, by_all, five, long, patient};
use bed::{PATIENCE, becomes, ends, eventually, ms, secs};

/// Each release removes one hold. The owner has another text at each server, so no server counts a hold twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn re_entry_is_counted_on_every_server() {
    five(async |five| {
        let user = five.warm(Path::Direct, patient).await;
        let (lock, me) = (user.red("x"), user.clients[0].owner());
        let first = by_all(&lock, long().owner(&me)).await;
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
    })
    .await;
}

/// A force frees the lock on all servers, and the holder is notified.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_return_what_the_majority_reports() {
    five(async |five| {
        let (user, other) = (five.warm(Path::Direct, patient).await, five.warm(Path::Direct, patient).await);
        let seen = other.red("x");
        assert!(!seen.is_locked().await.unwrap() && seen.remaining_ttl().await.unwrap().is_none());
        assert!(!seen.force_unlock().await.unwrap());
        let guard = by_all(&user.red("x"), long()).await;
        let owner = guard.owner().clone();
        let holders = [(owner.to_string(), 1)];
        assert_eq!(seen.state().await.unwrap().holders, holders);
        let left = seen.remaining_ttl().await.unwrap().expect("it is held");
        assert!(left > secs(300) && left <= secs(600), "{left:?}");
        assert!(seen.is_held_by(&owner).await.unwrap() && !seen.is_held_by(&other.clients[0].owner()).await.unwrap());
        assert_eq!(seen.hold_count(&owner).await.unwrap(), 1);
        five.take(0, Away::Stopped);
        five.take(1, Away::Stopped);
        assert_eq!(ends("a look at three of five servers", seen.state()).await.unwrap().holders, holders);
        five.take(2, Away::Stopped);
        let state = ends("a look at two of five servers", other.red("x").node_timeout(ms(300)).state()).await;
        assert!(matches!(state, Err(Error::NoQuorum { needed: 3, .. })), "{state:?}");
        for at in [0, 1, 2] {
            five.back(at, Away::Stopped);
        }
        other.reaches_all().await;
        assert!(seen.force_unlock().await.unwrap());
        becomes("servers that have it", Vec::new(), async || five.having("x").await).await;
        assert!(matches!(guard.unlock().await, Err(Error::Lost { .. } | Error::NotHeld { .. })));
        // A vote on a minority of the servers is a leftover, and does not count as a holder.
        let one = other.clients[3].reentrant("x").acquire(long()).await.unwrap().expect("free there");
        assert!(!seen.is_locked().await.unwrap());
        one.unlock().await.unwrap();
    })
    .await;
}

/// A majority is enough for an extend. An explicit lease is not renewed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lease_is_set_as_requested_on_every_reachable_server() {
    five(async |five| {
        let user = five.warm(Path::Proxied, patient).await;
        let guard = by_all(&user.red("x"), Acquire::new().lease(Duration::from_micros(899_999_100))).await;
        let last = async |servers: &[usize], most: i64| {
            for at in servers {
                let left = five.admin(*at).await.pttl("x").await;
                assert!(left > most / 2 && left <= most, "server {at} has it for {left} ms of {most}");
            }
        };
        last(&five.all(), 900_000).await;
        assert!(guard.remaining() < secs(891), "the deadline is a hundredth earlier: {guard:?}");
        for client in &user.clients {
            assert_eq!(client.renew_now().await.renewed, 0);
        }
        five.take(1, Away::Cut);
        five.take(2, Away::Cut);
        for lease in [5_000, 400] {
            ends("an extension at three of five servers", guard.extend(secs(lease))).await.unwrap();
            assert!(guard.remaining() <= secs(lease) && guard.remaining() > secs(lease / 2), "{guard:?}");
            last(&[0, 3, 4], lease as i64 * 1_000).await;
        }
        five.back(1, Away::Cut);
        five.back(2, Away::Cut);
        assert!(matches!(guard.extend(Duration::ZERO).await, Err(Error::Config { .. })));
        assert!(matches!(guard.downgrade().await, Err(Error::Unsupported { .. })));
    })
    .await;
}

/// There is one holder, or several readers. The guard has no token, but its members have tokens. Nothing is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redlock_over_every_flavour_excludes_rivals_except_readers() {
    five(async |five| {
        let (user, other) = (five.warm(Path::Direct, patient).await, five.warm(Path::Direct, patient).await);
        for flavour in Flavour::ALL {
            let (lock, rival) = (user.over(*flavour, "x"), other.over(*flavour, "x"));
            let guard = by_all(&lock, long()).await;
            assert!(lock.is_locked().await.unwrap(), "{flavour}");
            assert_eq!(guard.fencing_token().ok(), None, "{flavour}");
            let tokens = guard.members().iter().filter(|member| member.token.is_some()).count();
            assert_eq!(tokens, if *flavour == Flavour::Fenced { 5 } else { 0 }, "{flavour}");
            match rival.try_lock().await.unwrap() {
                Some(reader) => {
                    assert_eq!(*flavour, Flavour::Read);
                    reader.unlock().await.unwrap();
                }
                None => assert_ne!(*flavour, Flavour::Read),
            }
            let waiting = bed::passer(rival);
            if *flavour != Flavour::Read {
                let waits = async || other.clients.iter().any(|client| client.stats().waiting > 0);
                eventually(&format!("{flavour}: a rival waits"), waits).await;
            }
            guard.unlock().await.unwrap();
            ends("the rival", waiting).await.unwrap();
            other.idle().await;
            for at in 0..5 {
                let admin = five.admin(at).await;
                // The token counter must stay.
                let left = async || admin.keys().await.into_iter().filter(|key| !key.contains("token")).count();
                becomes("keys that are left", 0, left).await;
                admin.cmd::<String>(&["FLUSHALL"]).await;
            }
        }
    })
    .await;
}

fn config(outcome: Result<Option<distlock::Guard>, Error>) {
    assert!(matches!(outcome, Err(Error::Config { .. })), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_servers_names_and_leases_are_refused() {
    five(async |five| {
        let User { clients } = five.warm(Path::Direct, patient).await;
        config(RedLock::new([], "x").try_lock().await);
        assert!(matches!(RedLock::new([], "x").state().await, Err(Error::Config { .. })));
        let twice = [clients[0].clone(), clients[1].clone(), clients[0].clone()];
        config(RedLock::new(twice, "x").try_lock().await);
        let again = patient(&five.servers[1].url()).connect_lazily().await.unwrap();
        five.keep(&again);
        config(RedLock::new([clients[1].clone(), again], "x").lock_for(secs(1)).await);
        let many = (0..256).map(|at| clients[at % 5].lock(Flavour::Reentrant, &format!("x{at}")));
        config(RedLock::of("x", many.collect::<Vec<Arc<dyn DistLock>>>()).try_lock().await);
        config(RedLock::new(clients.clone(), "").lock_for(secs(2)).await);
        for lease in [Duration::ZERO, Duration::from_micros(999), Duration::MAX] {
            config(RedLock::new(clients.clone(), "x").acquire(Acquire::new().lease(lease)).await);
        }
        // The majority of one server is one, and that of two servers is two.
        for some in [&clients[..1], &clients[..2]] {
            let lock = RedLock::new(some.to_vec(), "x").node_timeout(PATIENCE);
            assert_eq!(lock.quorum(), some.len());
            lock.lock().await.unwrap().unlock().await.unwrap();
        }
    })
    .await;
}

/// Some servers have a key of another type, or their client was shut down. Two such servers are tolerated. With three
/// of them, the error has the reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusing_servers_are_tolerated_up_to_a_minority() {
    five(async |five| {
        let user = five.warm(Path::Direct, patient).await;
        let lock = user.red("x");
        for at in [0, 3, 4] {
            five.admin(at).await.cmd::<String>(&["SET", "x", "no lock"]).await;
            for wait in [Duration::ZERO, secs(3600)] {
                match ends("an acquire beside bad keys", lock.lock_for(wait)).await {
                    Ok(Some(guard)) if at < 4 => assert!(guard.is_held()),
                    Err(Error::NoQuorum { needed: 3, why, .. }) if at == 4 => {
                        assert!(matches!(*why, Error::WrongType { .. }), "{why:?}");
                    }
                    other => panic!("bad keys up to server {at}: {other:?}"),
                }
                user.idle().await;
            }
        }
        for at in [0, 3, 4] {
            five.admin(at).await.cmd::<u64>(&["DEL", "x"]).await;
        }
        for at in [0, 1, 2] {
            user.clients[at].shutdown(PATIENCE).await.unwrap();
            match ends("an acquire beside closed clients", lock.lock_for(secs(3600))).await {
                Ok(Some(guard)) if at < 2 => drop(guard.unlock().await.unwrap()),
                Err(Error::Closed) if at == 2 => {}
                other => panic!("closed clients up to server {at}: {other:?}"),
            }
        }
    })
    .await;
}

/// A RedLock gives every member an owner. If the server grants the lock to this owner during the client's shutdown, the
/// grant is released.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grant_during_shutdown_is_released() {
    five(async |five| {
        let user = five.warm(Path::Proxied, patient).await;
        let (client, proxy) = (&user.clients[0], &five.proxies[0]);
        proxy.set_downstream_mode(Mode::Delay(secs(2)));
        let (lock, how) = (client.reentrant("x"), long().owner(&client.owner()));
        let acquiring = tokio::spawn(async move { lock.acquire(how).await });
        becomes("servers that granted it", vec![0], async || five.having("x").await).await;
        client.shutdown(PATIENCE).await.unwrap();
        let outcome = acquiring.await.unwrap();
        // On a slow machine the reply arrives before the shutdown.
        let ended = matches!(&outcome, Err(Error::Closed)) || matches!(&outcome, Ok(Some(guard)) if !guard.is_held());
        assert!(ended, "{outcome:?}");
        assert_eq!(five.having("x").await, [0; 0]);
    })
    .await;
}
