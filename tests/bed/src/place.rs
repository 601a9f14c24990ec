//! What a test runs on: a server of its own, or a cluster of three primaries, which tests use one after the other.

use std::ops::Deref;

use distlock_support::{Admin, Cluster, ClusterOptions, RedisServer};
use parking_lot::Mutex;

use crate::is_cluster;

/// The servers of a test. One that is all of it can be looked at as such.
#[derive(Debug)]
pub enum Place {
    /// One server: a cluster of one node, where tests run over clusters.
    One(RedisServer),
    /// One server that is in no cluster, wherever the others run.
    Alone(RedisServer),
    /// A cluster of three primaries.
    Three(Three),
}

/// A cluster, and how its servers were when it was made.
#[derive(Debug)]
pub struct Three {
    cluster: Cluster,
    as_made: Vec<String>,
}

/// Clusters that nobody uses at the moment: one takes seconds to be up, in which it does nothing.
static IDLE: Mutex<Vec<Three>> = Mutex::new(Vec::new());

impl Place {
    /// Three primaries, as if they had just been started.
    pub async fn three() -> Self {
        let idle = IDLE.lock().pop();
        if let Some(three) = idle {
            return Self::Three(three);
        }
        // So many servers on a busy machine are never suspected.
        let options = ClusterOptions::default().primaries(3).replicas(0).node_timeout(30_000);
        let cluster = Cluster::start(options.require_full_coverage(false)).await;
        let as_made = settings(&cluster).await;
        Self::Three(Three { cluster, as_made })
    }

    /// An administrator's connection to all of it.
    pub async fn admin(&self) -> Admin {
        match self {
            Self::Three(three) => Admin::of_cluster(&three.cluster).await,
            Self::One(server) if is_cluster() => Admin::of_node(server).await,
            Self::One(server) | Self::Alone(server) => Admin::connect(server).await,
        }
    }

    /// Its URL for clients.
    pub fn url(&self) -> String {
        match self {
            Self::Three(three) => three.cluster.url(),
            Self::One(server) if is_cluster() => server.url().replace("redis://", "redis-cluster://"),
            Self::One(server) | Self::Alone(server) => server.url(),
        }
    }

    /// How many servers have slots.
    pub(crate) fn primaries(&self) -> usize {
        match self {
            Self::Three(three) => three.cluster.nodes().len(),
            Self::One(_) | Self::Alone(_) => 1,
        }
    }

    /// After a test that has left nothing. A cluster goes to the next one, unless its servers were told to be otherwise.
    pub async fn leave(self, admin: &Admin) {
        let Self::Three(three) = self else { return };
        for command in [["FLUSHALL", "SYNC"], ["SCRIPT", "FLUSH"], ["CONFIG", "RESETSTAT"]] {
            admin.cmd::<()>(&command).await;
        }
        if settings(&three.cluster).await == three.as_made {
            IDLE.lock().push(three);
        }
    }
}

/// All that servers can be told while they run.
async fn settings(cluster: &Cluster) -> Vec<String> {
    let mut settings = Vec::new();
    for node in cluster.nodes() {
        settings.extend(node.admin().cmd::<Vec<String>>(&["CONFIG", "GET", "*"]).await);
        settings.extend(node.admin().cmd::<Vec<String>>(&["ACL", "LIST"]).await);
    }
    settings
}

impl Deref for Place {
    type Target = RedisServer;

    fn deref(&self) -> &RedisServer {
        match self {
            Self::One(server) | Self::Alone(server) => server,
            Self::Three(_) => panic!("a test that looks at its server is run by `bed::at_one`"),
        }
    }
}
