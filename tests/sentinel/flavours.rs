//! What locks do there where nothing happens to the primary.

use distlock::{Acquire, DistLock as _, Flavour, MultiLock, RedLock};
use distlock_support::{RedisServer, Replicas, ReplicasOptions};
use futures::future::join_all;
use tokio::time::Instant;

use crate::{FLAVOURS, all_connections, client, connections, end, lock, ms, secs, sentinels};

async fn every_flavour(url: &str) {
    let (one, other) = (client(url).await, client(url).await);
    for flavour in FLAVOURS {
        let name = format!("every:{flavour}");
        let guard = lock(&one, flavour, &name).lock().await.unwrap();
        if flavour != Flavour::Read {
            assert!(lock(&other, flavour, &name).try_lock().await.unwrap().is_none(), "{name}");
            let waiter = lock(&other, flavour, &name);
            let waiting = tokio::spawn(async move { waiter.lock().await.map(|guard| (Instant::now(), guard)) });
            while other.stats().waiting == 0 || other.stats().under_way > 0 {
                tokio::time::sleep(ms(5)).await;
            }
            let released = Instant::now();
            guard.unlock().await.unwrap();
            let (at, guard) = waiting.await.unwrap().unwrap();
            assert!(at - released < secs(2), "{flavour}: woken after {:?}", at - released);
            guard.unlock().await.unwrap();
        } else {
            guard.unlock().await.unwrap();
        }
    }
    end(one).await;
    end(other).await;
}

#[tokio::test]
async fn every_flavour_by_sentinels() {
    let bed = sentinels().await;
    every_flavour(&bed.url()).await;
}

#[tokio::test]
async fn every_flavour_at_replicated_servers() {
    let servers = Replicas::start(ReplicasOptions::default()).await;
    every_flavour(&servers.url()).await;
}

/// RedLock and multi take clients of whatever topology.
#[tokio::test]
async fn groups_over_clients_of_several_kinds() {
    let (bed, servers, alone) =
        (sentinels().await, Replicas::start(ReplicasOptions::default().replicas(1)).await, RedisServer::start());
    let urls = [bed.url(), servers.url(), alone.url()];
    let clients = join_all(urls.iter().map(|url| client(url))).await;
    let red = RedLock::new(clients.clone(), "red");
    let guard = red.lock().await.unwrap();
    assert!(RedLock::new(clients.clone(), "red").try_lock().await.unwrap().is_none());
    guard.unlock().await.unwrap();
    let all = MultiLock::of(clients.iter().map(|client| lock(client, Flavour::Reentrant, "each")).collect());
    let guard = all.lock().await.unwrap();
    for client in &clients {
        assert!(lock(client, Flavour::Reentrant, "each").try_lock().await.unwrap().is_none());
    }
    guard.unlock().await.unwrap();
    for client in clients {
        end(client).await;
    }
}

/// Two connections to the primary, two to each sentinel, none to a replica; and none of them when the client has ended.
#[tokio::test]
async fn a_client_has_few_connections_and_leaves_none() {
    let bed = sentinels().await;
    let primary = bed.primary().await;
    let one = client(&bed.url()).await;
    let name = format!("distlock-{}", one.id());
    bed::eventually("all stand", async || {
        let mut of_sentinels = 0;
        for sentinel in bed.sentinels() {
            of_sentinels += connections(&sentinel).await;
        }
        (connections(bed.server(primary)).await, all_connections(bed.servers()).await, of_sentinels) == (2, 2, 6)
    })
    .await;
    let there = bed.server(primary).admin().others().await;
    assert_eq!(there.iter().filter(|client| client.name == name).count(), 2, "{there:?}");
    let held = lock(&one, Flavour::Fair, "x").acquire(Acquire::new()).await.unwrap().unwrap();
    drop(held);
    end(one).await;
    bed::eventually("all are closed", async || {
        let mut of_sentinels = 0;
        for sentinel in bed.sentinels() {
            of_sentinels += connections(&sentinel).await;
        }
        (all_connections(bed.servers()).await, of_sentinels) == (0, 0)
    })
    .await;
}
