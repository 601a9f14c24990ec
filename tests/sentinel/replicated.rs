//! Replicated servers, where an operator promotes a replica.

use distlock::{Acquire, Flavour};
use distlock_support::{Proxy, Replicas, ReplicasOptions};

use crate::{end, eventually, lock, secs};

/// A replica is promoted after the old primary was killed, frozen or demoted. The new primary grants the waiter's lock
/// and renews holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn promoted_replica_serves_waiters_and_renewals() {
    let servers = Replicas::start(ReplicasOptions::default()).await;
    let one = bed::builder(&servers.url()).watchdog(secs(3600)).command_timeout(secs(1)).connect().await.unwrap();
    let kept = lock(&one, Flavour::Reentrant, "kept").lock().await.unwrap();
    for (round, how) in ["killed", "stopped", "demoted"].into_iter().enumerate() {
        servers.synced().await;
        let (old, new) = (servers.primary(), (servers.primary() + 1) % 3);
        // Only one replica has acknowledged the hold, and perhaps another replica is promoted.
        eventually("the next primary has the hold", async || servers.node(new).admin().exists("kept").await).await;
        match how {
            "killed" => servers.node(old).kill(),
            "stopped" => servers.node(old).stop(),
            _ => {}
        }
        let waiter = lock(&one, Flavour::Reentrant, &format!("first:{round}"));
        let waiting = tokio::spawn(async move {
            loop {
                match waiter.acquire(Acquire::new().wait(secs(90))).await {
                    Ok(guard) => return guard.expect("granted within the wait"),
                    Err(error) => assert!(error.is_retryable(), "{error:?}"),
                }
            }
        });
        servers.promote(new).await;
        // A demoted primary may have granted the lock and then lost it.
        drop(bed::ends(how, waiting).await.unwrap());
        match how {
            "killed" => servers.node(old).restart(),
            "stopped" => servers.node(old).cont(),
            _ => {}
        }
        servers.follow(old).await;
        eventually("the hold is renewed", async || one.renew_now().await.renewed == 1).await;
        assert!(kept.is_held(), "{how}: the hold is signalled as lost");
    }
    kept.unlock().await.unwrap();
    end(one).await;
}

/// The URL has one name for the primary, as in managed services. The name then leads to another server, while open
/// connections lead to the old primary.
#[tokio::test]
async fn name_that_leads_to_another_server_is_resolved_again() {
    let servers = Replicas::start(ReplicasOptions::default().replicas(1)).await;
    let name = Proxy::start(servers.node(0).addr());
    let url = name.url().replace("redis://", "redis-replicated://");
    let one = bed::builder(&url).watchdog(secs(3600)).connect().await.unwrap();
    let kept = lock(&one, Flavour::Reentrant, "kept").lock().await.unwrap();
    servers.synced().await;
    for new in [1, 0, 1] {
        name.set_upstream(servers.node(new).addr());
        servers.promote(new).await;
        let guard = lock(&one, Flavour::Reentrant, "x").acquire(Acquire::new().wait(secs(90))).await.unwrap().unwrap();
        guard.unlock().await.unwrap();
        assert!(servers.node(new).admin().calls("evalsha").await > 0, "no script sent to the new primary");
        eventually("the hold is renewed", async || one.renew_now().await.renewed == 1).await;
        assert!(kept.is_held());
        servers.synced().await;
    }
    kept.unlock().await.unwrap();
    end(one).await;
}
