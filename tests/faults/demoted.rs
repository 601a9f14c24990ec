//! An endpoint (the name in the URL) switches to a new primary. The old primary stays up, as a replica without a link.

use std::net::SocketAddr;

use distlock::{Acks, Client, Flavour, Guard, Released};
use distlock_support::{Admin, Proxy, RedisServer, Replicas, ReplicasOptions};

use crate::rig::{HOUR, patient};
use bed::{Bed, PATIENCE, becomes, builder, end, ends, eventually, reentrant};

const POOL: usize = 3;

const CHANNEL: &str = "redisson_lock__channel:{x}";

/// Only a message wakes the waiter, so the connection for messages must reach the new primary like the one for
/// commands.
#[tokio::test]
async fn message_connection_follows_endpoint_to_new_primary() {
    reentrant(async |bed: &Bed| {
        let new = RedisServer::start();
        follows(&bed.proxy(), (bed.server.addr(), &bed.admin), (new.addr(), &Admin::connect(&new).await), Acks::Off)
            .await;
    })
    .await;
}

/// In the strict modes, acquires use separate connections. If a client only waits, only these connections notice that
/// the old primary refuses commands.
#[tokio::test]
async fn message_connection_follows_demotion_met_by_acknowledged_acquire() {
    let start = async || Replicas::start(ReplicasOptions::default().replicas(1)).await;
    let servers = [start().await, start().await];
    for servers in &servers {
        servers.synced().await;
    }
    let [old, new] = servers.each_ref().map(|servers| (servers.node(0).server().addr(), servers.node(0).admin()));
    follows(&Proxy::start(old.0), old, new, Acks::AtLeast(1)).await;
}

async fn follows(proxy: &Proxy, old: (SocketAddr, &Admin), new: (SocketAddr, &Admin), acks: Acks) {
    let other = async |addr| builder(&format!("redis://{addr}")).connect().await.unwrap();
    let (at_old, at_new) = (other(old.0).await, other(new.0).await);
    for direct in [false, true] {
        let client = patient(&proxy.url()).pool_size(POOL).configure(|options| {
            options.use_fred = !direct;
            options.ping_interval = HOUR;
        });
        let client = client.acks(acks).configure(|options| options.ack_timeout = PATIENCE).connect().await.unwrap();
        // A first wait connects to the old primary, for commands and for messages.
        waits_for(&client, &at_old, old.1).await.unlock().await.unwrap();
        // No server listens on this port, so the link stays down.
        old.1.cmd::<String>(&["REPLICAOF", "127.0.0.1", "1"]).await;
        proxy.set_upstream(new.0);
        let guard = waits_for(&client, &at_new, new.1).await;
        // A release at the old primary would find no lock.
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
        end(client).await;
        proxy.set_upstream(old.0);
        old.1.cmd::<String>(&["REPLICAOF", "NO", "ONE"]).await;
    }
    end(at_old).await;
    end(at_new).await;
}

/// Waits for a lock that `other` holds, and returns the guard after the release.
async fn waits_for(client: &Client, other: &Client, server: &Admin) -> Guard {
    let held = other.reentrant("x").lock_leased(HOUR).await.unwrap();
    let lock = client.lock(Flavour::Reentrant, "x");
    let waiting = tokio::spawn(async move { lock.lock().await });
    becomes("subscribers", 1, async || server.numsub(CHANNEL).await).await;
    held.unlock().await.unwrap();
    ends("the waiter", waiting).await.unwrap().unwrap()
}

/// One connection detects the demotion. Until the new lock is acquired, the other connections only read the old data.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_connection_of_a_client_follows_a_demotion_that_one_of_them_meets() {
    let new = RedisServer::start();
    let at_new = Admin::connect(&new).await;
    reentrant(async |bed: &Bed| {
        let proxy = bed.proxy();
        for direct in [false, true] {
            let client = patient(&proxy.url())
                .configure(|options| options.use_fred = !direct)
                .pool_size(POOL)
                .connect()
                .await
                .unwrap();
            bed.admin.cmd::<String>(&["REPLICAOF", "127.0.0.1", "1"]).await;
            proxy.set_upstream(new.addr());
            client.reentrant("a").try_lock().await.unwrap_err();
            // The reads use the other connections. A read fails if its connection is being replaced.
            for _ in 1..POOL {
                let _ = client.reentrant("a").state().await;
            }
            let mut taken = None;
            eventually("the lock is taken", async || {
                taken = client.reentrant("a").try_lock().await.ok().flatten();
                taken.is_some()
            })
            .await;
            assert!(at_new.exists("a").await, "direct: {direct}");
            assert_eq!(taken.unwrap().unlock().await.unwrap(), Released::Free, "direct: {direct}");
            all_go_to(&client, &at_new).await;
            end(client).await;
            proxy.set_upstream(bed.server.addr());
            bed.admin.cmd::<String>(&["REPLICAOF", "NO", "ONE"]).await;
        }
    })
    .await;
}

/// Acquires and releases over every connection for commands, one by one and all at once.
async fn all_go_to(client: &Client, server: &Admin) {
    let names: Vec<_> = (0..2 * POOL).map(|n| format!("{n}")).collect();
    for name in &names {
        let guard = client.reentrant(name).lock().await.unwrap();
        assert!(server.exists(name).await, "{name}");
        assert_eq!(guard.unlock().await.unwrap(), Released::Free, "{name}");
    }
    let locks: Vec<_> = names.iter().map(|name| client.reentrant(name)).collect();
    let guards = futures::future::try_join_all(locks.iter().map(|lock| lock.lock())).await.unwrap();
    for name in &names {
        assert!(server.exists(name).await, "{name}");
    }
    let released = futures::future::try_join_all(guards.into_iter().map(Guard::unlock)).await.unwrap();
    assert_eq!(released, vec![Released::Free; 2 * POOL]);
    assert_eq!(server.keys().await, Vec::<String>::new());
}
