//! Sentinels that are added and removed.

use distlock::{Error, Flavour, ServerRole, TopologyInfo, TopologyKind};
use distlock_support::{Sentinels, SentinelsOptions};

use crate::{client, connections, end, eventually, lock, secs, sentinels};

/// In the end, all configured sentinels have been replaced by others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_follows_sentinels_that_come_and_go() {
    let bed = sentinels().await;
    let one = client(&bed.url()).await;
    let added = bed.add_sentinel().await;
    eventually("the client listens to the sentinel", async || connections(&bed.sentinel(added)).await == 2).await;
    bed.remove_sentinel(0).await;
    bed.add_sentinel().await;
    bed.remove_sentinel(0).await;
    bed.add_sentinel().await;
    bed.remove_sentinel(0).await;
    for n in 0..3 {
        eventually("the client listens to the sentinel", async || connections(&bed.sentinel(n)).await == 2).await;
    }
    let old = bed.primary().await;
    bed.server(old).kill();
    lock(&one, Flavour::Reentrant, "x").lock().await.unwrap().unlock().await.unwrap();
    end(one).await;
}

/// A removed sentinel that no other sentinel lists is forgotten. A frozen sentinel that others list is kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removed_sentinel_is_forgotten() {
    let bed = sentinels().await;
    let one = client(&bed.url()).await;
    let known = || one.topology().servers.iter().filter(|server| server.role == ServerRole::Sentinel).count();
    let added = bed.add_sentinel().await;
    eventually("the client listens to the sentinel", async || connections(&bed.sentinel(added)).await == 2).await;
    bed.sentinel(added).stop();
    // Long enough for several queries of the other sentinels.
    tokio::time::sleep(secs(12)).await;
    assert_eq!(known(), 4, "a listed sentinel is kept");
    bed.sentinel(added).cont();
    bed.remove_sentinel(added).await;
    eventually("the sentinel is forgotten", async || known() == 3).await;
    end(one).await;
}

/// The primary is replaced while one sentinel is frozen. Then the client connects.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_connects_to_the_current_primary() {
    let bed = Sentinels::start(SentinelsOptions::default()).await;
    let old = bed.primary().await;
    bed.sentinel(2).stop();
    bed.server(old).kill();
    let promotion = bed.promotion(old).await;
    bed.sentinel(2).cont();
    for _ in 0..10 {
        let connecting = bed::builder(&bed.url()).connect().await;
        let one = connecting.unwrap_or_else(|error| panic!("{error}; {}", bed.told_since(promotion.cause)));
        lock(&one, Flavour::Reentrant, "x").lock().await.unwrap().unlock().await.unwrap();
        end(one).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topology_lists_primary_replicas_and_sentinels_before_and_after_a_failover() {
    let bed = sentinels().await;
    let one = client(&bed.url()).await;
    one.ping().await.unwrap();
    let old = bed.primary().await;
    let told = |topology: &TopologyInfo, role| {
        let of_role = topology.servers.iter().filter(|server| server.role == role);
        of_role.map(|server| server.address.clone()).collect::<Vec<_>>()
    };
    let before = one.topology();
    assert_eq!(before.kind, TopologyKind::Sentinel);
    assert_eq!(told(&before, ServerRole::Primary), [bed.server(old).addr().to_string()]);
    assert_eq!((told(&before, ServerRole::Replica).len(), told(&before, ServerRole::Sentinel).len()), (2, 3));
    bed.server(old).kill();
    let asked = one.ping().await;
    // On a slow machine, the failover may already have ended.
    assert!(asked.is_err() || bed.primary().await != old, "{asked:?}");
    let promotion = bed.promotion(old).await;
    let new = bed.server(promotion.server).addr().to_string();
    eventually("the topology has the new primary and its epoch", async || {
        let after = one.topology();
        let primary = &after.servers[0];
        primary.address == new && primary.epoch > before.servers[0].epoch
    })
    .await;
    let after = one.topology();
    assert!(after.servers[0].since.is_some(), "{after:?}");
    assert!(told(&after, ServerRole::Replica).contains(&bed.server(old).addr().to_string()), "{after:?}");
    one.ping().await.unwrap();
    let again = one.clone();
    end(one).await;
    assert!(matches!(again.ping().await, Err(Error::Closed)));
}
