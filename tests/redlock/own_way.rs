//! A `not_reentrant` acquire gets the error only if its owner holds a whole RedLock.

use std::sync::Arc;

use distlock::{Acquire, Error, Flavour, RedLock};

use crate::rig::{Path, five, long, patient};
use bed::{PATIENCE, ends, in_vain, ms, secs};

/// The owner holds all servers that answer, and these are a majority. The acquire would wait for its own owner,
/// whatever the other servers reply.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owner_of_the_majority_gets_would_deadlock_despite_refusing_servers() {
    five(async |five| {
        let user = five.warm(Path::Direct, patient).await;
        for (held, asked, broken) in [
            (Flavour::Plain, Flavour::Plain, ["LPUSH", "x", "1"]),
            (Flavour::Reentrant, Flavour::Reentrant, ["SET", "x", "1"]),
            (Flavour::Read, Flavour::Write, ["SET", "x", "1"]),
        ] {
            // The two refusing servers come first, and reply fast.
            for at in [0, 1] {
                let _: redis::Value = five.admin(at).await.cmd(&broken).await;
            }
            let me = user.clients[0].owner();
            let guard = user.over(held, "x").acquire(long().owner(&me)).await.unwrap().unwrap();
            // The votes that follow the majority have arrived here.
            user.quiet().await;
            let lock = user.over(asked, "x");
            for turn in 0..20 {
                let how = Acquire::new().owner(&me).wait(if turn < 15 { ms(0) } else { secs(3600) });
                let how = if held == Flavour::Reentrant { how.not_reentrant() } else { how };
                let said = ends("an acquire that would wait for itself", lock.acquire(how)).await;
                assert!(matches!(said, Err(Error::WouldDeadlock { .. })), "{asked:?}, turn {turn}: {said:?}");
            }
            assert!(guard.is_held());
            guard.unlock().await.unwrap();
            for at in [0, 1] {
                five.admin(at).await.cmd::<u64>(&["DEL", "x"]).await;
            }
        }
    })
    .await;
}

/// Half of an even number of servers is no majority. Votes of the owner's other attempts do not count as the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owner_of_half_the_votes_does_not_get_would_deadlock() {
    five(async |five| {
        let (user, other) = (five.warm(Path::Direct, patient).await, five.warm(Path::Direct, patient).await);
        for count in [2, 4] {
            let mut theirs = Vec::new();
            for client in &other.clients[..count / 2] {
                theirs.push(client.plain("x").acquire(long()).await.unwrap().unwrap());
            }
            let me = user.clients[0].owner();
            let lock = RedLock::over(user.clients[..count].to_vec(), Flavour::Plain, "x").node_timeout(PATIENCE);
            let lock = Arc::new(lock);
            let trying = (0..4).map(|_| {
                let (lock, me) = (Arc::clone(&lock), me.clone());
                tokio::spawn(async move {
                    for turn in 0..50 {
                        let how = Acquire::new().owner(&me).wait(if turn < 45 { ms(0) } else { ms(100) });
                        let said = lock.acquire(how).await;
                        assert!(in_vain(&said), "{count} servers, turn {turn}: {said:?}");
                    }
                })
            });
            for trying in futures::future::join_all(trying).await {
                trying.unwrap();
            }
            for guard in theirs {
                guard.unlock().await.unwrap();
            }
            let guard = ends("the lock is free", lock.acquire(long().owner(&me))).await.unwrap().expect("it is free");
            guard.unlock().await.unwrap();
        }
    })
    .await;
}

/// A wait at one server is aborted because the lock is free at the other servers. The aborted wait may just have been
/// granted the lock. This grant is released, so the acquire does not meet its own hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn competing_acquires_do_not_fail_on_their_own_votes() {
    five(async |five| {
        let mut users = Vec::new();
        for _ in 0..3 {
            users.push(five.warm(Path::Direct, patient).await);
        }
        let given = users[2].clients[0].owner();
        let turns = users.iter().enumerate().map(|(n, user)| {
            let lock = user.over(Flavour::Plain, "x");
            let how = if n == 2 { long().owner(&given) } else { long() };
            async move {
                for turn in 0..80 {
                    let outcome = lock.acquire(how.clone()).await;
                    let guard = outcome.unwrap_or_else(|error| panic!("user {n}, turn {turn}: {error}"));
                    guard.expect("its turn comes").unlock().await.unwrap();
                }
            }
        });
        futures::future::join_all(turns).await;
    })
    .await;
}
