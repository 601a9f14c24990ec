//! An owner that has the lock already, and may not come in again: it is told so when it has the whole of it, and not before.

use std::sync::Arc;

use distlock::{Acquire, DistLock as _, Error, Flavour, RedLock};

use crate::rig::{Path, five, long, patient};
use bed::{ms, secs};

/// Where the majority that it holds is all of the servers that answer, whatever the others say, it would wait for itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_holds_the_whole_is_told_beside_servers_that_refuse() {
    five(async |five| {
        let user = five.warm(Path::Direct, patient).await;
        for (held, asked, broken) in [
            (Flavour::Plain, Flavour::Plain, ["LPUSH", "x", "1"]),
            (Flavour::Reentrant, Flavour::Reentrant, ["SET", "x", "1"]),
            (Flavour::Read, Flavour::Write, ["SET", "x", "1"]),
        ] {
            // The two that refuse come first, and are quick.
            for at in [0, 1] {
                let _: redis::Value = five.admin(at).await.cmd(&broken).await;
            }
            let me = user.clients[0].owner();
            let guard = user.over(held, "x").acquire(long().owner(&me)).await.unwrap().unwrap();
            // The votes that came after the majority are in as well.
            user.quiet_at(&[0, 1, 2, 3, 4]).await;
            let lock = user.over(asked, "x");
            for turn in 0..30 {
                let how = Acquire::new().owner(&me).wait(if turn < 25 { ms(0) } else { secs(2) });
                let how = if held == Flavour::Reentrant { how.not_reentrant() } else { how };
                let said = lock.acquire(how).await;
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

/// Half of an even number of servers is no majority: what another attempt of the same owner has there on its way is not the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_a_part_is_not_told_that_it_has_the_whole() {
    five(async |five| {
        let (user, other) = (five.warm(Path::Direct, patient).await, five.warm(Path::Direct, patient).await);
        for count in [2, 4] {
            let mut theirs = Vec::new();
            for client in &other.clients[..count / 2] {
                theirs.push(client.plain("x").acquire(long()).await.unwrap().unwrap());
            }
            let me = user.clients[0].owner();
            let lock = Arc::new(RedLock::over(user.clients[..count].to_vec(), Flavour::Plain, "x"));
            let trying = (0..4).map(|_| {
                let (lock, me) = (Arc::clone(&lock), me.clone());
                tokio::spawn(async move {
                    for turn in 0..100 {
                        let how = Acquire::new().owner(&me).wait(if turn < 95 { ms(0) } else { ms(100) });
                        let said = lock.acquire(how).await;
                        // A command that took too long, on a busy machine, says nothing of the lock.
                        let slow =
                            matches!(&said, Err(Error::NoQuorum { why, .. }) if matches!(**why, Error::Timeout { .. }));
                        assert!(slow || matches!(said, Ok(None)), "{count} servers, turn {turn}: {said:?}");
                    }
                })
            });
            for trying in futures::future::join_all(trying).await {
                trying.unwrap();
            }
            for guard in theirs {
                guard.unlock().await.unwrap();
            }
            let guard = lock.acquire(long().owner(&me)).await.unwrap().expect("it is free");
            guard.unlock().await.unwrap();
        }
    })
    .await;
}
