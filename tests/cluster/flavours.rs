//! Locks in a cluster that does not change.

use distlock::{Flavour, ServerRole, TopologyKind};
use distlock_support::cluster::key_in;
use distlock_support::{Cluster, ClusterOptions};

use crate::{FLAVOURS, client, end, lock, primaries, turn};

#[tokio::test]
async fn every_flavour_works_on_every_primary() {
    let cluster = primaries(3).await;
    let (one, other) = (client(&cluster).await, client(&cluster).await);
    for flavour in FLAVOURS {
        for slot in [0, 8_000, 16_000] {
            let name = key_in(slot, &format!("{flavour}:"));
            let guard = lock(&one, flavour, &name).lock().await.unwrap();
            if flavour != Flavour::Read {
                assert!(lock(&other, flavour, &name).try_lock().await.unwrap().is_none(), "{name}: two holders");
            }
            assert!(guard.is_held());
            guard.unlock().await.unwrap();
            turn(&other, flavour, &name).await;
        }
    }
    end(one).await;
    end(other).await;
}

/// The URL names one replica.
#[tokio::test]
async fn replica_is_enough_as_a_seed_and_topology_lists_primaries_and_replicas() {
    let cluster = Cluster::start(ClusterOptions::default()).await;
    let one = bed::builder(&format!("redis-cluster://{}", cluster.nodes()[3].addr())).connect().await.unwrap();
    for flavour in FLAVOURS {
        turn(&one, flavour, &flavour.to_string()).await;
    }
    one.ping().await.unwrap();
    let topology = one.topology();
    assert_eq!(topology.kind, TopologyKind::Cluster);
    let of = |role| topology.servers.iter().filter(|server| server.role == role).collect::<Vec<_>>();
    let (primaries, replicas) = (of(ServerRole::Primary), of(ServerRole::Replica));
    assert_eq!((primaries.len(), replicas.len()), (3, 3), "{topology:?}");
    assert!(primaries.iter().all(|server| server.epoch.is_some() && server.since.is_some()), "{topology:?}");
    end(one).await;
}
