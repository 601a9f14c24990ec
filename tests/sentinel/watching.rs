//! Sentinels that are added and removed.

use distlock::{Error, ServerRole, TopologyInfo, TopologyKind};

use crate::{client, connections, end, eventually, secs, sentinels, turn};

/// A removed sentinel that no other sentinel lists is forgotten. A frozen sentinel that others list is kept. In the end,
/// all configured sentinels have been replaced by others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_follows_sentinels_that_come_and_go() {
    let bed = sentinels().await;
    let one = client(&bed.url()).await;
    let known = || one.topology().servers.iter().filter(|server| server.role == ServerRole::Sentinel).count();
    let listens = async |n: usize| {
        bed::becomes("connections to a sentinel", 2, async || connections(&bed.sentinel(n)).await).await
    };
    let added = bed.add_sentinel().await;
    listens(added).await;
    bed.sentinel(added).stop();
    // Long enough for several queries of the other sentinels.
    tokio::time::sleep(secs(12)).await;
    assert_eq!(known(), 4, "a listed sentinel is kept");
    bed.sentinel(added).cont();
    bed.remove_sentinel(added).await;
    eventually("the sentinel is forgotten", async || known() == 3).await;
    let added = bed.add_sentinel().await;
    listens(added).await;
    bed.remove_sentinel(0).await;
    for _ in 0..2 {
        bed.add_sentinel().await;
        bed.remove_sentinel(0).await;
    }
    for n in 0..3 {
        listens(n).await;
    }
    let old = bed.primary().await;
    bed.server(old).kill();
    turn(&one, "x").await;
    end(one).await;
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
