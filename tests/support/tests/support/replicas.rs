//! The fixture of a primary and its replicas against real servers: promotions, restarts, partitions.

use std::time::Duration;

use distlock_support::{Admin, Member, Replicas, ReplicasOptions};

async fn set(node: &Member, key: &str) {
    node.admin().cmd::<()>(&["SET", key, "v"]).await;
}

#[tokio::test]
async fn replicas_follow_their_primary_and_one_is_promoted() {
    let servers = Replicas::start(ReplicasOptions::default()).await;
    let addrs = servers.addrs();
    assert_eq!(servers.url(), format!("redis-replicated://{},{},{}", addrs[0], addrs[1], addrs[2]));
    assert_eq!(servers.primaries().await, [0]);
    set(servers.node(0), "k").await;
    // All replicas are connected from the start, so `WAIT` does not wait for one to connect.
    assert_eq!(servers.node(0).admin().cmd::<u64>(&["WAIT", "2", "90000"]).await, 2);

    // Promotion by request, while the old primary lives.
    servers.promote(1).await;
    assert_eq!((servers.primary(), servers.primaries().await), (1, vec![1]));
    set(servers.node(1), "after").await;
    assert_eq!(servers.node(1).admin().cmd::<u64>(&["WAIT", "2", "90000"]).await, 2);
    assert_eq!(servers.node(0).admin().keys().await, ["after", "k"]);

    // Promotion after a kill. The killed server returns as an empty second primary, until it is told to follow.
    servers.node(1).kill();
    servers.promote(2).await;
    set(servers.node(2), "2").await;
    servers.node(1).restart();
    assert_eq!(servers.primaries().await, [1, 2]);
    assert_eq!(servers.node(1).admin().keys().await, [""; 0]);
    servers.follow(1).await;
    servers.synced().await;
    assert_eq!(servers.primaries().await, [2]);
    assert_eq!(servers.node(1).admin().keys().await, ["2", "after", "k"]);

    servers.node(0).restart();
    servers.synced().await;
    assert_eq!(servers.node(2).admin().cmd::<u64>(&["WAIT", "2", "90000"]).await, 2);
}

#[tokio::test]
async fn frozen_replica_acknowledges_only_after_it_resumes() {
    let servers = Replicas::start(ReplicasOptions::default().replicas(1)).await;
    servers.node(1).stop();
    assert!(!servers.node(1).is_running() && servers.node(1).away_since().is_some());
    set(servers.node(0), "k").await;
    assert_eq!(servers.node(0).admin().cmd::<u64>(&["WAIT", "1", "100"]).await, 0);
    servers.node(1).cont();
    assert_eq!(servers.node(0).admin().cmd::<u64>(&["WAIT", "1", "90000"]).await, 1);
    servers.synced().await;
}

#[tokio::test]
async fn servers_refuse_clients_without_credentials() {
    let options = ReplicasOptions::default().replicas(1);
    for (options, userinfo) in [
        (options.clone().password("p@ss"), ":p%40ss@"),
        (options.clone().user("app", "word/1").config("maxmemory 7mb"), "app:word%2F1@"),
    ] {
        let servers = Replicas::start(options).await;
        let addrs = servers.addrs();
        assert_eq!(servers.url(), format!("redis-replicated://{userinfo}{},{}", addrs[0], addrs[1]));
        for node in servers.nodes() {
            let mut stranger = crate::connection(&format!("redis://{}", node.addr())).await;
            let refused = redis::cmd("GET").arg("k").query_async::<()>(&mut stranger).await.expect_err("a stranger");
            assert_eq!(refused.code(), Some("NOAUTH"), "{refused}");
        }
        servers.node(1).restart();
        servers.synced().await;
    }
}

#[tokio::test]
async fn partitioned_primary_serves_its_side_until_healed() {
    let servers = Replicas::start(ReplicasOptions::default().replicas(1).proxies(true)).await;
    let primary = servers.node(0);
    assert_eq!(primary.addr(), primary.proxy().addr());
    let client = Admin::from_url(&format!("redis://{}", primary.addr())).await;
    primary.proxy().blackhole(true);
    let silent = tokio::time::timeout(Duration::from_millis(100), client.raw(&["PING"])).await;
    assert!(silent.is_err(), "{silent:?}");
    // On its side of the partition the old primary continues, and no replica gets its writes.
    set(primary, "old").await;
    assert_eq!(primary.admin().cmd::<u64>(&["WAIT", "1", "100"]).await, 0);
    servers.detach(1).await;
    assert_eq!(servers.primaries().await, [0, 1]);
    set(servers.node(1), "new").await;
    primary.proxy().heal();
    servers.promote(1).await;
    assert_eq!(primary.admin().keys().await, ["new"]);
    assert_eq!(servers.primaries().await, [1]);
}
