//! Locks at a primary that does not change.

use bed::PATIENCE;
use distlock::{Flavour, MultiLock, RedLock};
use distlock_support::{RedisServer, Replicas, ReplicasOptions};
use futures::future::join_all;

use crate::{FLAVOURS, all_connections, client, connections, end, eventually, lock, secs, still_sentinels, waiter};

async fn every_flavour(url: &str) {
    let one = client(url).await;
    let other = bed::builder(url)
        .watchdog(secs(3600))
        .configure(|options| options.poll_cap = secs(3600))
        .connect()
        .await
        .unwrap();
    for flavour in FLAVOURS {
        let name = format!("every:{flavour}");
        let guard = lock(&one, flavour, &name).lock().await.unwrap();
        if flavour != Flavour::Read {
            assert!(lock(&other, flavour, &name).try_lock().await.unwrap().is_none(), "{name}: two holders");
        }
        // Only a message can wake a waiter of these flavours within an hour.
        let waits = !matches!(flavour, Flavour::Read | Flavour::Plain);
        let waiting = waits.then(|| waiter(lock(&other, flavour, &name)));
        eventually("the waiter is idle", async || !waits || other.stats().waiting == 1 && other.stats().under_way == 0)
            .await;
        guard.unlock().await.unwrap();
        if let Some(waiting) = waiting {
            let guard = bed::ends(&format!("{name}: the wait"), waiting).await.unwrap();
            guard.unlock().await.unwrap();
        }
    }
    end(one).await;
    end(other).await;
}

#[tokio::test]
async fn every_flavour_and_group_locks_work_over_sentinels_and_replicated_servers() {
    let (bed, servers, alone) =
        (still_sentinels().await, Replicas::start(ReplicasOptions::default()).await, RedisServer::start());
    every_flavour(&bed.url()).await;
    every_flavour(&servers.url()).await;
    let urls = [bed.url(), servers.url(), alone.url()];
    let clients = join_all(urls.iter().map(|url| client(url))).await;
    let red = RedLock::new(clients.clone(), "red").node_timeout(PATIENCE);
    let guard = red.lock().await.unwrap();
    let other = RedLock::new(clients.clone(), "red").node_timeout(PATIENCE);
    assert!(other.try_lock().await.unwrap().is_none());
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

/// The client has two connections to the primary, two to each sentinel, and none to replicas. After the shutdown it has
/// none.
#[tokio::test]
async fn client_has_few_connections_and_leaves_none() {
    let bed = still_sentinels().await;
    let primary = bed.primary().await;
    let one = client(&bed.url()).await;
    let name = format!("distlock-{}", one.id());
    let open = async || {
        let mut of_sentinels = 0;
        for sentinel in bed.sentinels() {
            of_sentinels += connections(&sentinel).await;
        }
        let of_primary = bed.server(primary).admin().others().await;
        let of_client = of_primary.iter().filter(|client| client.name == name).count();
        (of_client, all_connections(bed.servers()).await, of_sentinels)
    };
    bed::becomes("connections to the primary, all servers, and sentinels", (2, 2, 6), open).await;
    drop(lock(&one, Flavour::Fair, "x").lock().await.unwrap());
    end(one).await;
    bed::becomes("connections to the primary, all servers, and sentinels", (0, 0, 0), open).await;
}
