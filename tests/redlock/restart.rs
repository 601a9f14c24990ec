//! Servers that lose their data, and servers that answer late: when two holders are possible, and what prevents them.

use distlock::{Acquire, Error, Guard, Lost};
use distlock_support::RedisServer;

use crate::rig::{Away, Five, Path, User, endless, five, long, patient, run};
use bed::{becomes, ends, eventually};

/// Returns a holder of servers 0 to 2. Another user held servers 3 and 4 during the acquire. These two are free now,
/// and do not join the hold later.
async fn of_three(five: &Five, user: &User, other: &User) -> Guard {
    let mut theirs = Vec::new();
    for client in &other.clients[3..] {
        theirs.push(client.reentrant("x").acquire(long()).await.unwrap().expect("free"));
    }
    let before = five.calls("evalsha").await;
    let guard = ends("three of five servers", user.red("x").acquire(Acquire::new())).await.unwrap().expect("no limit");
    // The acquire ends at three grants. The other two servers may be asked later, and must be asked while they are busy.
    eventually("all five servers are asked", async || five.calls("evalsha").await >= before + 5).await;
    user.quiet().await;
    for guard in theirs {
        guard.unlock().await.unwrap();
    }
    assert_eq!(five.having("x").await, [0, 1, 2]);
    user.renew().await;
    assert!(guard.is_held() && guard.members().len() == 3, "{guard:?}");
    assert!(other.red("x").try_lock().await.unwrap().is_none(), "it has two of five");
    other.idle().await;
    guard
}

/// A documented limit: the one server that both majorities share restarts without its data during a lease. Another user
/// acquires, and the first holder learns of the loss at its reconnect or next renewal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_holder_reports_loss_after_shared_server_restarts_empty() {
    five(async |five| {
        let (user, other) = (five.warm(Path::Direct, patient).await, five.warm(Path::Direct, patient).await);
        let guard = of_three(five, &user, &other).await;
        five.servers[2].restart();
        let second = ends("three of five servers", other.red("x").lock()).await.unwrap();
        assert!(second.is_held());
        user.reaches_all().await;
        user.renew().await;
        let lost = ends("the loss is signalled", guard.lost()).await;
        assert!(matches!(lost, Error::Lost { why: Lost::Gone, .. }), "{lost:?}");
        assert!(!guard.is_held());
        assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
        assert!(second.is_held());
        second.unlock().await.unwrap();
    })
    .await;
}

/// A majority of the servers restarts empty. A hold with an explicit lease is not renewed, but its guard learns of the
/// loss.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guard_with_an_explicit_lease_learns_that_a_majority_restarted_empty() {
    five(async |five| {
        let user = five.warm(Path::Direct, patient).await;
        let guard = ends("a majority", user.red("x").acquire(long())).await.unwrap().expect("no limit");
        user.quiet().await;
        for at in [0, 1, 2] {
            five.servers[at].restart();
        }
        let lost = ends("the loss is signalled", guard.lost()).await;
        assert!(matches!(lost, Error::Lost { why: Lost::Gone, .. }), "{lost:?}");
        assert!(!guard.is_held());
        assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
    })
    .await;
}

/// With `appendonly yes` and `appendfsync always` the restarted server has all its grants.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restart_of_shared_server_with_aof_keeps_exclusion() {
    let always = || RedisServer::builder().aof(true).arg("--appendfsync", "always");
    run(Five::start(always), async |five| {
        let (user, other) = (five.warm(Path::Direct, patient).await, five.warm(Path::Direct, patient).await);
        let guard = of_three(five, &user, &other).await;
        for at in [2, 0, 1] {
            five.servers[at].restart();
            user.reaches_all().await;
            other.reaches_all().await;
            user.renew().await;
            assert!(guard.is_held(), "after a restart of server {at}: {guard:?}");
            let second = other.red("x").try_lock().await.unwrap();
            assert!(second.is_none(), "two holders after a restart of server {at}");
            other.idle().await;
        }
        guard.unlock().await.unwrap();
    })
    .await;
}

/// An unreachable server answers after the lock was granted, and another one after its release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_grant_joins_the_guard_or_is_released() {
    five(async |five| {
        let user = five.warm(Path::Proxied, endless).await;
        for (joins, is_released) in [(Away::Stopped, Away::Cut), (Away::Cut, Away::Stopped)] {
            five.take(4, joins);
            five.take(1, is_released);
            let guard = ends("three of five servers", user.red("x").acquire(long())).await.unwrap().expect("no limit");
            assert_eq!(guard.members().len(), 3);
            five.back(4, joins);
            becomes("servers that granted it", 4, async || guard.members().len()).await;
            // Because of the late vote, the hold survives the loss of one of the first three servers.
            assert_eq!(five.admin(0).await.cmd::<u64>(&["DEL", "x"]).await, 1);
            user.clients[0].renew_now().await;
            assert!(guard.is_held() && five.admin(4).await.exists("x").await);
            ends("a release at four of five servers", guard.unlock()).await.unwrap();
            five.back(1, is_released);
            user.reaches_all().await;
            user.quiet().await;
            five.clean().await;
        }
    })
    .await;
}
