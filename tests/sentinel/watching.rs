//! Sentinels that come and go.

use distlock::{Error, Flavour, ServerRole, TopologyInfo, TopologyKind};
use distlock_support::{Sentinels, SentinelsOptions};

use crate::{client, connections, end, lock, ms, secs, sentinels};

/// A set of other sentinels than those that the client was told of.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_that_come_and_go_are_followed() {
    let bed = sentinels().await;
    let one = client(&bed.url()).await;
    let added = bed.add_sentinel().await;
    bed::eventually("it is listened to", async || connections(&bed.sentinel(added)).await == 2).await;
    // Those of the start go, one by one.
    bed.remove_sentinel(0).await;
    bed.add_sentinel().await;
    bed.remove_sentinel(0).await;
    bed.add_sentinel().await;
    bed.remove_sentinel(0).await;
    for n in 0..3 {
        bed::eventually("it is listened to", async || connections(&bed.sentinel(n)).await == 2).await;
    }
    let old = bed.primary().await;
    bed.server(old).kill();
    lock(&one, Flavour::Reentrant, "x").lock().await.unwrap().unlock().await.unwrap();
    end(one).await;
}

/// One that is gone, and that nobody lists any more, is not looked for for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_that_is_gone_is_forgotten() {
    let bed = sentinels().await;
    let one = client(&bed.url()).await;
    let known = || one.topology().servers.iter().filter(|server| server.role == ServerRole::Sentinel).count();
    let added = bed.add_sentinel().await;
    bed::eventually("it is listened to", async || connections(&bed.sentinel(added)).await == 2).await;
    // Away, but one of them as long as others say so.
    bed.sentinel(added).stop();
    tokio::time::sleep(secs(12)).await;
    assert_eq!(known(), 4);
    bed.sentinel(added).cont();
    bed.remove_sentinel(added).await;
    bed::eventually("it is forgotten", async || known() == 3).await;
    end(one).await;
}

/// A set whose primary was replaced before the client came, and one sentinel that slept through it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_primary_of_the_moment_is_connected_to_at_the_start() {
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

/// What a client tells of its servers, before and after a failover.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_tells_of_its_servers() {
    let bed = sentinels().await;
    let one = client(&bed.url()).await;
    let connected = std::time::Instant::now();
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
    tokio::time::sleep(ms(100)).await;
    bed.server(old).kill();
    let asked = one.ping().await;
    assert!(asked.is_err(), "{asked:?}");
    let promotion = bed.promotion(old).await;
    let new = bed.server(promotion.server).addr().to_string();
    bed::eventually("the epoch is known", async || {
        let after = one.topology();
        let primary = &after.servers[0];
        primary.address == new && primary.epoch > before.servers[0].epoch
    })
    .await;
    let after = one.topology();
    // Of the new one, not of the client.
    let (since, connected) = (after.servers[0].since.unwrap(), connected.elapsed());
    assert!(since < connected - ms(1_500), "{since:?} of {connected:?}, of which the sentinels need 2 s");
    assert!(told(&after, ServerRole::Replica).contains(&bed.server(old).addr().to_string()), "{after:?}");
    one.ping().await.unwrap();
    let again = one.clone();
    end(one).await;
    assert!(matches!(again.ping().await, Err(Error::Closed)));
}
