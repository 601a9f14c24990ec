//! Servers that neither answer nor refuse, while the map of slots is out of date.

use bed::eventually;
use distlock::{Acquire, Flavour};
use distlock_support::{Cluster, ClusterOptions};
use tokio::time::Instant;

use crate::{end, lock, ms, secs};

/// All primaries are away, one of them silent, and their replicas take over without a vote: the silent one does not keep the
/// client from learning that of the others.
#[tokio::test]
async fn a_server_that_is_silent_does_not_keep_the_map_old() {
    let cluster = Cluster::start(ClusterOptions::default()).await;
    let quick = bed::builder(&cluster.url()).command_timeout(secs(1)).retry_delay((ms(10), ms(100)));
    let one = quick.retry_attempts(1000).connect().await.unwrap();
    let names: Vec<String> = (0..12).map(|n| format!("silent:{n}")).collect();
    for name in &names {
        lock(&one, Flavour::Reentrant, name).lock().await.unwrap().unlock().await.unwrap();
    }
    cluster.stop(&cluster.nodes()[0]).await;
    cluster.kill(&cluster.nodes()[1]).await;
    cluster.kill(&cluster.nodes()[2]).await;
    // Everybody that the client knows of is asked meanwhile, and nobody knows better.
    let wait = Acquire::new().wait(secs(2));
    assert!(!matches!(lock(&one, Flavour::Reentrant, &names[0]).acquire(wait).await, Ok(Some(_))), "nobody serves it");
    let replicas = &cluster.nodes()[3..];
    for replica in replicas {
        replica.admin().cmd::<()>(&["CLUSTER", "FAILOVER", "TAKEOVER"]).await;
    }
    eventually("the replicas serve all slots", async || {
        let mut well = 0;
        for replica in replicas {
            let info: String = replica.admin().cmd(&["CLUSTER", "INFO"]).await;
            well += u32::from(info.contains("cluster_state:ok"));
        }
        well == 3
    })
    .await;
    let served = Instant::now();
    for name in &names {
        let guard = lock(&one, Flavour::Reentrant, name).acquire(Acquire::new().wait(secs(20))).await;
        guard.unwrap().expect("it is free").unlock().await.unwrap();
    }
    let took = served.elapsed();
    println!("all slots are known again after {took:?}");
    assert!(took < secs(3), "the map was out of date for {took:?}");
    end(one).await;
}
