//! Clients that are shut down while a RedLock asks them.

use distlock::{Acquire, Client, Error};
use distlock_support::{Admin, Proxy, RedisServer, proxy::Mode};

use bed::{eventually, ms, secs};

/// An acquire of a given owner is under way when its client is shut down: what the server grants it is given back. (A RedLock
/// gives every member an owner.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_given_owner_is_granted_during_the_shutdown_is_given_back() {
    let server = RedisServer::start();
    let (proxy, admin) = (Proxy::start(server.addr()), Admin::connect(&server).await);
    let client = Client::connect(&proxy.url()).await.unwrap();
    client.reentrant("warm").lock().await.unwrap().unlock().await.unwrap();
    proxy.set_downstream_mode(Mode::Delay(ms(200)));
    let (lock, owner) = (client.reentrant("x"), client.owner());
    let acquiring = tokio::spawn(async move { lock.acquire(Acquire::new().owner(&owner).lease(secs(60))).await });
    eventually("the server has granted it", async || admin.exists("x").await).await;
    client.shutdown(secs(5)).await.unwrap();
    assert!(matches!(acquiring.await.unwrap(), Err(Error::Closed)));
    assert!(!admin.exists("x").await, "left behind for {} ms", admin.pttl("x").await);
    assert_eq!(client.stats().holds, 0);
}
