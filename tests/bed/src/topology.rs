//! The topology of the servers that tests run over, and names that fit it.

use std::time::Instant;

use distlock_support::cluster::SLOTS;
use distlock_support::{Admin, RedisServer};

use crate::{PATIENCE, ms};

/// Topology of the servers: `DISTLOCK_TOPOLOGY` in the environment. Tests that move slots or fail servers over are in
/// `tests/cluster` and `tests/sentinel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Variable unset: one server.
    Single,
    /// `cluster`: three primaries, or one node if a test inspects its server ([`at_one`]).
    Cluster,
    /// `sentinel`: a primary with two replicas, watched by three sentinels.
    Sentinel,
    /// `replicated`: a primary with two replicas, without sentinels.
    Replicated,
}

impl Topology {
    /// The topology that tests run over.
    pub fn of_tests() -> Self {
        match std::env::var("DISTLOCK_TOPOLOGY").as_deref() {
            Err(_) | Ok("" | "single") => Self::Single,
            Ok("cluster") => Self::Cluster,
            Ok("sentinel") => Self::Sentinel,
            Ok("replicated") => Self::Replicated,
            Ok(other) => panic!("DISTLOCK_TOPOLOGY={other}: single, cluster, sentinel or replicated"),
        }
    }
}

pub fn is_cluster() -> bool {
    Topology::of_tests() == Topology::Cluster
}

/// A cluster of one node, which has every slot.
pub async fn cluster_node() -> RedisServer {
    let server = RedisServer::builder().arg("--cluster-enabled", "yes").start();
    let admin = Admin::connect(&server).await;
    distlock_support::cluster::add_slots(&admin, 0..=SLOTS - 1).await;
    let deadline = Instant::now() + PATIENCE;
    while !admin.cmd::<String>(&["CLUSTER", "INFO"]).await.contains("cluster_state:ok") {
        assert!(Instant::now() < deadline, "the cluster is not up");
        tokio::time::sleep(ms(5)).await;
    }
    server
}

/// A name with a fixed hash tag. All such names are in one cluster slot and can be batched.
pub fn kin(name: &str) -> String {
    if is_cluster() { format!("{{kin}}{name}") } else { name.to_owned() }
}

/// A name for each primary; one name if there is one server.
pub fn on_each(name: &str) -> Vec<String> {
    if is_cluster() { apart(name).into() } else { vec![name.to_owned()] }
}

/// Three names. In a cluster, each is on a different primary.
pub fn apart(name: &str) -> [String; 3] {
    if is_cluster() {
        [0, 8_000, 16_000].map(|slot| distlock_support::cluster::key_in(slot, name))
    } else {
        [1, 2, 3].map(|n| format!("{name}{n}"))
    }
}
